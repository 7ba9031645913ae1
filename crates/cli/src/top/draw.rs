//! Draws the state. A pure function: the same state gives the same characters. Nothing is told by colour alone.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use tessera_api::v1::KindSummary;
use tessera_diagnostics::shown;

use super::bar::{LEGEND, bar};
use super::entry::{Column, Entry, columns};
use super::keys::HELP;
use super::overview::Overview;
use super::state::{Over, State, TABS, place};
use crate::args::TopTab;
use crate::print;
use crate::view::{BlocksView, words};

/// Kinds of cards with a line of their own.
const KINDS: usize = 4;
/// Lines beside the rows, the kinds and the warnings: title, jobs, tabs, header, footer.
const FRAME: u16 = 5;

/// The colours of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    pub color: bool,
}

impl Palette {
    fn style(self, color: Color) -> Style {
        if self.color { Style::new().fg(color) } else { Style::new() }
    }

    /// Orange and blue are told apart by everybody.
    fn alarm(self) -> Style {
        self.style(Color::Yellow).add_modifier(Modifier::BOLD)
    }

    fn accent(self) -> Style {
        self.style(Color::Blue).add_modifier(Modifier::BOLD)
    }
}

/// A piece of a line in which others may have written.
fn piece(text: &str, style: Style) -> Span<'static> {
    Span::styled(shown::line(text).into_owned(), style)
}

fn overview_lines(state: &State) -> u16 {
    let kinds = state.overview.as_ref().map_or(1, |of| of.pool.kinds.len().clamp(1, KINDS));
    let warned = state.trouble.is_some() || state.overview.as_ref().is_some_and(|of| !of.warnings.is_empty());
    u16::try_from(kinds).unwrap_or(1) + u16::from(warned)
}

/// Rows that fit into a terminal of this height.
#[must_use]
pub fn rows_in(state: &State, height: u16) -> usize {
    usize::from(height.saturating_sub(FRAME + overview_lines(state)))
}

pub fn draw(state: &State, palette: Palette, frame: &mut Frame<'_>) {
    let parts = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(overview_lines(state)),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ]);
    let [title, overview, jobs, tabs, rest, footer] = parts.areas(frame.area());
    frame.render_widget(title_line(state, palette), title);
    frame.render_widget(Paragraph::new(overview_text(state, palette, overview.width)), overview);
    frame.render_widget(jobs_line(state), jobs);
    frame.render_widget(tabs_line(state, palette), tabs);
    match &state.over {
        Over::Detail(subject, scroll) => {
            let text = state.detail.as_ref().filter(|(of, _)| of == subject).map_or("reading ...", |(_, text)| text);
            frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).scroll((*scroll, 0)), rest);
        }
        Over::List | Over::Help => rows(state, palette, frame, rest),
    }
    frame.render_widget(footer_line(state, palette), footer);
    if state.over == Over::Help {
        help(palette, frame);
    }
}

fn title_line(state: &State, palette: Palette) -> Line<'static> {
    let mut spans = vec![Span::styled("tessera top", palette.accent())];
    if let Some(overview) = &state.overview {
        let term = overview.cluster.term;
        let text = format!("  {}  leader {}  term {term}", state.at, overview.leader());
        spans.push(piece(&text, Style::new()));
    }
    if state.paused {
        spans.push(Span::styled("  PAUSED", palette.alarm()));
    }
    if let Some(overview) = &state.overview {
        spans.push(piece(&format!("  {}", overview.pool.cluster_id), Style::new()));
    }
    Line::from(spans)
}

fn overview_text(state: &State, palette: Palette, width: u16) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = match &state.overview {
        Some(overview) if overview.pool.kinds.is_empty() => vec![Line::raw("no cards yet")],
        Some(overview) => overview.pool.kinds.iter().take(KINDS).map(|kind| kind_line(kind, width)).collect(),
        None => vec![Line::raw("reading ...")],
    };
    if let Some(line) = warning(state.overview.as_ref(), state.trouble.as_deref()) {
        lines.push(Line::from(piece(&line, palette.alarm())));
    }
    lines
}

fn warning(overview: Option<&Overview>, trouble: Option<&str>) -> Option<String> {
    if let Some(trouble) = trouble {
        return Some(format!("! reconnecting: {trouble}"));
    }
    let warnings = &overview?.warnings;
    (!warnings.is_empty()).then(|| format!("! {}", warnings.join("; ")))
}

fn kind_line(kind: &KindSummary, width: u16) -> Line<'static> {
    let blocks = BlocksView::from(kind.blocks.unwrap_or_default());
    let (total, free, cards) = (blocks.total(), blocks.free, kind.cards);
    let used = total - free;
    let numbers = format!(" {used}/{total} blocks used, {free} free, {cards} cards");
    let room = usize::from(width).saturating_sub(8 + numbers.len()).clamp(10, 60);
    Line::raw(format!("{:5} [{}]{numbers}", words::kind(kind.kind), bar(&blocks, room)))
}

fn jobs_line(state: &State) -> Line<'static> {
    let Some(overview) = &state.overview else { return Line::default() };
    let counts = |of: &std::collections::BTreeMap<String, u64>| {
        let parts: Vec<String> =
            of.iter().filter(|(_, count)| **count > 0).map(|(state, count)| format!("{count} {state}")).collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    };
    Line::raw(format!("nodes: {}   jobs: {}", counts(&overview.pool.nodes), counts(&overview.pool.jobs)))
}

fn tabs_line(state: &State, palette: Palette) -> Line<'static> {
    let mut spans = Vec::new();
    for tab in TABS {
        let name = match tab {
            TopTab::Jobs => "jobs",
            TopTab::Nodes => "nodes",
            TopTab::Cards => "cards",
            TopTab::Queues => "queues",
        };
        let number = place(tab) + 1;
        spans.push(if tab == state.tab {
            Span::styled(format!("[{number} {name}]"), palette.accent())
        } else {
            Span::raw(format!(" {number} {name} "))
        });
    }
    let list = state.list();
    if !list.complete && !list.shown().is_empty() {
        spans.push(Span::raw(format!("  {} read so far ...", list.shown().len())));
    }
    if let Some(column) = list.sort {
        let title = columns(state.tab)[column].title.to_lowercase();
        spans.push(Span::raw(format!("  by {title}{}", if list.reverse { ", turned round" } else { "" })));
    }
    if state.writing {
        spans.push(piece(&format!("  filter: {}_", state.filter), palette.alarm()));
    } else if !state.filter.is_empty() {
        spans.push(piece(&format!("  filter: {}", state.filter), palette.alarm()));
    }
    Line::from(spans)
}

fn footer_line(state: &State, palette: Palette) -> Line<'static> {
    let text = match (&state.over, state.tab) {
        (Over::Detail(..), _) => "Esc back   arrows scroll   q leave".to_owned(),
        (_, TopTab::Nodes | TopTab::Cards) => LEGEND.to_owned(),
        _ => "Tab lists  Enter open  / filter  s sort  r turn  a all  p pause  ? keys  q leave".to_owned(),
    };
    Line::styled(text, palette.style(Color::Blue))
}

/// The header and the rows that are in sight.
fn rows(state: &State, palette: Palette, frame: &mut Frame<'_>, area: Rect) {
    let columns = columns(state.tab);
    let header: Vec<String> = columns.iter().map(|column| fitted(column.title, column, area.width, columns)).collect();
    let mut lines = vec![Line::styled(header.join(" "), Style::new().add_modifier(Modifier::UNDERLINED))];
    let all = state.rows();
    let (first, seen) = state.in_sight(&all);
    let selected = state.selected_place(&all);
    for (place, entry) in seen.iter().enumerate() {
        let mut style = if entry.alarming { palette.alarm() } else { Style::new() };
        if first + place == selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        lines.push(Line::styled(row(entry, columns, area.width), style));
    }
    if seen.is_empty() && state.list().complete {
        lines.push(Line::raw(if state.filter.is_empty() { "nothing" } else { "nothing has this text" }));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn row(entry: &Entry, columns: &[Column], width: u16) -> String {
    let texts = entry.cells.iter().zip(columns).map(|(cell, column)| fitted(&cell.text, column, width, columns));
    let mut parts: Vec<String> = texts.collect();
    if let (Some(blocks), Some(last)) = (&entry.blocks, columns.last()) {
        parts.push(bar(blocks, usize::from(width_of(last, width, columns))));
    }
    parts.join(" ")
}

fn width_of(column: &Column, width: u16, columns: &[Column]) -> u16 {
    if column.width > 0 {
        return column.width;
    }
    let taken: u16 = columns.iter().map(|column| column.width + 1).sum();
    width.saturating_sub(taken.saturating_sub(1))
}

/// A text as wide as its column; what does not fit ends in `~`.
fn fitted(text: &str, column: &Column, width: u16, columns: &[Column]) -> String {
    print::fitted(text, usize::from(width_of(column, width, columns)), column.right)
}

fn help(palette: Palette, frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = HELP
        .iter()
        .map(|(keys, what)| Line::from(vec![Span::styled(format!("{keys:29}"), palette.accent()), Span::raw(*what)]))
        .chain([Line::default(), Line::raw(format!("blocks: {LEGEND}"))])
        .chain([Line::raw("USE: what a job computes of what it may; BUSY: how much a card computes")])
        .collect();
    let area = frame.area();
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let place = Rect { x: area.x, y: area.y + (area.height - height) / 2, width: area.width, height };
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).wrap(Wrap { trim: false }).block(Block::bordered().title("keys")), place);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::top::keys::Wish;
    use crate::top::state::Update;
    use crate::top::state::tests::filled;

    fn drawn(state: &mut State, color: bool, (width, height): (u16, u16)) -> Terminal<TestBackend> {
        state.resize(rows_in(state, height));
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a test terminal");
        terminal.draw(|frame| draw(state, Palette { color }, frame)).expect("drawn");
        terminal
    }

    fn text(mut state: State) -> String {
        drawn(&mut state, true, (80, 24)).backend().to_string()
    }

    #[test]
    fn the_jobs_fit_into_80_by_24() {
        insta::assert_snapshot!(text(filled(TopTab::Jobs)));
    }

    #[test]
    fn the_nodes_show_their_blocks() {
        insta::assert_snapshot!(text(filled(TopTab::Nodes)));
    }

    #[test]
    fn the_cards_show_how_busy_they_are() {
        insta::assert_snapshot!(text(filled(TopTab::Cards)));
    }

    #[test]
    fn the_keys_are_shown() {
        let mut state = filled(TopTab::Jobs);
        state.on(Wish::Help);
        insta::assert_snapshot!(text(state));
    }

    #[test]
    fn a_page_about_a_job_is_open_while_nobody_answers() {
        let mut state = filled(TopTab::Jobs);
        state.on(Wish::Open);
        let subject = state.wants().detail.expect("a page is open");
        state.apply(Update::Detail { subject, text: "job 9\n  state         pending\n".to_owned() });
        state.apply(Update::Trouble("no member answers".to_owned()));
        insta::assert_snapshot!(text(state));
    }

    #[test]
    fn what_a_member_says_is_spelled() {
        let mut state = filled(TopTab::Jobs);
        state.apply(Update::Trouble("no \u{202e}member \u{1b}[2J answers".to_owned()));
        let text = text(state);
        assert!(text.contains(r"! reconnecting: no \u{202e}member \u{1b}[2J answers"), "{text}");
    }

    #[test]
    fn without_colours_there_are_none() {
        let terminal = drawn(&mut filled(TopTab::Nodes), false, (80, 24));
        let coloured = terminal.backend().buffer().content().iter().filter(|cell| cell.fg != Color::Reset);
        assert_eq!(coloured.count(), 0);
    }

    #[test]
    fn no_size_is_too_small_or_too_large() {
        for size in [(1, 1), (20, 3), (80, 5), (300, 100)] {
            for tab in TABS {
                drawn(&mut filled(tab), true, size);
            }
        }
    }
}
