// The pool at a glance, and what needs somebody's attention.

import { ask, STALE } from "./api.js";
import { h, fill, panel, table, link } from "./dom.js";
import { follow } from "./live.js";
import { count, counted, duration, jobState, kind, memory, percent, tflops } from "./text.js";
import { blockBar, blockLegend, blocksOf, jobMark, mark, nodeLink, nodeMark, total } from "./widgets.js";

/** Nodes that are named one by one in the list of what needs attention. */
const NAMED = 20;

export async function overview({ main, signal }) {
  const body = h("div", {});
  fill(main, h("h1", {}, "Overview"), body);
  const refresh = async () => {
    const [answer, cluster, lost, closed, failed] = await Promise.all([
      ask("pool", STALE, signal), ask("cluster", {}, signal),
      ask("nodes", { states: "lost", page_size: NAMED, ...STALE }, signal),
      ask("nodes", { states: "ready", eligibilities: ["cordoned", "draining"], page_size: NAMED, ...STALE }, signal),
      ask("jobs", { states: ["failed", "timeout"], page_size: 5, ...STALE }, signal),
    ]);
    fill(body, draw(answer, cluster, lost, closed, failed));
    return answer.read.revision;
  };
  // Members change without an event of the pool.
  await follow({ signal, pace: 1000, refresh, always: true });
}

function draw({ pool, read }, cluster, lost, closed, failed) {
  const blocks = blocksOf(pool.blocks);
  const all = total(blocks);
  const size = Number(pool.config.blockMilliTflops);
  const jobs = (pool.jobs || []).filter(({ count: some }) => Number(some));
  const nodes = (pool.nodes || []).filter(({ count: some }) => Number(some));
  return [
    h("p", { class: "lead" }, `Cluster ${pool.clusterId}, revision ${count(read.revision)}`),
    h("div", { class: "panels" },
      panel("Needs attention", "", attention(pool, cluster, lost, closed, failed)),
      panel("Blocks", "two-thirds",
        h("p", { class: "big" }, percent(blocks.running + blocks.held, all), h("small", {},
          ` in use of ${counted(all, "block")} of ${tflops(size)}`)),
        blockBar(pool.blocks, true), blockLegend(pool.blocks),
        h("p", { class: "quiet-text" }, h("br"), link("/map", "Show them on the block map"))),
      panel("Jobs", "third", table("Jobs by state", [
        ["State", "", ({ state }) => h("a", { href: "#/jobs?states=" + jobState(state) }, jobMark(state))],
        ["Jobs", "number", ({ state, count: some }) => h("span", { "data-jobs": jobState(state) }, count(some))],
      ], jobs, "No job has been submitted yet.")),
      panel("Cards", "two-thirds", table("Cards by kind", [
        ["Kind", "", (row) => kind(row.kind)],
        ["Cards", "number", (row) => count(row.cards)],
        ["Blocks", "number", (row) => count(total(blocksOf(row.blocks)))],
        ["Use", "", (row) => blockBar(row.blocks)],
        ["Memory granted", "number", (row) => `${memory(row.memoryUsedMib)} of ${memory(row.memoryMib)}`],
      ], pool.kinds || [], "No card is registered yet. An agent declares those of its node.")),
      panel("Nodes", "third", table("Nodes by state", [
        ["State", "", ({ state }) => nodeMark(state, "ELIGIBILITY_ELIGIBLE")],
        ["Nodes", "number", ({ state, count: some }) => h("span", { "data-nodes": state }, count(some))],
      ], nodes, "No node is registered yet.")),
      panel("Members", "", membersTable(cluster))),
  ];
}

/** The members of the control plane. */
export function membersTable(cluster) {
  return table("Members of the control plane", [
    ["Member", "short", (row) => row.name || "member " + row.id],
    ["Id", "number", (row) => row.id],
    ["Address", "name", (row) => h("code", {}, row.address)],
    ["Role", "short", (row) => row.leader ? mark("running", "leader") : row.voter ? mark("good", "follower") : mark("held", "learner, without a vote")],
    ["Entries held", "number", (row) => row.matched === undefined ? "" : count(row.matched)],
    ["Lag", "number", (row) => row.lag === undefined ? "" : counted(row.lag, "entry", "entries")],
  ], cluster.members || [], "There is no cluster yet.");
}

function attention(pool, cluster, lost, closed, failed) {
  const found = [];
  const bad = (...text) => found.push(h("li", { class: "bad" }, text));
  const warn = (...text) => found.push(h("li", {}, text));
  const blocks = blocksOf(pool.blocks);
  if (!cluster.leader) bad("No leader is known: nothing can be changed until a quorum of members answers. ", link("/control", "Control plane"));
  else if (!cluster.writable) bad("Changes are not accepted now. ", link("/control", "Control plane"));
  if (cluster.clockOff) bad(`The clock of this member is off by ${duration(cluster.clockOffset)}. Set it right.`);
  for (const member of cluster.members || []) {
    if (Number(member.lag || 0) > 1000) warn(`${member.name || "Member " + member.id} lacks ${count(member.lag)} entries.`);
  }
  for (const node of lost.nodes) bad("Node ", nodeLink(node.name), " is lost. What ran there keeps its blocks until it is known to have stopped.");
  if (lost.nextPageToken) bad("More nodes are lost. ", link("/nodes?states=lost", "Show all"));
  if (blocks.lost && !lost.nodes.length) bad(`${counted(blocks.lost, "block")} of workers whose stop could not be confirmed. `, link("/map?colour=state", "Show them"));
  for (const node of closed.nodes) {
    warn("Node ", nodeLink(node.name), node.eligibility === "ELIGIBILITY_DRAINING" ? " is being drained" : " is cordoned",
      node.eligibilityReason ? ": " + node.eligibilityReason : ".");
  }
  if (closed.nextPageToken) warn("More nodes take no work. ", link("/nodes?eligibilities=cordoned&eligibilities=draining", "Show all"));
  if (blocks.offline && !closed.nodes.length && !lost.nodes.length) warn(`${counted(blocks.offline, "block")} offline: cards are unhealthy or were shrunk.`);
  if (cluster.levelHeld && cluster.level < cluster.highestLevel) warn(`The release level is held at ${cluster.level}; members can apply ${cluster.highestLevel}.`);
  if (failed.jobs.length) {
    warn("Ended badly of late: ", failed.jobs.map((job, place) => [place ? ", " : "", link("/jobs/" + job.id, job.spec.name || "job " + job.id)]), ".");
  }
  return found.length ? h("ul", { class: "attention" }, found) : h("p", { class: "quiet-text" }, mark("good", "Nothing. All nodes are heard of and all changes are accepted."));
}
