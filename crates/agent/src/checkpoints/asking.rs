//! Asking a cooperative program to save while it runs, and keeping what it says that it has saved.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep_until};

use super::control::{Control, Saved};
use super::saver::Saving;
use super::shelf::Made;

/// The task that asks a program to save while it runs.
pub(super) struct Asking {
    pub saving: Saving,
    /// The interval between two requests; `None`: the program is only listened to.
    pub every: Option<Duration>,
    /// The progress that the program reported last.
    pub progress: watch::Sender<u64>,
    /// Held while what it has saved is packed: that is kept also when the program is ended meanwhile.
    pub packing: Arc<Mutex<()>>,
    pub control: Control,
}

impl Asking {
    /// Asks again and again. The number of a checkpoint is that of its period since the worker started: the workers of
    /// a gang count alike, and so does an agent that adopts one. `ran`: for how long it has run. What is `kept` was
    /// before, whatever it was counted on.
    pub async fn run(mut self, ran: Duration, kept: u64) {
        let ran =
            self.every.map_or(ran, |every| ran.max(every.saturating_mul(u32::try_from(kept).unwrap_or(u32::MAX))));
        let started = Instant::now().checked_sub(ran).unwrap_or_else(Instant::now);
        let mut passed = self.every.map_or(0, |every| periods(ran, every));
        let mut asked = None;
        loop {
            let next = u32::try_from(passed + 1).unwrap_or(u32::MAX);
            let due = self.every.map(|every| started + every.saturating_mul(next));
            tokio::select! {
                said = self.control.heard() => self.answer(said, asked.take()).await,
                every = until(due, self.every) => {
                    passed = periods(started.elapsed(), every).max(passed + 1);
                    if asked.is_none() && self.control.is_connected() {
                        asked = Some(passed);
                        self.control.say("save").await;
                    }
                }
            }
        }
    }

    /// The program says that it has saved: because it was asked to, or by itself.
    async fn answer(&mut self, said: Saved, asked: Option<u64>) {
        let Saved { progress } = said;
        self.progress.send_replace(progress);
        if let Err(error) = self.saving.folder().note_progress(progress) {
            tracing::warn!(worker = %self.saving.worker(), %error, "how far a program is cannot be noted");
        }
        let Some(sequence) = asked else { return self.control.say("noted").await };
        let folder = self.saving.folder().checkpoint();
        let _packing = self.packing.lock().await;
        let answer = match self.saving.save(&folder, sequence, Made::written(progress)).await {
            Ok(saved) => format!("kept {progress} {}", saved.bytes),
            Err(error) => {
                tracing::warn!(worker = %self.saving.worker(), %error, "a checkpoint is not kept; the one before stands");
                format!("failed {}", error.to_string().replace('\n', " "))
            }
        };
        self.control.say(&answer).await;
    }
}

/// Whole periods in a time.
pub(super) fn periods(time: Duration, every: Duration) -> u64 {
    u64::try_from(time.as_nanos() / every.as_nanos().max(1)).unwrap_or(u64::MAX)
}

/// Ends when it is due, with the period; never where there is none.
async fn until(due: Option<Instant>, every: Option<Duration>) -> Duration {
    match due.zip(every) {
        Some((due, every)) => {
            sleep_until(due).await;
            every
        }
        None => std::future::pending().await,
    }
}
