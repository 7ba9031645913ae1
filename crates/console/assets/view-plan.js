// What would become of a job, and what it would cost others, without submitting it. The address holds the request.

import { answer, STALE } from "./api.js";
import { h, fill, panel, table, facts, link } from "./dom.js";
import { counted, count, duration, kind, memory, tflops, time, word } from "./text.js";
import { explanation } from "./view-job.js";
import { asking, choice, field, jobLink, mark, nodeLink, refusedNote } from "./widgets.js";

const VERDICTS = {
  PLAN_VERDICT_STARTS: ["good", "It would start at once."],
  PLAN_VERDICT_PREEMPTS: ["draining", "It would start when these jobs have given their blocks back."],
  PLAN_VERDICT_WAITS: ["held", "It would wait."],
  PLAN_VERDICT_REFUSED: ["lost", "It would be refused."],
};
const SPANS = [["card", "one card"], ["node", "cards of one node"], ["pool", "cards of several nodes"]];
const KINDS = [["", "any kind"], ["gpu", "GPU"], ["npu", "NPU"], ["fpga", "FPGA"], ["cpu", "CPU"]];

export async function plan({ main, signal, query, path }) {
  const of = (name, otherwise = "") => query.get(name) || otherwise;
  const body = h("div", {});
  fill(main, h("h1", {}, "Plan"),
    h("p", { class: "lead" }, "What would become of a job if it were submitted now. Nothing is submitted."),
    asking(path, "Plan", [
      field("TFLOPS of a virtual card", "tflops", of("tflops"), "such as 12.5"),
      field("Memory of a virtual card, GiB", "memory", of("memory"), "such as 16"),
      field("Virtual cards", "gang", of("gang"), "1"),
      choice("Kind of card", "kind", of("kind"), KINDS), choice("On", "span", of("span", "card"), SPANS),
      field("Queue", "queue", of("queue"), "default"), field("Priority", "priority", of("priority"), "of the queue"),
      field("Time limit, hours", "hours", of("hours"), "none")]),
    body);
  if (!of("tflops")) {
    fill(body, h("p", { class: "note" }, "Say how much a virtual card computes."));
    return;
  }
  const found = await answer("jobs:plan", { spec: spec(of), when: true, consistency: "CONSISTENCY_" + STALE.consistency.toUpperCase() }, signal)
    .catch((error) => ({ error }));
  fill(body, found.error ? refusedNote(found.error) : draw(found));
}

/** The request as the API writes it. */
function spec(of) {
  const thousandths = (text) => String(Math.round(Number(text) * 1000));
  return {
    name: "plan", command: ["true"], queue: of("queue", "default"), gang: Number(of("gang", "1")),
    priority: of("priority") ? Number(of("priority")) : undefined,
    timeLimit: of("hours") ? Number(of("hours")) * 3600 + "s" : undefined,
    virtualCard: {
      milliTflops: thousandths(of("tflops")), memoryMib: of("memory") ? String(Math.round(Number(of("memory")) * 1024)) : undefined,
      kinds: of("kind") ? ["CARD_KIND_" + of("kind").toUpperCase()] : [],
      span: "SPAN_" + of("span", "card").toUpperCase(),
    },
  };
}

function draw({ verdict, workers = [], victims = [], explanation: why, refusal, estimate, read }) {
  const [swatch, sentence] = VERDICTS[verdict] || ["offline", word(verdict, "PLAN_VERDICT_")];
  return [
    panel("What would become of it", "",
      h("p", { "data-verdict": verdict }, mark(swatch, sentence), refusal ? " " + refusal.sentence : ""),
      why ? explanation({ explanation: why }) : null,
      estimate && verdict !== "PLAN_VERDICT_STARTS" ? facts(
        ["Starts no later than", time(estimate.start)],
        ["Nobody can say when", estimate.unknown],
        ["Taken for granted", (estimate.assumptions || []).join(" ")]) : null),
    workers.length ? panel("Where it would go", "", table("Workers by rank", [
      ["Rank", "number", (row) => count(row.rank)],
      ["Node", "short", (row) => nodeLink(row.nodeName)],
      ["Cards", "name", (row) => row.slices.map(({ slice, kind: of, model }, place) => [place ? ", " : "",
        link(`/nodes/${encodeURIComponent(row.nodeName)}?card=${slice.cardIndex}`, `${kind(of)} ${slice.cardIndex}`), ` (${model})`])],
      ["Memory", "number", (row) => memory(row.slices.reduce((sum, { slice }) => sum + Number(slice.memoryMib || 0), 0))],
    ], workers, "")) : null,
    victims.length ? panel("Who would give way", "", table("Jobs that would be suspended for it", [
      ["Job", "short", (row) => jobLink(row.jobId)],
      ["Priority", "number", (row) => count(row.priority)],
      ["Blocks", "number", (row) => count(row.blocks)],
      ["Its work", "short", (row) => word(row.checkpointMode, "CHECKPOINT_MODE_")],
      ["Would lose", "number", (row) => `${duration(row.workLost || "0s")}, ${tflops(Number(row.tflopsSecondsLost || 0) * 1000)} s`],
    ], victims, "")) : null,
    read ? h("p", { class: "quiet-text" }, `As of revision ${count(read.revision)}; ${counted(workers.length, "worker")}.`) : null,
  ];
}
