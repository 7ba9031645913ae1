// The console: its header, and showing the view that the address names.
//
// An address is #/VIEW/THING?FILTERS, so everything that is shown can be linked to and found again in the history.

import { h, fill, visible } from "./dom.js";
import { onLink } from "./live.js";
import { refusedNote } from "./widgets.js";
import { overview } from "./view-overview.js";
import { blockMap } from "./view-map.js";
import { jobs } from "./view-jobs.js";
import { job } from "./view-job.js";
import { queues } from "./view-queues.js";
import { node, nodes } from "./view-nodes.js";
import { usage } from "./view-usage.js";
import { plan } from "./view-plan.js";
import { reports } from "./view-reports.js";
import { events } from "./view-events.js";
import { control } from "./view-control.js";

const VIEWS = [
  ["", "Overview", overview], ["map", "Block map", blockMap], ["jobs", "Jobs", jobs, job], ["queues", "Queues", queues],
  ["plan", "Plan", plan], ["usage", "Usage", usage], ["nodes", "Nodes", nodes, node], ["events", "Events", events],
  ["control", "Control plane", control], ["reports", "Reports", reports],
];

let shown = new AbortController();

function show() {
  // The link that skips to the content is no address of a view.
  if (location.hash === "#main") return;
  shown.abort();
  shown = new AbortController();
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const [first, thing] = path.split("/").slice(1).map(decodeURIComponent);
  const found = VIEWS.find(([name]) => name === (first || ""));
  const main = document.getElementById("main");
  const [name, title, list, one] = found || [null, "Not here"];
  document.title = visible(thing || title) + " · Tessera";
  fill(document.getElementById("views"), VIEWS.map(([view, text]) =>
    h("a", { href: "#/" + view, "aria-current": view === name ? "page" : null }, text)));
  fill(main);
  if (!found || (thing && !one)) {
    fill(main, h("h1", {}, "Not here"), h("p", { class: "lead" }, "The console has no view at this address."));
    return;
  }
  const context = { main, signal: shown.signal, thing, query: new URLSearchParams(query || ""), path: "/" + name };
  const view = thing ? one : list;
  view(context).catch((error) => {
    if (!context.signal.aborted) fill(main, h("h1", {}, title), refusedNote(error));
  });
}

function theme() {
  const button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const now = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const say = () => fill(button, now() === "dark" ? "Light colours" : "Dark colours");
  document.documentElement.dataset.theme = localStorage.getItem("theme") || "";
  if (!document.documentElement.dataset.theme) delete document.documentElement.dataset.theme;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = now() === "dark" ? "light" : "dark";
    localStorage.setItem("theme", document.documentElement.dataset.theme);
    dispatchEvent(new Event("themechange"));
    say();
  });
  dark.addEventListener("change", () => { dispatchEvent(new Event("themechange")); say(); });
  say();
}

const LINK = { live: "Live", lost: "Connection lost, trying again", idle: "Not watching" };

onLink((state) => {
  const element = document.getElementById("link");
  if (element.dataset.state === state) return;
  element.dataset.state = state;
  fill(element, LINK[state]);
});

theme();
addEventListener("hashchange", show);
show();
