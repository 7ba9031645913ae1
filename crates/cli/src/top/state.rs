//! The state of the screen, and its changes: by data that was read, and by keys. Nothing here asks or draws.

use std::collections::BTreeMap;

use super::entry::{self, Entry, Subject, USE, columns};
use super::keys::Wish;
use super::overview::Overview;
use crate::args::{TopArgs, TopTab};
use crate::view::UseView;

/// The lists in the order of their keys.
pub const TABS: [TopTab; 4] = [TopTab::Jobs, TopTab::Nodes, TopTab::Cards, TopTab::Queues];

/// Something was read.
#[derive(Clone, Debug)]
pub enum Update {
    /// The pool at a glance, at this time of day.
    Overview {
        overview: Box<Overview>,
        /// For people, such as `14:03:22`.
        at: String,
    },
    /// A page of a list.
    Page {
        /// The list that the page belongs to.
        tab: TopTab,
        entries: Vec<Entry>,
        /// True if it is the first page of the list.
        first: bool,
        /// True if it is the last page.
        last: bool,
    },
    /// The use that jobs make of their allocations, by job number.
    Used(BTreeMap<u64, UseView>),
    /// The page about a row.
    Detail { subject: Subject, text: String },
    /// Nobody answered; what is shown grows old.
    Trouble(String),
}

/// The data that the reader is to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wants {
    pub tab: TopTab,
    /// The page that is open.
    pub detail: Option<Subject>,
    /// True if ended jobs are listed too.
    pub all: bool,
    /// The jobs in sight that hold something.
    pub jobs: Vec<u64>,
    /// Nothing.
    pub paused: bool,
}

/// A list: its rows, and where one stands in it.
#[derive(Clone, Debug, Default)]
pub struct List {
    rows: Vec<Entry>,
    /// The round that is being read, while the one before is shown.
    gathered: Vec<Entry>,
    /// True if all of the list was read once.
    pub complete: bool,
    selected: Option<Subject>,
    /// The column it is sorted by; none: the order of the members.
    pub sort: Option<usize>,
    /// The other way round.
    pub reverse: bool,
}

/// The view that covers the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Nothing.
    List,
    /// The page about a row, and how far it is scrolled.
    Detail(Subject, u16),
    /// The keys.
    Help,
}

/// All that is shown.
#[derive(Clone, Debug)]
pub struct State {
    pub overview: Option<Overview>,
    /// The time at which that was read.
    pub at: String,
    /// The reason for which nothing new comes.
    pub trouble: Option<String>,
    /// The list that is looked at.
    pub tab: TopTab,
    lists: [List; 4],
    /// Shown are rows with this text.
    pub filter: String,
    /// True while the filter is being written.
    pub writing: bool,
    pub over: Over,
    /// The text of the page that is open.
    pub detail: Option<(Subject, String)>,
    /// True if ended jobs are listed too.
    pub all: bool,
    /// True while nothing new is read or shown; keys still act on what is there.
    pub paused: bool,
    used: BTreeMap<u64, UseView>,
    /// Rows that fit.
    height: usize,
}

impl State {
    /// As somebody asked for it; nothing was read yet.
    #[must_use]
    pub fn new(args: &TopArgs) -> Self {
        Self {
            overview: None,
            at: String::new(),
            trouble: None,
            tab: args.tab,
            lists: Default::default(),
            filter: args.filter.clone(),
            writing: false,
            over: Over::List,
            detail: None,
            all: args.all,
            paused: false,
            used: BTreeMap::new(),
            height: 1,
        }
    }

    /// Takes in what was read.
    pub fn apply(&mut self, update: Update) {
        if self.paused {
            return;
        }
        match update {
            Update::Overview { overview, at } => {
                self.overview = Some(*overview);
                self.at = at;
                self.trouble = None;
            }
            Update::Page { tab, entries, first, last } => {
                let used = &self.used;
                let entries = entries.into_iter().map(|entry| with_use(entry, used));
                self.lists[place(tab)].take(entries.collect(), first, last);
            }
            Update::Used(used) => {
                self.used = used;
                let jobs = &mut self.lists[place(TopTab::Jobs)];
                for entry in jobs.rows.iter_mut().chain(&mut jobs.gathered) {
                    tell_use(entry, &self.used);
                }
            }
            Update::Detail { subject, text } => {
                if matches!(&self.over, Over::Detail(open, _) if *open == subject) {
                    self.detail = Some((subject, text));
                }
            }
            Update::Trouble(why) => self.trouble = Some(why),
        }
    }

    /// Rows that fit have become more or fewer.
    pub fn resize(&mut self, height: usize) {
        self.height = height.max(1);
    }

    /// A key was pressed. Answers whether to go on.
    pub fn on(&mut self, wish: Wish) -> bool {
        let text = self.detail.as_ref().map_or("", |(_, text)| text);
        let lines = u16::try_from(text.lines().count().saturating_sub(1)).unwrap_or(u16::MAX);
        match (wish, &mut self.over) {
            (Wish::Quit, _) => return false,
            (Wish::Help, over) => *over = if *over == Over::Help { Over::List } else { Over::Help },
            (Wish::Pause, _) => self.paused = !self.paused,
            (Wish::Back, over @ (Over::Help | Over::Detail(..))) => *over = Over::List,
            (Wish::Rows(by), Over::Detail(_, scroll)) => {
                *scroll = scroll.saturating_add_signed(clamped(by)).min(lines);
            }
            (Wish::Pages(by), Over::Detail(_, scroll)) => {
                *scroll = scroll.saturating_add_signed(clamped(by.saturating_mul(10))).min(lines);
            }
            (Wish::Last, Over::Detail(_, scroll)) => *scroll = lines,
            (Wish::First, Over::Detail(_, scroll)) => *scroll = 0,
            (_, Over::Help | Over::Detail(..)) if !matches!(wish, Wish::Tab(_) | Wish::NextTab | Wish::PreviousTab) => {
            }
            (wish, _) => self.in_list(wish),
        }
        true
    }

    fn in_list(&mut self, wish: Wish) {
        let here = place(self.tab);
        match wish {
            Wish::Tab(tab) => self.go_to(tab),
            Wish::NextTab => self.go_to(here + 1),
            Wish::PreviousTab => self.go_to(here + TABS.len() - 1),
            Wish::Rows(by) => self.step(by),
            Wish::Pages(by) => self.step(by.saturating_mul(isize::try_from(self.height).unwrap_or(1))),
            Wish::First => self.step(isize::MIN),
            Wish::Last => self.step(isize::MAX),
            Wish::Back => self.filter.clear(),
            Wish::Filter => self.writing = true,
            Wish::Sort => {
                let columns = self.visible_columns();
                let list = &mut self.lists[here];
                list.sort = match list.sort {
                    None => Some(0),
                    Some(last) if last + 1 >= columns => None,
                    Some(column) => Some(column + 1),
                };
            }
            Wish::Reverse => self.lists[here].reverse ^= true,
            Wish::All => {
                self.all = !self.all;
                let jobs = &mut self.lists[place(TopTab::Jobs)];
                *jobs = List { sort: jobs.sort, reverse: jobs.reverse, ..List::default() };
            }
            Wish::Open => {
                if let Some(subject) = self.selected().map(|entry| entry.subject.clone()) {
                    self.detail = None;
                    self.over = Over::Detail(subject, 0);
                }
            }
            Wish::Quit | Wish::Help | Wish::Pause | Wish::Redraw => {}
        }
    }

    /// A letter of the filter, or its end.
    pub fn write(&mut self, letter: Option<char>) {
        match letter {
            Some('\u{8}') => {
                self.filter.pop();
            }
            Some(letter) => self.filter.push(letter),
            None => self.writing = false,
        }
    }

    fn go_to(&mut self, place: usize) {
        self.tab = TABS[place % TABS.len()];
        self.over = Over::List;
    }

    /// Columns that can be sorted by.
    fn visible_columns(&self) -> usize {
        let bar = matches!(self.tab, TopTab::Nodes | TopTab::Cards);
        columns(self.tab).len() - usize::from(bar)
    }

    #[must_use]
    pub fn list(&self) -> &List {
        &self.lists[place(self.tab)]
    }

    /// The rows that are shown, in their order.
    #[must_use]
    pub fn rows(&self) -> Vec<&Entry> {
        let list = self.list();
        let mut rows: Vec<&Entry> =
            list.shown().iter().filter(|entry| self.filter.is_empty() || entry.has(&self.filter)).collect();
        if let Some(column) = list.sort {
            rows.sort_by(|one, other| entry_order(one, other, column));
        }
        if list.reverse {
            rows.reverse();
        }
        rows
    }

    /// The row that is selected: the first one unless somebody chose.
    #[must_use]
    pub fn selected(&self) -> Option<&Entry> {
        let rows = self.rows();
        rows.get(self.selected_place(&rows)).copied()
    }

    /// Its place among `rows`.
    #[must_use]
    pub fn selected_place(&self, rows: &[&Entry]) -> usize {
        let chosen = self.list().selected.as_ref();
        chosen.and_then(|chosen| rows.iter().position(|entry| entry.subject == *chosen)).unwrap_or(0)
    }

    fn step(&mut self, by: isize) {
        let rows = self.rows();
        let Some(last) = rows.len().checked_sub(1) else { return };
        let place_now = self.selected_place(&rows);
        let target = place_now.saturating_add_signed(by).min(last);
        let subject = rows[target].subject.clone();
        self.lists[place(self.tab)].selected = Some(subject);
    }

    /// The rows that are in sight: the page on which the selected one is.
    #[must_use]
    pub fn in_sight<'a>(&self, rows: &'a [&'a Entry]) -> (usize, &'a [&'a Entry]) {
        let first = self.selected_place(rows) / self.height * self.height;
        (first, &rows[first.min(rows.len())..(first + self.height).min(rows.len())])
    }

    #[must_use]
    pub fn wants(&self) -> Wants {
        let mut jobs: Vec<u64> = Vec::new();
        if self.tab == TopTab::Jobs {
            let rows = self.rows();
            let (_, seen) = self.in_sight(&rows);
            let holding = seen.iter().filter(|entry| !entry.cards.is_empty());
            jobs = holding.filter_map(|entry| entry.subject.job()).collect();
        }
        let detail = match &self.over {
            Over::Detail(subject, _) => Some(subject.clone()),
            Over::List | Over::Help => None,
        };
        Wants { tab: self.tab, detail, all: self.all, jobs, paused: self.paused }
    }
}

impl List {
    /// The rows that are known: those of the last whole round, or of the first one as far as it has come.
    #[must_use]
    pub fn shown(&self) -> &[Entry] {
        if self.complete { &self.rows } else { &self.gathered }
    }

    fn take(&mut self, entries: Vec<Entry>, first: bool, last: bool) {
        if first {
            self.gathered.clear();
        }
        self.gathered.extend(entries);
        if last {
            self.rows = std::mem::take(&mut self.gathered);
            self.complete = true;
        }
    }
}

/// The place of a list among all.
#[must_use]
pub fn place(tab: TopTab) -> usize {
    TABS.iter().position(|of| *of == tab).unwrap_or(0)
}

fn clamped(by: isize) -> i16 {
    i16::try_from(by).unwrap_or(if by < 0 { i16::MIN } else { i16::MAX })
}

/// Numbers begin with the largest, words with the first of the alphabet.
fn entry_order(one: &Entry, other: &Entry, column: usize) -> std::cmp::Ordering {
    let (Some(one), Some(other)) = (one.cells.get(column), other.cells.get(column)) else {
        return std::cmp::Ordering::Equal;
    };
    match (one.number, other.number) {
        (Some(one), Some(other)) => other.total_cmp(&one),
        _ => one.text.cmp(&other.text),
    }
}

fn with_use(mut entry: Entry, used: &BTreeMap<u64, UseView>) -> Entry {
    tell_use(&mut entry, used);
    entry
}

/// Sets the share of its compute that a job uses.
fn tell_use(entry: &mut Entry, used: &BTreeMap<u64, UseView>) {
    if let Some(job) = entry.subject.job() {
        entry.cells[USE] = entry::percent(used.get(&job).map(|used| used.utilization_ratio));
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
pub(super) mod tests;
