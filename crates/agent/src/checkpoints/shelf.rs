//! The checkpoints that a node keeps: the store on its disk, and the one that all nodes share, where there is one.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::registry::Registry;
use tessera_api::agent::part_of as part_of_name;
use tessera_api::v1 as wire;
use tessera_checkpoint::{
    CheckpointId, Error, Limits, Objects, Owner, Published, Remote, Store, copy, read_published, restore, save,
};
use tessera_connection::Outbound;
use tessera_ledger::{CheckpointMode, PartKey, SavedPart};
use tokio::time::{Instant, sleep};

use super::meters::{CheckpointMeters, Operation};
use super::tickets::{Tickets, ticket_text};
use super::{id_of, part_of};
use crate::config::CheckpointConfig;

/// Below the agent's data folder.
const STORE_FOLDER: &str = "checkpoints";
const TICKETS_FOLDER: &str = "checkpoint-tickets";
/// How long it is tried to fetch a checkpoint from places that do not answer.
const FETCH_PATIENCE: Duration = Duration::from_secs(60);
/// Wait before they are asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// What a save left that never came to its end is removed after this time.
const LEFT_OVER: Duration = Duration::from_secs(3600);

/// A checkpoint cannot be had.
#[derive(Debug, thiserror::Error)]
#[error("its checkpoint cannot be had: {message}")]
pub(crate) struct Unusable {
    /// And never can be.
    pub for_good: bool,
    pub message: String,
}

/// How a part of a checkpoint came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub mode: CheckpointMode,
    /// How far the program said it was; 0: it did not say.
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
pub(crate) struct Shelf(Arc<Inner>);

struct Inner {
    disk: Objects,
    shared: Option<Objects>,
    tickets: Tickets,
    meters: CheckpointMeters,
    outbound: Outbound,
    /// Of what is saved and brought to workers.
    limits: Limits,
    /// Of what is copied for others: it never takes the seat of a save.
    background: Limits,
    /// Held while orders of the leader are followed.
    tending: tokio::sync::Mutex<()>,
    /// Where it said last that what workers go on from can be had.
    sources: Mutex<HashMap<CheckpointId, wire::CheckpointSource>>,
}

impl Shelf {
    /// The shelf of an agent with this data folder.
    pub async fn open(data: &Path, config: &CheckpointConfig) -> Result<Self, Error> {
        let disk = Objects::folder(&data.join(STORE_FOLDER))?;
        let shared = config.store.as_deref().map(Objects::open).transpose()?.map(Objects::only_copy);
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
            tending: tokio::sync::Mutex::new(()),
            sources: Mutex::default(),
        };
        Ok(Self(Arc::new(inner)))
    }

    /// What other agents are handed, as a service.
    pub fn service(&self) -> tonic::service::Routes {
        let store: Arc<dyn Store> = Arc::new(self.0.disk.clone());
        let guard = Arc::new(self.0.tickets.clone());
        tonic::service::Routes::new(tessera_checkpoint::serve(store, guard, self.0.background.clone()))
    }

    /// Whether checkpoints go into a store that all nodes share.
    pub fn is_shared(&self) -> bool {
        self.0.shared.is_some()
    }

    /// Registers what is measured of checkpoints here.
    pub fn register(&self, registry: &mut Registry) {
        self.0.meters.register(registry, &self.0.tickets);
    }

    /// Measures a piece of work.
    async fn measured<T, E>(&self, operation: Operation, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let began = Instant::now();
        let result = work.await;
        self.0.meters.done(operation, result.is_ok(), began.elapsed());
        result
    }

    /// Where something lies that was saved here.
    fn store(&self, shared: bool) -> &Objects {
        self.0.shared.as_ref().filter(|_| shared).unwrap_or(&self.0.disk)
    }

    /// A part that was saved here, where it is kept whole: on the disk or in the shared store, as its ticket says.
    pub async fn saved(&self, part: &PartKey, made: Made) -> Result<Option<SavedPart>, Error> {
        let id = id_of(part);
        let Some(known) = self.0.tickets.of(&id) else { return Ok(None) };
        match read_published(self.store(known.shared), &id).await {
            Ok(published) => Ok(Some(told(part, made, &published, known.ticket, known.shared))),
            Err(Error::Missing { .. } | Error::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Everything that is kept here.
    pub fn kept(&self) -> BTreeSet<PartKey> {
        self.0.tickets.whole().iter().map(part_of).collect()
    }

    /// Saves what is in a folder as a part of a checkpoint: in the shared store where there is one, and on this node's
    /// disk where there is none or it fails.
    pub async fn save(&self, part: &PartKey, made: Made, folder: &Path) -> Result<SavedPart, Error> {
        let saved = self.measured(Operation::Save, self.save_somewhere(part, made, folder)).await?;
        self.0.meters.saved(saved.bytes);
        Ok(saved)
    }

    async fn save_somewhere(&self, part: &PartKey, made: Made, folder: &Path) -> Result<SavedPart, Error> {
        if let Some(shared) = &self.0.shared {
            match self.save_in(shared, true, part, made, folder).await {
                Err(error) => {
                    tracing::warn!(%error, "the shared store did not take a checkpoint: this node keeps it");
                }
                saved => return saved,
            }
        }
        self.save_in(&self.0.disk, false, part, made, folder).await
    }

    async fn save_in(
        &self,
        store: &Objects,
        shared: bool,
        part: &PartKey,
        made: Made,
        folder: &Path,
    ) -> Result<SavedPart, Error> {
        let id = id_of(part);
        let announced = self.0.tickets.announce(id, rand::random(), shared);
        let ticket = announced.map_err(|source| Error::Io { path: folder.to_owned(), source })?;
        let published = match save(store, &id, folder, &self.0.limits).await {
            // An agent before this one had saved it, and could not tell.
            Err(Error::Exists { .. }) => read_published(store, &id).await?,
            saved => saved?,
        };
        self.0.tickets.is_there(&id);
        Ok(told(part, made, &published, ticket, shared))
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
            return Err(Unusable { for_good: true, message: "it has no name".to_owned() });
        };
        if from.hash.is_empty() {
            return Err(Unusable { for_good: true, message: format!("the ledger does not know {id} any more") });
        }
        let until = Instant::now() + FETCH_PATIENCE;
        loop {
            let newest = self.sources().get(&id).cloned();
            match self.fetch_once(&id, newest.as_ref().unwrap_or(from), into, owner).await {
                Err(Unusable { for_good: false, message }) if Instant::now() < until => {
                    tracing::warn!(%id, message, "a checkpoint cannot be had now; it is tried again");
                    sleep(AGAIN).await;
                }
                fetched => return fetched,
            }
        }
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
        let mut for_good = true;
        let stores = self.places(from);
        for store in &stores {
            let fetched = async {
                let published = self.published(store.as_ref(), id, from).await?;
                restore(store.as_ref(), Some(&self.0.disk), &published, into, owner, &self.0.limits).await
            };
            match fetched.await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    for_good &= matches!(error, Error::Missing { .. } | Error::Damaged { .. });
                    failures.push(error.to_string());
                }
            }
        }
        if stores.is_empty() {
            return Err(Unusable { for_good: false, message: "no node that keeps it is connected".to_owned() });
        }
        Err(Unusable { for_good, message: failures.join("; ") })
    }

    /// Where it may be.
    fn places(&self, from: &wire::CheckpointSource) -> Vec<Box<dyn Store>> {
        if from.shared {
            return self.0.shared.iter().map(|shared| Box::new(shared.clone()) as Box<dyn Store>).collect();
        }
        let part = from.name.as_ref().map(part_of_name);
        let here =
            part.and_then(|part| self.0.tickets.of(&id_of(&part))).is_some_and(|known| known.whole && !known.shared);
        let mut places: Vec<Box<dyn Store>> = Vec::new();
        if here {
            places.push(Box::new(self.0.disk.clone()));
        }
        let ticket = <[u8; 16]>::try_from(from.ticket.as_ref()).map_or(0, u128::from_be_bytes);
        for address in &from.addresses {
            match Remote::new(&self.0.outbound, address, ticket_text(ticket)) {
                Ok(remote) => places.push(Box::new(remote)),
                Err(error) => tracing::warn!(%error, "the address of another agent cannot be used"),
            }
        }
        places
    }

    /// What a store says of it, if it is the one that was told.
    async fn published(
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

    fn sources(&self) -> MutexGuard<'_, HashMap<CheckpointId, wire::CheckpointSource>> {
        self.0.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes and copies what the leader says. Does nothing of it while it does so already.
    pub async fn tend(&self, orders: wire::CheckpointOrders) {
        let named = |source: wire::CheckpointSource| Some((id_of(&part_of_name(source.name.as_ref()?)), source));
        *self.sources() = orders.sources.into_iter().filter_map(named).collect();
        let Ok(_tending) = self.0.tending.try_lock() else { return };
        for name in &orders.needless {
            let id = id_of(&part_of_name(name));
            if let Err(error) = self.measured(Operation::Remove, self.remove(&id)).await {
                tracing::warn!(%id, %error, "a checkpoint that nobody needs cannot be removed");
            }
        }
        for source in &orders.copies {
            self.keep_copy(source).await;
        }
    }

    async fn remove(&self, id: &CheckpointId) -> Result<(), Error> {
        self.0.tickets.is_leaving(id);
        let shared = self.0.tickets.of(id).is_some_and(|known| known.shared);
        self.store(shared).delete(id).await?;
        let gone = self.0.tickets.is_gone(id);
        gone.map_err(|source| Error::Io { path: id.to_string().into(), source })
    }

    async fn keep_copy(&self, source: &wire::CheckpointSource) {
        let Some(id) = source.name.as_ref().map(part_of_name).as_ref().map(id_of) else { return };
        if self.0.tickets.of(&id).is_some_and(|known| known.whole) {
            return;
        }
        let ticket = <[u8; 16]>::try_from(source.ticket.as_ref()).map_or(0, u128::from_be_bytes);
        let copied = async {
            let announced = self.0.tickets.announce(id, ticket, false);
            announced.map_err(|source| Error::Io { path: id.to_string().into(), source })?;
            let mut failed = None;
            for store in self.places(source) {
                match copy(store.as_ref(), &self.0.disk, &id, &self.0.background).await {
                    Ok(_) => return Ok(()),
                    Err(error) => failed = Some(error),
                }
            }
            Err(failed.unwrap_or(Error::Ended))
        };
        match self.measured(Operation::Copy, copied).await {
            Ok(()) => {
                tracing::info!(%id, "a copy of a checkpoint of another node is kept here");
                self.0.tickets.is_there(&id);
            }
            Err(error) => {
                tracing::warn!(%id, %error, "a checkpoint of another node cannot be copied; the leader says it again")
            }
        }
    }

    /// Removes what saves left that never came to their end, now and then.
    pub async fn sweep(&self) {
        let stores = [Some(&self.0.disk), self.0.shared.as_ref()];
        for store in stores.into_iter().flatten() {
            match store.sweep(LEFT_OVER).await {
                Ok(removed) if removed.is_empty() => {}
                Ok(removed) => tracing::info!(count = removed.len(), "what was left of unfinished saves is removed"),
                Err(error) => tracing::warn!(%error, "what is left of unfinished saves cannot be removed"),
            }
        }
    }
}

/// What is told of a part that is kept.
fn told(part: &PartKey, made: Made, published: &Published, ticket: u128, shared: bool) -> SavedPart {
    let Made { mode, progress } = made;
    let (sequence, bytes, hash) = (part.checkpoint.sequence, published.bytes, *published.hash.bytes());
    SavedPart { sequence, progress, bytes, hash, ticket, shared, mode }
}

#[cfg(test)]
#[path = "shelf_tests.rs"]
mod tests;
