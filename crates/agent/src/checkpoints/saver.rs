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
use super::dumped::Dumped;
use super::patience::patiently;
use super::shelf::Shelf;
use crate::boot::{boot_id, unix_millis};
use crate::host::{Wanted, tell_node};
use crate::node::{CheckpointNews, Event};
use crate::shell::Input;
use crate::supervisor::image::ImageRecord;
use crate::supervisor::status::{Cause, Exit, Status};
use crate::worker::folder::WorkerFolder;
use crate::worker::{WorkerId, is_cooperative, is_transparent};

/// Saves of one worker.
pub(crate) struct Saver {
    saving: Saving,
    way: Way,
}

/// How a worker's job is saved.
enum Way {
    /// Its program writes what it needs.
    Asked {
        every: Option<Duration>,
        owner: Option<(u32, u32)>,
        /// How far the program said it is.
        progress: watch::Sender<u64>,
        asking: Option<AbortOnDropHandle<()>>,
    },
    /// Its processes are dumped.
    Dumped(Dumped),
}

impl Saver {
    /// For a worker of this order; `None` when its job does not save. `status`: how it stands. `owner`: user and group
    /// of its program.
    pub fn of(
        shelf: &Shelf,
        folder: &WorkerFolder,
        status: &Status,
        order: &wire::WorkerOrder,
        owner: Option<(u32, u32)>,
        node: Address<Input>,
    ) -> Option<Self> {
        let policy = order.spec.as_ref()?.checkpoint.as_ref()?;
        let every = policy.every.and_then(|every| Duration::try_from(every).ok()).filter(|every| !every.is_zero());
        let way = if is_cooperative(order) {
            Way::Asked { every, owner, progress: watch::Sender::new(folder.progress()), asking: None }
        } else if is_transparent(order) {
            let kept = folder.saved().map_or(0, |saved| saved.sequence);
            Way::Dumped(Dumped::new(every, kept, status.started_unix_ms))
        } else {
            return None;
        };
        let saving = Saving {
            shelf: shelf.clone(),
            folder: folder.clone(),
            worker: status.worker,
            job: JobId(order.job_id),
            attempt: order.attempt,
            node,
        };
        Some(Self { saving, way })
    }

    /// The worker runs: from here on its program can connect, and is asked to save. `started`: when it started, in
    /// milliseconds since the Unix epoch.
    pub fn begin(&mut self, started: Option<u64>) {
        let (every, owner, progress, asking) = match &mut self.way {
            Way::Asked { asking: Some(_), .. } => return,
            Way::Asked { every, owner, progress, asking } => (*every, *owner, progress.clone(), asking),
            // It has been restored, if it had to be.
            Way::Dumped(_) => return self.saving.forget_restored(),
        };
        let control = match Control::listen(&self.saving.folder, owner) {
            Ok(control) => control,
            Err(error) => {
                tracing::warn!(worker = %self.saving.worker, %error, "a worker has no control socket: it saves only when it is stopped");
                return;
            }
        };
        let ran = Duration::from_millis(started.map_or(0, |started| unix_millis().saturating_sub(started)));
        let task = Asking { saving: self.saving.clone(), every, progress, control };
        *asking = Some(AbortOnDropHandle::new(tokio::spawn(task.run(ran))));
    }

    /// Waits until the supervisor is to be asked to dump the worker while it runs; answers under which number.
    /// `started`: when it started.
    pub async fn due(&self, started: Option<u64>) -> u64 {
        match &self.way {
            Way::Dumped(dumped) => dumped.due(started).await,
            Way::Asked { .. } => std::future::pending().await,
        }
    }

    /// Whether it may be asked so now.
    pub async fn may_ask(&mut self, number: u64) -> bool {
        match &mut self.way {
            Way::Dumped(dumped) => dumped.may_ask(number, &self.saving).await,
            Way::Asked { .. } => false,
        }
    }

    /// The supervisor says how the worker stands.
    pub fn heard(&mut self, status: &Status) {
        if let (Way::Dumped(dumped), Some(snapshot)) = (&mut self.way, &status.snapshot)
            // What was made before the host was started anew may be on disk by half.
            && boot_id().is_ok_and(|present| present == status.boot_id)
        {
            dumped.heard_of(snapshot, &self.saving);
        }
    }

    /// The worker is over. What was saved of it when it was told to stop is kept, unless its job is not to go on;
    /// answers why it could not be. Its processes are gone when they were dumped, and what stands in the way of keeping
    /// that may pass: it is tried for a while.
    pub async fn finish(self, status: &Status, mut wanted: watch::Receiver<Wanted>) -> Result<(), Error> {
        let Self { saving, way } = self;
        let progress = match (way, &status.image) {
            _ if is_needless(*wanted.borrow()) => return Ok(()),
            (Way::Asked { progress, asking, .. }, _) if ended_by_saving(status) => {
                // One that is half done is left: what is there now is newer.
                drop(asking);
                *progress.borrow()
            }
            (Way::Dumped(_), Some(image)) => {
                let keep = || {
                    let (saving, image) = (saving.clone(), image.clone());
                    async move {
                        saving.complete_image(Place::AtTheEnd, &image).await?;
                        saving.save(CheckpointKey::LAST, 0).await.map(|_| ())
                    }
                };
                return tokio::select! {
                    kept = patiently(keep) => kept,
                    _ = wanted.wait_for(|wanted| is_needless(*wanted)) => Ok(()),
                };
            }
            (Way::Asked { .. } | Way::Dumped(_), _) => return Ok(()),
        };
        saving.save(CheckpointKey::LAST, progress).await.map(|_| ())
    }
}

/// Whether the leader has said that the job is not to go on.
fn is_needless(wanted: Wanted) -> bool {
    wanted.save_at_end == Some(false)
}

/// Whether a worker was told to stop, and ended by itself and well, in time: only then what it wrote is whole.
fn ended_by_saving(status: &Status) -> bool {
    matches!(status.cause, Some(Cause::Ordered | Cause::LeaseExpired))
        && status.exit == Some(Exit::Code(0))
        && status.within_grace
}

/// Whether an agent that was ended meanwhile has left it to this one to keep what was saved of a worker at its end.
#[must_use]
pub fn is_due_at_the_end(status: &Status, order: Option<&wire::WorkerOrder>, saved: Option<&SavedPart>) -> bool {
    let was_saved = |order: &wire::WorkerOrder| {
        (is_cooperative(order) && ended_by_saving(status)) || (is_transparent(order) && status.image.is_some())
    };
    order.is_some_and(was_saved) && status.is_final() && saved.is_none_or(|saved| saved.sequence != CheckpointKey::LAST)
}

/// When an image is made.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// When the worker is stopped.
    AtTheEnd,
    /// While it runs, under this number.
    Snapshot(u64),
}

/// What saving takes.
#[derive(Clone)]
pub(super) struct Saving {
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
        self.save_folder(self.folder.checkpoint(), sequence, progress).await
    }

    async fn save_folder(&self, folder: PathBuf, sequence: u64, progress: u64) -> Result<SavedPart, Error> {
        let part = PartKey {
            job: self.job,
            checkpoint: CheckpointKey { attempt: self.attempt, sequence },
            epoch: self.worker.epoch,
            rank: self.worker.rank,
        };
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

impl Saving {
    /// Puts the rest of what was dumped beside its image.
    async fn complete_image(&self, place: Place, image: &ImageRecord) -> Result<(), Error> {
        let (folder, image) = (self.folder.clone(), image.clone());
        let completed = tokio::task::spawn_blocking(move || match place {
            Place::AtTheEnd => folder.complete_image(&image),
            Place::Snapshot(number) => folder.complete_snapshot(number, &image),
        });
        let completed = completed.await.map_err(std::io::Error::other).flatten();
        completed.map_err(|source| Error::Io { path: self.folder.path().to_owned(), source })
    }

    /// Keeps an image of a worker that runs on.
    pub(super) async fn keep_snapshot(&self, number: u64, image: ImageRecord) -> Result<(), Error> {
        self.complete_image(Place::Snapshot(number), &image).await?;
        self.save_folder(self.folder.snapshot(number), number, 0).await.map(|_| ())
    }

    /// Tells the node why the newest image of a worker that runs on is not kept; `None`: it is.
    pub(super) async fn tell_of_snapshot(&self, failed: Option<String>) {
        let news = CheckpointNews::Snapshot { failed: failed.unwrap_or_default() };
        tell_node(&self.node, Event::Checkpoint(self.worker, news)).await;
    }

    /// Removes the image of this number, and those before it: they are kept, or cannot be.
    pub(super) async fn remove_snapshots_to(&self, number: u64) {
        let folder = self.folder.clone();
        let removed = tokio::task::spawn_blocking(move || folder.remove_snapshots_to(number)).await;
        if let Err(error) = removed.map_err(std::io::Error::other).flatten() {
            tracing::warn!(worker = %self.worker, number, %error, "an image of a worker cannot be removed");
        }
    }

    /// The worker.
    pub(super) const fn worker(&self) -> WorkerId {
        self.worker
    }

    /// Its folder.
    pub(super) const fn folder(&self) -> &WorkerFolder {
        &self.folder
    }

    /// What its processes were restored from is needed no more.
    fn forget_restored(&self) {
        let (folder, worker) = (self.folder.clone(), self.worker);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = folder.remove_restored() {
                tracing::warn!(%worker, %error, "what a worker was restored from cannot be removed");
            }
        });
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
