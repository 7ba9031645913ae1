//! Tables: columns, rows, alignment.

use comfy_table::{Cell, CellAlignment, Table, presets};
use tessera_diagnostics::shown;

use super::{painted, state_color};
use crate::view::Clock;

#[derive(Clone, Copy, Debug)]
pub struct Column {
    title: &'static str,
    right: bool,
    wide: bool,
    state: bool,
}

impl Column {
    /// Text.
    #[must_use]
    pub const fn left(title: &'static str) -> Self {
        Self { title, right: false, wide: false, state: false }
    }

    /// Numbers.
    #[must_use]
    pub const fn right(title: &'static str) -> Self {
        Self { title, right: true, wide: false, state: false }
    }

    /// A state, in its colour.
    #[must_use]
    pub const fn state(title: &'static str) -> Self {
        Self { title, right: false, wide: false, state: true }
    }

    /// Text that only `-o wide` shows.
    #[must_use]
    pub const fn wide(title: &'static str) -> Self {
        Self { title, right: false, wide: true, state: false }
    }
}

/// A view that can be a row of a table.
pub trait Tabular {
    fn columns() -> &'static [Column];

    /// One text per column.
    fn cells(&self, clock: &Clock) -> Vec<String>;

    /// The name that `-o name` prints.
    fn name(&self) -> String;
}

/// A table being filled.
pub struct Rows {
    columns: &'static [Column],
    wide: bool,
    color: bool,
    table: Table,
}

impl Rows {
    /// A table for things of one sort.
    #[must_use]
    pub fn new<V: Tabular>(wide: bool, color: bool) -> Self {
        let columns = V::columns();
        let mut table = bare();
        if color {
            table.enforce_styling();
        }
        let shown = columns.iter().filter(|column| wide || !column.wide);
        table.set_header(shown.map(|column| cell(column.title, column.right)));
        Self { columns, wide, color, table }
    }

    /// Adds a row.
    pub fn push<V: Tabular>(&mut self, view: &V, clock: &Clock) {
        let cells = self.columns.iter().zip(view.cells(clock));
        let shown = cells.filter(|(column, _)| self.wide || !column.wide);
        let (color, table) = (self.color, &mut self.table);
        table.add_row(shown.map(|(column, text)| {
            let paint = state_color(&text).filter(|_| column.state && color);
            let cell = cell(&text, column.right);
            paint.map_or(cell.clone(), |paint| cell.fg(paint))
        }));
    }

    /// The table as text.
    #[must_use]
    pub fn finish(self) -> String {
        lines(&self.table)
    }
}

/// A table without sort, of plain texts.
pub(super) fn plain(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = bare();
    table.set_header(header.iter().map(|title| cell(title, false)));
    for row in rows {
        table.add_row(row.iter().map(|text| cell(text, false)));
    }
    lines(&table)
}

/// One row by itself, columns two blanks apart.
pub(super) fn line<V: Tabular>(view: &V, wide: bool, color: bool, clock: &Clock) -> String {
    let cells = V::columns().iter().zip(view.cells(clock)).filter(|(column, _)| wide || !column.wide);
    let texts =
        cells.map(|(column, text)| if column.state { painted(&text, color) } else { shown::line(&text).into_owned() });
    format!("{}\n", texts.collect::<Vec<_>>().join("  ").trim_end())
}

fn bare() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.force_no_tty();
    table
}

fn cell(text: &str, right: bool) -> Cell {
    Cell::new(shown::line(text)).set_alignment(if right { CellAlignment::Right } else { CellAlignment::Left })
}

/// The rows of a table, two blanks between columns, nothing before the first and nothing after the last.
fn lines(table: &Table) -> String {
    let mut text = String::new();
    for line in table.lines() {
        let line = line.strip_prefix(' ').unwrap_or(&line);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
