//! Drawings as inline SVG.

use std::fmt::Write as _;

use super::escape;

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 790.0;
const TOP: f64 = 24.0;
const BOTTOM: f64 = 210.0;

/// A line of a drawing.
pub(super) struct Line {
    pub name: String,
    pub colour: usize,
    /// Hours and values.
    pub points: Vec<(f64, f64)>,
}

/// A round number at or above the value, and how many steps it is divided into.
fn round_up(value: f64) -> (f64, u32) {
    if value <= 0.0 {
        return (1.0, 1);
    }
    let magnitude = 10f64.powf(value.log10().floor());
    let steps = [(1.0, 5), (2.0, 4), (5.0, 5), (10.0, 5)];
    let (factor, count) = steps.into_iter().find(|(factor, _)| factor * magnitude >= value).unwrap_or((10.0, 5));
    (factor * magnitude, count)
}

fn number(value: f64) -> String {
    let text = if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") };
    if text.contains('.') { text.trim_end_matches('0').to_owned() } else { text }
}

// Writing to a string cannot fail: results of `write!` are dropped in what follows.

/// The frame, the scale on the left and the legend.
fn open(names: &[(&str, usize)], most: f64, steps: u32, unit: &str) -> String {
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
    for step in 0..=steps {
        let share = f64::from(step) / f64::from(steps);
        let y = BOTTOM - share * (BOTTOM - TOP);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            number(most * share)
        );
    }
    let _ = write!(svg, "<text x=\"{:.1}\" y=\"12\" text-anchor=\"end\">{}</text>", LEFT - 6.0, escape(unit));
    let mut x = LEFT;
    for (name, colour) in names {
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"4\" width=\"12\" height=\"10\" fill=\"var(--c{colour})\"/>\
             <text x=\"{:.1}\" y=\"13\">{}</text>",
            x + 16.0,
            escape(name)
        );
        x += 130.0;
    }
    svg
}

/// Lines over time in hours.
pub(super) fn lines(all: &[Line], unit: &str) -> String {
    let values = || all.iter().flat_map(|line| &line.points);
    let (most, steps) = round_up(values().map(|point| point.1).fold(0.0, f64::max));
    let end = values().map(|point| point.0).fold(0.0, f64::max).max(1e-9);
    let names: Vec<(&str, usize)> = all.iter().map(|line| (line.name.as_str(), line.colour)).collect();
    let mut svg = open(&names, most, steps, unit);
    for step in 0..=5 {
        let share = f64::from(step) / 5.0;
        let x = LEFT + share * (RIGHT - LEFT);
        let anchor = if step == 5 { "end" } else { "middle" };
        let hours = number((end * share * 10.0).round() / 10.0);
        let _ = write!(svg, "<text x=\"{x:.1}\" y=\"228\" text-anchor=\"{anchor}\">{hours} h</text>");
    }
    for line in all {
        let _ = write!(svg, "<polyline class=\"line\" stroke=\"var(--c{})\" points=\"", line.colour);
        for (hours, value) in &line.points {
            let x = LEFT + hours / end * (RIGHT - LEFT);
            let y = BOTTOM - value / most * (BOTTOM - TOP);
            let _ = write!(svg, "{x:.1},{y:.1} ");
        }
        let _ = write!(svg, "\"><title>{}</title></polyline>", escape(&line.name));
    }
    svg.push_str("</svg>");
    svg
}

/// Bars in groups: for each class one bar of each series, in per cent.
pub(super) fn bars(classes: &[&str], series: &[(String, usize, Vec<f64>)]) -> String {
    let (most, steps) = round_up(series.iter().flat_map(|(.., values)| values).copied().fold(0.0, f64::max));
    let names: Vec<(&str, usize)> = series.iter().map(|(name, colour, _)| (name.as_str(), *colour)).collect();
    let mut svg = open(&names, most, steps, "%");
    let count = |length: usize| f64::from(u32::try_from(length.max(1)).unwrap_or(u32::MAX));
    let group = (RIGHT - LEFT) / count(classes.len());
    let width = group * 0.8 / count(series.len());
    let mut left = LEFT;
    for (place, class) in classes.iter().enumerate() {
        let mut x = left + group * 0.1;
        for (name, colour, values) in series {
            let value = values.get(place).copied().unwrap_or(0.0);
            let height = value / most * (BOTTOM - TOP);
            let _ = write!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"var(--c{colour})\">\
                 <title>{}, {}: {value:.1} %</title></rect>",
                BOTTOM - height,
                escape(name),
                escape(class)
            );
            x += width;
        }
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"228\" text-anchor=\"middle\">{}</text>",
            left + group / 2.0,
            escape(class)
        );
        left += group;
    }
    svg.push_str("</svg>");
    svg
}
