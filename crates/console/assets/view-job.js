// One job: where it is, why it waits, what it has been through, what it says.

import { ask, STALE } from "./api.js";
import { h, fill, panel, table, facts, link, visible } from "./dom.js";
import { again, gathered, watch } from "./live.js";
import { between, bytes, count, decimals, duration, kind, memory, percent, tflops, time, word } from "./text.js";
import { demand } from "./view-jobs.js";
import { jobChange } from "./view-events.js";
import { jobMark, nodeLink, queueLink, refusedNote, shareBar } from "./widgets.js";

/** Text of the output that is kept on the page. */
const OUTPUT = 256 * 1024;

export async function job({ main, signal, thing, query }) {
  const [head, used, said, events] = [h("div", {}), h("div", {}), h("div", {}), h("div", {})];
  fill(main, head, used, said, events);
  const output = outputPanel(thing, query, signal);
  const refresh = async () => {
    const { job: found } = await ask("jobs/" + encodeURIComponent(thing), STALE, signal);
    const waits = ["JOB_STATE_PENDING", "JOB_STATE_SUSPENDED"].includes(found.state);
    const why = waits ? await ask(`jobs/${encodeURIComponent(thing)}:why`, {}, signal).catch((error) => ({ error })) : null;
    document.title = visible(found.spec.name || "job " + found.id) + " · Tessera";
    fill(head, draw(found, why));
    output.of(found);
  };
  await refresh();
  fill(said, output.panel);
  again(signal, 4000, () => ask("jobs:use", { job_ids: thing, by_worker: "true" }, signal).then(({ uses }) => fill(used, uses.length ? use(uses[0]) : null))
    .catch((error) => { if (!signal.aborted) fill(used, panel("What it uses", "", refusedNote(error))); }));
  const seen = [];
  const soon = gathered(signal, 500, () => refresh().catch((error) => { if (!signal.aborted) fill(head, refusedNote(error)); }));
  const list = gathered(signal, 250, () => fill(events, panel("Events", "", table("Events of this job, newest first", [
    ["Time", "short", (event) => time(event.time)],
    ["Revision", "number", (event) => count(event.revision)],
    ["What happened", "name", jobChange],
  ], [...seen].reverse(), "No event of it is remembered."))));
  list();
  const parameters = { job_ids: thing, oldest: "true" };
  watch({
    path: "jobs:watch", parameters, signal,
    told: (_, message) => {
      if (!message.event) return;
      seen.push(message.event);
      list();
      soon();
    },
    anew: async () => { seen.length = 0; return parameters; },
  });
}

function draw(found, why) {
  const { spec, allocation } = found;
  const reason = found.reason || {};
  return [
    h("h1", {}, spec.name || "Job " + found.id),
    h("p", { class: "lead" }, jobMark(found.state), reason.sentence ? ": " + reason.sentence : "",
      found.held ? " On hold until somebody releases it." : "", found.parked ? " Suspended until somebody resumes it." : ""),
    h("div", { class: "panels" },
      why ? panel("Why it waits", "", explanation(why)) : null,
      panel("Job", "half", facts(
        ["Number", h("span", { "data-job": true }, found.id)], ["Queue", queueLink(spec.queue)], ["Priority", count(spec.priority)],
        ["Submitter", found.submitter], ["Submitted", time(found.submittedAt)],
        ["Started", time(found.startedAt)], ["Ended", time(found.endedAt)],
        ["Ran for", between(found.startedAt, found.endedAt)],
        ["Not before", time(found.notBefore)],
        ["Attempts", `${count(found.attempts)}, ${count(found.retries)} retries used`],
        ["Preempted within the hour", found.preemptedAt.length ? count(found.preemptedAt.length) + " times" : null],
        ["Revision", count(found.revision)])),
      panel("What it asks for", "half", facts(
        ["Virtual cards", demand(spec)],
        ["Kinds", ((spec.virtualCard || {}).kinds || []).map(kind).join(", ")],
        ["Time limit", spec.timeLimit ? duration(spec.timeLimit) : "none"],
        ["Command", h("code", {}, (spec.command || []).join(" ") || "a script")],
        ["Working folder", spec.workingDirectory ? h("code", {}, spec.workingDirectory) : null],
        ["Labels", Object.entries(spec.labels || {}).map(([key, value]) => `${key}=${value}`).join(", ")])),
      panel("Where it is", "", allocation ? workers(allocation, found) : h("p", { class: "quiet-text" }, "It holds no blocks.")),
      panel("Attempts", "", table("Attempts, newest first", [
        ["Attempt", "number", (row) => count(row.number)],
        ["Granted", "short", (row) => time(row.grantedAt)],
        ["Started", "short", (row) => time(row.startedAt)],
        ["Ended", "short", (row) => time(row.endedAt)],
        ["Ran for", "number", (row) => between(row.startedAt, row.endedAt)],
        ["Exit", "short", exit],
        ["Nodes", "name", (row) => (row.nodes || []).map((name, place) => [place ? ", " : "", nodeLink(name)])],
        ["How it ended", "name", (row) => row.endedAt ? (row.reason || {}).sentence : "goes on"],
      ], [...found.history].reverse(), "It was not tried yet.")),
      panel("See also", "", h("p", { class: "quiet-text" }, link("/map?colour=job&job=" + found.id, "Its blocks on the map"), " · ",
        link("/events?job=" + found.id, "its events"), " · ", h("a", { href: "/v1/jobs/" + found.id }, "as JSON")))),
    h("p", {}),
  ];
}

/** A number of an explanation, in the units of the other views. */
function amount({ value, unit }) {
  if (unit === "milli TFLOPS") return tflops(value);
  return unit === "MiB" ? memory(value) : `${count(value)} ${unit}`.trim();
}

/** What keeps a job from starting, and what would help. */
export function explanation(why) {
  if (why.error) return refusedNote(why.error);
  if (!why.explanation) return h("p", { class: "quiet-text" }, (why.reason || {}).sentence || "It is about to start.");
  const { constraint, sentence, numbers, smallestChange, estimatedStart } = why.explanation;
  return [h("p", {}, h("b", { "data-constraint": constraint }, word(constraint, "")), ": " + sentence), facts(
    ["What would help", smallestChange],
    ["May start by itself", time(estimatedStart)],
    ...numbers.map((number) => [word(number.name, ""), amount(number)]))];
}

/** How an attempt ended, and by which worker where there are several. */
function exit({ exitCode, signal, decisiveRank, nodes = [] }) {
  const said = exitCode !== undefined ? "code " + exitCode : signal !== undefined ? "signal " + signal : "";
  return nodes.length > 1 && decisiveRank !== undefined ? `${said} rank ${decisiveRank} on ${nodes[decisiveRank]}`.trim() : said;
}

function workers(allocation, found) {
  return [
    found.move ? h("p", { class: "note" }, `It is being moved: ${word(found.move.phase, "MOVE_PHASE_")}.`) : null,
    table("Workers by rank", [
      ["Rank", "number", (row) => count(row.rank)],
      ["Node", "short", (row) => nodeLink(row.nodeName)],
      ["State", "short", (row) => word(row.state, "WORKER_STATE_")],
      ["Cards", "name", (row) => row.slices.map(({ slice, kind: of, model }, place) => [place ? ", " : "",
        link(`/nodes/${encodeURIComponent(row.nodeName)}?card=${slice.cardIndex}`, `${kind(of)} ${slice.cardIndex}`), ` (${model})`])],
      ["Blocks", "number", (row) => count(row.slices.reduce((sum, { firstBlockNumber, lastBlockNumber }) =>
        sum + Number(lastBlockNumber) - Number(firstBlockNumber) + 1, 0))],
      ["Block numbers", "short", (row) => row.slices.map(({ firstBlockNumber, lastBlockNumber }) => `${firstBlockNumber}–${lastBlockNumber}`).join(", ")],
      ["Memory", "number", (row) => memory(row.slices.reduce((sum, { slice }) => sum + Number(slice.memoryMib || 0), 0))],
      ["Exit", "name", (row) => row.exit ? row.exit.message || word(row.exit.cause, "STOP_CAUSE_") : ""],
    ], allocation.workers, "It has no worker.")];
}

/** What of what a job holds is in use, over all and worker by worker. */
function use(used) {
  const rows = used.byWorker.flatMap((worker) => worker.slices.map((slice) => ({ worker, slice })));
  const untold = used.workers - used.measuredWorkers;
  const share = percent(used.utilizationRatio, 1);
  return [panel("What it uses", "", shareBar(used.utilizationRatio, 1, `${share} of what it may compute`), facts(
    ["Of what it may compute", h("span", { "data-use": true }, share)],
    ["Card memory", `${bytes(used.memoryUsedBytes)} of ${bytes(used.memoryHeldBytes)}`],
    ["Processors of hosts", decimals(used.processors)],
    ["Memory of hosts", bytes(used.hostMemoryBytes)],
    ["Not told of", untold ? `${count(untold)} of ${count(used.workers)} workers` : null]),
  table("By worker and card", [
    ["Rank", "number", ({ worker }) => count(worker.rank)],
    ["Node", "short", ({ worker }) => nodeLink(worker.nodeName)],
    ["Card", "number", ({ slice }) => count(slice.cardIndex)],
    ["Blocks", "number", ({ slice }) => count(slice.blocks)],
    ["Use", "number", ({ worker, slice }) => worker.measured ? percent(slice.utilizationRatio, 1) : "not told"],
    ["Memory in use", "number", ({ slice }) => bytes(slice.memoryUsedBytes)],
    ["of", "number", ({ slice }) => bytes(slice.memoryHeldBytes)],
    ["Processors", "number", ({ worker }) => decimals(worker.processors)],
    ["Host memory", "number", ({ worker }) => bytes(worker.hostMemoryBytes)],
  ], rows, "It holds no slice.")), h("p", {})];
}

/** The output of one worker, as it comes. */
function outputPanel(id, query, signal) {
  const rank = h("input", { type: "number", min: "0", value: query.get("rank") || "0", "aria-label": "Rank" });
  const kind = h("select", { "aria-label": "Stream" }, [["stdout", "standard output"], ["stderr", "standard error"]]
    .map(([value, text]) => h("option", { value, selected: value === query.get("stream") }, text)));
  const text = h("pre", { class: "output", tabindex: "0", role: "log", "aria-live": "off", "aria-label": "Output" });
  const state = h("p", { class: "status-line", role: "status" });
  let [stop, attempt] = [null, 0];
  const follow = () => {
    if (stop) stop.abort();
    stop = new AbortController();
    signal.addEventListener("abort", () => stop.abort());
    const mine = stop;
    const decoder = new TextDecoder();
    fill(text);
    fill(state, "It has written nothing so far.");
    let came = 0;
    watch({
      path: `jobs/${encodeURIComponent(id)}/output`, signal: mine.signal,
      parameters: { rank: rank.value, stream: kind.value, attempt: String(attempt), follow: "true" },
      told: (name, piece) => {
        if (name === "refused") { fill(state, piece.message); return; }
        const data = Uint8Array.from(atob(piece.data), (letter) => letter.charCodeAt(0));
        came = Number(piece.offset) + data.length;
        const end = text.scrollTop + text.clientHeight >= text.scrollHeight - 4;
        text.append(decoder.decode(data, { stream: true }));
        while (text.textContent.length > OUTPUT && text.firstChild !== text.lastChild) text.firstChild.remove();
        if (end) text.scrollTop = text.scrollHeight;
        fill(state, `${bytes(came)} so far.`);
      },
    });
  };
  rank.addEventListener("change", follow);
  kind.addEventListener("change", follow);
  return {
    panel: panel("Output", "", h("div", { class: "tools" }, h("label", {}, "Rank", rank), h("label", {}, "Stream", kind)), state, text),
    // A new attempt writes from the beginning.
    of: (found) => {
      if (!found.attempts || found.attempts === attempt) {
        if (!found.attempts) fill(state, "It has not run yet.");
        return;
      }
      attempt = found.attempts;
      follow();
    },
  };
}
