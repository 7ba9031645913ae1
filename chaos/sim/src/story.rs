//! The story of a run: what happened, in order, for people to read and for two runs to be compared.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use xxhash_rust::xxh3::Xxh3;

use crate::machine::now;

/// Lines that are remembered for the end of a story.
const REMEMBERED: usize = 400;

#[derive(Default)]
struct Told {
    digest: Xxh3,
    lines: u64,
    last: VecDeque<String>,
    aloud: bool,
}

/// The record of everything that happens. Clones record the same story.
#[derive(Clone, Default)]
pub struct Story(Arc<Mutex<Told>>);

impl Story {
    /// A story that is also printed as it happens, when `aloud`.
    pub fn new(aloud: bool) -> Self {
        Self(Arc::new(Mutex::new(Told { aloud, ..Told::default() })))
    }

    /// Tells what happened to whom.
    pub fn tell(&self, who: &str, what: impl std::fmt::Display) {
        let at = now();
        let line = format!("{:4}.{:03} {who:<4} {what}", at.as_secs(), at.subsec_millis());
        let mut told = self.told();
        told.digest.update(line.as_bytes());
        told.lines += 1;
        if told.aloud {
            println!("{line}");
        }
        if told.last.len() == REMEMBERED {
            told.last.pop_front();
        }
        told.last.push_back(line);
    }

    /// A digest of everything told, and how many lines it had.
    pub fn digest(&self) -> (u64, u64) {
        let told = self.told();
        (told.digest.digest(), told.lines)
    }

    /// The last lines.
    pub fn ending(&self, lines: usize) -> String {
        let told = self.told();
        let skipped = told.last.len().saturating_sub(lines);
        told.last.iter().skip(skipped).fold(String::new(), |mut text, line| {
            // Writing into a string does not fail.
            let _ = writeln!(text, "{line}");
            text
        })
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
