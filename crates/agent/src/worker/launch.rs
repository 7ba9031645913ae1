//! From an order to a supervisor that waits for the word to begin.
//!
//! The supervisor is started, and makes its control groups, while the order is being put on disk; only when that is
//! done is it told to begin. So the order is durable before the process exists, and neither waits for the other.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::future::join_all;
use tessera_api::v1 as wire;
use tessera_devices::{Attach, GrantedSlice, HostLimits, NodeDevices, Share, WorkerSlices};
use tessera_ledger::wire::{duration_if_any, enum_from_wire, host_from_wire};
use tessera_ledger::{BlockCount, HostRequest, Mebibytes, MilliTflops, Owner, Precision};
use tokio::process::Child;

use super::account::{Account, Accounts};
use super::addresses::Addresses;
use super::environment::{self, is_elastic};
use super::folder::{WorkerFolder, WorkerFolders};
use super::going_on::goes_on_from_written;
use super::id::WorkerId;
pub use super::launch_error::LaunchError;
use super::program::{self, Means, Program, SCRIPT_FILE};
use super::slices_file;
use super::spare::Spare;
use super::vcard;
use super::written::written_by;
use crate::cgroup::Limits;
use crate::checkpoints::Shelf;
use crate::config::{Limits as Bounds, SupervisorCommand};
use crate::criu::Criu;
use crate::device::runs_program;
use crate::device::served::Served;
use crate::node::{LaunchOrder, policy_of};
use crate::supervisor::LAUNCH_FILE;
use crate::supervisor::early::Ahead;
use crate::supervisor::image::{ImagePlan, PLACE};
use crate::supervisor::message::Launch;

/// The settings and resources that every launch on a node needs.
#[derive(Clone)]
pub struct Launcher {
    pub node: String,
    pub folders: WorkerFolders,
    pub devices: Arc<Mutex<NodeDevices>>,
    /// Control group under which workers run.
    pub cgroup_root: String,
    /// The node's identity, which a worker's group is named after: its own number is one of its pool.
    pub uid: String,
    /// Bounds on output and kills.
    pub bounds: Bounds,
    pub supervisor: SupervisorCommand,
    /// The supervisor and the folder that were made ahead.
    pub spare: Spare,
    pub accounts: Accounts,
    /// Checkpoints that are kept here.
    pub(crate) shelf: Shelf,
    /// Settings of slice servers; empty: this node serves no devices, or does not know yet.
    pub(crate) served: Arc<OnceLock<Served>>,
    /// The CRIU that dumps and restores processes here; `None`: there is none.
    pub criu: Option<Criu>,
    /// True if workers run in PID namespaces.
    pub contained: bool,
    /// The newest addresses that came after the order to run.
    pub addresses: Addresses,
    /// Variables that workers inherit.
    pub inherited: BTreeMap<String, String>,
}

/// A supervisor that has everything and waits for the word to begin.
#[derive(Debug)]
pub struct Prepared {
    pub child: Child,
    /// This agent's end of its first socket.
    pub stream: UnixStream,
}

impl Launcher {
    /// The cards; a panic elsewhere leaves them usable, for every change of them is a single insertion. May wait for a
    /// reading of the cards, so only blocking tasks call it.
    fn devices(&self) -> MutexGuard<'_, NodeDevices> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the worker's folder and starts its supervisor. `began`: since when, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// When something cannot be prepared; nothing of the worker runs then.
    pub async fn prepare(&self, order: &LaunchOrder, began: u64) -> Result<Prepared, LaunchError> {
        let folder = self.folders.of(order.worker);
        let (own, order) = (self.clone(), order.clone());
        let start = move || {
            own.write(&order, &folder, began)?;
            own.start_supervisor(&folder)
        };
        let started = tokio::task::spawn_blocking(start).await;
        started.map_err(|error| LaunchError::Folder(io::Error::other(error)))?
    }

    /// Makes the order of a worker durable, while its supervisor makes everything ready.
    ///
    /// # Errors
    /// When it cannot be; the worker must not begin then.
    pub async fn keep_order(&self, worker: WorkerId) -> Result<(), LaunchError> {
        make_durable(self.folders.of(worker).essentials()).await.map_err(LaunchError::Folder)
    }

    /// Tells the cards what an adopted worker holds of them, and remembers whom it runs as.
    pub async fn restore_slices(&self, worker: WorkerId, job: u64) {
        let own = self.clone();
        let restore = move || {
            if let Err(error) = own.accounts.restore(worker, job, &own.folders) {
                tracing::warn!(%worker, %error, "it is not known whom an adopted worker runs as");
            }
            let held = slices_file::load(owner(worker), &own.folders.of(worker))?;
            own.devices().prepare(&held).ok()
        };
        if !matches!(tokio::task::spawn_blocking(restore).await, Ok(Some(_))) {
            tracing::warn!(%worker, "it is not known what an adopted worker holds of the cards; readings leave it out");
        }
    }

    /// Tells the cards that a worker is over. What it left is closed to whoever gets its identity next.
    pub async fn release_slices(&self, worker: WorkerId) {
        let own = self.clone();
        let release = move || {
            own.devices().release(owner(worker));
            if let Err(error) = own.folders.of(worker).close() {
                tracing::warn!(%worker, %error, "the folder of a worker that is over cannot be closed to others");
            }
            own.accounts.release(worker);
            own.addresses.forget(worker);
        };
        // A panic there has been printed; readings are then too high until the next start.
        let _ = tokio::task::spawn_blocking(release).await;
    }

    /// Brings the file of a worker's virtual card up to date: blocks were renumbered, or cards rated anew. For a worker
    /// whose folder is not made yet, its launch does it.
    pub async fn readdress(&self, worker: WorkerId, order: Arc<wire::WorkerOrder>, number: u64) {
        let own = self.clone();
        let write = move || {
            let folder = own.folders.of(worker);
            own.addresses.bring(worker, (number, order), |order| vcard::store(order, &own.node, &folder))
        };
        let written = tokio::task::spawn_blocking(write).await;
        if let Err(error) = written.map_err(io::Error::other).flatten() {
            tracing::warn!(%worker, %error, "the file of a virtual card cannot be brought up to date");
        }
    }

    fn write(&self, launch: &LaunchOrder, folder: &WorkerFolder, began: u64) -> Result<(), LaunchError> {
        let order = &launch.order;
        if folder.path().symlink_metadata().is_ok() {
            return Err(LaunchError::StartedBefore);
        }
        let made = self.spare.folder(&self.folders).map_err(LaunchError::Folder)?;
        let account = self.accounts.take(launch.worker, order.job_id, &order.submitter)?;
        let held = self.held(launch);
        let attach = self.devices().prepare(&held)?;
        let image = self.image_plan(order, folder)?;
        let is_dumped = image.is_some();
        let plan = self.plan(launch, folder, attach, account.clone(), began, image)?;
        let write = || -> io::Result<()> {
            let into = made.folder();
            into.write_order(order)?;
            slices_file::store(&held, &into)?;
            let script = order.spec.as_ref().map_or("", |spec| spec.script.as_str());
            if !script.is_empty() {
                let path = into.work().join(SCRIPT_FILE);
                fs::write(&path, script)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            }
            if let Some(written) = written_by(order, &into)
                && !goes_on_from_written(order)
            {
                make_own(&written, account.as_ref())?;
            }
            if is_dumped {
                into.make_image_folder()?;
            }
            fs::write(into.file(LAUNCH_FILE), serde_json::to_vec(&plan)?)?;
            made.give_to(folder)?;
            // Only now: addresses that come meanwhile are written by whoever brings them once the folder has its name.
            self.store_card(launch, folder)?;
            account.as_ref().map_or(Ok(()), |account| folder.open_to(account))
        };
        write().map_err(LaunchError::Folder)
    }

    /// The first file of the virtual card: with the addresses that came while the folder was being made, if some did.
    fn store_card(&self, launch: &LaunchOrder, folder: &WorkerFolder) -> io::Result<()> {
        self.addresses.begin(launch.worker, &launch.order, |order| vcard::store(order, &self.node, folder))
    }

    /// The worker's slices of this node's cards: those of its rank that lie here.
    fn held(&self, launch: &LaunchOrder) -> WorkerSlices {
        let reference: Precision = enum_from_wire("reference_precision", launch.pool.reference.into())
            .ok()
            .flatten()
            .unwrap_or(Precision::Fp16);
        let block = MilliTflops(launch.pool.block_milli_tflops);
        let devices = self.devices();
        let own = launch.order.slices.iter().filter(|placed| placed.rank == launch.worker.rank.0);
        let slices =
            own.filter_map(|placed| placed.slice.as_ref()).filter(|slice| slice.node_id == launch.pool.node_id);
        let granted = |slice: &wire::Slice| {
            let card = devices.cards().get(slice.card_index as usize);
            let rate = card.and_then(|card| card.rate(reference)).unwrap_or_default();
            GrantedSlice {
                card_index: slice.card_index,
                share: Share::of(BlockCount(slice.blocks), block, rate),
                memory: Mebibytes(slice.memory_mib),
            }
        };
        WorkerSlices {
            owner: owner(launch.worker),
            slices: slices.map(granted).collect(),
            elastic: is_elastic(&launch.order),
        }
    }

    fn plan(
        &self,
        launch: &LaunchOrder,
        folder: &WorkerFolder,
        attach: Attach,
        account: Option<Account>,
        began: u64,
        image: Option<ImagePlan>,
    ) -> Result<Launch, LaunchError> {
        let order = &launch.order;
        // Paths in a process that was dumped do not change: it finds its folder at the same place everywhere.
        let seen = if image.is_some() { WorkerFolder::at(PLACE) } else { folder.clone() };
        let work = seen.work();
        let spec = order.spec.clone().unwrap_or_default();
        let has_program = runs_program(order);
        let mut variables = environment::of(
            order,
            &self.node,
            &seen,
            self.inherited.clone(),
            account.as_ref(),
            attach.environment.clone(),
        );
        let (own, served) = (&self.supervisor, self.served.get());
        let means = Means { own, served, work: &work, is_dumped: image.is_some() };
        let Program { command, limits, has_device, companion } = program::of(order, &attach, &means, &mut variables)?;
        let folder_of_program =
            Some(PathBuf::from(&spec.working_directory)).filter(|folder| has_program && !folder.as_os_str().is_empty());
        Ok(Launch {
            worker: launch.worker,
            job: order.job_id,
            ordered_unix_ms: Some(began),
            fence: launch.fence,
            lease: launch.lease,
            command,
            environment: variables,
            account,
            contained: self.contained,
            has_device,
            image,
            companion,
            working_directory: folder_of_program.unwrap_or(work),
            limits: limits_of(
                limits,
                spec.host.filter(|_| has_program).map(host_from_wire).unwrap_or_default(),
                self.bounds.processes_per_worker,
            ),
            cgroup: self.group_of(launch.worker),
            cgroup_root: self.cgroup_root.clone(),
            stop: policy_of(order.stop.as_ref()),
            // Where there is no program to be told of it, the worker that has it holds the limit.
            time_limit: duration_if_any(spec.time_limit.as_ref()).filter(|limit| has_program && !limit.is_zero()),
            output_file_bytes: self.bounds.output_file_bytes,
            output_files: self.bounds.output_files,
            kill_confirmation: self.bounds.kill_confirmation,
            longest_lease: self.bounds.longest_lease,
        })
    }

    fn start_supervisor(&self, folder: &WorkerFolder) -> Result<Prepared, LaunchError> {
        let started = self.spare.take(&self.supervisor, folder);
        started.map_err(|source| LaunchError::Supervisor { program: self.supervisor.program.clone(), source })
    }

    /// The control group of a worker, below each hierarchy's root. Nodes of one name on one host, in two pools, share
    /// all of it but the identity.
    pub fn group_of(&self, worker: WorkerId) -> String {
        format!("{}/{}-{worker}", self.cgroup_root, self.uid)
    }

    /// The settings that are the same for all workers.
    fn ahead(&self) -> Ahead {
        Ahead { contained: self.contained, cgroup_root: self.cgroup_root.clone() }
    }

    /// Has a supervisor and a folder wait for the next worker.
    pub async fn make_spare(&self) {
        let own = self.clone();
        // A panic there has been printed; the next launch takes longer.
        let _ = tokio::task::spawn_blocking(move || own.spare.make(&own.supervisor, &own.ahead(), &own.folders)).await;
    }
}

/// Makes a folder that belongs to the worker alone.
fn make_own(path: &Path, account: Option<&Account>) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)?;
    match account {
        Some(account) => chown(path, Some(account.uid), Some(account.gid)),
        None => Ok(()),
    }
}

/// Returns the limits of a worker on its host: the share that its processor slices are, what its job asks for beside
/// them, and a number of processes. What neither slices nor job say is not limited.
fn limits_of(slices: HostLimits, host: HostRequest, processes: u64) -> Limits {
    let both = |share: Option<u64>, asked: u64| match (share, asked) {
        (share, 0) => share,
        (share, asked) => Some(share.unwrap_or(0).saturating_add(asked)),
    };
    Limits {
        cpu_millicores: both(slices.cpu_millicores, host.cpu.0),
        cpu_elastic: slices.cpu_elastic,
        memory_bytes: both(slices.memory.map(|memory| memory.0), host.memory.0)
            .map(|mebibytes| mebibytes.saturating_mul(1 << 20)),
        processes: Some(processes),
    }
}

/// Fsyncs all paths at once: the disk flushes once for all of them instead of once for each.
async fn make_durable(paths: impl IntoIterator<Item = PathBuf>) -> io::Result<()> {
    let sync = |path: PathBuf| tokio::task::spawn_blocking(move || fs::File::open(path)?.sync_all());
    for synced in join_all(paths.into_iter().map(sync)).await {
        synced.map_err(io::Error::other).flatten()?;
    }
    Ok(())
}

/// The owner of blocks that a worker is, as the ledger writes it.
pub(super) const fn owner(worker: WorkerId) -> Owner {
    Owner { allocation: worker.allocation, epoch: worker.epoch, rank: worker.rank }
}

#[cfg(test)]
#[path = "launch_tests.rs"]
mod tests;
