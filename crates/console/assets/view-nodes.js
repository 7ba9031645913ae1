// Nodes, page by page, and one node with its cards.

import { ask, STALE } from "./api.js";
import { h, fill, panel, table, facts } from "./dom.js";
import { follow } from "./live.js";
import { BLOCK_STATES, count, duration, kind, memory, time, word, percent } from "./text.js";
import { blockBar, blockLegend, blocksOf, choice, filters, jobLink, mark, nodeLink, nodeMark, pager, refusedNote, told, total } from "./widgets.js";

const PAGE = 50;

export async function nodes({ main, signal, query, path }) {
  const [states, takes, token] = [query.getAll("states"), query.getAll("eligibilities"), query.get("page_token") || ""];
  const body = h("div", {});
  fill(main, h("h1", {}, "Nodes"), h("p", { class: "lead" }, "In order of registration, which is that of block numbers."),
    filters(path, choice("State", "states", states[0] || "", [["", "ready or lost"], ["ready", "ready"], ["lost", "lost"], ["forgotten", "forgotten"]]),
      choice("Takes work", "eligibilities", takes[0] || "", [["", "yes or no"], ["eligible", "yes"], ["cordoned", "cordoned"], ["draining", "draining"]])), body);
  const go = (page) => {
    const next = new URLSearchParams(query);
    next.delete("page_token");
    if (page) next.set("page_token", page);
    location.hash = path + (next.size ? "?" + next : "");
  };
  const refresh = async () => {
    const page = await ask("nodes", { states, eligibilities: takes, page_size: PAGE, page_token: token, ...STALE }, signal);
    fill(body, panel("Nodes", "", draw(page.nodes), pager(!token, page.nextPageToken, go)));
    return page.read.revision;
  };
  await follow({ signal, pace: 2000, refresh, failed: (error) => fill(body, refusedNote(error)) });
}

function draw(some) {
  return table("Nodes", [
    ["Node", "short", (row) => nodeLink(row.name)],
    ["State", "short", (row) => nodeMark(row.state, row.eligibility)],
    ["Cards", "number", (row) => count(row.cards)],
    ["Blocks", "number", (row) => count(total(blocksOf(row.blocks)))],
    ["Use", "", (row) => blockBar(row.blocks)],
    ["Free", "number", (row) => count(blocksOf(row.blocks).free)],
    ["Jobs", "number", (row) => count(row.jobIds.length)],
    ["Agent", "short", (row) => row.agentVersion],
    ["Last heartbeat", "short", (row) => row.session ? row.session.connected ? duration(row.session.sinceHeartbeat || "0s") + " ago" : "no session" : ""],
    ["Changed", "short", (row) => time(row.changedAt)],
  ], some, "No node is like that.");
}

export async function node({ main, signal, thing, query }) {
  const body = h("div", {});
  fill(main, body);
  const at = "nodes/" + encodeURIComponent(thing);
  const refresh = async () => {
    const found = await ask(at, STALE, signal);
    const blocks = await ask("blocks", { "node.name": thing, page_size: 1000, ...STALE }, signal);
    const focus = document.activeElement && document.activeElement.id;
    fill(body, drawOne(found, blocks.cards, query.get("card")));
    if (focus && document.getElementById(focus)) document.getElementById(focus).focus();
    return found.read.revision;
  };
  await follow({ signal, pace: 1000, refresh, failed: (error) => fill(body, refusedNote(error)) });
}

function drawOne({ node: found, cards }, blocks, chosen) {
  const session = found.session;
  const host = found.host;
  return [
    h("h1", {}, found.name),
    h("p", { class: "lead" }, nodeMark(found.state, found.eligibility), found.eligibilityReason ? ": " + found.eligibilityReason : ""),
    h("div", { class: "panels" },
      panel("Blocks", "half", blockBar(found.blocks, true), blockLegend(found.blocks)),
      panel("Node", "half", facts(
        ["Number", found.id], ["Agent", found.agentVersion], ["Start of its agent", count(found.incarnation)],
        ["Address", h("code", {}, found.address)],
        ["Session", !session ? "only the leader knows" : session.connected ? `last heartbeat ${duration(session.sinceHeartbeat || "0s")} ago` : "none"],
        ["Changed", time(found.changedAt)],
        ["First block", count(found.firstBlockNumber)],
        ["Processors", host ? `${Number((found.hostUsed || {}).milliCpus || 0) / 1000} of ${Number(host.milliCpus || 0) / 1000} held` : null],
        ["Host memory", host ? `${memory((found.hostUsed || {}).memoryMib)} of ${memory(host.memoryMib)} held` : null],
        ["Failed starts in a row", found.faults ? count(found.faults) : null],
        ["Containment", found.containment ? found.containment.whole ? "whole" : "partial: " + found.containment.missing : null],
        ["Labels", Object.entries(found.labels).map(([key, value]) => `${key}=${value}`).join(", ")])),
      panel("Cards", "", cardTable(found, cards, blocks, chosen)),
      panel("Jobs on this node", "", found.jobIds.length
        ? h("ul", { class: "legend" }, found.jobIds.map((id) => h("li", {}, jobLink(id))))
        : h("p", { class: "quiet-text" }, "No job has a worker here."))),
  ];
}

function cardTable(found, cards, blocks, chosen) {
  const runs = new Map(blocks.map((card) => [card.cardIndex, card.runs]));
  return table("Cards of this node", [
    ["Card", "number", ({ description }) => h("span", { id: "card-" + description.index },
      String(description.index) === chosen ? h("b", {}, description.index) : description.index)],
    ["Model", "name", ({ description }) => `${kind(description.kind)}, ${description.vendor} ${description.model}` + (description.simulated ? " (simulated)" : "")],
    ["Health", "short", ({ description }) => description.health === "CARD_HEALTH_HEALTHY" ? mark("good", "healthy") : mark("lost", word(description.health, "CARD_HEALTH_"))],
    ["Blocks", "number", (card) => count(card.blocks)],
    ["In order", "", (card) => runBar(runs.get(card.description.index) || [])],
    ["Held by", "name", (card) => holders(runs.get(card.description.index) || [])],
    ["Memory granted", "number", (card) => `${memory(card.memoryUsedMib)} of ${memory(card.description.memoryMib)}`],
    ["Isolation", "short", (card) => word(card.isolation, "ISOLATION_")],
    ["Busy", "number", (card) => card.sample && !card.sample.unread ? percent(card.sample.utilizationRatio, 1) : ""],
    ["Temperature", "number", (card) => card.sample && card.sample.temperatureCelsius ? Math.round(card.sample.temperatureCelsius) + " °C" : ""],
    ["Power", "number", (card) => card.sample && card.sample.powerWatts ? Math.round(card.sample.powerWatts) + " W" : ""],
  ], cards, "This node has no card.");
}

const stateOf = (run) => word(run.state, "BLOCK_STATE_");

/** The blocks of a card as they lie on it. */
export function runBar(runs) {
  const all = runs.reduce((sum, run) => sum + run.blocks, 0);
  const sums = Object.fromEntries(BLOCK_STATES.map((state) => [state, runs.filter((run) => stateOf(run) === state).reduce((sum, run) => sum + run.blocks, 0)]));
  return h("div", { class: "bar", role: "img", "aria-label": told(sums) }, runs.map((run) =>
    h("div", { class: "part " + stateOf(run), css: { width: (100 * run.blocks / all) + "%" },
      title: `blocks ${run.firstBlockNumber}–${run.lastBlockNumber}: ${stateOf(run)}` + (run.owner ? `, job ${run.owner.jobId}` : "") })));
}

/** The jobs that hold a card's blocks, each with how many. */
export function holders(runs) {
  const held = new Map();
  for (const run of runs) if (run.owner) held.set(run.owner.jobId, (held.get(run.owner.jobId) || 0) + run.blocks);
  return [...held].map(([job, some], place) => [place ? ", " : "", jobLink(job), ` (${count(some)})`]);
}
