//! Checkpoints from which workers resume: brought to where the program finds them, or is restored from.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{AccessFlags, eaccess};
use tessera_api::v1 as wire;
use tessera_checkpoint::Error;

use super::environment::{access, falls_back, is_transparent};
use super::folder::WorkerFolder;
use super::id::WorkerId;
use super::launch::{LaunchError, Launcher};
use super::written::written_by;
use crate::checkpoints::{Hindrance, Unusable};
use crate::criu::Criu;
use crate::node::LaunchOrder;
use crate::supervisor::image::ImagePlan;

/// Returns whether the worker is restored from an image of its processes.
pub(super) fn goes_on_from_image(order: &wire::WorkerOrder) -> bool {
    order.from.as_ref().is_some_and(|from| from.mode() == wire::CheckpointMode::Transparent)
}

/// Returns whether the worker's program finds what it wrote.
pub(super) fn goes_on_from_written(order: &wire::WorkerOrder) -> bool {
    order.from.is_some() && !goes_on_from_image(order)
}

impl Launcher {
    /// The plan to dump and restore the worker; `None` when its job does not want that, or this node cannot. An error
    /// instead where this node cannot and the worker is to be restored from an image, or where the CRIU that was found
    /// when the agent started can no longer be run.
    pub(super) fn image_plan(
        &self,
        order: &wire::WorkerOrder,
        folder: &WorkerFolder,
    ) -> Result<Option<ImagePlan>, LaunchError> {
        if !is_transparent(order) {
            return Ok(None);
        }
        let usable = self.criu.clone().filter(|_| self.contained && access(order) != wire::Access::Remote);
        let Some(Criu { program, version }) = usable else {
            return if goes_on_from_image(order) { Err(LaunchError::NoCriu) } else { Ok(None) };
        };
        // It was looked for when the agent started, and jobs come here for it.
        eaccess(&program, AccessFlags::X_OK).map_err(|_| LaunchError::NoCriu)?;
        Ok(Some(ImagePlan {
            criu: program,
            version,
            node: self.node.clone(),
            folder: folder.path().to_owned(),
            into: folder.checkpoint(),
            snapshots: folder.snapshots(),
            is_packed_here: !self.shelf.is_shared(),
            from: goes_on_from_image(order).then(|| folder.restored()),
        }))
    }

    /// Brings the checkpoint that a worker goes on from to where its program finds it, or is restored from.
    pub(crate) async fn bring_checkpoint(&self, order: &LaunchOrder) -> Result<(), Unusable> {
        let Some(from) = &order.order.from else { return Ok(()) };
        let (owner, folder) = (self.owner_of(order.worker), self.folders.of(order.worker));
        let is_image = goes_on_from_image(&order.order);
        if is_image {
            self.bring_image(order.worker, from, owner).await?;
        } else {
            let owner = owner.map(|(user, group)| tessera_checkpoint::Owner { user, group });
            let into = if is_transparent(&order.order) { folder.restored() } else { folder.checkpoint() };
            self.shelf.fetch(from, &into, owner).await?;
        }
        let written = written_by(&order.order, &folder).filter(|_| falls_back(&order.order));
        let Some(written) = written else { return Ok(()) };
        let handed_over = tokio::task::spawn_blocking(move || -> Result<(), Error> {
            if !is_image {
                folder.hand_over(&written).map_err(|source| Error::Io { path: written.clone(), source })?;
            }
            folder.note_found(&written)
        });
        let handed_over = handed_over.await.unwrap_or(Err(Error::Ended));
        handed_over.map_err(|error| Unusable { why: Hindrance::Node, message: error.to_string() })
    }

    /// An image is the agent's own; only what lay in the worker's folder is the worker's again.
    async fn bring_image(
        &self,
        worker: WorkerId,
        from: &wire::CheckpointSource,
        owner: Option<(u32, u32)>,
    ) -> Result<(), Unusable> {
        let folder = self.folders.of(worker);
        self.shelf.fetch(from, &folder.restored(), None).await?;
        let restored = tokio::task::spawn_blocking(move || match folder.restored_lacks() {
            Some(part) => Ok(Some(part)),
            None => folder.restore_work(owner).map(|()| None),
        });
        let lacks = restored.await.map_err(io::Error::other).flatten().map_err(|error| Unusable {
            why: Hindrance::Node,
            message: format!("the worker's folder cannot be put back: {error}"),
        })?;
        let incomplete =
            |part| Unusable { why: Hindrance::Gone, message: format!("it is no image of processes: it has no {part}") };
        lacks.map_or(Ok(()), |part| Err(incomplete(part)))
    }

    /// User and group of a worker's program: whose its own folder is.
    pub(crate) fn owner_of(&self, worker: WorkerId) -> Option<(u32, u32)> {
        let work = fs::metadata(self.folders.of(worker).work()).ok()?;
        Some((work.uid(), work.gid()))
    }
}
