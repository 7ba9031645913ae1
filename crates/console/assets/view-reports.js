// Reports of simulations: what `tessera simulate --json` wrote, opened from the reader's disk and sent nowhere.

import { h, fill, panel, table, append, set } from "./dom.js";
import { count, seconds } from "./text.js";

const [WIDTH, HEIGHT, LEFT, BELOW] = [880, 240, 48, 24];
const SVG = "http://www.w3.org/2000/svg";
const percents = (value) => Number(value).toFixed(2) + " %";

const FIGURES = [
  ["Jobs completed", (run) => `${count(run.completed)} of ${count(run.jobs)}`],
  ["Refused, never started", (run) => `${count(run.refused)}, ${count(run.never_started)}`],
  ["Allocated, mean", (run) => percents(run.allocated_mean_percent)],
  ["Allocated, p50 / p90 / max", (run) => [run.allocated_p50_percent, run.allocated_p90_percent, run.allocated_max_percent].map(percents).join(" / ")],
  ["Fragmented, mean", (run) => percents(run.fragmented_mean_percent)],
  ["Cards needed, mean / peak", (run) => `${Number(run.cards_needed_mean).toFixed(1)} / ${count(run.cards_needed_peak)}`],
  ["Waiting, mean", (run) => seconds(run.waiting.mean)],
  ["Waiting, p50 / p90 / p99 / max", (run) => ["p50", "p90", "p99", "max"].map((name) => seconds(run.waiting[name])).join(" / ")],
  ["Preemptions, moves", (run) => `${count(run.preemptions)}, ${count(run.moves)}`],
  ["Decision, p50 / p99", (run) => `${Number(run.decision_p50_us).toFixed(1)} / ${Number(run.decision_p99_us).toFixed(1)} µs`],
];
const LINES = [
  ["Blocks allocated, in percent", (sample) => sample.allocated_percent],
  ["Free and of no use to the mean job, in percent", (sample) => sample.fragmented_percent],
  ["Jobs that wait", (sample) => sample.waiting],
];

export async function reports({ main }) {
  const body = h("div", {});
  const file = h("input", { type: "file", accept: ".json,application/json", name: "report" });
  file.addEventListener("change", async () => {
    try {
      fill(body, draw(read(await file.files[0].text())));
    } catch (error) {
      fill(body, h("p", { class: "note bad", role: "alert" }, `This is no report: ${error.message}`));
    }
  });
  fill(main, h("h1", {}, "Reports of simulations"),
    h("p", { class: "lead" }, "Opens what ", h("code", {}, "tessera simulate --cluster NODES --jobs JOBS --json > report.json"),
      " wrote. The file stays on this computer."),
    h("div", { class: "tools" }, h("label", {}, "Report", file)), body);
}

/** The runs of a report. */
function read(text) {
  const runs = [JSON.parse(text)].flat();
  if (!runs.length || runs.some((run) => !run || typeof run.policy !== "string" || !Array.isArray(run.samples))) {
    throw new Error("it has no runs with samples over time");
  }
  return runs;
}

function draw(runs) {
  return [
    panel(`${count(runs[0].jobs)} jobs on ${count(runs[0].nodes)} nodes with ${count(runs[0].cards)} cards`, "",
      table("Figures of the runs", [["Figure", "name", ([name]) => name],
        ...runs.map((run) => [run.policy, "number", ([name, figure]) => h("span", { "data-figure": name }, figure(run))])], FIGURES, "")),
    ...LINES.map(([heading, of]) => panel(heading, "", chart(heading, runs, of))),
  ];
}

function s(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) set(element, key, value);
  append(element, children);
  return element;
}

/** One line a run over the hours of the trace. */
function chart(heading, runs, of) {
  const samples = runs.flatMap((run) => run.samples);
  const [most, end] = [Math.max(1, ...samples.map(of)), Math.max(1, ...samples.map((sample) => sample.at_s))];
  const x = (at) => LEFT + (WIDTH - LEFT) * at / end;
  const y = (value) => (HEIGHT - BELOW) * (1 - value / most) + 4;
  const at = (sample) => `${x(sample.at_s).toFixed(1)},${y(of(sample)).toFixed(1)}`;
  return [
    s("svg", { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${heading}: ${runs.map((run) => run.policy).join(", ")}` },
      ...[0, 0.5, 1].map((part) => s("g", {},
        s("line", { class: "grid", x1: LEFT, x2: WIDTH, y1: y(most * part), y2: y(most * part) }),
        s("text", { x: LEFT - 6, y: y(most * part) + 4, "text-anchor": "end" }, count(most * part)))),
      s("text", { x: WIDTH, y: HEIGHT - 4, "text-anchor": "end" }, `${count(end / 3600)} h`),
      ...runs.map((run, place) => s("polyline", { class: `line run-${place % 6}`, points: run.samples.map(at).join(" ") }))),
    h("ul", { class: "legend" }, runs.map((run, place) => h("li", {}, h("span", { class: `mark` },
      h("span", { class: `swatch run-${place % 6}`, "aria-hidden": "true" }), run.policy)))),
  ];
}
