// What happens in the pool, as it happens, newest first.

import { ask, STALE } from "./api.js";
import { h, fill, panel, table } from "./dom.js";
import { gathered, watch } from "./live.js";
import { time, jobState, word, nodeState, eligibility, count } from "./text.js";
import { choice, field, filters, jobLink, nodeLink, queueLink } from "./widgets.js";

/** Entries of the log that are looked back at. */
const BACK = 2000;
/** Events that are kept on the page. */
const KEPT = 500;

/** What an event of a job says, in words. */
export function jobChange(event) {
  if (event.state) {
    const { to, reason, nodes } = event.state;
    return [jobState(to), reason && reason.sentence ? ": " + reason.sentence : "",
      nodes && nodes.length ? [" on ", nodes.map((name, place) => [place ? ", " : "", nodeLink(name)])] : null];
  }
  if (event.worker) return [`worker ${event.worker.rank} ${word(event.worker.state, "WORKER_STATE_")} on `, nodeLink(event.worker.nodeName)];
  if (event.released) return ["all blocks given back"];
  if (event.move) return [event.move.inProgress ? "being moved" : "move ended"];
  if (event.quarantined) return ["stop not confirmed on ", nodeLink(event.quarantined.nodeName), ": " + event.quarantined.message];
  if (event.skipped) {
    const { attempt, sequence, message } = event.skipped;
    const name = attempt + "." + (Number(sequence) === 4294967295 ? "last" : sequence);
    return [`checkpoint ${name} is passed over: ${message}`];
  }
  if (event.removed) return ["left the ledger"];
  return ["changed"];
}

function poolChange(event) {
  if (event.node) return ["node ", nodeLink(event.node.nodeName), ` ${nodeState(event.node.state)}, ${eligibility(event.node.eligibility)}`];
  if (event.card) return ["card " + event.card.cardIndex + " of ", nodeLink(event.card.nodeName), " changed"];
  if (event.queue) return ["queue ", queueLink(event.queue.queue), " changed"];
  return ["settings changed"];
}

export async function events({ main, signal, query, path }) {
  const [about, job] = [query.get("about") || "", query.get("job") || ""];
  const seen = [];
  const body = h("div", {});
  fill(main, h("h1", {}, "Events"), h("p", { class: "lead" }, `The newest of the last ${count(BACK)} revisions, and what happens from now on.`),
    filters(path, choice("About", "about", about, [["", "everything"], ["jobs", "jobs"], ["pool", "nodes, cards, queues, settings"]]),
      field("Job", "job", job, "number")), body);
  const { read } = await ask("pool", STALE, signal);
  const draw = gathered(signal, 250, () => {
    seen.sort((a, b) => Number(b.event.revision) - Number(a.event.revision) || b.event.ordinal - a.event.ordinal);
    seen.length = Math.min(seen.length, KEPT);
    fill(body, panel("Changes", "", table("Events, newest first", [
      ["Time", "short", ({ event }) => time(event.time)],
      ["Revision", "number", ({ event }) => count(event.revision)],
      ["About", "short", ({ event, of }) => of === "jobs" ? jobLink(event.jobId) : "pool"],
      ["What happened", "name", ({ event, of }) => of === "jobs" ? jobChange(event) : poolChange(event)],
    ], seen, "Nothing has happened yet. Events appear here by themselves.")));
  });
  draw();
  const begin = { after_revision: String(Math.max(0, Number(read.revision) - BACK)) };
  const follow = (of, parameters) => watch({
    path: of + ":watch", parameters: { ...parameters, ...begin }, signal,
    told: (_, message) => { if (message.event) { seen.push({ of, event: message.event }); draw(); } },
    // Older events are forgotten: begin with the oldest that is not.
    anew: async () => ({ ...parameters, oldest: "true" }),
  });
  if (about !== "pool") follow("jobs", job ? { job_ids: job } : {});
  if (about !== "jobs" && !job) follow("pool", {});
}
