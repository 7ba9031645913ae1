//! Printing: tables and pages for people, JSON, YAML and names for programs, from the same views.
//!
//! Whatever is printed here may be another's: names, labels, commands, reasons, what a server says. So texts are
//! spelled as [`shown`] does, as they come into a table or a page and with everything else on the way out. Only what a
//! job wrote itself goes out as it is ([`Printer::output_of_job`]), and CSV to programs ([`Printer::csv`]).

mod confirm;
mod map;
mod page;
mod reader;
mod table;
mod width;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::Color;
use serde::Serialize;
use tessera_diagnostics::shown;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::args::{ColorChoice, Format};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view::{CardBlocksView, Clock};

pub use confirm::confirm;
pub use page::{Page, page_of};
pub use reader::end_without_reader;
pub use table::{Column, Rows, Tabular};
pub use width::fitted;

/// A view that can be shown as a page.
pub trait Detail {
    /// Writes the page.
    fn detail(&self, clock: &Clock, page: &mut Page);

    /// The name that `-o name` prints.
    fn name(&self) -> String;
}

/// Prints in the wanted shape.
pub struct Printer {
    format: Format,
    color: bool,
    clock: Clock,
    streaming: bool,
    /// Set when a terminal obeys what is printed.
    obeyed: bool,
    out: Box<dyn Write + Send>,
}

impl Printer {
    /// Prints to standard output.
    #[must_use]
    pub fn to_stdout(format: Format, color: Option<ColorChoice>) -> Self {
        let color = color.map_or_else(|| wants_color(ColorChoice::Auto), wants_color);
        let (obeyed, out) = (io::stdout().is_terminal(), Box::new(io::stdout()));
        Self { format, color, clock: Clock::now(), streaming: false, obeyed, out }
    }

    /// Prints to `out`, with a fixed clock.
    #[must_use]
    pub fn to(out: Box<dyn Write + Send>, format: Format, color: bool, clock: Clock) -> Self {
        Self { format, color, clock, streaming: false, obeyed: false, out }
    }

    /// Returns whether the output is meant for people.
    #[must_use]
    pub fn for_people(&self) -> bool {
        matches!(self.format, Format::Table | Format::Wide)
    }

    /// The output never ends: JSON becomes one line per message, YAML one document.
    pub fn streaming(&mut self) {
        self.streaming = true;
        if self.format == Format::Json {
            self.format = Format::Jsonl;
        }
    }

    /// Returns whether an endless list is printed row by row.
    #[must_use]
    pub fn by_rows(&self) -> bool {
        self.for_people() || self.format == Format::Name
    }

    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns whether the output is coloured.
    #[must_use]
    pub fn color(&self) -> bool {
        self.color
    }

    /// Prints one thing.
    ///
    /// # Errors
    /// A [`Failure`] when the output cannot be written.
    pub fn one<V: Serialize + Detail>(&mut self, view: &V) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Wide => {
                let mut page = Page::new(self.color, self.format == Format::Wide);
                view.detail(&self.clock, &mut page);
                self.put(&page.finish())
            }
            Format::Name => self.write(&format!("{}\n", view.name())),
            Format::Json | Format::Yaml | Format::Jsonl => self.data(view),
        }
    }

    /// Prints a list.
    ///
    /// # Errors
    /// A [`Failure`] when the output cannot be written.
    pub fn list<V: Serialize + Tabular>(&mut self, views: &[V]) -> Result<(), Failure> {
        match self.format {
            Format::Table | Format::Wide => {
                let mut rows = Rows::new::<V>(self.format == Format::Wide, self.color);
                for view in views {
                    rows.push(view, &self.clock);
                }
                self.put(&rows.finish())
            }
            Format::Name => views.iter().try_for_each(|view| self.write(&format!("{}\n", view.name()))),
            Format::Jsonl => views.iter().try_for_each(|view| self.data(view)),
            Format::Json | Format::Yaml => self.data(&views),
        }
    }

    /// Prints one row of an endless list: no header, aligned with nothing that may still come.
    ///
    /// # Errors
    /// A [`Failure`] when the output cannot be written.
    pub fn row<V: Tabular>(&mut self, view: &V) -> Result<(), Failure> {
        if self.format == Format::Name {
            return self.write(&format!("{}\n", view.name()));
        }
        self.put(&table::line(view, self.format == Format::Wide, self.color, &Clock::now()))
    }

    /// Prints the map of some cards, which must be in order of their nodes.
    ///
    /// # Errors
    /// A [`Failure`] when the output cannot be written.
    pub fn map(&mut self, cards: &[CardBlocksView]) -> Result<(), Failure> {
        self.put(&map::draw(cards, self.color))
    }

    /// Prints data as JSON, one line of it, or YAML, whatever the wanted shape is.
    ///
    /// # Errors
    /// A [`Failure`] when the output cannot be written.
    pub fn data<V: Serialize>(&mut self, view: &V) -> Result<(), Failure> {
        let unshown =
            |error: &dyn std::error::Error| Failure::from_error(Exit::Failed, "the answer cannot be shown", error);
        let text = match self.format {
            Format::Yaml => {
                let mut document = serde_norway::to_string(view).map_err(|error| unshown(&error))?;
                // YAML's writer spells some of what is obeyed. JSON is YAML, too, and spells all of it.
                if matches!(shown::lines(&document), Cow::Owned(_)) {
                    document = serde_json::to_string_pretty(view).map_err(|error| unshown(&error))? + "\n";
                }
                if self.streaming { format!("---\n{document}") } else { document }
            }
            Format::Json => serde_json::to_string_pretty(view).map_err(|error| unshown(&error))? + "\n",
            _ => serde_json::to_string(view).map_err(|error| unshown(&error))? + "\n",
        };
        self.put(&shown::json(&text))
    }

    /// Prints text.
    ///
    /// # Errors
    /// A [`Failure`] when the output cannot be written.
    pub fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.put(&shown::lines(text))
    }

    /// Prints lines of CSV: programs get each text as it was written, since CSV itself spells nothing.
    ///
    /// # Errors
    /// A [`Failure`] when the output cannot be written.
    pub fn csv(&mut self, lines: &str) -> Result<(), Failure> {
        if self.obeyed { self.write(lines) } else { self.put(lines) }
    }

    /// Prints what a job wrote, byte by byte: it is the program's own.
    ///
    /// # Errors
    /// A [`Failure`] when the output cannot be written.
    pub fn output_of_job(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        raw(&mut self.out, bytes)
    }

    /// Prints what was put together here, with the colours that were put into it.
    fn put(&mut self, text: &str) -> Result<(), Failure> {
        raw(&mut self.out, text.as_bytes())
    }
}

/// Prints text on standard output.
///
/// # Errors
/// A [`Failure`] when it cannot be written.
pub fn text(text: &str) -> Result<(), Failure> {
    raw(&mut Sheet, text.as_bytes())
}

fn raw(out: &mut dyn Write, bytes: &[u8]) -> Result<(), Failure> {
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| unwritten(&error))
}

/// Standard output for text that is written piece by piece.
pub struct Sheet;

impl Write for Sheet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write_all(shown::lines(&String::from_utf8_lossy(bytes)).as_bytes()).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// The failure of a write to the output; a reader that has gone away ends the command like SIGPIPE.
pub fn unwritten(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(Exit::ReaderGone, "the output ended", "its reader has gone away"),
        _ => Failure::from_error(Exit::Unwritten, "the output cannot be written", error),
    }
}

/// A remark for people, on standard error.
pub fn remark(text: &str) {
    tessera_diagnostics::remark!("{text}");
}

/// The same without waiting for whoever reads it, where something more important must go on.
pub fn remark_beside(text: String) -> JoinHandle<()> {
    spawn_blocking(move || remark(&text))
}

fn wants_color(choice: ColorChoice) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let silenced = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            !silenced && io::stdout().is_terminal() && std::env::var("TERM").as_deref() != Ok("dumb")
        }
    }
}

/// The colour of a state: green runs, yellow waits or changes, red is wrong.
fn state_color(state: &str) -> Option<Color> {
    match state {
        "running" | "completed" | "ready" | "eligible" | "healthy" | "leader" => Some(Color::DarkGreen),
        "pending" | "starting" | "suspending" | "suspended" | "moving" | "completing" | "draining" | "cordoned"
        | "held" | "candidate" | "learner" => Some(Color::DarkYellow),
        "failed" | "timeout" | "lost" | "forgotten" | "unhealthy" | "unreachable" | "not admitted" => {
            Some(Color::DarkRed)
        }
        _ => None,
    }
}

/// `state` in its colour.
fn painted(state: &str, color: bool) -> String {
    let state = shown::line(state);
    let code = match state_color(&state) {
        Some(Color::DarkGreen) => "32",
        Some(Color::DarkYellow) => "33",
        Some(Color::DarkRed) => "31",
        _ => return state.into_owned(),
    };
    if color { format!("\u{1b}[{code}m{state}\u{1b}[0m") } else { state.into_owned() }
}

#[cfg(test)]
#[path = "print_tests.rs"]
mod tests;
