// Usage: what jobs held, for how long, and what it costs, for a time that is chosen.

import { ask, STALE } from "./api.js";
import { h, fill, panel, table } from "./dom.js";
import { count } from "./text.js";
import { choice, field, filters, jobLink, queueLink } from "./widgets.js";

const TIMES = [["1", "the last day"], ["7", "the last 7 days"], ["30", "the last 30 days"], ["365", "the last 365 days"], ["all", "everything that is kept"]];
const GROUPS = [["queue", "queue"], ["submitter", "person"], ["job", "job"], ["kind", "kind of card"], ["label", "label"]];

const hours = (value) => Number(value || 0).toLocaleString("en", { maximumFractionDigits: 3 });
const named = { queue: queueLink, job: jobLink };

export async function usage({ main, signal, query, path }) {
  const days = query.has("days") ? query.get("days") : "7";
  const by = GROUPS.some(([name]) => name === query.get("by")) ? query.get("by") : "queue";
  const label = query.get("label") || "";
  const body = h("div", {});
  fill(main, h("h1", {}, "Usage"),
    h("p", { class: "lead" }, "Blocks and card memory, times the hours that jobs held them. Lost is work that ended by preemption or failure and that no checkpoint holds."),
    filters(path, choice("Time", "days", days, TIMES), choice("By", "by", by, GROUPS),
      field("Label", "label", label, "a key, for sums by label")),
    body);
  if (by === "label" && !label) {
    fill(body, h("p", { class: "note" }, "Name a label whose values are to be compared."));
    return;
  }
  const from = Number(days) ? { from: new Date(Date.now() - Number(days) * 86_400_000).toISOString() } : {};
  const about = by === "label" ? { label } : {};
  const found = await ask("usage", { ...from, ...about, by: "USAGE_GROUP_" + by.toUpperCase(), rows: 200, ...STALE }, signal);
  const gaps = (found.gaps || []).map((gap) => h("p", { class: "note", role: "alert" },
    `Incomplete: this member knows nothing of the time from ${gap.from || "the beginning"} to ${gap.to}. Ask another member.`));
  const rest = Number(found.leftOut || 0);
  fill(body, gaps, panel(`Held until ${found.to}`, "", draw(by, found)),
    rest ? h("p", { class: "quiet-text" }, `${count(rest)} more rows are left out; the total has them.`) : []);
}

function draw(by, { rows = [], total, currency }) {
  const shown = (row) => (row.key && named[by] ? named[by](row.key) : row.key || "none");
  const cost = ({ cost }) => (cost === undefined ? "no price" : `${cost.toFixed(2)} ${currency}`.trim());
  const lines = [...rows, { ...total, whole: true }];
  return table("What was held", [
    [GROUPS.find(([name]) => name === by)[1], "short", (row) => row.whole ? h("strong", {}, "total") : shown(row)],
    ["Name", "", (row) => row.name || ""],
    ["Jobs", "number", (row) => count(row.jobs)],
    ["Block-hours", "number", (row) => h("span", { "data-usage": row.whole ? "total" : row.key }, hours(row.sums.blockHours))],
    ["TFLOPS-hours", "number", (row) => hours(row.sums.tflopsHours)],
    ["GiB-hours", "number", (row) => hours(row.sums.memoryGibHours)],
    ["Lost block-hours", "number", (row) => hours(row.sums.lostBlockHours)],
    ["Cost", "number", (row) => cost(row.sums)],
  ], lines, "Nothing was held in that time.");
}
