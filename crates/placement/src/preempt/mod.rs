//! Preemption (P5d, law L4): which jobs give their blocks back so that another fits: jobs of its queue with a strictly
//! lower effective priority, or precedence where it goes by attained service, and, for a job within the guarantee of
//! its queue, whatever other queues hold above theirs.
//!
//! Those give way who are lowest in their queue, and of these who cost least: the work that would be lost, times its
//! TFLOPS, and what it takes to start again.
//!
//! A search never changes the index: victims' blocks are given back in a trial, and the trial is undone.

mod cards;
mod gang;
mod steps;
mod trial;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{
    Allocation, AllocationId, CardId, Claim, Job, JobId, JobSpec, LogTime, Mebibytes, MilliTflops, NodeId, QueueAmount,
    Span,
};

use crate::demand::{Applicant, Demand, Offer};
use crate::fit::{self, Placement};
use crate::index::Index;
use crate::index::schedule::since;
use crate::least_with;
use crate::loss::Cost;
use crate::pool::Moment;
use crate::queues::{self, Giver, Queues};
use crate::victims::{Victims, live_blocks, live_slices, live_workers};
use trial::{attempt, useful_for};
pub(crate) use trial::{take, vacate, workers_without};

/// The limit on the victims shut out by loans that are tried in the place of others; those who give most come first.
const SHUT_OUT: usize = 4;

/// Most nodes that are added beside those of the victims where a full queue must use these.
const BESIDE: usize = 1024;

/// An allocation that may be preempted for the job at hand.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    pub(crate) job: Arc<Job>,
    allocation: Arc<Allocation>,
    /// Blocks that it would give back.
    blocks: u64,
    /// The amount that it would give back to its queue.
    amount: QueueAmount,
    cost: Cost,
    /// True if it is of the queue of the job at hand.
    is_own: bool,
}

impl Victim {
    /// As queues count it.
    pub(crate) fn giver(&self) -> Giver<'_> {
        Giver { queue: &self.job.spec.queue, amount: self.amount, preemptible: self.job.is_preemptible() }
    }

    /// Its allocation, and the spec of the job that holds it.
    fn held(&self) -> (&Allocation, &JobSpec) {
        (&self.allocation, &self.job.spec)
    }
}

/// The placement of a job, and the victims that make room for it.
pub(crate) type Found = (Placement, Vec<Arc<Victim>>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    /// The start of the job, if any victims make it possible.
    pub(crate) found: Option<Found>,
    /// The earliest time at which a further victim may be preempted again, if any ever may.
    pub(crate) retry_at: Option<LogTime>,
    /// True if a victim was left out only because the present plan renumbers a card that it holds.
    pub(crate) inexact: bool,
    /// True if victims were passed over because the job's queue, or one above it, would hold more than its maximum.
    pub(crate) over_maximum: bool,
}

/// The effects of the plan being made: its victims, and cards whose numbers the ledger does not know yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct InPlan {
    /// Jobs that are preempted or evicted.
    pub(crate) leaving: BTreeSet<JobId>,
    pub(crate) renumbered: BTreeSet<CardId>,
}

/// Everything that a search looks at beside the index, and what it has found out.
struct Hunt<'a> {
    at: Moment<'a>,
    victims: &'a Victims,
    queues: &'a Queues,
    job: &'a Applicant,
    /// Virtual cards for which there is no room, if that is known.
    missing: u32,
    in_plan: &'a InPlan,
    known: BTreeMap<AllocationId, Option<Arc<Victim>>>,
    over_maximum: Cell<bool>,
    so_far: Search,
}

/// Looks for a cheap preemption that lets a gang fit, on cards and in its queue, in a plan that is written at `now`
/// or later.
pub(crate) fn search(
    index: &mut Index,
    at: Moment<'_>,
    (victims, queues): (&Victims, &Queues),
    job: &Applicant,
    missing: u32,
    in_plan: &InPlan,
) -> Search {
    let (known, so_far, over_maximum) = (BTreeMap::new(), Search::default(), Cell::new(false));
    let mut hunt = Hunt { at, victims, queues, job, missing, in_plan, known, over_maximum, so_far };
    let demand = &job.least;
    let on_cards = demand.on_one_card().next().is_some();
    let mut found = None;
    // Wishes that must be met are met by whoever places the whole gang.
    let hard = demand.has_hard_wishes();
    if on_cards && !hard && (demand.gang == 1 || demand.span == Span::Card) {
        found = gang::clear(index, &mut hunt);
        if demand.span != Span::Card {
            // Spread over what is left elsewhere it may need fewer of them.
            found = found.map(|found| hunt.spare(index, found));
        }
    }
    if found.is_none() {
        found = steps::one_after_another(index, &mut hunt);
    }
    Search { found, over_maximum: hunt.over_maximum.get(), ..hunt.so_far }
}

impl<'a> Hunt<'a> {
    /// The allocation as a victim, if it may be one.
    fn victim(&mut self, id: AllocationId) -> Option<Arc<Victim>> {
        if let Some(known) = self.known.get(&id) {
            return known.clone();
        }
        let victim = self.judge(id).map(Arc::new);
        self.known.insert(id, victim.clone());
        victim
    }

    /// The allocations that may be asked to give way at all, without judging each: those below it in its own queue,
    /// then what may be recalled.
    fn may_give_way(&self) -> impl Iterator<Item = AllocationId> + use<'a> {
        let (victims, job) = (self.victims, self.job);
        let recalled = self.queues.may_recall(job.queue()).then(|| victims.outside(job.queue()));
        victims.below(job.queue(), job.request.precedence).chain(recalled.into_iter().flatten())
    }

    fn judge(&mut self, id: AllocationId) -> Option<Victim> {
        let standing = self.victims.standing(id)?;
        let recall = *standing.queue != *self.job.queue();
        let is_lower = standing.preemptible && standing.precedence < self.job.request.precedence;
        if !(recall || is_lower) {
            return None;
        }
        let allocation = self.at.state.allocation(id)?;
        let job = self.at.state.job(allocation.job)?;
        if self.in_plan.leaving.contains(&job.id) {
            return None;
        }
        let blocks = live_blocks(allocation);
        let (now, config) = (self.at.now, self.at.state.config());
        let claim = match recall {
            true => Claim::Recall,
            false => self.at.state.claim(self.job.request.precedence, job, now).ok()?,
        };
        let victim = Victim {
            job: Arc::clone(job),
            allocation: Arc::clone(allocation),
            blocks,
            amount: Giver::of(job, allocation, config.block_size).amount,
            cost: Cost::of(job, blocks, now, standing.precedence.above(self.victims.lowest(&standing.queue))),
            is_own: !recall,
        };
        if recall && !self.queues.recall(self.job.queue(), self.job.amount).allows(victim.giver()) {
            return None;
        }
        if let Some(at) = job.preemptible_from(since(allocation), now, config.preemptions_per_hour, claim) {
            let at = (at.0 < u64::MAX).then_some(at);
            self.so_far.retry_at = self.so_far.retry_at.into_iter().chain(at).min();
            return None;
        }
        if live_slices(allocation).any(|slice| self.in_plan.renumbered.contains(&slice.card)) {
            self.so_far.inexact = true;
            return None;
        }
        Some(victim)
    }

    /// Returns whether the job's queue takes `amount` once the victims have given back what they hold, and may: for a
    /// job that gave way before, no more may be on loan by it.
    fn admits(&self, amount: QueueAmount, victims: &[Arc<Victim>]) -> bool {
        let (queue, givers) = (self.job.queue(), victims.iter().map(|victim| victim.giver()));
        if self.queues.admit_without(queue, amount, givers.clone()).is_err() {
            self.over_maximum.set(true);
            return false;
        }
        !(self.job.request.gave_way && self.queues.lends_more_for(queue, amount, givers))
    }

    /// Sets of these that may give way, each one after the other as the ledger judges: as many as may, those in front
    /// first. Where that shuts some out, also those first who give most, and as many as may before one of those who
    /// give most.
    fn sets_of(&self, victims: &[Arc<Victim>]) -> Vec<Vec<Arc<Victim>>> {
        let asked = self.job.amount;
        let (together, mut shut_out) = self.together(asked, victims);
        let mut sets = vec![together];
        if !shut_out.is_empty() {
            let mut most = victims.to_vec();
            most.sort_by_key(|victim| Reverse(victim.blocks));
            sets.push(self.together(asked, &most).0);
            shut_out.sort_by_key(|victim| Reverse(victim.blocks));
            sets.extend(shut_out.iter().take(SHUT_OUT).map(|last| self.ending_with(victims, last)));
        }
        sets
    }

    /// Divides the victims into those who may give way one after the other for a grant of exactly `asked`, and the
    /// rest.
    fn together(&self, asked: QueueAmount, victims: &[Arc<Victim>]) -> (Vec<Arc<Victim>>, Vec<Arc<Victim>>) {
        if victims.iter().all(|victim| victim.is_own) {
            return (victims.to_vec(), Vec::new());
        }
        let mut recall = self.queues.recall(self.job.queue(), asked);
        victims.iter().cloned().partition(|victim| {
            let allowed = victim.is_own || recall.allows(victim.giver());
            if allowed {
                recall.add(victim.giver());
            }
            allowed
        })
    }

    /// As many of the victims as may give way so that one of them still may after them; that one is the last.
    fn ending_with(&self, victims: &[Arc<Victim>], last: &Arc<Victim>) -> Vec<Arc<Victim>> {
        let mut recall = self.queues.recall(self.job.queue(), self.job.amount);
        let others = victims.iter().filter(|victim| {
            if victim.job.id == last.job.id || !victim.is_own && !recall.allows(victim.giver()) {
                return false;
            }
            recall.add(victim.giver());
            let leaves_room = recall.allows(last.giver());
            if !leaves_room {
                recall.remove(victim.giver());
            }
            leaves_room
        });
        others.chain([last]).cloned().collect()
    }

    /// The victims in an order in which all of them may give way, if there is one.
    fn in_order(&self, mut victims: Vec<Arc<Victim>>) -> Option<Vec<Arc<Victim>>> {
        victims.sort_by_key(|victim| Self::turn(victim));
        self.is_legal(self.job.amount, &victims).then_some(victims)
    }

    /// Enters further victims into such an order, if all of them may give way then. Those of its own queue always may,
    /// and hinder nobody: with what they give back the job is within its guarantee all the more.
    fn enter(&self, victims: &mut Vec<Arc<Victim>>, more: &[Arc<Victim>]) -> bool {
        for victim in more {
            let place = victims.partition_point(|other| Self::turn(other) < Self::turn(victim));
            victims.insert(place, Arc::clone(victim));
        }
        let may = more.iter().all(|victim| victim.is_own) || self.is_legal(self.job.amount, victims);
        if !may {
            victims.retain(|victim| more.iter().all(|other| other.job.id != victim.job.id));
        }
        may
    }

    /// The place of a victim in that order: the job's own queue first, and then the victims that give least, because a
    /// loan is called back as long as anything of it is left.
    fn turn(victim: &Victim) -> (bool, MilliTflops, Mebibytes, JobId) {
        (!victim.is_own, victim.amount.compute, victim.amount.memory, victim.job.id)
    }

    /// Returns whether all `victims` may give way, one after the other, for a grant of exactly `asked`.
    fn is_legal(&self, asked: QueueAmount, victims: &[Arc<Victim>]) -> bool {
        self.together(asked, victims).1.is_empty()
    }

    /// Places the gang as if these victims were gone; those that give it nothing are left out.
    fn place_without(&self, index: &mut Index, victims: &[Arc<Victim>]) -> Option<Found> {
        let placement = attempt(index, victims, |index| fit::place(index, &self.job.least)).ok()?;
        self.take_or_beside(index, placement, victims)
    }

    /// The placement with the victims that give it something. Where there is room elsewhere, but not in its queue,
    /// whoever gives way there must do so on the cards that are granted: then it is placed on their cards, or else on
    /// their nodes and on as few others as will do.
    fn take_or_beside(&self, index: &mut Index, placement: Placement, victims: &[Arc<Victim>]) -> Option<Found> {
        if let Some(found) = self.useful(placement, victims) {
            return Some(found);
        }
        let workers = victims.iter().flat_map(|victim| live_workers(&victim.allocation));
        let theirs: BTreeSet<NodeId> = workers.map(|worker| worker.node).collect();
        let on_theirs = self.job.least.among(theirs.iter().copied());
        let placed = index.beside_closed(cards_beside(index, &theirs, victims), |index| {
            attempt(index, victims, |index| fit::place(index, &on_theirs)).ok()
        });
        if let Some(found) = placed.and_then(|placement| self.useful(placement, victims)) {
            return Some(found);
        }
        let others = roomiest(index, &self.job.least, &theirs);
        let mut found = None;
        let place = |count: usize| {
            let there = self.job.least.among(theirs.iter().chain(&others[..count]).copied());
            let placed = attempt(index, victims, |index| fit::place(index, &there)).ok();
            let fits = placed.is_some();
            found = placed.or(found.take());
            fits
        };
        least_with(0, others.len(), place)?;
        self.useful(found?, victims)
    }

    /// The victims that give a placement something, if they may give way for it and its queue takes it then.
    fn useful(&self, placement: Placement, victims: &[Arc<Victim>]) -> Option<Found> {
        let useful = useful_for(&placement, &self.job.spec, victims);
        (!useful.is_empty() && self.may_take(&placement, &useful)).then_some((placement, useful))
    }

    /// Returns whether the job's queue takes a placement, and `victims` may give way for exactly its amount.
    fn may_take(&self, placement: &Placement, victims: &[Arc<Victim>]) -> bool {
        let amount = queues::amount_of(placement.slices(), self.at.state.config().block_size);
        self.admits(amount, victims) && self.is_legal(amount, victims)
    }
}

/// The cards of these nodes of which none of the victims holds anything.
fn cards_beside(index: &Index, nodes: &BTreeSet<NodeId>, victims: &[Arc<Victim>]) -> Vec<CardId> {
    let slices = victims.iter().flat_map(|victim| live_slices(&victim.allocation));
    let held: BTreeSet<CardId> = slices.map(|slice| slice.card).collect();
    let cards = nodes.iter().filter_map(|id| index.node(*id)).flat_map(|node| &node.cards);
    cards.map(|card| card.id).filter(|card| !held.contains(card)).collect()
}

/// Nodes that have something for a job beside `theirs`, those with most room first; where the job is to stay together,
/// those that are with one of `theirs`.
fn roomiest(index: &Index, demand: &Demand, theirs: &BTreeSet<NodeId>) -> Vec<NodeId> {
    let key = demand.affinity.together.as_str();
    let values: BTreeSet<&str> = theirs.iter().filter_map(|node| index.label(*node, key)).collect();
    let is_with = |node: &NodeId| key.is_empty() || index.label(*node, key).is_some_and(|at| values.contains(at));
    let by_room = |offer: &Offer| index.classes.get(offer.class).nodes.iter().rev().take(BESIDE);
    let mut nodes: Vec<(u32, NodeId)> = demand.offers.iter().flat_map(by_room).copied().collect();
    nodes.sort_unstable_by_key(|(free, node)| (Reverse(*free), *node));
    let mut seen = theirs.clone();
    nodes.into_iter().map(|(_, node)| node).filter(|node| seen.insert(*node) && is_with(node)).take(BESIDE).collect()
}

/// Returns whether a job may use blocks of a card.
fn is_useful(index: &Index, demand: &Demand, card: CardId) -> bool {
    index.card(card).is_some_and(|card| card.is_open() && demand.offer_of(card.class).is_some())
        && demand.accepts_at(index, card.node)
}
