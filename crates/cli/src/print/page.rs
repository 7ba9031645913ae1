//! A page about one thing: titles, labelled lines, tables.

use std::fmt::{Display, Write};

use tessera_diagnostics::shown;

use super::table::{Rows, Tabular, plain};
use super::width::filled;
use super::{Detail, painted};
use crate::view::Clock;

/// Width of the labels.
const LABEL: usize = 13;

/// A page being written.
pub struct Page {
    text: String,
    color: bool,
    wide: bool,
}

/// A page as plain text.
#[must_use]
pub fn page_of(view: &impl Detail, clock: &Clock) -> String {
    let mut page = Page::new(false, false);
    view.detail(clock, &mut page);
    page.finish()
}

impl Page {
    pub(super) fn new(color: bool, wide: bool) -> Self {
        Self { text: String::new(), color, wide }
    }

    /// Begins a section.
    pub fn title(&mut self, title: String) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let title = shown::line(&title);
        let title = if self.color { format!("\u{1b}[1m{title}\u{1b}[0m") } else { title.into_owned() };
        self.text.push_str(&title);
        self.text.push('\n');
    }

    /// A labelled line. What is empty is left out.
    pub fn line(&mut self, label: &str, value: impl Display) {
        self.put(&shown::line(label), &shown::line(value.to_string().trim_end()));
    }

    /// A labelled state, in its colour.
    pub fn state(&mut self, label: &str, state: &str) {
        self.put(label, &painted(state, self.color));
    }

    fn put(&mut self, label: &str, value: &str) {
        if !value.is_empty() {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "  {} {value}", filled(label, LABEL, false));
        }
    }

    /// A table of texts.
    pub fn table(&mut self, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
        self.indented(&plain(header, rows));
    }

    /// A section with a table of things.
    pub fn tabular<V: Tabular>(&mut self, title: &str, views: &[V], clock: &Clock) {
        self.title(title.to_owned());
        let mut rows = Rows::new::<V>(self.wide, self.color);
        for view in views {
            rows.push(view, clock);
        }
        self.indented(&rows.finish());
    }

    fn indented(&mut self, text: &str) {
        for line in text.lines() {
            let _ = writeln!(self.text, "  {line}");
        }
    }

    pub(super) fn finish(self) -> String {
        self.text
    }
}
