//! The report of runs as one HTML file that needs nothing else: figures, and drawings as inline SVG, for light and
//! dark screens.

mod chart;

use std::fmt::Write as _;

use crate::timeline::RunSummary;
use chart::{Line, bars, lines};

/// Bounds of the classes of waiting times, in seconds, with their names.
const WAITS: [(f64, &str); 8] = [
    (1.0, "< 1 s"),
    (10.0, "< 10 s"),
    (60.0, "< 1 min"),
    (600.0, "< 10 min"),
    (3600.0, "< 1 h"),
    (6.0 * 3600.0, "< 6 h"),
    (24.0 * 3600.0, "< 1 d"),
    (f64::INFINITY, "longer"),
];

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--grid:#d8dee4;--soft:#57606a;\
--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#6e7781}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--paper:#0d1117;--grid:#30363d;--soft:#9198a1;\
--c0:#4493f8;--c1:#f0883e;--c2:#3fb950;--c3:#ab7df8;--c4:#db61a2;--c5:#9198a1}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}p{color:var(--soft)}\
table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.25rem .6rem;border-bottom:1px solid var(--grid)}\
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto}\
text{fill:var(--soft);font:12px system-ui,sans-serif}.grid{stroke:var(--grid)}.line{fill:none;stroke-width:1.6}";

/// Colours in turn.
const COLOURS: usize = 6;

/// A row of the table of figures.
type Figure = (&'static str, fn(&RunSummary) -> String);

const FIGURES: [Figure; 17] = [
    ("jobs completed", |run| format!("{} of {}", run.completed, run.jobs)),
    ("refused, never started", |run| format!("{}, {}", run.refused, run.never_started)),
    ("allocated, mean over time", |run| format!("{:.2} %", run.allocated_mean_percent)),
    ("allocated, p50 / p90 / max", |run| {
        let RunSummary { allocated_p50_percent: p50, allocated_p90_percent: p90, allocated_max_percent: max, .. } = run;
        format!("{p50:.1} / {p90:.1} / {max:.1} %")
    }),
    ("unallocated, mean", |run| format!("{:.2} %", run.unallocated_mean_percent)),
    ("fragmented, mean", |run| format!("{:.2} %", run.fragmented_mean_percent)),
    ("cards needed, mean", |run| format!("{:.1}", run.cards_needed_mean)),
    ("cards needed, peak", |run| run.cards_needed_peak.to_string()),
    ("waiting, mean", |run| crate::timeline::duration(run.waiting.mean)),
    ("waiting, p50 / p90", |run| {
        let [p50, p90] = [run.waiting.p50, run.waiting.p90].map(crate::timeline::duration);
        format!("{p50} / {p90}")
    }),
    ("waiting, p99 / max", |run| {
        let [p99, max] = [run.waiting.p99, run.waiting.max].map(crate::timeline::duration);
        format!("{p99} / {max}")
    }),
    ("first start, mean", |run| crate::timeline::duration(run.first_waiting.mean)),
    ("stretch, mean / p99", |run| format!("{:.1} / {:.1}", run.stretch.mean, run.stretch.p99)),
    ("free while one waited who fits", |run| format!("{:.3} %", run.fitting_idle_percent)),
    ("preemptions", |run| run.preemptions.to_string()),
    ("moves", |run| run.moves.to_string()),
    ("decision, p50 / p99", |run| format!("{:.1} / {:.1} us", run.decision_p50_us, run.decision_p99_us)),
];

/// Draws runs on the same trace side by side.
#[must_use]
pub fn html(trace: &str, runs: &[RunSummary]) -> String {
    let title = escape(trace);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Simulation of {title}</title><style>{STYLE}</style></head><body>\n<h1>Simulation of {title}</h1>\n"
    );
    figures(&mut page, runs);
    let over_time = |value: fn(&crate::timeline::Sample) -> f64| -> Vec<Line> {
        let line = |(number, run): (usize, &RunSummary)| Line {
            name: run.policy.clone(),
            colour: number % COLOURS,
            points: run.samples.iter().map(|sample| (sample.at_s / 3600.0, value(sample))).collect(),
        };
        runs.iter().enumerate().map(line).collect()
    };
    let allocated = over_time(|sample| sample.allocated_percent);
    section(&mut page, "Allocation over time", "Share of all cards that is allocated.", &lines(&allocated, "%"));
    let fragmented = over_time(|sample| sample.fragmented_percent);
    let text = "Share of all cards that is free and of no use, where it is, to the mean job of the trace.";
    section(&mut page, "Fragmentation over time", text, &lines(&fragmented, "%"));
    #[allow(clippy::cast_precision_loss, reason = "counts of jobs are small")]
    let waiting = over_time(|sample| sample.waiting as f64);
    section(&mut page, "Jobs that wait over time", "", &lines(&waiting, "jobs"));
    let names = WAITS.map(|(_, name)| name);
    let shares: Vec<(String, usize, Vec<f64>)> =
        runs.iter().enumerate().map(|(number, run)| (run.policy.clone(), number % COLOURS, waits(run))).collect();
    let text = "Share of the jobs that ended, by how long they waited in all.";
    section(&mut page, "Waiting times", text, &bars(&names, &shares));
    page.push_str("</body></html>\n");
    page
}

/// Shares of jobs by class of waiting time, in per cent.
fn waits(run: &RunSummary) -> Vec<f64> {
    let mut from = 0;
    let of_class = |(bound, _): &(f64, &str)| {
        let to = run.waits_s.partition_point(|wait| wait < bound);
        let count = to - from;
        from = to;
        #[allow(clippy::cast_precision_loss, reason = "counts of jobs are small")]
        let share = count as f64 * 100.0 / run.waits_s.len().max(1) as f64;
        share
    };
    WAITS.iter().map(of_class).collect()
}

// Writing to a string cannot fail: results of `write!` are dropped in what follows.

fn figures(page: &mut String, runs: &[RunSummary]) {
    page.push_str("<table><thead><tr><th></th>");
    for run in runs {
        let _ = write!(page, "<th>{}</th>", escape(&run.policy));
    }
    page.push_str("</tr></thead><tbody>\n");
    for (name, figure) in FIGURES {
        let _ = write!(page, "<tr><td>{name}</td>");
        for run in runs {
            let _ = write!(page, "<td>{}</td>", escape(&figure(run)));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table>\n");
    if let Some(run) = runs.first() {
        let _ = writeln!(
            page,
            "<p>{} nodes with {} cards. Means and percentiles over time are of the {} in which jobs arrived.</p>",
            run.nodes,
            run.cards,
            crate::timeline::duration(run.arrivals_s)
        );
    }
}

fn section(page: &mut String, title: &str, text: &str, drawing: &str) {
    let _ = writeln!(page, "<h2>{title}</h2>\n<p>{text}</p>\n{drawing}");
}

/// Text that is only text.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Sample, Spread};

    fn run(policy: &str) -> RunSummary {
        let sample = |at_s: f64| Sample {
            at_s,
            allocated_percent: at_s / 100.0,
            fragmented_percent: 1.0,
            cards_in_use: 3,
            running: 1,
            waiting: 2,
        };
        RunSummary {
            policy: policy.to_owned(),
            waiting: Spread::default(),
            waits_s: vec![0.0, 5.0, 5.0, 7200.0],
            samples: (0..20).map(|step| sample(f64::from(step) * 360.0)).collect(),
            ..RunSummary::default()
        }
    }

    #[test]
    fn a_report_needs_nothing_else_and_is_only_text_where_text_is_meant() {
        let page = html("<jobs> & nodes", &[run("a<b"), run("fgd")]);
        assert!(page.contains("Simulation of &lt;jobs&gt; &amp; nodes") && page.contains("a&lt;b"));
        for outside in ["http:", "https:", "src=", "href=", "@import", "<script", "NaN", "inf"] {
            assert!(!page.contains(outside), "the report contains {outside}");
        }
        assert!(page.contains("prefers-color-scheme:dark"));
        assert_eq!(page.matches("<svg").count(), 4);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    }

    #[test]
    fn waiting_times_fall_into_one_class_each() {
        let shares = waits(&run("x"));
        assert_eq!(shares, [25.0, 50.0, 0.0, 0.0, 0.0, 25.0, 0.0, 0.0]);
    }

    #[test]
    fn a_run_without_samples_is_drawn_too() {
        let page = html("nothing", &[RunSummary::default()]);
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }
}
