//! Output of a benchmark: tables for people on standard output, and one JSON object a line in a file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;

use crate::distribution::Percentiles;
use crate::machine::Machine;
use crate::quiet::{Quietness, Wanted, wait};

/// The destinations of a benchmark's report.
#[derive(Debug)]
pub struct Report {
    bench: &'static str,
    json: Option<File>,
    quiet: Wanted,
}

/// One line of the file.
#[derive(Serialize)]
struct Line<'a, T> {
    bench: &'a str,
    what: &'a str,
    unix_seconds: u64,
    #[serde(flatten)]
    figures: &'a T,
}

impl Report {
    /// Makes the report of the benchmark `bench`; lines are appended to `json`.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn new(bench: &'static str, json: Option<&Path>, quiet: Wanted) -> Result<Self> {
        let open = |path: &Path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.with_context(|| format!("cannot open {}", path.display()))
        };
        Ok(Self { bench, json: json.map(open).transpose()?, quiet })
    }

    /// Writes a line into the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn line(&mut self, what: &str, figures: &impl Serialize) -> Result<()> {
        let Some(file) = &mut self.json else { return Ok(()) };
        let unix_seconds = crate::witness::unix_nanos() / 1_000_000_000;
        let line = Line { bench: self.bench, what, unix_seconds, figures };
        let text = serde_json::to_string(&line).context("cannot encode a line")?;
        writeln!(file, "{text}").context("cannot write a line")
    }

    /// Describes the machine and its disk.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn machine(&mut self, folder: &Path) -> Result<()> {
        let machine = Machine::inspect(folder)?;
        println!(
            "machine: {} x {}, {:.0} GiB, Linux {}; fdatasync of 4 KiB: p50 {}, p99 {}",
            machine.processors,
            machine.processor,
            machine.memory_gib,
            machine.kernel,
            ms(machine.fdatasync.p50_ms),
            ms(machine.fdatasync.p99_ms),
        );
        self.line("machine", &machine)
    }

    /// Begins a section: waits until the machine is quiet and writes down how quiet it was.
    ///
    /// # Errors
    /// The machine cannot be looked at.
    pub async fn section(&mut self, name: &str) -> Result<Quietness> {
        #[derive(Serialize)]
        struct Section<'a> {
            section: &'a str,
            #[serde(flatten)]
            quietness: Quietness,
        }
        let quietness = wait(self.quiet).await?;
        println!(
            "\n{name}: {}machine {:.0} % idle before (steal {:.1} %), waited {:.0} s",
            if quietness.quiet { "" } else { "NOT QUIET, " },
            quietness.idle_percent,
            quietness.steal_percent,
            quietness.waited_seconds
        );
        self.line("section", &Section { section: name, quietness })?;
        Ok(quietness)
    }

    /// Prints a table, and writes it down as documents show it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn table<const COLUMNS: usize>(&mut self, header: [&str; COLUMNS], rows: Vec<[String; COLUMNS]>) -> Result<()> {
        #[derive(Serialize)]
        struct Shown<'a> {
            header: &'a [&'a str],
            rows: Vec<&'a [String]>,
        }
        let shown = Shown { header: &header, rows: rows.iter().map(<[String; COLUMNS]>::as_slice).collect() };
        self.line("table", &shown)?;
        println!("{}", table(header, rows));
        Ok(())
    }
}

/// The first column names what the others are figures of.
fn table<const COLUMNS: usize>(header: [&str; COLUMNS], rows: Vec<[String; COLUMNS]>) -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_FULL_CONDENSED).set_header(header);
    table.add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Milliseconds with three figures or so.
#[must_use]
pub fn ms(milliseconds: f64) -> String {
    match milliseconds {
        below if below < 10.0 => format!("{below:.2} ms"),
        below if below < 100.0 => format!("{below:.1} ms"),
        above => format!("{above:.0} ms"),
    }
}

/// Bytes in MiB.
#[must_use]
pub fn mib(bytes: u64) -> String {
    format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20))
}

/// The three figures of a distribution, as cells; dashes when there are none.
#[must_use]
pub fn cells(percentiles: Option<Percentiles>) -> [String; 3] {
    percentiles.map_or(std::array::from_fn(|_| "-".to_owned()), |of| [ms(of.p50_ms), ms(of.p99_ms), ms(of.max_ms)])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_are_json_objects_that_name_their_benchmark() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("lines");
        let quiet = Wanted { idle_percent: 85.0, patience: Duration::ZERO };
        let mut report = Report::new("start", Some(&path), quiet).expect("opened");
        report.line("summary", &Percentiles::of_one(Duration::from_millis(12))).expect("written");
        report.line("summary", &Percentiles::of_one(Duration::from_millis(13))).expect("written");
        let text = std::fs::read_to_string(path).expect("there");
        let lines: Vec<serde_json::Value> =
            text.lines().map(serde_json::from_str).collect::<Result<_, _>>().expect("each is JSON");
        assert_eq!((lines.len(), &lines[0]["bench"], &lines[1]["p50_ms"]), (2, &"start".into(), &13.0.into()));
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!([0.123, 12.34, 1234.5].map(ms), ["0.12 ms", "12.3 ms", "1234 ms"]);
        assert_eq!(cells(None), ["-", "-", "-"]);
    }
}
