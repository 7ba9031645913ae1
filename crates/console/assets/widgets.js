// What several views show alike: bars of blocks, marks of states, refusals.

import { h, link } from "./dom.js";
import { BLOCK_STATES, count, jobState, jobSwatch, nodeState, eligibility } from "./text.js";

/** A word with a swatch before it. */
export const mark = (swatch, text) => h("span", { class: "mark" }, h("span", { class: "swatch " + swatch, "aria-hidden": "true" }), text);

export const jobMark = (state) => mark(jobSwatch(state), jobState(state));

/** Whether a node is heard of and takes work. */
export function nodeMark(state, takes) {
  if (state === "NODE_STATE_LOST") return mark("lost", "lost");
  if (state !== "NODE_STATE_READY") return mark("offline", nodeState(state));
  if (takes === "ELIGIBILITY_DRAINING") return mark("draining", "draining");
  if (takes === "ELIGIBILITY_CORDONED") return mark("offline", "cordoned");
  return mark("good", eligibility(takes) === "eligible" ? "ready" : nodeState(state));
}

/** Numbers of blocks by state. */
export const blocksOf = (counts) => Object.fromEntries(BLOCK_STATES.map((state) => [state, Number((counts || {})[state] || 0)]));

export const total = (blocks) => BLOCK_STATES.reduce((sum, state) => sum + blocks[state], 0);

/** In words what a bar shows. */
export function told(blocks) {
  const some = BLOCK_STATES.filter((state) => blocks[state]).map((state) => `${count(blocks[state])} ${state}`);
  return some.length ? some.join(", ") : "no blocks";
}

/** A bar of blocks by state. */
export function blockBar(counts, tall) {
  const blocks = blocksOf(counts);
  const all = total(blocks);
  return h("div", { class: tall ? "bar tall" : "bar", role: "img", "aria-label": told(blocks), title: told(blocks) },
    BLOCK_STATES.filter((state) => blocks[state]).map((state) =>
      h("div", { class: "part " + state, css: { width: (100 * blocks[state] / all) + "%" } })));
}

/** The legend of the states of blocks with their numbers. */
export function blockLegend(counts) {
  const blocks = blocksOf(counts);
  return h("ul", { class: "legend" }, BLOCK_STATES.map((state) =>
    h("li", {}, mark(state, [h("b", { "data-blocks": state }, count(blocks[state])), " ", state]))));
}

/** A bar of one part of a whole. */
export function shareBar(part, whole, label) {
  const share = whole > 0 ? Math.min(1, part / whole) : 0;
  return h("div", { class: "bar", role: "img", "aria-label": label, title: label },
    h("div", { class: "part running", css: { width: 100 * share + "%" } }));
}

/** Why something cannot be shown. */
export const refusedNote = (error) => h("p", { class: "note bad", role: "alert" },
  error.message, error.reason ? [" (", h("code", {}, error.reason), ")"] : null);

export const jobLink = (id) => link("/jobs/" + id, "job " + id);
export const nodeLink = (name) => link("/nodes/" + encodeURIComponent(name), name);
export const queueLink = (name) => link("/jobs?queue=" + encodeURIComponent(name), name);

/** Buttons to the pages of a list. */
export function pager(first, next, go) {
  return h("div", { class: "pager" },
    h("button", { type: "button", disabled: first, on: { click: () => go("") } }, "First page"),
    h("button", { type: "button", disabled: !next, on: { click: () => go(next) } }, "Next page"));
}

/** A field to choose from. */
export const choice = (label, name, chosen, options) => h("label", {}, label,
  h("select", { name }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));

/** A field to write in. */
export const field = (label, name, value, hint) => h("label", {}, label,
  h("input", { name, value: value || "", placeholder: hint, autocomplete: "off", spellcheck: "false" }));

/** A form that chooses what a view lists. */
export const filters = (view, ...fields) => asking(view, "Filter", fields);

/** A form whose fields become the query of the view's address. */
export function asking(view, verb, fields) {
  const go = (form) => {
    const query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    location.hash = view + (query.size ? "?" + query : "");
  };
  const form = h("form", { class: "filters", on: {
    submit: (event) => { event.preventDefault(); go(form); },
    change: () => go(form),
  } }, fields, h("button", { type: "submit" }, verb), link(view, "Clear"));
  return form;
}
