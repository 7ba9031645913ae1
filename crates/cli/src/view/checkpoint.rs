//! The checkpoints that a job can resume from.

use tessera_api::v1;
use tessera_ledger::CheckpointKey;

use super::shown::Shown;
use super::time::Clock;
use super::words;
use crate::print::{Column, Tabular};

/// A checkpoint of a job.
pub type CheckpointView = Shown<v1::Checkpoint>;

/// `2.7`: the seventh of the second attempt; `2.last`: what that saved when it was stopped.
pub(super) fn name_of(attempt: u32, sequence: u64) -> String {
    CheckpointKey { attempt, sequence }.to_string()
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
            name_of(self.attempt, self.sequence),
            words::checkpoint_mode(self.mode),
            clock.ago(self.saved_at.as_ref()),
            if self.progress == 0 { "-".to_owned() } else { self.progress.to_string() },
            format!("{:.1}", self.bytes as f64 / f64::from(1 << 20)),
            if self.available { "yes" } else { "no" }.to_owned(),
            self.places(),
        ]
    }

    fn name(&self) -> String {
        format!("checkpoint/{}", name_of(self.attempt, self.sequence))
    }
}
