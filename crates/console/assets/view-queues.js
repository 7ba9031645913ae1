// Queues: what each is guaranteed, holds, borrows, and how its turn comes.

import { ask, STALE } from "./api.js";
import { h, fill, panel, table } from "./dom.js";
import { follow } from "./live.js";
import { count, memory, tflops } from "./text.js";
import { queueLink, shareBar } from "./widgets.js";

/** All queues: there are few, and their tree is only whole with all of them. */
async function all(signal) {
  const [queues, read] = [[], {}];
  let token = "";
  do {
    const page = await ask("queues", { page_size: 1000, page_token: token, ...STALE }, signal);
    queues.push(...page.queues);
    Object.assign(read, page.read);
    token = page.nextPageToken;
  } while (token);
  return { queues, revision: read.revision };
}

/** The queues as their tree has them: each above those below it. */
function ordered(queues) {
  const below = new Map();
  for (const queue of queues) {
    const parent = queue.settings.parent;
    below.set(parent, [...(below.get(parent) || []), queue]);
  }
  const lines = [];
  const add = (parent, depth) => {
    for (const queue of below.get(parent) || []) {
      lines.push({ ...queue, depth });
      add(queue.settings.name, depth + 1);
    }
  };
  add("", 0);
  return lines;
}

const compute = (amount) => Number((amount || {}).milliTflops || 0);

export async function queues({ main, signal }) {
  const body = h("div", {});
  fill(main, h("h1", {}, "Queues"),
    h("p", { class: "lead" }, "A queue always gets what it is guaranteed. What others leave unused it borrows, the queue with the least share first."), body);
  const refresh = async () => {
    const found = await all(signal);
    fill(body, panel("Compute and memory", "", draw(ordered(found.queues))));
    return found.revision;
  };
  await follow({ signal, pace: 2000, refresh });
}

function draw(lines) {
  return table("Queues with their guarantees and use", [
    ["Queue", "short", (row) => h("span", { class: "indent-" + Math.min(row.depth, 3) }, queueLink(row.settings.name))],
    ["Jobs", "number", (row) => h("span", { "data-queue-jobs": row.settings.name }, count(row.jobs))],
    ["Use of guarantee", "", (row) => compute(row.settings.guaranteed)
      ? shareBar(compute(row.used), compute(row.settings.guaranteed), `${tflops(compute(row.used))} of ${tflops(compute(row.settings.guaranteed))} guaranteed`)
      : h("span", { class: "quiet-text" }, "no guarantee")],
    ["Held", "number", (row) => h("span", { "data-queue-used": row.settings.name }, tflops(compute(row.used)))],
    ["Guaranteed", "number", (row) => compute(row.settings.guaranteed) ? tflops(compute(row.settings.guaranteed)) : "none"],
    ["Borrowed", "number", (row) => tflops(Math.max(0, compute(row.used) - compute(row.settings.guaranteed)))],
    ["Maximum", "number", (row) => row.settings.maximum ? tflops(compute(row.settings.maximum)) : "the pool"],
    ["Leaving", "number", (row) => tflops(compute(row.leaving))],
    ["Memory held", "number", (row) => memory((row.used || {}).memoryMib)],
    ["Weight", "number", (row) => count(row.settings.weight || 1)],
    ["Share", "number", (row) => (Number(row.sharePpm) / 10000).toFixed(2) + " %"],
  ], lines, "There is no queue.");
}
