//! The saves of one worker: those that are made while it runs, and the last one, when it was told to stop and has
//! ended.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tessera_actor::Address;
use tessera_api::v1 as wire;
use tessera_checkpoint::Error;
use tessera_ledger::wire::duration_if_any;
use tessera_ledger::{CheckpointKey, JobId, PartKey, Rank, SavedPart};
use tokio::sync::{Mutex, watch};
use tokio_util::task::AbortOnDropHandle;

use super::asking::Asking;
use super::control::Control;
use super::dumped::Dumped;
use super::patience::patiently;
use super::shelf::{Made, Shelf};
use crate::boot::boot_id;
use crate::host::{Wanted, Wishes, tell_node};
use crate::node::{CheckpointNews, Event};
use crate::shell::Input;
use crate::supervisor::image::ImageRecord;
use crate::supervisor::status::{Cause, Exit, Status};
use crate::worker::folder::WorkerFolder;
use crate::worker::{WorkerId, falls_back, is_cooperative, is_transparent, written_by};

/// Saves of one worker.
pub(crate) struct Saver {
    saving: Saving,
    way: Way,
}

/// The way in which a worker's job is saved.
enum Way {
    /// Its program writes what it needs.
    Asked {
        every: Option<Duration>,
        owner: Option<(u32, u32)>,
        /// The progress that the program reported last.
        progress: watch::Sender<u64>,
        asking: Option<AbortOnDropHandle<()>>,
        /// Held while what it said that it has saved is packed.
        packing: Arc<Mutex<()>>,
    },
    /// Its processes are dumped. Where that cannot be, what its program writes is saved, if it is to write.
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
        let every = duration_if_any(policy.every.as_ref()).filter(|every| !every.is_zero());
        let way = if is_cooperative(order) {
            let progress = watch::Sender::new(folder.progress());
            Way::Asked { every, owner, progress, asking: None, packing: Arc::default() }
        } else if is_transparent(order) {
            let kept = folder.saved().map_or(0, |saved| saved.sequence);
            Way::Dumped(Dumped::new(every, kept, status.started_unix_ms))
        } else {
            return None;
        };
        let saving = Saving {
            shelf: shelf.clone(),
            folder: folder.clone(),
            written: written_by(order, folder),
            worker: status.worker,
            program: order.standing.as_ref().map_or(status.worker.rank, |standing| Rank(standing.rank)),
            job: JobId(order.job_id),
            attempt: order.attempt,
            node,
        };
        Some(Self { saving, way })
    }

    /// The worker runs: from here on its program can connect, and is asked to save. `ran`: for how long it has run.
    pub fn begin(&mut self, ran: Duration) {
        let (every, owner, progress, packing, asking) = match &mut self.way {
            Way::Asked { asking: Some(_), .. } => return,
            Way::Asked { every, owner, progress, packing, asking } => {
                (*every, *owner, progress.clone(), Arc::clone(packing), asking)
            }
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
        let kept = self.saving.folder.saved().map_or(0, |saved| saved.sequence);
        let task = Asking { saving: self.saving.clone(), every, progress, packing, control };
        *asking = Some(AbortOnDropHandle::new(tokio::spawn(task.run(ran, kept))));
    }

    /// Waits until the supervisor is to be asked to dump the worker while it runs; answers under which number.
    /// `started`: when it started.
    pub async fn due(&self, started: Option<u64>) -> u64 {
        match &self.way {
            Way::Dumped(images) => images.due(started).await,
            Way::Asked { .. } => std::future::pending().await,
        }
    }

    /// Returns whether the supervisor may be asked now to dump the worker under this number.
    pub async fn may_ask(&mut self, number: u64) -> bool {
        match &mut self.way {
            Way::Dumped(images) => images.may_ask(number, &self.saving).await,
            Way::Asked { .. } => false,
        }
    }

    /// The supervisor says how the worker stands.
    pub fn heard(&mut self, status: &Status) {
        if let (Way::Dumped(images), Some(snapshot)) = (&mut self.way, &status.snapshot)
            // What was made before the host was started anew may be on disk by half.
            && is_of_this_boot(status)
        {
            images.heard_of(snapshot, &self.saving);
        }
    }

    /// The worker is over. What was saved of it when it was told to stop is kept, unless its job is not to go on;
    /// answers why it could not be. What stands in the way of that may pass: it is tried for a while.
    pub async fn finish(self, status: &Status, mut wanted: Wishes) -> Result<(), NotKept> {
        if is_needless(wanted.newest()) {
            return Ok(());
        }
        tokio::select! {
            kept = self.keep_the_last(status) => kept,
            _ = wanted.until(is_needless) => Ok(()),
        }
    }

    /// Keeps the newest that there is of a worker that is over. Its processes are gone when they were dumped.
    async fn keep_the_last(self, status: &Status) -> Result<(), NotKept> {
        let Self { saving, way } = self;
        match (way, &status.image, &saving.written) {
            (Way::Asked { progress, asking, .. }, _, Some(written)) if ended_by_saving(status) => {
                // One that is half done is left: what is there now is newer.
                drop(asking);
                let made = Made::written(*progress.borrow());
                saving.keep_written(status, written, made).await
            }
            (Way::Dumped(_), None, Some(written))
                if ended_by_saving(status) && (!is_of_this_boot(status) || saving.has_written(written).await) =>
            {
                saving.keep_written(status, written, Made::written(0)).await
            }
            (Way::Dumped(_), Some(image), _) => Ok(patiently(|| saving.keep_image(image)).await?),
            // What is being packed is the newest that there will be.
            (Way::Dumped(images), None, _) => {
                images.are_packed().await;
                Ok(())
            }
            // It came to its own end: nothing will go on from what is being packed.
            (Way::Asked { .. }, ..) if status.cause == Some(Cause::Exited) && status.exit == Some(Exit::Code(0)) => {
                Ok(())
            }
            (Way::Asked { packing, .. }, ..) => {
                drop(packing.lock().await);
                Ok(())
            }
        }
    }
}

/// The reason why the save of a worker at its end is not kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKept {
    /// Data that a program wrote before its host lost power may be on the disk only in part.
    #[error("its host was started anew before it was, and may have lost some of it")]
    Restarted,
    #[error(transparent)]
    Store(#[from] Error),
}

/// Returns whether the status is of the present boot: the host has not been restarted since.
fn is_of_this_boot(status: &Status) -> bool {
    boot_id().is_ok_and(|present| present == status.boot_id)
}

/// Returns whether the leader has said that the job does not go on.
fn is_needless(wanted: Wanted) -> bool {
    wanted.save_at_end == Some(false)
}

/// Returns whether a worker was told to stop, and exited by itself with code 0 within its grace: only then is what it
/// wrote complete.
fn ended_by_saving(status: &Status) -> bool {
    matches!(status.cause, Some(Cause::Ordered | Cause::LeaseExpired))
        && status.exit == Some(Exit::Code(0))
        && status.within_grace
}

/// Returns whether an agent that ended meanwhile has left it to this one to keep the save of a worker at its end.
#[must_use]
pub fn is_due_at_the_end(status: &Status, order: Option<&wire::WorkerOrder>, saved: Option<&SavedPart>) -> bool {
    let was_saved = |order: &wire::WorkerOrder| {
        let dumped = is_transparent(order) && status.image.is_some();
        let may_have_written = is_cooperative(order) || falls_back(order);
        dumped || (may_have_written && ended_by_saving(status))
    };
    order.is_some_and(was_saved) && status.is_final() && saved.is_none_or(|saved| saved.sequence != CheckpointKey::LAST)
}

#[derive(Clone, Copy, Debug)]
enum Moment {
    AtTheEnd,
    /// While it runs, under this number.
    Snapshot(u64),
}

/// Everything that a save of one worker needs.
#[derive(Clone)]
pub(super) struct Saving {
    shelf: Shelf,
    folder: WorkerFolder,
    /// The folder into which the program writes what it needs to resume, if it is to write.
    written: Option<PathBuf>,
    worker: WorkerId,
    program: Rank,
    job: JobId,
    attempt: u32,
    node: Address<Input>,
}

impl Saving {
    /// Tells of what an agent before this one kept when the worker ended. What the program wrote is not looked at: its
    /// host was started anew since.
    async fn tell_of_kept(&self, made: Made) -> Result<(), NotKept> {
        let part = self.part(CheckpointKey::LAST);
        match patiently(|| self.shelf.saved(&part, made)).await? {
            Some(saved) => {
                self.tell(&saved).await;
                Ok(())
            }
            None => Err(NotKept::Restarted),
        }
    }

    /// Keeps what the program of a worker wrote that is over.
    async fn keep_written(&self, status: &Status, written: &Path, made: Made) -> Result<(), NotKept> {
        if !is_of_this_boot(status) {
            return self.tell_of_kept(made).await;
        }
        patiently(|| self.save(written, CheckpointKey::LAST, made)).await?;
        Ok(())
    }

    fn part(&self, sequence: u64) -> PartKey {
        let checkpoint = CheckpointKey { attempt: self.attempt, sequence };
        PartKey { job: self.job, checkpoint, epoch: self.worker.epoch, rank: self.program }
    }

    /// Keeps what is in a folder now, and tells the node.
    pub(super) async fn save(&self, folder: &Path, sequence: u64, made: Made) -> Result<SavedPart, Error> {
        let saved = self.shelf.save(&self.part(sequence), made, folder).await?;
        let Made { mode, progress } = made;
        let (worker, job, bytes) = (self.worker, self.job, saved.bytes);
        tracing::info!(%worker, %job, sequence, ?mode, progress, bytes, "a checkpoint is kept");
        self.tell(&saved).await;
        Ok(saved)
    }

    /// Writes down what is kept, and tells the node.
    async fn tell(&self, saved: &SavedPart) {
        let (noted, told) = (self.folder.clone(), saved.clone());
        let noted = tokio::task::spawn_blocking(move || noted.note_saved(&told)).await;
        if let Err(error) = noted.map_err(std::io::Error::other).flatten() {
            tracing::warn!(worker = %self.worker, %error, "what was saved cannot be noted; a next agent would not tell of it");
        }
        tell_node(&self.node, Event::Checkpoint(self.worker, CheckpointNews::Saved(saved.clone()))).await;
    }
}

impl Saving {
    /// Returns whether the program of a worker that was to be dumped has written something since its newest image; also
    /// true where that cannot be found out.
    async fn has_written(&self, written: &Path) -> bool {
        let (folder, written) = (self.folder.clone(), written.to_owned());
        tokio::task::spawn_blocking(move || folder.has_written(&written)).await.unwrap_or(true)
    }

    /// Puts the rest of what was dumped beside its image.
    async fn complete_image(&self, moment: Moment, image: &ImageRecord) -> Result<(), Error> {
        let (folder, image) = (self.folder.clone(), image.clone());
        let completed = tokio::task::spawn_blocking(move || match moment {
            Moment::AtTheEnd => folder.complete_image(&image),
            Moment::Snapshot(number) => folder.complete_snapshot(number, &image),
        });
        let completed = completed.await.map_err(std::io::Error::other).flatten();
        completed.map_err(|source| Error::Io { path: self.folder.path().to_owned(), source })
    }

    /// Keeps the image of a worker that is over.
    async fn keep_image(&self, image: &ImageRecord) -> Result<(), Error> {
        self.complete_image(Moment::AtTheEnd, image).await?;
        self.save(&self.folder.checkpoint(), CheckpointKey::LAST, Made::DUMPED).await.map(|_| ())
    }

    /// Keeps an image of a worker that runs on.
    pub(super) async fn keep_snapshot(&self, number: u64, image: ImageRecord) -> Result<(), Error> {
        self.complete_image(Moment::Snapshot(number), &image).await?;
        self.save(&self.folder.snapshot(number), number, Made::DUMPED).await?;
        if self.written.is_none() {
            return Ok(());
        }
        let folder = self.folder.clone();
        let noted = tokio::task::spawn_blocking(move || folder.note_in_snapshot(number)).await;
        if let Err(error) = noted.unwrap_or(Err(Error::Ended)) {
            tracing::warn!(worker = %self.worker, number, %error, "what is in an image may be taken for newer than it");
        }
        Ok(())
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

    pub(super) const fn worker(&self) -> WorkerId {
        self.worker
    }

    pub(super) const fn folder(&self) -> &WorkerFolder {
        &self.folder
    }

    /// Removes the files from which the worker's processes were restored: they are needed no more.
    fn forget_restored(&self) {
        let (folder, worker) = (self.folder.clone(), self.worker);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = folder.remove_restored() {
                tracing::warn!(%worker, %error, "what a worker was restored from cannot be removed");
            }
        });
    }
}

#[cfg(test)]
#[path = "saver_tests.rs"]
mod tests;
