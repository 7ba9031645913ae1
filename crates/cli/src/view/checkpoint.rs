//! What a job can go on from.

use serde::Serialize;
use tessera_api::v1;
use tessera_ledger::CheckpointKey;

use super::shown::Shown;
use super::time::{Clock, text};
use super::words;
use crate::print::{Column, Tabular};

/// A checkpoint of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckpointView {
    /// Its name among those of its job: the attempt that saved it, and which of the attempt's.
    pub name: String,
    /// The attempt that saved it.
    pub attempt: u32,
    /// The epoch of the allocation under which it was saved.
    pub epoch: u64,
    /// How it was saved: `cooperative`, by its program; `transparent`, by dumping it.
    pub mode: String,
    /// When it was saved.
    pub saved_at: Option<String>,
    /// How far the program said it was; 0: it did not say.
    pub progress: u64,
    /// Bytes of the program's files.
    pub bytes: u64,
    /// Whether all that it needs can be fetched now.
    pub available: bool,
    /// Its parts, by rank.
    pub parts: Vec<Shown<v1::CheckpointPart>>,
}

/// `2.7`: the seventh of the second attempt; `2.last`: what that saved when it was stopped.
pub(super) fn name_of(attempt: u32, sequence: u64) -> String {
    CheckpointKey { attempt, sequence }.to_string()
}

impl From<v1::Checkpoint> for CheckpointView {
    fn from(checkpoint: v1::Checkpoint) -> Self {
        Self {
            name: name_of(checkpoint.attempt, checkpoint.sequence),
            attempt: checkpoint.attempt,
            epoch: checkpoint.epoch,
            mode: words::checkpoint_mode(checkpoint.mode),
            saved_at: text(checkpoint.saved_at.as_ref()),
            progress: checkpoint.progress,
            bytes: checkpoint.bytes,
            available: checkpoint.available,
            parts: checkpoint.parts.into_iter().map(Into::into).collect(),
        }
    }
}

impl CheckpointView {
    fn places(&self) -> String {
        if self.parts.iter().any(|part| part.shared) {
            return "shared store".to_owned();
        }
        let mut nodes: Vec<&str> = self.parts.iter().flat_map(|part| &part.nodes).map(String::as_str).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.join(",")
    }
}

impl Tabular for CheckpointView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[
            Column::left("CHECKPOINT"),
            Column::left("MODE"),
            Column::right("AGE"),
            Column::right("PROGRESS"),
            Column::right("MIB"),
            Column::left("AVAILABLE"),
            Column::left("KEPT BY"),
        ];
        COLUMNS
    }

    fn cells(&self, clock: &Clock) -> Vec<String> {
        vec![
            self.name.clone(),
            self.mode.clone(),
            clock.ago(self.saved_at.as_deref()),
            if self.progress == 0 { "-".to_owned() } else { self.progress.to_string() },
            format!("{:.1}", self.bytes as f64 / f64::from(1 << 20)),
            if self.available { "yes" } else { "no" }.to_owned(),
            self.places(),
        ]
    }

    fn name(&self) -> String {
        format!("checkpoint/{}", self.name)
    }
}
