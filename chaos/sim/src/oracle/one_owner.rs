//! L2, block by block: no block has two owners, in the ledger at any entry of the log, nor in truth at any moment.
//!
//! * **In the ledger**, after every entry, counted from the allocations and not from what cards say of themselves: a
//!   block is in the slices of one live worker at most, and beside it promised to one other at most, which waits for
//!   it.
//! * **In truth**: whoever computes is known to the ledger as a live worker; the blocks that the ledger has it on are
//!   its own there, and nobody else who computes is on one of them; and what it was told that it has, card, blocks and
//!   memory, is what the ledger granted it. Within a card the ledger renumbers blocks while work goes on, and workers
//!   hear of it later: so what a worker was told is held against every numbering that it ever had, and places are
//!   compared in the newest one.
//! * No job runs twice at once, no worker is started twice, and together those who compute have no more of a card's
//!   memory and of a host than there is. A card that is oversubscribed has more blocks; each of them has one owner all
//!   the same.

use std::collections::{BTreeMap, BTreeSet};

use tessera_agent::worker::WorkerId;
use tessera_ledger::{
    Allocation, AllocationPhase, CardId, Event, HostRequest, Mebibytes, NodeId, Owner, State, Worker, WorkerState,
};

use super::{Oracle, View};
use crate::journal::Applied;
use crate::world::{Computation, Share};

#[derive(Default)]
pub struct OneOwner {
    /// Shares granted to each live worker, in every numbering that its blocks had.
    granted: BTreeMap<Owner, BTreeSet<Vec<Share>>>,
}

/// Blocks of one card, and who is on them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Occupied {
    card: CardId,
    start: u32,
    end: u32,
    who: String,
}

fn shares(worker: &Worker) -> Vec<Share> {
    let share = |slice: &tessera_ledger::Slice| Share {
        card: slice.card,
        start: slice.start.0,
        length: slice.length.0,
        memory: slice.memory,
    };
    worker.slices.iter().map(share).collect()
}

fn occupied(worker: &Worker, who: &str) -> Vec<Occupied> {
    let blocks = |share: Share| Occupied {
        card: share.card,
        start: share.start,
        end: share.start + share.length,
        who: who.to_owned(),
    };
    shares(worker).into_iter().map(blocks).collect()
}

/// The first block that two are on.
fn shared(mut all: Vec<Occupied>) -> Option<String> {
    all.sort();
    let pair = all.windows(2).find(|pair| pair[0].card == pair[1].card && pair[1].start < pair[0].end)?;
    Some(format!("block {} of {} has two owners: {} and {}", pair[1].start, pair[0].card, pair[0].who, pair[1].who))
}

fn live_workers(state: &State) -> impl Iterator<Item = (&Allocation, &Worker)> {
    let workers = |allocation: &'_ std::sync::Arc<Allocation>| {
        let live = allocation.workers.iter().enumerate().filter(|(_, worker)| worker.state != WorkerState::Stopped);
        live.map(|(place, _)| place).collect::<Vec<usize>>()
    };
    state.allocations().flat_map(move |allocation| {
        workers(allocation).into_iter().map(move |place| (&**allocation, &allocation.workers[place]))
    })
}

/// In the ledger: those who hold, and those who wait for what others still hold.
fn held_once(state: &State) -> Result<(), String> {
    let (waiting, holding): (Vec<_>, Vec<_>) =
        live_workers(state).partition(|(allocation, _)| allocation.phase == AllocationPhase::Waiting);
    for side in [holding, waiting] {
        let on = |(allocation, worker): &(&Allocation, &Worker)| {
            occupied(
                worker,
                &format!("worker {} of allocation {} ({:?})", worker.rank.0, allocation.id.0, worker.state),
            )
        };
        if let Some(twice) = shared(side.iter().flat_map(on).collect()) {
            return Err(twice);
        }
    }
    Ok(())
}

impl OneOwner {
    fn note_granted(&mut self, state: &State) {
        let mut before = std::mem::take(&mut self.granted);
        for (allocation, worker) in live_workers(state) {
            let owner = allocation.owner(worker.rank);
            let mut told = before.remove(&owner).unwrap_or_default();
            told.insert(shares(worker));
            self.granted.insert(owner, told);
        }
    }

    /// One program: it is granted, told what it was granted, and the ledger has nobody else on its blocks.
    fn judge(&self, live: &Computation, state: &State) -> Result<Vec<Occupied>, String> {
        let Computation { worker: id, job, machine, began, .. } = live;
        let who = format!("worker {id} of job {job} on {machine}");
        let allocation = state.allocation(id.allocation).filter(|allocation| allocation.epoch == id.epoch);
        let worker = allocation.and_then(|allocation| allocation.worker(id.rank));
        let Some(worker) = worker.filter(|worker| worker.state != WorkerState::Stopped) else {
            let stands =
                if allocation.is_some() { "takes it for stopped" } else { "does not know its allocation any more" };
            return Err(format!(
                "{who} computes since {began:?}, and the ledger at revision {} {stands}",
                state.revision()
            ));
        };
        let owner = owner_of(id);
        if !self.granted.get(&owner).is_some_and(|granted| granted.contains(&live.shares)) {
            return Err(format!("{who} was told that it has {:?}, and was granted {:?}", live.shares, shares(worker)));
        }
        for slice in &worker.slices {
            let own = |card: &tessera_ledger::Card| {
                card.extents.all(slice.start, slice.length, |state| state.owner() == Some(owner))
            };
            if !state.card(slice.card).is_some_and(|card| own(card)) {
                let (start, end) = (slice.start.0, slice.start.0 + slice.length.0);
                return Err(format!(
                    "{who} computes on blocks {start}..{end} of {}, which are not its own",
                    slice.card
                ));
            }
        }
        Ok(occupied(worker, &who))
    }
}

fn owner_of(worker: &WorkerId) -> Owner {
    Owner { allocation: worker.allocation, epoch: worker.epoch, rank: worker.rank }
}

/// Checks that the shares of all computing programs fit on cards and hosts together.
fn fits(live: &[Computation], state: &State) -> Result<(), String> {
    let mut memory: BTreeMap<CardId, Mebibytes> = BTreeMap::new();
    let mut hosts: BTreeMap<NodeId, HostRequest> = BTreeMap::new();
    for own in live {
        for share in &own.shares {
            *memory.entry(share.card).or_default() += share.memory;
        }
        if let Some(share) = own.shares.first() {
            let used = hosts.entry(share.card.node).or_default();
            *used = used.plus(own.host);
        }
    }
    for (id, used) in memory {
        let there = state.card(id).map_or(Mebibytes::ZERO, |card| card.description.memory);
        if used > there {
            return Err(format!("those who compute on {id} have {used} of its memory together, and it has {there}"));
        }
    }
    for (id, used) in hosts {
        let Some(there) = state.node(id).and_then(|node| node.description.host) else { continue };
        if !used.fits_in(there.whole()) {
            return Err(format!("those who compute on {id} need {used:?} of its host together, and it has {there:?}"));
        }
    }
    Ok(())
}

impl Oracle for OneOwner {
    fn name(&self) -> &'static str {
        "one owner (L2)"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        let moves = |event: &Event| {
            matches!(event, Event::Worker { .. } | Event::Card { .. } | Event::AllocationReleased { .. })
        };
        if !entry.events.iter().any(moves) {
            return Ok(());
        }
        self.note_granted(&entry.after);
        held_once(&entry.after).map_err(|what| format!("revision {}: {what}", entry.at.revision))
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        if let Some(twice) = view.world.twice().first() {
            return Err(twice.clone());
        }
        let live = view.world.live();
        let Some(newest) = view.newest() else {
            return live
                .first()
                .map_or(Ok(()), |first| Err(format!("job {} computes before anything was granted", first.job)));
        };
        let mut computing = Vec::new();
        for own in &live {
            computing.extend(self.judge(own, newest)?);
        }
        shared(computing).map_or(Ok(()), Err)?;
        fits(&live, newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(card: u32, start: u32, end: u32, who: &str) -> Occupied {
        Occupied { card: CardId { node: NodeId(0), index: card }, start, end, who: who.to_owned() }
    }

    #[test]
    fn each_block_of_each_card_is_judged() {
        let apart = [blocks(0, 4, 8, "one"), blocks(0, 0, 4, "two"), blocks(1, 4, 8, "three")];
        assert_eq!(shared(apart.to_vec()), None);
        let wide = [blocks(0, 0, 9, "one"), blocks(0, 9, 12, "two"), blocks(0, 3, 4, "three")];
        let twice = shared(wide.to_vec()).expect("block 3 is in two runs");
        assert!(twice.starts_with("block 3 of ") && twice.ends_with("one and three"), "{twice}");
    }
}
