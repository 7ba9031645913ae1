// The block map: every card of the pool, coloured by what its blocks do, by job, by queue, by what is granted, or by what of that computes.

import { ask, STALE } from "./api.js";
import { h, fill, panel, table, facts } from "./dom.js";
import { gathered, watch } from "./live.js";
import { MapCanvas } from "./map-canvas.js";
import { MapData } from "./map-data.js";
import { BLOCK_STATES, count, counted, memory, percent } from "./text.js";
import { blockBar, blockLegend, jobLink, mark, nodeLink, nodeMark, told } from "./widgets.js";
import { holders, runBar } from "./view-nodes.js";

const COLOURS = [["state", "State"], ["job", "Job"], ["queue", "Queue"], ["use", "Granted"], ["work", "Use"]];
/** Nodes on a page of the table. */
const PAGE = 50;

export async function blockMap({ main, signal, query, path }) {
  const status = h("p", { class: "status-line", role: "status" }, "Reading the map …");
  const legend = h("div", {});
  const canvas = h("canvas", { tabindex: "0", role: "application", "aria-roledescription": "map of cards", "aria-label":
    "Block map. Arrow keys go from card to card, Enter shows one, plus and minus zoom, Escape lets go.", "aria-describedby": "map-status" });
  status.id = "map-status";
  const [spacer, detail, list] = [h("div", { class: "spacer" }), h("div", {}), h("div", {})];
  const view = h("div", { class: "map" }, canvas, spacer);
  const lead = h("p", { class: "lead" }, "Each cell is a card; the cards of a node are side by side.");
  fill(main, h("h1", {}, "Block map"), lead, tools(), status, view, h("p", {}), legend, h("p", {}), detail, list);

  const drawn = new MapCanvas(view, spacer, canvas);
  drawn.colour = query.get("colour") || "state";
  let [data, page, lightFor] = [null, 0, query.get("job") || ""];

  function address(change) {
    const next = new URLSearchParams(location.hash.split("?")[1] || "");
    for (const [name, value] of Object.entries(change)) if (value) next.set(name, value); else next.delete(name);
    history.replaceState(null, "", "#" + path + (next.size ? "?" + next : ""));
  }

  function tools() {
    const buttons = COLOURS.map(([name, text]) => h("button", { type: "button", "data-colour": name, on: { click: () => {
      drawn.colour = name;
      address({ colour: name });
      say();
    } } }, text));
    const zoom = (by, text, label) => h("button", { type: "button", "aria-label": label, on: { click: () => zoomBy(by) } }, text);
    const find = h("input", { name: "find", placeholder: "node or job number", autocomplete: "off" });
    return h("div", { class: "tools", role: "group", "aria-label": "How the map is shown" },
      h("span", { class: "quiet-text" }, "Colour by"), buttons, zoom(1, "+", "Zoom in"), zoom(-1, "−", "Zoom out"),
      h("form", { class: "tools", on: { submit: (event) => { event.preventDefault(); search(find.value.trim()); } } },
        h("label", { class: "inline" }, "Find", find), h("button", { type: "submit" }, "Show"),
        h("button", { type: "button", on: { click: () => { find.value = ""; light(""); } } }, "Show all")));
  }

  function zoomBy(by) {
    drawn.zoom = Math.max(0, Math.min(4, drawn.zoom + by));
    drawn.lay();
  }

  /** The node or the job of a text. */
  function search(text) {
    if (!data || !text) return;
    const node = data.nodes.find(({ name }) => name === text);
    if (node) {
      choose(node.first);
      canvas.focus();
    } else if (/^[0-9]+$/.test(text)) {
      light(text);
    } else {
      fill(status, `No node is called ${text}, and it is no number of a job.`);
    }
  }

  /** Lights up the cards of a job. */
  async function light(job) {
    lightFor = job;
    address({ job });
    drawn.lit = job ? await cardsOf(job) : null;
    drawn.draw();
    say();
    if (job) fill(status, drawn.lit.size ? [jobLink(job), ` is on ${counted(drawn.lit.size, "card")}.`] : `Job ${job} holds no card.`);
  }

  async function cardsOf(job) {
    const cards = new Set();
    try {
      const { job: found } = await ask("jobs/" + job, STALE, signal);
      const places = new Map(data.nodes.map((node) => [node.name, node]));
      for (const worker of (found.allocation || { workers: [] }).workers) {
        const node = places.get(worker.nodeName);
        for (const { slice } of node ? worker.slices : []) {
          for (let card = node.first; card < node.first + node.cards; card++) if (data.index[card] === slice.cardIndex) cards.add(card);
        }
      }
    } catch (error) {
      if (signal.aborted) throw error;
    }
    return cards;
  }

  const name = (card) => `${data.nodes[data.nodeOf[card]].name}, card ${data.index[card]}`;

  function describe(card) {
    const more = data.jobs[card] > 1 ? ` and ${counted(data.jobs[card] - 1, "other job")}` : "";
    const job = data.job[card] ? `; job ${data.job[card]}${more}, queue ${data.queues[data.queue[card]]}` : "";
    const share = data.share(card);
    const computes = share === null ? "" : `; ${percent(share, 1)} of what is granted computes`;
    return `${name(card)} (${data.models[data.model[card]]}): ${told(data.blocks(card))}${job}${computes}`;
  }

  function choose(card) {
    drawn.choose(card);
    if (card >= 0) fill(status, describe(card));
    else say();
  }

  async function open(card) {
    const node = data.nodes[data.nodeOf[card]];
    address({ card: `${node.name}/${data.index[card]}` });
    try {
      const { card: found, blocks } = await ask(`nodes/${encodeURIComponent(node.name)}/cards/${data.index[card]}`, STALE, signal);
      const runs = blocks.runs;
      fill(detail, panel(name(card), "", runBar(runs), h("p", {}), facts(
        ["Node", nodeLink(node.name)], ["Model", found.description.model],
        ["Blocks", told(data.blocks(card))],
        ["Block numbers", runs.length ? `${runs[0].firstBlockNumber}–${runs[runs.length - 1].lastBlockNumber}` : "none"],
        ["Held by", runs.some((run) => run.owner) ? holders(runs) : "nobody"],
        ["Memory granted", `${memory(found.memoryUsedMib)} of ${memory(found.description.memoryMib)}`])));
    } catch (error) {
      if (!signal.aborted) fill(detail, panel(name(card), "", h("p", { class: "quiet-text" }, error.message)));
    }
  }

  /** What is said while no card is chosen, and everything beside the canvas. */
  function say() {
    const totals = data.totals();
    const all = BLOCK_STATES.reduce((sum, state) => sum + totals[state], 0);
    for (const button of main.querySelectorAll("[data-colour]")) button.setAttribute("aria-pressed", String(button.dataset.colour === drawn.colour));
    if (drawn.chosen < 0 && !lightFor) {
      fill(status, `${counted(data.nodes.length, "node")}, ${counted(data.size, "card")}, ${counted(all, "block")}, ${percent(totals.running + totals.held, all)} in use; revision ${count(data.revision)}`);
    }
    fill(legend, {
      state: () => blockLegend(totals),
      use: () => h("p", { class: "quiet-text" }, "From ", mark("free", "nothing in use"), " to ", mark("running", "all blocks in use"), "."),
      work: () => h("p", { class: "quiet-text" }, "Of what jobs hold of a card: from ", mark("lost", "nothing computes"), " to ", mark("running", "all computes"),
        "; ", mark("held", "not told"), ", ", mark("free", "nothing granted"), ". Agents tell the leader, and the leader's console shows it."),
      job: () => h("p", { class: "quiet-text" }, "Each job has a colour, which far numbers share; point at a card to see whose it is."),
      queue: () => h("p", { class: "quiet-text" }, "Each queue has a colour; point at a card to see whose it is. Queues: " + (data.queues.join(", ") || "none in use") + "."),
    }[drawn.colour]());
    fill(list, panel("As a table", "", table("Nodes with their blocks", [
      ["Node", "short", (node) => nodeLink(node.name)],
      ["State", "short", (node) => nodeMark(node.state, node.eligibility)],
      ["Cards", "number", (node) => count(node.cards)],
      ["Use", "", (node) => blockBar(data.nodeBlocks(node))],
      ...BLOCK_STATES.map((state) => [state, "number", (node) => count(data.nodeBlocks(node)[state])]),
    ], data.nodes.slice(page * PAGE, (page + 1) * PAGE), "No node is registered yet."),
    h("div", { class: "pager" },
      h("button", { type: "button", disabled: page === 0, on: { click: () => { page--; say(); } } }, "Before"),
      h("button", { type: "button", disabled: (page + 1) * PAGE >= data.nodes.length, on: { click: () => { page++; say(); } } }, "Next"),
      `Nodes ${count(Math.min(page * PAGE + 1, data.nodes.length))} to ${count(Math.min((page + 1) * PAGE, data.nodes.length))} of ${count(data.nodes.length)}`)));
    drawn.draw();
  }

  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return drawn.at(event.clientX - box.left, event.clientY - box.top);
  };
  canvas.addEventListener("mousemove", (event) => {
    const card = at(event);
    if (data && card !== drawn.chosen) choose(card);
  });
  canvas.addEventListener("click", (event) => {
    const card = at(event);
    if (card >= 0) open(card);
  });
  canvas.addEventListener("keydown", (event) => {
    if (!data) return;
    if (event.key.startsWith("Arrow")) choose(drawn.beside(drawn.chosen, event.key));
    else if (event.key === "Enter" && drawn.chosen >= 0) open(drawn.chosen);
    else if (event.key === "Escape") choose(-1);
    else if (event.key === "+" || event.key === "=") zoomBy(1);
    else if (event.key === "-") zoomBy(-1);
    else return;
    event.preventDefault();
  });
  const resized = new ResizeObserver(() => drawn.lay());
  resized.observe(view);
  const themed = () => { drawn.readColours(); drawn.draw(); };
  addEventListener("themechange", themed);
  signal.addEventListener("abort", () => { resized.disconnect(); removeEventListener("themechange", themed); });

  // Words and tables follow a little behind the picture.
  const later = gathered(signal, 1000, async () => {
    if (lightFor) drawn.lit = await cardsOf(lightFor);
    say();
  });
  await new Promise((begun) => {
    watch({ path: "map:watch", parameters: {}, signal, told: (event, message) => {
      if (event === "map") {
        data = new MapData(message);
        if (drawn.chosen >= data.size) drawn.chosen = -1;
        drawn.show(data);
        say();
        begun();
      } else if (event === "changed") {
        data.change(message);
        drawn.draw();
        later();
      }
    } });
    signal.addEventListener("abort", begun);
  });
  if (signal.aborted) return;
  if (lightFor) await light(lightFor);
  const [node, index] = (query.get("card") || "").split("/");
  const wanted = data.nodes.find((one) => one.name === node);
  for (let card = wanted ? wanted.first : 0; wanted && card < wanted.first + wanted.cards; card++) {
    if (String(data.index[card]) === index) { choose(card); await open(card); }
  }
}
