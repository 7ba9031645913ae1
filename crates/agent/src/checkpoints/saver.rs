//! What is saved of one worker: when its program is asked to, and when it was told to stop and has ended.

use std::path::PathBuf;
use std::time::Duration;

use tessera_actor::Address;
use tessera_api::v1 as wire;
use tessera_checkpoint::Error;
use tessera_ledger::{CheckpointKey, JobId, PartKey, SavedPart};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::control::{Control, Saved};
use super::shelf::Shelf;
use crate::boot::unix_millis;
use crate::host::tell_node;
use crate::node::{CheckpointNews, Event};
use crate::shell::Input;
use crate::supervisor::status::{Cause, Exit, Status};
use crate::worker::folder::WorkerFolder;
use crate::worker::{WorkerId, is_cooperative};

/// Saves of one worker of a cooperative job.
pub(crate) struct Saver {
    saving: Saving,
    every: Option<Duration>,
    owner: Option<(u32, u32)>,
    /// How far the program said it is.
    progress: watch::Sender<u64>,
    asking: Option<AbortOnDropHandle<()>>,
}

impl Saver {
    /// For a worker of this order; `None` when its job does not save. `owner`: user and group of its program.
    pub fn of(
        shelf: &Shelf,
        folder: &WorkerFolder,
        worker: WorkerId,
        order: &wire::WorkerOrder,
        owner: Option<(u32, u32)>,
        node: Address<Input>,
    ) -> Option<Self> {
        let policy = order.spec.as_ref()?.checkpoint.as_ref().filter(|_| is_cooperative(order))?;
        let every = policy.every.and_then(|every| Duration::try_from(every).ok()).filter(|every| !every.is_zero());
        let saving = Saving {
            shelf: shelf.clone(),
            folder: folder.clone(),
            worker,
            job: JobId(order.job_id),
            attempt: order.attempt,
            node,
        };
        Some(Self { saving, every, owner, progress: watch::Sender::new(folder.progress()), asking: None })
    }

    /// The worker runs: from here on its program can connect, and is asked to save. `started`: when it started, in
    /// milliseconds since the Unix epoch.
    pub fn begin(&mut self, started: Option<u64>) {
        if self.asking.is_some() {
            return;
        }
        let control = match Control::listen(&self.saving.folder, self.owner) {
            Ok(control) => control,
            Err(error) => {
                tracing::warn!(worker = %self.saving.worker, %error, "a worker has no control socket: it saves only when it is stopped");
                return;
            }
        };
        let ran = Duration::from_millis(started.map_or(0, |started| unix_millis().saturating_sub(started)));
        let asking =
            Asking { saving: self.saving.clone(), every: self.every, progress: self.progress.clone(), control };
        self.asking = Some(AbortOnDropHandle::new(tokio::spawn(asking.run(ran))));
    }

    /// The worker is over. What it wrote when it was told to stop is kept, unless its job is not to go on; answers why
    /// it could not be.
    pub async fn finish(self, status: &Status, wanted: Option<bool>) -> Result<(), Error> {
        let Self { saving, progress, asking, .. } = self;
        // One that is half done is left: what is there now is newer.
        drop(asking);
        if wanted == Some(false) || !ended_by_saving(status) {
            return Ok(());
        }
        let progress = *progress.borrow();
        saving.save(CheckpointKey::LAST, progress).await.map(|_| ())
    }
}

/// Whether a worker was told to stop, and ended by itself and well, in time: only then what it wrote is whole.
fn ended_by_saving(status: &Status) -> bool {
    matches!(status.cause, Some(Cause::Ordered | Cause::LeaseExpired))
        && status.exit == Some(Exit::Code(0))
        && status.within_grace
}

/// Whether an agent that was ended meanwhile has left it to this one to keep what a worker wrote at its end.
#[must_use]
pub fn is_due_at_the_end(status: &Status, order: Option<&wire::WorkerOrder>, saved: Option<&SavedPart>) -> bool {
    order.is_some_and(is_cooperative)
        && status.is_final()
        && ended_by_saving(status)
        && saved.is_none_or(|saved| saved.sequence != CheckpointKey::LAST)
}

/// What saving takes.
#[derive(Clone)]
struct Saving {
    shelf: Shelf,
    folder: WorkerFolder,
    worker: WorkerId,
    job: JobId,
    attempt: u32,
    node: Address<Input>,
}

impl Saving {
    /// Keeps what is in the worker's folder now, and tells the node.
    async fn save(&self, sequence: u64, progress: u64) -> Result<SavedPart, Error> {
        let part = PartKey {
            job: self.job,
            checkpoint: CheckpointKey { attempt: self.attempt, sequence },
            epoch: self.worker.epoch,
            rank: self.worker.rank,
        };
        let folder: PathBuf = self.folder.checkpoint();
        let saved = self.shelf.save(&part, progress, &folder).await?;
        tracing::info!(worker = %self.worker, job = %self.job, sequence, progress, bytes = saved.bytes, "a checkpoint is kept");
        let (noted, told) = (self.folder.clone(), saved.clone());
        let noted = tokio::task::spawn_blocking(move || noted.note_saved(&told)).await;
        if let Err(error) = noted.map_err(std::io::Error::other).flatten() {
            tracing::warn!(worker = %self.worker, %error, "what was saved cannot be noted; a next agent would not tell of it");
        }
        tell_node(&self.node, Event::Checkpoint(self.worker, CheckpointNews::Saved(saved.clone()))).await;
        Ok(saved)
    }
}

/// The task that asks a program to save while it runs.
struct Asking {
    saving: Saving,
    every: Option<Duration>,
    progress: watch::Sender<u64>,
    control: Control,
}

impl Asking {
    /// Asks again and again. The number of a checkpoint is that of its period since the worker started: the workers of a
    /// gang count alike, and so does an agent that adopts one.
    async fn run(mut self, ran: Duration) {
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
        if let Err(error) = self.saving.folder.note_progress(progress) {
            tracing::warn!(worker = %self.saving.worker, %error, "how far a program is cannot be noted");
        }
        let Some(sequence) = asked else { return self.control.say("noted").await };
        let answer = match self.saving.save(sequence, progress).await {
            Ok(saved) => format!("kept {progress} {}", saved.bytes),
            Err(error) => {
                tracing::warn!(worker = %self.saving.worker, %error, "a checkpoint is not kept; the one before stands");
                format!("failed {}", error.to_string().replace('\n', " "))
            }
        };
        self.control.say(&answer).await;
    }
}

/// Whole periods in a time.
fn periods(time: Duration, every: Duration) -> u64 {
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

#[cfg(test)]
mod tests {
    use tessera_ledger::{AllocationId, Epoch, Rank};

    use super::*;
    use crate::supervisor::status::Phase;
    use crate::worker::{Fence, Term};

    fn order(mode: wire::CheckpointMode) -> wire::WorkerOrder {
        let checkpoint = Some(wire::CheckpointPolicy { mode: mode.into(), ..Default::default() });
        wire::WorkerOrder { spec: Some(wire::JobSpec { checkpoint, ..Default::default() }), ..Default::default() }
    }

    fn over(change: impl FnOnce(&mut Status)) -> Status {
        let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(5), rank: Rank(0) };
        let mut status = Status::new(worker, 7, Fence { term: Term(1), epoch: Epoch(5) }, String::new());
        (status.phase, status.cause, status.exit) = (Phase::Stopped, Some(Cause::Ordered), Some(Exit::Code(0)));
        change(&mut status);
        status
    }

    #[test]
    fn only_what_was_written_in_time_by_a_program_that_ended_well_is_kept() {
        let cooperative = order(wire::CheckpointMode::Cooperative);
        let due = |change: fn(&mut Status)| is_due_at_the_end(&over(change), Some(&cooperative), None);
        assert!(due(|_| {}));
        assert!(due(|status| status.cause = Some(Cause::LeaseExpired)));
        assert!(!due(|status| status.exit = Some(Exit::Code(1))));
        assert!(!due(|status| status.exit = Some(Exit::Signal(15))), "the signal ended it: it may have been writing");
        assert!(!due(|status| status.within_grace = false));
        assert!(!due(|status| status.cause = Some(Cause::Exited)), "nobody told it to stop");
        assert!(!due(|status| status.phase = Phase::Stopping));
        let requeue = order(wire::CheckpointMode::Requeue);
        assert!(!is_due_at_the_end(&over(|_| {}), Some(&requeue), None));
        let (bytes, hash, ticket) = (1, [0; 32], 1);
        let saved = |sequence| SavedPart { sequence, progress: 0, bytes, hash, ticket, shared: false };
        assert!(is_due_at_the_end(&over(|_| {}), Some(&cooperative), Some(&saved(3))));
        let last = saved(CheckpointKey::LAST);
        assert!(!is_due_at_the_end(&over(|_| {}), Some(&cooperative), Some(&last)), "it was done");
    }
}
