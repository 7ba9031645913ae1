// Building the page: elements out of names, attributes and children. Text is always text, never markup.

/**
 * Characters that a browser would obey instead of showing them: control characters, and those that turn text round; and
 * those for which it shows nothing. As the commands spell them (`shown.rs` of `tessera-diagnostics`).
 */
const OBEYED = new RegExp(
  "[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180e\\u200b\\u200e\\u200f" +
    "\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufeff\\uffa0\\ufff0-\\ufffb" +
    "\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e00ff}\\u{e01f0}-\\u{e0fff}]",
  "gu",
);

/** A text in which all of that is spelled. */
export const visible = (text) => String(text).replace(OBEYED, (letter) => `\\u{${letter.codePointAt(0).toString(16)}}`);

/** Sets an attribute. One that is shown or read out is visible text; the others stay as they are. */
export function set(element, key, value) {
  const shown = key === "title" || key.startsWith("aria-");
  element.setAttribute(key, value === true ? "" : shown ? visible(value) : String(value));
}

/** Makes an element. Attributes that are null or false are left out; `on` holds listeners, `css` properties of its style. */
export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (key === "css") for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
    else if (key === "value") element.value = value;
    else set(element, key, value);
  }
  append(element, children);
  return element;
}

/** Adds children: elements as they are, everything else as visible text. */
export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
}

/** Puts new children where the old ones were. */
export function fill(element, ...children) {
  const made = document.createDocumentFragment();
  append(made, children);
  element.replaceChildren(made);
}

/**
 * A table. `columns` are [heading, class, cell of a row]; the class `number` aligns to the right.
 */
export function table(caption, columns, rows, empty) {
  if (!rows.length) return h("p", { class: "quiet-text" }, empty);
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "hidden-text" }, caption),
      h("thead", {}, h("tr", {}, columns.map(([heading, kind]) => h("th", { scope: "col", class: kind }, heading)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, columns.map(([, kind, cell]) => h("td", { class: kind }, cell(row))))))));
}

/** A list of facts: names and what is so. Facts that are null are left out. */
export function facts(...pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** A panel with a heading. */
export function panel(heading, size, ...children) {
  return h("section", { class: "panel " + size }, h("h2", {}, heading), children);
}

/** A link within the console. */
export function link(to, text) {
  return h("a", { href: "#" + to }, text);
}
