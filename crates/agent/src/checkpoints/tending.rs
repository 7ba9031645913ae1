//! The leader's orders about the checkpoints of a node: checkpoints that nobody needs are removed, and checkpoints of
//! other nodes are copied to this one. The remains of unfinished saves, which nobody else sees, are removed too.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tessera_api::agent::part_of as part_of_name;
use tessera_api::v1 as wire;
use tessera_checkpoint::{CheckpointId, Error, Store as _, copy};
use tessera_ledger::PartKey;
use tokio::time::Instant;

use super::id_of;
use super::meters::Operation;
use super::shared::SharedStore;
use super::shelf::{LEFT_OVER, Shelf, lock};
use super::tickets::ticket_of;

/// Wait before a copy is tried again that could not be made.
const AGAIN: Duration = Duration::from_secs(10);
/// Interval of sweeps of the node's disk. All agents look through all of a shared store, so they do that less often.
const ON_DISK: Duration = Duration::from_secs(900);

/// The copies that were tried.
#[derive(Default)]
struct Copying {
    tried: BTreeMap<CheckpointId, Instant>,
    /// The job of the last one: the others have their turn first.
    last: u64,
}

impl Copying {
    /// The next of those that are to be made.
    fn next(&mut self, copies: &[wire::CheckpointSource]) -> Option<(CheckpointId, wire::CheckpointSource)> {
        let named =
            |source: &wire::CheckpointSource| Some((id_of(&part_of_name(source.name.as_ref()?)), source.clone()));
        let mut open: Vec<_> = copies.iter().filter_map(named).collect();
        let now = Instant::now();
        self.tried.retain(|id, at| *at + AGAIN > now && open.iter().any(|(open, _)| open == id));
        open.retain(|(id, _)| !self.tried.contains_key(id));
        let place = open.iter().position(|(id, _)| id.job > self.last).unwrap_or(0);
        let (id, source) = open.into_iter().nth(place)?;
        self.tried.insert(id, now);
        self.last = id.job;
        Some((id, source))
    }
}

impl Shelf {
    /// Removes and copies what the leader says. It says all of it again: what is to be removed does not wait for
    /// copies, and the next copy is one of those that it said last, of one job after the other.
    pub async fn tend(&self, orders: wire::CheckpointOrders) {
        let named = |source: wire::CheckpointSource| Some((id_of(&part_of_name(source.name.as_ref()?)), source));
        *lock(&self.0.sources) = orders.sources.into_iter().filter_map(named).collect();
        *lock(&self.0.copies) = orders.copies;
        if let Some(shared) = &self.0.shared {
            shared.heard(&orders.stores);
        }
        if let Ok(_removing) = self.0.removing.try_lock() {
            for name in &orders.needless {
                let id = id_of(&part_of_name(name));
                if let Err(error) = self.measured(Operation::Remove, self.remove(&id)).await {
                    tracing::warn!(%id, %error, "a checkpoint that nobody needs cannot be removed");
                }
            }
        }
        let Ok(_copying) = self.0.copying.try_lock() else { return };
        let mut copying = Copying::default();
        loop {
            let next = copying.next(&lock(&self.0.copies));
            let Some((id, source)) = next else { return };
            self.keep_copy(&id, &source).await;
        }
    }

    /// Looks for checkpoints on this node's disk that the ledger has here; answers which are not there. One that lies
    /// there without a ticket gets the one that the ledger knows. What the disk does not say is not answered.
    pub async fn look_for(&self, missed: &[wire::CheckpointSource]) -> Vec<PartKey> {
        let Ok(_looking) = self.0.looking.try_lock() else { return Vec::new() };
        let (mut absent, mut failed) = (Vec::new(), None);
        for source in missed {
            let Some(part) = source.name.as_ref().map(part_of_name) else { continue };
            match self.is_kept(&id_of(&part), source).await {
                Ok(true) => {}
                Ok(false) => absent.push(part),
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            tracing::warn!(%error, "checkpoints that the leader misses cannot be looked for; it asks again");
        }
        absent
    }

    async fn is_kept(&self, id: &CheckpointId, source: &wire::CheckpointSource) -> Result<bool, Error> {
        if self.0.tickets.of(id).is_some_and(|known| known.whole) {
            return Ok(true);
        }
        match self.published(&self.0.disk, id, source).await {
            Ok(_) => {
                let ticket = ticket_of(&source.ticket).unwrap_or(0);
                let announced = self.0.tickets.announce(*id, ticket, false);
                announced.map_err(|source| Error::Io { path: id.to_string().into(), source })?.is_there();
                Ok(true)
            }
            Err(Error::Missing { .. }) => Ok(false),
            Err(damaged @ Error::Damaged { .. }) => {
                tracing::warn!(%id, error = %damaged, "a checkpoint is not the one that was saved, and is removed");
                self.remove(id).await.map(|()| false)
            }
            Err(error) => Err(error),
        }
    }

    async fn remove(&self, id: &CheckpointId) -> Result<(), Error> {
        self.0.tickets.is_leaving(id);
        let shared = self.0.tickets.of(id).is_some_and(|known| known.shared);
        self.store(shared).delete(id).await?;
        let gone = self.0.tickets.is_gone(id);
        gone.map_err(|source| Error::Io { path: id.to_string().into(), source })
    }

    async fn keep_copy(&self, id: &CheckpointId, source: &wire::CheckpointSource) {
        if self.0.tickets.of(id).is_some_and(|known| known.whole) {
            return;
        }
        let ticket = ticket_of(&source.ticket).unwrap_or(0);
        let copied = async {
            let announced = self.0.tickets.announce(*id, ticket, false);
            let announced = announced.map_err(|source| Error::Io { path: id.to_string().into(), source })?;
            let mut failed = None;
            for store in self.places(source) {
                match copy(store.as_ref(), &self.0.disk, id, &self.0.background).await {
                    Ok(_) => {
                        announced.is_there();
                        return Ok(());
                    }
                    Err(error) => failed = Some(error),
                }
            }
            Err(failed.unwrap_or(Error::Ended))
        };
        match self.measured(Operation::Copy, copied).await {
            Ok(()) => tracing::info!(%id, "a copy of a checkpoint of another node is kept here"),
            // Mostly the job is over by now, and its checkpoints are gone everywhere: the leader does not say it again.
            Err(error) if error.is_gone() => {
                tracing::debug!(%id, %error, "a checkpoint of another node is gone before it was copied");
            }
            Err(error) => {
                tracing::warn!(%id, %error, "a checkpoint of another node cannot be copied; the leader says it again");
            }
        }
    }

    /// Looks into the shared store for what was to be kept there by a save that was given up, or by an agent before
    /// this one. What is there has been told, or the leader says that nobody needs it; the ticket of what is not there
    /// goes. Another store under that name, or one that does not answer, says nothing about it.
    async fn look_for_unseen(&self) {
        let Some(shared) = &self.0.shared else { return };
        for (id, store) in self.0.tickets.unseen() {
            if shared.is(&store.to_be_bytes()).await.is_err() {
                return;
            }
            let gone = match shared.objects().get_manifest(&id).await {
                Ok(_) => {
                    self.0.tickets.is_there(&id);
                    continue;
                }
                Err(Error::Missing { .. }) => self.0.tickets.never_came(&id),
                Err(_) => return,
            };
            if let Err(error) = gone {
                tracing::warn!(%id, %error, "the ticket of a checkpoint that is not kept cannot be removed");
            }
        }
    }

    /// Removes what saves left that never came to their end, seldom: a store is looked through from end to end.
    pub async fn sweep(&self) {
        self.look_for_unseen().await;
        let disk = is_due(&self.0.sweep_due, ON_DISK).then_some(&self.0.disk);
        let shared = self.0.shared.as_ref().filter(|_| is_due(&self.0.shared_sweep_due, LEFT_OVER));
        let stores = [disk, shared.map(SharedStore::objects)];
        for store in stores.into_iter().flatten() {
            match store.sweep(LEFT_OVER).await {
                Ok(removed) if removed.is_empty() => {}
                Ok(removed) => tracing::info!(count = removed.len(), "what was left of unfinished saves is removed"),
                Err(error) => tracing::warn!(%error, "what is left of unfinished saves cannot be removed"),
            }
        }
    }
}

/// Returns whether it is time for what is done at an interval; from now on it is not, for that long.
fn is_due(due: &Mutex<Instant>, interval: Duration) -> bool {
    let (mut due, now) = (lock(due), Instant::now());
    let is_due = *due <= now;
    if is_due {
        *due = now + interval;
    }
    is_due
}

#[cfg(test)]
mod tests {
    use tessera_api::agent::part_name;
    use tessera_ledger::{CheckpointKey, Epoch, JobId, PartKey, Rank};

    use super::*;

    fn copies(wanted: &[(u64, u64)]) -> Vec<wire::CheckpointSource> {
        let part = |(job, sequence): &(u64, u64)| {
            let checkpoint = CheckpointKey { attempt: 1, sequence: *sequence };
            PartKey { job: JobId(*job), checkpoint, epoch: Epoch(1), rank: Rank(0) }
        };
        let source = |part: PartKey| wire::CheckpointSource { name: Some(part_name(&part)), ..Default::default() };
        wanted.iter().map(part).map(source).collect()
    }

    /// The first job saves again while each of its copies is made, and the copy that it needs most fails at first.
    #[tokio::test(start_paused = true)]
    async fn every_job_has_its_turn_and_what_failed_is_tried_again() {
        let mut copying = Copying::default();
        let mut made = Vec::new();
        for newest in 2..14 {
            let wanted = copies(&[(1, 1), (1, newest), (2, 7), (3, 9)]);
            let (id, _) = copying.next(&wanted).expect("there is something to do");
            made.push((id.job, id.sequence));
            tokio::time::advance(AGAIN / 4).await;
        }
        assert_eq!(made[..4], [(1, 1), (2, 7), (3, 9), (1, 5)], "one job after the other");
        for again in [(1, 1), (2, 7), (3, 9)] {
            let times = made.iter().filter(|one| **one == again).count();
            assert!(times >= 2, "{again:?} is tried again: {made:?}");
        }
        assert!(copying.next(&copies(&[])).is_none() && copying.tried.is_empty(), "nothing is remembered for ever");
    }
}
