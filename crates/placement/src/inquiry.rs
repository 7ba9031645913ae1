//! Questions about a request that are answered while nothing is granted: whether it starts and in whose place, whether
//! it would fit if it asked for something else, and how much there is of what it asks for. The code that decides
//! answers them, and everything is left as it was. `tessera-explain` makes sentences of the answers.

use std::sync::Arc;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{
    HostRequest, Job, JobId, JobSpec, LogTime, Mebibytes, MilliCpus, MilliTflops, NodeId, PlannedWorker, QueueAmount,
    Span, State,
};

use crate::demand::{Applicant, Demand};
use crate::fit;
use crate::index::card::CardEntry;
use crate::index::class::ClassKey;
use crate::index::node::NodeEntry;
use crate::kept::Reservation;
use crate::pool::{Moment, Pool};
use crate::preempt::InPlan;
use crate::queues::{self, Exceeded, OverMaximum};
use crate::reserve;

/// A request that is asked about, in a pool at some time.
#[derive(Debug)]
pub struct Inquiry<'a> {
    pool: &'a mut Pool,
    at: Moment<'a>,
    job: Applicant,
}

/// The start of a job by the next decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Workers on the cards where they start, in order of rank.
    pub workers: Vec<PlannedWorker>,
    /// Jobs that make room for them.
    pub victims: Vec<Arc<Job>>,
}

/// Free resources of the cards that a job accepts, together and at best in one place: compute in thousandths of a
/// TFLOPS at the precision that it asks for, and memory in MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supply {
    /// Sums over all of them.
    pub all: [u64; 2],
    /// Resources of the card with the most compute, or of the node where virtual cards may spread.
    pub best: [u64; 2],
    /// Nodes that take new work and have such a card.
    pub nodes: u64,
}

/// That a queue is guaranteed something, and that a job is beyond that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BeyondGuarantee {
    pub queue: String,
    pub guaranteed: QueueAmount,
    pub holds: QueueAmount,
}

/// A queue whose turn is before that of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnBefore {
    pub queue: String,
    /// The job that is next there.
    pub job: JobId,
    /// The amount that the queue has borrowed, divided by its weight, in millionths of the pool.
    pub share_ppm: u64,
    /// The same of the queue of the job that is asked about.
    pub own_share_ppm: u64,
}

impl Pool {
    /// A question about a job with such a spec, as if it came now.
    pub fn inquire<'a>(&'a mut self, state: &'a State, spec: &Arc<JobSpec>, now: LogTime) -> Inquiry<'a> {
        let job = Applicant::of(spec, &self.index.classes, state.config());
        Inquiry { pool: self, at: Moment::of(state, now), job }
    }

    /// A question about a job that waits.
    pub fn inquire_of<'a>(&'a mut self, state: &'a State, job: &Job, now: LogTime) -> Inquiry<'a> {
        let job = Applicant::waiting(state, job, &self.index.classes);
        Inquiry { pool: self, at: Moment::of(state, now), job }
    }

    /// The compute, at the pool's reference precision, of the largest card that a job accepts, whether that is enough
    /// for a block or not.
    #[must_use]
    pub fn largest_accepted(&self, state: &State, spec: &JobSpec) -> Option<MilliTflops> {
        let reference = state.config().reference_precision;
        let precision = spec.virtual_card.precision.unwrap_or(reference);
        let accepted =
            |key: &&ClassKey| key.class.is_accepted_by(spec) && key.class.rate(precision) > MilliTflops::ZERO;
        let classes = self.index.classes.in_order().map(|(key, _)| key).filter(accepted);
        classes.map(|key| key.class.rate(reference)).max()
    }

    /// Returns whether a node that takes new work carries all labels that a job asks for; true if it asks for none.
    #[must_use]
    pub fn has_labels(&self, state: &State, spec: &JobSpec) -> bool {
        let carries = |id: &NodeId| {
            state.node(*id).is_some_and(|node| node.grantable() && node.description.carries(&spec.node_labels))
        };
        self.index.carriers.of_rarest(&spec.node_labels).is_none_or(|nodes| nodes.iter().any(carries))
    }
}

impl Inquiry<'_> {
    #[must_use]
    pub fn state(&self) -> &State {
        self.at.state
    }

    #[must_use]
    pub fn now(&self) -> LogTime {
        self.at.now
    }

    #[must_use]
    pub fn spec(&self) -> &Arc<JobSpec> {
        &self.job.spec
    }

    /// The cards that are kept from the job where it stands at `place` in its queue.
    #[must_use]
    pub fn kept_from_it(&self, place: WaitingKey) -> Vec<Reservation> {
        self.pool.binding(self.at, &self.job, place)
    }

    /// Asks while these cards are kept from everybody.
    pub fn beside<'r, T>(
        &mut self,
        kept: impl IntoIterator<Item = &'r Reservation>,
        ask: impl FnOnce(&mut Inquiry<'_>) -> T,
    ) -> T {
        let Self { pool, at, job } = self;
        pool.beside(kept, |pool| ask(&mut Inquiry { pool, at: *at, job: job.clone() }))
    }

    /// Returns the start that the next decision would give the job, if no cards were kept from it but those that this
    /// is asked beside.
    pub fn starts(&mut self) -> Option<Start> {
        let (placement, victims) = self.pool.try_now(self.at, &self.job)?;
        let victims = victims.iter().map(|victim| Arc::clone(&victim.job)).collect();
        Some(Start { workers: placement.workers, victims })
    }

    /// Returns whether the pool knows a class of cards that it accepts and that has blocks.
    #[must_use]
    pub fn takes_cards(&self) -> bool {
        !self.job.least.offers.is_empty()
    }

    /// The compute of the largest card that it accepts ([`Pool::largest_accepted`]).
    #[must_use]
    pub fn largest_accepted(&self) -> Option<MilliTflops> {
        self.pool.largest_accepted(self.at.state, &self.job.spec)
    }

    /// The least that it could count for in its queue.
    #[must_use]
    pub fn least_amount(&self) -> QueueAmount {
        self.job.amount
    }

    /// The amount that the least number of its virtual cards would count for, if they fit now.
    pub fn amount_now(&mut self) -> Option<QueueAmount> {
        let placement = fit::would_take(&mut self.pool.index, &self.job.least)?;
        Some(queues::amount_of(placement.slices(), self.at.state.config().block_size))
    }

    /// Checks that its queue, and those above it, can take `amount` more.
    ///
    /// # Errors
    /// The lowest queue that would exceed its maximum.
    pub fn admits(&self, amount: QueueAmount) -> Result<(), OverMaximum> {
        self.pool.queues.admit(self.job.queue(), amount)
    }

    /// Returns whether all virtual cards of another request would fit now. What is kept for others is kept only from
    /// whoever asks beside it.
    pub fn fits(&mut self, spec: JobSpec) -> bool {
        let demand = self.demand_of(spec);
        fit::fits(&mut self.pool.index, &demand)
    }

    /// Returns whether the pool could hold all virtual cards of another request if everything ended that runs on nodes
    /// which take new work.
    #[must_use]
    pub fn could_hold(&self, spec: JobSpec) -> bool {
        reserve::could_hold(&self.pool.index, self.at.state, &self.demand_of(spec))
    }

    fn demand_of(&self, spec: JobSpec) -> Arc<Demand> {
        Applicant::of(&Arc::new(spec), &self.pool.index.classes, self.at.state.config()).demand
    }

    /// The smallest step by which a virtual card can be made larger or smaller: the least that one block of an accepted
    /// card computes, in thousandths of a TFLOPS.
    #[must_use]
    pub fn finest_step(&self) -> Option<u64> {
        self.job.least.offers.iter().map(|offer| offer.compute_of(1)).filter(|step| *step > 0).min()
    }

    /// The nodes that take new work, carry the labels asked for and have a card for it.
    fn accepted(&self) -> impl Iterator<Item = &NodeEntry> {
        let demand = &self.job.least;
        let nodes = self.pool.index.nodes().map(|(_, node)| node);
        let accepting = nodes.filter(|node| node.is_grantable() && demand.accepts(node));
        accepting.filter(|node| node.cards.iter().any(|card| demand.offer_of(card.class).is_some()))
    }

    /// Free resources of the cards that it accepts.
    #[must_use]
    pub fn supply(&self) -> Supply {
        let demand = &self.job.least;
        let plus = |sum: [u64; 2], more: &[u64; 2]| [sum[0].saturating_add(more[0]), sum[1].saturating_add(more[1])];
        let left = |card: &CardEntry| Some([demand.offer_of(card.class)?.compute_of(card.offered()), card.memory_free]);
        self.accepted().fold(Supply::default(), |supply, node| {
            let cards: Vec<[u64; 2]> = node.cards.iter().filter(|card| card.offered() > 0).filter_map(left).collect();
            let together = cards.iter().fold([0, 0], plus);
            let places = if demand.span == Span::Card { &cards[..] } else { &[together] };
            let best = places.iter().fold(supply.best, |best, place| if place[0] >= best[0] { *place } else { best });
            Supply { all: plus(supply.all, &together), best, nodes: supply.nodes + 1 }
        })
    }

    /// The most that any host has left of those where its programs may be.
    #[must_use]
    pub fn best_host(&self) -> HostRequest {
        let (demand, index) = (&self.job.least, &self.pool.index);
        let for_program = |(id, node): &(NodeId, &NodeEntry)| demand.may_have_program(index, *id, node);
        let nodes: Vec<&NodeEntry> = match demand.program {
            Some(_) => index.nodes().filter(for_program).map(|(_, node)| node).collect(),
            None => self.accepted().collect(),
        };
        let left = nodes.into_iter().filter_map(|node| node.host).map(|host| host.left);
        let (cpu, memory) =
            left.fold((MilliCpus(0), Mebibytes(0)), |most, left| (left.cpu.max(most.0), left.memory.max(most.1)));
        HostRequest { cpu, memory }
    }

    /// Returns whether it would start at `now` in the place of others, and when a further one may be preempted again.
    pub fn replaces_at(&mut self, now: LogTime) -> (bool, Option<LogTime>) {
        let at = Moment { now, ..self.at };
        let search = self.pool.search(at, &self.job, self.job.least.gang, None, &InPlan::default());
        (search.found.is_some(), search.retry_at)
    }

    /// The guarantee with which it would start in the place of others, if it were within it.
    pub fn beyond_guarantee(&mut self) -> Option<BeyondGuarantee> {
        let Self { pool, at, job } = self;
        let exceeded: Vec<Exceeded> = pool.queues.exceeded(job.queue(), job.amount).collect();
        let would_start = |one: &Exceeded| {
            pool.search(*at, job, job.least.gang, Some(&one.raised), &InPlan::default()).found.is_some()
        };
        let Exceeded { queue, guaranteed, holds, .. } = exceeded.into_iter().find(would_start)?;
        Some(BeyondGuarantee { queue, guaranteed, holds })
    }

    /// Another queue that has a job waiting which it admits and which takes some of the same cards, and whose turn is
    /// before this one's: what becomes free goes there first.
    #[must_use]
    pub fn turn_before(&self) -> Option<TurnBefore> {
        let (pool, job) = (&*self.pool, &self.job);
        let (shapes, queues, own) = (&pool.line.shapes, &pool.queues, job.queue());
        let first_of = |line| {
            let of_queue = shapes.line(line);
            let first = of_queue.first_ready().into_iter().chain(of_queue.blocked_after(None)).min();
            let (key, shape) = first.and_then(|(key, id)| Some((key, shapes.get(id)?)))?;
            let competes = shape.one.demand.offers.iter().any(|offer| job.least.offer_of(offer.class).is_some());
            let is_one = of_queue.queue != own && competes && pool.admits_least(shape);
            is_one.then(|| (queues.turn(&of_queue.queue, shape.one.amount), key, of_queue.queue.as_str()))
        };
        let (turn, key, queue) = shapes.lines().filter_map(first_of).min()?;
        (turn < queues.turn(own, job.amount)).then(|| TurnBefore {
            queue: queue.to_owned(),
            job: key.job,
            share_ppm: queues.share_ppm(queue),
            own_share_ppm: queues.share_ppm(own),
        })
    }
}
