//! The checkpoints that a node keeps: the store on its disk, and the one that all nodes share, where there is one.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tessera_api::agent::part_of as part_of_name;
use tessera_api::v1 as wire;
use tessera_checkpoint::{
    CheckpointId, Error, Limits, Objects, Owner, Published, Remote, Store, read_published, restore, save,
};
use tessera_connection::Outbound;
use tessera_ledger::{CheckpointMode, PartKey, SavedPart};
use tokio::time::{Instant, sleep};

use super::meters::{CheckpointMeters, Operation};
use super::shared::SharedStore;
use super::tickets::{Tickets, ticket_of, ticket_text};
use super::{id_of, part_of};
use crate::config::CheckpointConfig;

/// Below the agent's data folder.
const STORE_FOLDER: &str = "checkpoints";
const TICKETS_FOLDER: &str = "checkpoint-tickets";
/// The longest time for which fetching a checkpoint from places that do not answer is retried.
const FETCH_PATIENCE: Duration = Duration::from_secs(60);
/// Wait before they are asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// The age at which the remains of a save that never came to its end are removed.
pub(super) const LEFT_OVER: Duration = Duration::from_secs(3600);

/// A checkpoint cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("its checkpoint cannot be had: {message}")]
pub(crate) struct Unusable {
    pub why: Hindrance,
    pub message: String,
}

/// The reason why a checkpoint cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// It is nowhere any more, or damaged everywhere.
    Gone,
    /// Whoever has it does not answer.
    Away,
    /// This node cannot take it.
    Node,
}

impl Hindrance {
    /// Classifies the error of one place at which the checkpoint was looked for.
    const fn of(error: &Error) -> Self {
        match error {
            Error::Missing { .. } | Error::Damaged { .. } => Self::Gone,
            Error::Io { .. } | Error::NotEmpty { .. } => Self::Node,
            // No room for it is no fault of a node: it may be larger than what any of them has free.
            _ => Self::Away,
        }
    }

    /// Combines the hindrances of two places: `Node` prevails, and `Gone` takes both, as what may pass is waited for.
    const fn or(self, other: Self) -> Self {
        match (self, other) {
            (Self::Node, _) | (_, Self::Node) => Self::Node,
            (Self::Gone, Self::Gone) => Self::Gone,
            _ => Self::Away,
        }
    }
}

/// The origin of a part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub mode: CheckpointMode,
    /// The progress that the program reported; 0: it reported none.
    pub progress: u64,
}

impl Made {
    /// By dumping processes, which say nothing.
    pub const DUMPED: Self = Self { mode: CheckpointMode::Transparent, progress: 0 };

    /// By a program.
    pub const fn written(progress: u64) -> Self {
        Self { mode: CheckpointMode::Cooperative, progress }
    }
}

/// The checkpoints that a node keeps.
#[derive(Clone)]
pub(crate) struct Shelf(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) disk: Objects,
    pub(super) shared: Option<SharedStore>,
    pub(super) tickets: Tickets,
    meters: CheckpointMeters,
    outbound: Outbound,
    /// Limits for saving, and for bringing checkpoints to workers.
    limits: Limits,
    /// Limits for handing checkpoints to other nodes, and for the copies that are made here: neither takes the seat of
    /// a save.
    pub(super) background: Limits,
    /// Held while what nobody needs is removed.
    pub(super) removing: tokio::sync::Mutex<()>,
    /// Held while what the leader missed is looked for.
    pub(super) looking: tokio::sync::Mutex<()>,
    /// Held while copies are made.
    pub(super) copying: tokio::sync::Mutex<()>,
    /// The copies that are to be made, as the leader said last.
    pub(super) copies: Mutex<Vec<wire::CheckpointSource>>,
    /// The places of the checkpoints from which workers resume, as the leader said last.
    pub(super) sources: Mutex<HashMap<CheckpointId, wire::CheckpointSource>>,
    /// The time of the next sweep of the node's disk.
    pub(super) sweep_due: Mutex<Instant>,
    /// The time of the next sweep of the shared store.
    pub(super) shared_sweep_due: Mutex<Instant>,
}

impl Shelf {
    /// The shelf of an agent with this data folder.
    pub async fn open(data: &Path, config: &CheckpointConfig) -> Result<Self, Error> {
        let disk = Objects::folder(&data.join(STORE_FOLDER))?;
        let shared = config.store.as_deref().map(|url| SharedStore::open(url, data)).transpose()?;
        let here: BTreeSet<CheckpointId> = disk.list(None).await?.into_iter().collect();
        let folder = data.join(TICKETS_FOLDER);
        let opened = Tickets::open(folder.clone(), &here);
        let tickets = opened.map_err(|source| Error::Io { path: folder, source })?;
        let background = Limits::new().at_once(1).bytes_per_second(config.bytes_per_second);
        let inner = Inner {
            disk,
            shared,
            tickets,
            meters: CheckpointMeters::default(),
            outbound: Outbound::default(),
            limits: Limits::new().at_once(4),
            background,
            removing: tokio::sync::Mutex::new(()),
            looking: tokio::sync::Mutex::new(()),
            copying: tokio::sync::Mutex::new(()),
            copies: Mutex::default(),
            sources: Mutex::default(),
            sweep_due: Mutex::new(Instant::now()),
            // Not all agents at once.
            shared_sweep_due: Mutex::new(Instant::now() + LEFT_OVER.mul_f64(rand::random())),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// The service that hands the checkpoints on this node's disk to other agents.
    pub fn service(&self) -> tonic::service::Routes {
        let store: Arc<dyn Store> = Arc::new(self.0.disk.clone());
        let guard = Arc::new(self.0.tickets.clone());
        tonic::service::Routes::new(tessera_checkpoint::serve(store, guard, self.0.background.clone()))
    }

    /// Returns whether checkpoints go into a store that all nodes share.
    pub fn is_shared(&self) -> bool {
        self.0.shared.is_some()
    }

    /// Registers what is measured of checkpoints here.
    pub fn register(&self, registry: &mut Registry) {
        self.0.meters.register(registry, &self.0.tickets);
    }

    /// Measures a piece of work.
    pub(super) async fn measured<T, E>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let result = work.await;
        self.0.meters.done(operation, result.is_ok(), began.elapsed());
        result
    }

    /// The store of a checkpoint that was saved here: the shared one if `shared` and there is one, else the disk.
    pub(super) fn store(&self, shared: bool) -> &Objects {
        self.0.shared.as_ref().filter(|_| shared).map_or(&self.0.disk, SharedStore::objects)
    }

    /// A part that was saved here, where it is kept whole: on the disk or in the shared store, as its ticket says.
    pub async fn saved(&self, part: &PartKey, made: Made) -> Result<Option<SavedPart>, Error> {
        let id = id_of(part);
        let Some(known) = self.0.tickets.of(&id) else { return Ok(None) };
        match read_published(self.store(known.shared), &id).await {
            Ok(published) => {
                self.0.tickets.is_there(&id);
                Ok(Some(told(part, made, &published, known.ticket, known.shared)))
            }
            Err(Error::Missing { .. } | Error::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn kept(&self) -> BTreeSet<PartKey> {
        self.0.tickets.whole().iter().map(part_of).collect()
    }

    /// Saves what is in a folder as a part of a checkpoint: in the shared store where there is one, and on this node's
    /// disk where there is none or it fails.
    pub async fn save(&self, part: &PartKey, made: Made, folder: &Path) -> Result<SavedPart, Error> {
        let saved = self.save_somewhere(part, made, folder).await?;
        self.0.meters.saved(saved.bytes);
        Ok(saved)
    }

    async fn save_somewhere(&self, part: &PartKey, made: Made, folder: &Path) -> Result<SavedPart, Error> {
        if let Some(shared) = &self.0.shared {
            let saved = async {
                let identity = shared.to_save_in().await?;
                self.save_in(shared.objects(), Some(identity), part, made, folder).await
            };
            // A store that fails is seen to, wherever the checkpoint then goes.
            match self.measured(Operation::Save, saved).await {
                Err(error) => {
                    tracing::warn!(%error, "the shared store did not take a checkpoint: this node keeps it");
                }
                saved => return saved,
            }
        }
        self.measured(Operation::Save, self.save_in(&self.0.disk, None, part, made, folder)).await
    }

    async fn save_in(
        &self,
        store: &Objects,
        shared: Option<u128>,
        part: &PartKey,
        made: Made,
        folder: &Path,
    ) -> Result<SavedPart, Error> {
        let id = id_of(part);
        let announced = self.0.tickets.announce(id, shared.unwrap_or_else(rand::random), shared.is_some());
        let announced = announced.map_err(|source| Error::Io { path: folder.to_owned(), source })?;
        let published = match save(store, &id, folder, &self.0.limits).await {
            // An agent before this one had saved it, and could not tell.
            Err(Error::Exists { .. }) => read_published(store, &id).await?,
            saved => saved?,
        };
        let ticket = announced.ticket;
        announced.is_there();
        Ok(told(part, made, &published, ticket, shared.is_some()))
    }

    /// Brings a checkpoint into a folder that is empty or not there. Places that do not answer are asked again for a
    /// while, and those that the leader has named since.
    pub async fn fetch(
        &self,
        from: &wire::CheckpointSource,
        into: &Path,
        owner: Option<Owner>,
    ) -> Result<(), Unusable> {
        self.measured(Operation::Fetch, self.fetch_with_patience(from, into, owner)).await
    }

    async fn fetch_with_patience(
        &self,
        from: &wire::CheckpointSource,
        into: &Path,
        owner: Option<Owner>,
    ) -> Result<(), Unusable> {
        let Some(id) = from.name.as_ref().map(part_of_name).as_ref().map(id_of) else {
            return Err(Unusable { why: Hindrance::Gone, message: "it has no name".to_owned() });
        };
        if from.hash.is_empty() {
            let message = format!("the ledger does not know {id} any more");
            return Err(Unusable { why: Hindrance::Gone, message });
        }
        let until = Instant::now() + FETCH_PATIENCE;
        loop {
            let from = self.known_now(&id, from);
            match self.fetch_once(&id, &from, into, owner).await {
                Err(Unusable { why, message }) if why != Hindrance::Gone && Instant::now() < until => {
                    tracing::warn!(%id, message, "a checkpoint cannot be had now; it is tried again");
                    sleep(AGAIN).await;
                }
                fetched => return fetched,
            }
        }
    }

    /// The source with the addresses that the leader reports now, followed by those given with the order.
    fn known_now(&self, id: &CheckpointId, ordered: &wire::CheckpointSource) -> wire::CheckpointSource {
        let said = lock(&self.0.sources).get(id).map(|said| said.addresses.clone()).unwrap_or_default();
        let before = ordered.addresses.iter().filter(|address| !said.contains(address)).cloned();
        let addresses = said.iter().cloned().chain(before).collect();
        wire::CheckpointSource { addresses, ..ordered.clone() }
    }

    /// Tries every place that may have it, this node's own disk first.
    async fn fetch_once(
        &self,
        id: &CheckpointId,
        from: &wire::CheckpointSource,
        into: &Path,
        owner: Option<Owner>,
    ) -> Result<(), Unusable> {
        let mut failures = Vec::new();
        let mut why = Hindrance::Gone;
        if from.shared {
            self.is_here(from).await.map_err(|message| Unusable { why: Hindrance::Away, message })?;
        }
        let stores = self.places(from);
        for store in &stores {
            let fetched = async {
                let published = self.published(store.as_ref(), id, from).await?;
                restore(store.as_ref(), Some(&self.0.disk), &published, into, owner, &self.0.limits).await
            };
            match fetched.await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    why = why.or(Hindrance::of(&error));
                    failures.push(error.to_string());
                }
            }
        }
        if stores.is_empty() {
            let message = "no node that keeps it is connected".to_owned();
            return Err(Unusable { why: Hindrance::Away, message });
        }
        Err(Unusable { why, message: failures.join("; ") })
    }

    /// Checks that this node shares the store in which a checkpoint lies.
    async fn is_here(&self, from: &wire::CheckpointSource) -> Result<(), String> {
        let none = "it is in a store that all nodes share, and this node's agent has none: see [checkpoints] store in \
                    its configuration";
        let shared = self.0.shared.as_ref().ok_or_else(|| none.to_owned())?;
        shared.is(&from.ticket).await
    }

    /// The stores in which a checkpoint may be.
    pub(super) fn places(&self, from: &wire::CheckpointSource) -> Vec<Box<dyn Store>> {
        if from.shared {
            let shared = self.0.shared.iter().map(SharedStore::objects);
            return shared.map(|shared| Box::new(shared.clone()) as Box<dyn Store>).collect();
        }
        let part = from.name.as_ref().map(part_of_name);
        let here =
            part.and_then(|part| self.0.tickets.of(&id_of(&part))).is_some_and(|known| known.whole && !known.shared);
        let mut places: Vec<Box<dyn Store>> = Vec::new();
        if here {
            places.push(Box::new(self.0.disk.clone()));
        }
        let ticket = ticket_of(&from.ticket).unwrap_or(0);
        for address in &from.addresses {
            match Remote::new(&self.0.outbound, address, ticket_text(ticket)) {
                Ok(remote) => places.push(Box::new(remote)),
                Err(error) => tracing::warn!(%error, "the address of another agent cannot be used"),
            }
        }
        places
    }

    /// Reads the description of a checkpoint in a store; an error if its hash is not the one that was told.
    pub(super) async fn published(
        &self,
        store: &dyn Store,
        id: &CheckpointId,
        from: &wire::CheckpointSource,
    ) -> Result<Published, Error> {
        let published = read_published(store, id).await?;
        if published.hash.bytes().as_slice() == from.hash.as_ref() {
            return Ok(published);
        }
        let problem = "it is not the one that was saved".to_owned();
        Err(Error::Damaged { place: store.place().to_owned(), id: *id, problem })
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The description of a part that is kept, as it is reported.
fn told(part: &PartKey, made: Made, published: &Published, ticket: u128, shared: bool) -> SavedPart {
    let Made { mode, progress } = made;
    let (sequence, bytes, hash) = (part.checkpoint.sequence, published.bytes, *published.hash.bytes());
    SavedPart { sequence, progress, bytes, hash, ticket, shared, mode }
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
