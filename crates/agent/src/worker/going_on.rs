//! What a worker goes on from: brought to where its program finds it, or is restored from.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{AccessFlags, eaccess};
use tessera_api::v1 as wire;

use super::environment::{access, is_transparent};
use super::folder::WorkerFolder;
use super::id::WorkerId;
use super::launch::{LaunchError, Launcher};
use crate::checkpoints::Unusable;
use crate::criu::Criu;
use crate::node::LaunchOrder;
use crate::supervisor::image::ImagePlan;

impl Launcher {
    /// How the worker is dumped and restored; `None` when its job does not want that, or this node cannot.
    pub(super) fn image_plan(
        &self,
        order: &wire::WorkerOrder,
        folder: &WorkerFolder,
    ) -> Result<Option<ImagePlan>, LaunchError> {
        if !is_transparent(order) {
            return Ok(None);
        }
        let alone = matches!(access(order), wire::Access::Worker | wire::Access::Unspecified);
        let usable = self.criu.clone().filter(|_| self.contained && alone);
        let Some(Criu { program, version }) = usable else {
            return if order.from.is_some() { Err(LaunchError::NoCriu) } else { Ok(None) };
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
            from: order.from.as_ref().map(|_| folder.restored()),
        }))
    }

    /// Brings the checkpoint that a worker goes on from to where its program finds it, or is restored from.
    pub(crate) async fn bring_checkpoint(&self, order: &LaunchOrder) -> Result<(), Unusable> {
        let Some(from) = &order.order.from else { return Ok(()) };
        let owner = self.owner_of(order.worker);
        if is_transparent(&order.order) {
            return self.bring_image(order.worker, from, owner).await;
        }
        let owner = owner.map(|(user, group)| tessera_checkpoint::Owner { user, group });
        self.shelf.fetch(from, &self.folders.of(order.worker).checkpoint(), owner).await
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
            for_good: false,
            message: format!("the worker's folder cannot be put back: {error}"),
        })?;
        let incomplete =
            |part| Unusable { for_good: true, message: format!("it is no image of processes: it has no {part}") };
        lacks.map_or(Ok(()), |part| Err(incomplete(part)))
    }

    /// User and group of a worker's program: whose its own folder is.
    pub(crate) fn owner_of(&self, worker: WorkerId) -> Option<(u32, u32)> {
        let work = fs::metadata(self.folders.of(worker).work()).ok()?;
        Some((work.uid(), work.gid()))
    }
}
