// Jobs, newest first, page by page from the server.

import { ask, STALE } from "./api.js";
import { h, fill, panel, table, link } from "./dom.js";
import { follow } from "./live.js";
import { JOB_STATES, between, count, memory, tflops, time, word } from "./text.js";
import { choice, field, filters, jobMark, nodeLink, pager, queueLink, refusedNote } from "./widgets.js";

const PAGE = 50;
const FILTERS = ["queue", "submitter", "node_name"];

/** What a job asks for, in words. */
export function demand(spec) {
  const card = spec.virtualCard || {};
  const gang = Number(spec.gang || 1);
  const each = [tflops(card.milliTflops), Number(card.memoryMib) ? memory(card.memoryMib) : null].filter(Boolean).join(", ");
  return gang > 1 ? `${count(gang)} × ${each}` : each;
}

const nodesOf = (job) => [...new Set(((job.allocation || {}).workers || []).map((worker) => worker.nodeName))];

export async function jobs({ main, signal, query, path }) {
  const chosen = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) || ""]));
  const states = query.getAll("states");
  const token = query.get("page_token") || "";
  const body = h("div", {});
  fill(main, h("h1", {}, "Jobs"), h("p", { class: "lead" }, "Newest first."),
    filters(path, choice("State", "states", states[0] || "", [["", "any"], ...JOB_STATES.map((state) => [state, state])]),
      field("Queue", "queue", chosen.queue, "any"), field("Submitter", "submitter", chosen.submitter, "anybody"),
      field("Node", "node_name", chosen.node_name, "any")), body);
  const filter = { ...chosen, states };
  const go = (page) => {
    const next = new URLSearchParams(query);
    next.delete("page_token");
    if (page) next.set("page_token", page);
    location.hash = path + (next.size ? "?" + next : "");
  };
  const refresh = async () => {
    const page = await ask("jobs", { ...filter, page_size: PAGE, page_token: token, ...STALE }, signal);
    const waits = await waitsOf(page.jobs, signal);
    fill(body, panel(token ? "Older jobs" : "Newest jobs", "", draw(page.jobs, waits), pager(!token, page.nextPageToken, go)));
    return page.read.revision;
  };
  await follow({ signal, pace: 2000, refresh, failed: (error) => fill(body, refusedNote(error)) });
}

/** What those of some jobs wait for that wait. Only a leader knows: without one, nothing is said. */
async function waitsOf(some, signal) {
  const waiting = some.filter((job) => ["JOB_STATE_PENDING", "JOB_STATE_SUSPENDED"].includes(job.state)).map((job) => job.id);
  if (!waiting.length) return new Map();
  try {
    const { waits } = await ask("jobs:waits", { job_ids: waiting }, signal);
    return new Map(waits.map((wait) => [wait.jobId, wait.constraint]));
  } catch (error) {
    if (signal.aborted) throw error;
    return new Map();
  }
}

function draw(some, waits) {
  return table("Jobs", [
    ["Job", "number", (job) => link("/jobs/" + job.id, job.id)],
    ["Name", "name", (job) => link("/jobs/" + job.id, job.spec.name || "job " + job.id)],
    ["State", "short", (job) => jobMark(job.state)],
    ["Why", "short", (job) => word(waits.get(job.id) || (job.reason || {}).code || "", "")],
    ["Queue", "short", (job) => queueLink(job.spec.queue)],
    ["Priority", "number", (job) => count(job.spec.priority)],
    ["Asks for", "number", (job) => demand(job.spec)],
    ["Nodes", "name", (job) => {
      const nodes = nodesOf(job);
      return [nodes.slice(0, 3).map((name, place) => [place ? ", " : "", nodeLink(name)]), nodes.length > 3 ? ` and ${nodes.length - 3} more` : ""];
    }],
    ["Submitter", "short", (job) => job.submitter],
    ["Submitted", "short", (job) => time(job.submittedAt)],
    ["Ran", "number", (job) => between(job.startedAt, job.endedAt)],
  ], some, "No job is like that.");
}
