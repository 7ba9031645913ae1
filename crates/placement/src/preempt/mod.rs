//! Preemption (P5d, law L4): which jobs give their blocks back so that another fits: jobs of its queue with a strictly lower
//! effective priority, and, for a job within the guarantee of its queue, whatever other queues hold above theirs.
//!
//! Those give way who are lowest in their queue, and of these who cost least: the work that would be lost, times its TFLOPS, and
//! what it takes to start again.
//!
//! A search never changes the index: victims' blocks are given back in a trial, and the trial is undone.

mod cards;
pub(crate) mod cost;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{Allocation, AllocationId, CardId, HostRequest, JobId, LogTime, NodeId, QueueAmount, Span, State};

use crate::demand::Demand;
use crate::fit::{self, Placement};
use crate::index::Index;
use crate::index::run::Run;
use crate::queues::{self, Giver, Queues};
use crate::victims::{Victims, live_slices, live_workers};
use cost::Cost;

/// Once a plan is found, so many of its victims are tried to be spared one by one.
const SPARED_ONE_BY_ONE: usize = 64;

/// A grant that may be preempted for the job at hand.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    /// The job.
    pub(crate) job: JobId,
    /// Its queue.
    pub(crate) queue: String,
    /// Its grant.
    pub(crate) allocation: Arc<Allocation>,
    /// Blocks that it would give back.
    pub(crate) blocks: u64,
    /// What each of its workers holds of its host.
    pub(crate) host: HostRequest,
    /// What it would give back to its queue.
    pub(crate) amount: QueueAmount,
    /// Whether its queue may preempt it.
    pub(crate) preemptible: bool,
    /// What it costs that it gives way.
    pub(crate) cost: Cost,
}

impl Victim {
    /// As queues count it.
    pub(crate) fn giver(&self) -> Giver<'_> {
        Giver { queue: &self.queue, amount: self.amount, preemptible: self.preemptible }
    }
}

/// The job that a search is made for.
#[derive(Clone, Copy)]
pub(crate) struct Beneficiary<'a> {
    /// What it asks for.
    pub(crate) demand: &'a Demand,
    /// Its priority: only lower effective ones of its queue are preempted.
    pub(crate) priority: u32,
    /// Its queue.
    pub(crate) queue: &'a str,
    /// The least that it could be granted.
    pub(crate) least: QueueAmount,
    /// Virtual cards for which there is no room.
    pub(crate) missing: u32,
}

/// Where the job goes, and who makes room.
pub(crate) type Found = (Placement, Vec<Arc<Victim>>);

/// What a search found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// Where the job goes and who makes room, if anything helps.
    pub(crate) found: Option<Found>,
    /// When a further victim may be preempted again.
    pub(crate) retry_at: Option<LogTime>,
    /// Whether a victim was left out only because of what is in the present plan.
    pub(crate) inexact: bool,
}

/// What the plan being made has already done: its victims, and cards whose numbers the ledger does not know yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct InPlan {
    /// Jobs that are preempted or evicted.
    pub(crate) leaving: BTreeSet<JobId>,
    /// Cards that are renumbered.
    pub(crate) renumbered: BTreeSet<CardId>,
}

/// Everything that a search looks at beside the index.
struct Hunt<'a> {
    state: &'a State,
    /// The time of the plan. The ledger's own stands still while nothing is written.
    now: LogTime,
    victims: &'a Victims,
    queues: &'a Queues,
    job: Beneficiary<'a>,
    in_plan: &'a InPlan,
    known: BTreeMap<AllocationId, Option<Arc<Victim>>>,
    retry_at: Option<LogTime>,
    inexact: bool,
}

/// Looks for a cheap preemption that lets a gang fit, on cards and in its queue, in a plan that is written at `now` or later.
pub(crate) fn search(
    index: &mut Index,
    state: &State,
    now: LogTime,
    victims: &Victims,
    queues: &Queues,
    job: Beneficiary<'_>,
    in_plan: &InPlan,
) -> Search {
    let known = BTreeMap::new();
    let now = now.max(state.time());
    let mut hunt = Hunt { state, now, victims, queues, job, in_plan, known, retry_at: None, inexact: false };
    let demand = job.demand;
    let on_cards = demand.offers.iter().any(|offer| demand.need_on_one_card(offer).is_some());
    let mut found = None;
    // Wishes that must be met are met by whoever places the whole gang.
    let hard = demand.wishes.are_hard();
    if on_cards && !hard && (demand.span == Span::Card || demand.gang == 1) {
        found = cards::clear(index, &mut hunt);
    }
    // What a host lacks may be held beside other cards than the one that is granted.
    let elsewhere = hard || demand.span != Span::Card || demand.gang > 1 || !demand.host.is_zero();
    if found.is_none() && elsewhere {
        found = steps::one_after_another(index, &mut hunt);
    }
    Search { found, retry_at: hunt.retry_at, inexact: hunt.inexact }
}

impl Hunt<'_> {
    /// The grant as a victim, if it may be one.
    fn victim(&mut self, id: AllocationId) -> Option<Arc<Victim>> {
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        let victim = self.judge(id).map(Arc::new);
        self.known.insert(id, victim.clone());
        victim
    }

    fn judge(&mut self, id: AllocationId) -> Option<Victim> {
        let standing = self.victims.standing(id)?;
        let recall = *standing.queue != *self.job.queue;
        let is_lower = standing.preemptible && standing.priority < self.job.priority;
        if !(recall || is_lower) {
            return None;
        }
        let allocation = self.state.allocation(id)?;
        let job = self.state.job(allocation.job)?;
        if self.in_plan.leaving.contains(&job.id) {
            return None;
        }
        let blocks = live_slices(allocation).map(|slice| u64::from(slice.length.0)).sum();
        let memory = live_slices(allocation).map(|slice| slice.memory).sum();
        let (now, config) = (self.now, self.state.config());
        let victim = Victim {
            job: job.id,
            queue: job.spec.queue.clone(),
            allocation: Arc::clone(allocation),
            blocks,
            host: job.spec.host,
            amount: queues::amount(blocks, memory, config.block_size),
            preemptible: job.spec.preemptible,
            cost: Cost::of(job, allocation, blocks, now, self.victims.lowest(&standing.queue)),
        };
        if recall && !self.queues.recall(self.job.queue, self.job.least).allows(victim.giver()) {
            return None;
        }
        if let Some(at) = job.preemptible_from(running_since(allocation), now, config.preemptions_per_hour, recall) {
            let at = (at.0 < u64::MAX).then_some(at);
            self.retry_at = self.retry_at.into_iter().chain(at).min();
            return None;
        }
        if live_slices(allocation).any(|slice| self.in_plan.renumbered.contains(&slice.card)) {
            self.inexact = true;
            return None;
        }
        Some(victim)
    }

    /// Whether the job's queue takes it once these have given back what they hold.
    fn admits(&self, victims: &[Arc<Victim>]) -> bool {
        self.queues.admit(self.job.queue, self.job.least, &given_back(victims)).is_ok()
    }

    /// Those of the victims that may give way together, one after the other, as the ledger judges.
    fn together(&self, victims: impl IntoIterator<Item = Arc<Victim>>) -> Vec<Arc<Victim>> {
        let mut recall = self.queues.recall(self.job.queue, self.job.least);
        let allowed = |victim: &Arc<Victim>| {
            let allowed = victim.queue == self.job.queue || recall.allows(victim.giver());
            if allowed {
                recall.add(victim.giver());
            }
            allowed
        };
        victims.into_iter().filter(allowed).collect()
    }

    /// Places the gang as if these victims were gone; those that give it nothing are left out.
    fn place_without(&self, index: &mut Index, victims: Vec<Arc<Victim>>) -> Option<Found> {
        let demand = self.job.demand;
        let placement = attempt(index, &victims, |index| fit::place(index, demand).ok())?;
        self.useful(placement, &victims).or_else(|| {
            // There is room elsewhere, but not in its queue: whoever gives way there must do so on the cards that are granted.
            let workers = victims.iter().flat_map(|victim| live_workers(&victim.allocation));
            let within = Some(Arc::new(workers.map(|worker| worker.node).collect()));
            let there = Demand { within, ..demand.clone() };
            let placement = attempt(index, &victims, |index| fit::place(index, &there).ok())?;
            self.useful(placement, &victims)
        })
    }

    /// The victims that give a placement something, if its queue takes it then.
    fn useful(&self, placement: Placement, victims: &[Arc<Victim>]) -> Option<Found> {
        let useful = useful_for(&placement, self.job.demand.host, victims);
        (!useful.is_empty() && self.admits(&useful)).then_some((placement, useful))
    }

    /// Spares the victims without whom the gang still fits, those first who would lose most.
    fn spare(&self, index: &mut Index, found: Found) -> Found {
        let (mut placement, mut chosen) = found;
        let mut order = chosen.clone();
        order.sort_by_key(|victim| (std::cmp::Reverse(victim.cost), victim.allocation.granted_at, victim.job));
        for victim in order.into_iter().take(SPARED_ONE_BY_ONE) {
            let fewer: Vec<Arc<Victim>> = chosen.iter().filter(|other| other.job != victim.job).cloned().collect();
            if fewer.len() < chosen.len()
                && let Some(found) = self.place_without(index, fewer)
            {
                (placement, chosen) = found;
            }
        }
        (placement, chosen)
    }
}

/// Since when a grant runs, or is held while its workers are being started.
fn running_since(allocation: &Allocation) -> LogTime {
    allocation.started_at.unwrap_or(allocation.granted_at)
}

/// Whether a job may use blocks of a card.
fn is_useful(index: &Index, demand: &Demand, card: CardId) -> bool {
    index.card(card).is_some_and(|card| card.usable && !card.hidden && demand.offer_of(card.class).is_some())
        && index.ledger_node(card.node).is_some_and(|node| demand.accepts(node))
}

/// Gives a victim's blocks back in a trial. Its cards cannot be renumbered meanwhile: it still holds what it gives.
fn give_back(index: &mut Index, victim: &Victim) {
    vacate(index, &victim.allocation, victim.host);
}

/// Gives back in a trial what a grant holds.
pub(crate) fn vacate(index: &mut Index, allocation: &Allocation, host: HostRequest) {
    for slice in live_slices(allocation) {
        index.change(slice.card, |card| {
            card.free.give(Run { start: slice.start, length: slice.length });
            card.used = card.used.saturating_sub(slice.length.0);
            card.memory_free = card.memory_free.saturating_add(slice.memory.0).min(card.memory);
            card.slices = card.slices.saturating_sub(1);
            card.pinned = true;
        });
    }
    for worker in live_workers(allocation) {
        index.give_host_back(worker.node, host);
    }
}

/// Places a gang as if these victims were gone, and undoes it.
fn attempt(
    index: &mut Index,
    victims: &[Arc<Victim>],
    place: impl FnOnce(&mut Index) -> Option<Placement>,
) -> Option<Placement> {
    let mark = index.mark();
    for victim in victims {
        give_back(index, victim);
    }
    let placement = place(index);
    index.undo_to(mark);
    placement
}

/// The victims that hold something on the cards, or of the hosts, that are granted; the others would be preempted in vain.
fn useful_for(placement: &Placement, host: HostRequest, victims: &[Arc<Victim>]) -> Vec<Arc<Victim>> {
    let cards: BTreeSet<CardId> = placement.slices().map(|slice| slice.card).collect();
    let nodes: BTreeSet<NodeId> = placement.workers.iter().map(|worker| worker.node).collect();
    let gives = |victim: &Arc<Victim>| {
        let on_hosts = !host.is_zero() && !victim.host.is_zero();
        live_slices(&victim.allocation).any(|slice| cards.contains(&slice.card))
            || on_hosts && live_workers(&victim.allocation).any(|worker| nodes.contains(&worker.node))
    };
    victims.iter().filter(|victim| gives(victim)).cloned().collect()
}

/// What victims give back, by queue.
pub(crate) fn given_back(victims: &[Arc<Victim>]) -> Vec<(String, QueueAmount)> {
    victims.iter().map(|victim| (victim.queue.clone(), victim.amount)).collect()
}

/// Whether all these may give way together for a grant of just that size to a job of the queue.
pub(crate) fn legal(queues: &Queues, queue: &str, asked: QueueAmount, victims: &[Arc<Victim>]) -> bool {
    let mut recall = queues.recall(queue, asked);
    victims.iter().all(|victim| {
        let allowed = victim.queue == queue || recall.allows(victim.giver());
        recall.add(victim.giver());
        allowed
    })
}

/// Takes a grant with victims from the index: what was free is gone, and what the victims hold is spoken for.
pub(crate) fn take(index: &mut Index, placement: &Placement, host: HostRequest) {
    for worker in &placement.workers {
        index.take_host(worker.node, host);
    }
    for card in &placement.renumbered {
        index.renumber(*card);
    }
    for slice in placement.slices() {
        index.change(slice.card, |card| {
            card.free.remove(Run { start: slice.start, length: slice.length });
            card.memory_free = card.memory_free.saturating_sub(slice.memory.0);
            card.slices = card.slices.saturating_add(1);
            card.pinned = true;
        });
    }
}
