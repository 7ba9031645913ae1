//! The pool as the placement actor knows it: built once from the ledger and then kept current by what each applied
//! entry touched.

use std::collections::BTreeSet;

use tessera_ledger::{
    AllocationId, CardId, Eligibility, JobId, LogTime, NodeId, NodeState, Percent, Revision, State, Touched,
};

use crate::index::{Index, put};
use crate::kept::Reservation;
use crate::line::Line;
use crate::line::shapes::LineId;
use crate::mix::Mix;
use crate::queues::{Changed, Queues};
use crate::reserve::Remembered;
use crate::tariff::Tariff;
use crate::victims::Victims;

/// The moment at which something is judged: the ledger's state, and the time of the plan, which is that of the state or
/// later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment<'a> {
    pub(crate) state: &'a State,
    pub(crate) now: LogTime,
}

impl<'a> Moment<'a> {
    pub(crate) fn of(state: &'a State, now: LogTime) -> Self {
        Self { state, now: now.max(state.time()) }
    }
}

/// An incremental index of the pool and of the line of waiting jobs.
///
/// It is rebuilt from the ledger by whoever becomes leader; two pools of equal states decide alike, however they came
/// about, as long as they judge room by the same prices and no decision was cut short. Prices are made from the state
/// too, but only now and then: a new leader makes them at once.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    pub(crate) index: Index,
    pub(crate) line: Line,
    pub(crate) queues: Queues,
    pub(crate) victims: Victims,
    /// Nodes that jobs are asked to leave.
    pub(crate) draining: BTreeSet<NodeId>,
    /// The requests that prices are made for.
    pub(crate) mix: Mix,
    /// Decides when prices are made anew.
    pub(crate) tariff: Tariff,
    /// Cards kept for jobs that have waited long, as of the last decision.
    pub(crate) reservations: Vec<Reservation>,
    /// The revision of the first of the last decisions that were cut short before they came to anything; the next one
    /// goes on where they ended.
    pub(crate) cut_short_at: Option<Revision>,
    /// The findings of earlier searches for cards to keep.
    pub(crate) remembered: Remembered,
    pub(crate) work: Work,
}

/// Counts of the work done since the pool was read or its settings changed: tests and measurements count it instead of
/// time. It never decides anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Requests that were tried on the index by decisions.
    pub tried: u64,
    /// Costs of requests that were computed, each for all nodes that look the same.
    pub costs_computed: u64,
    /// Nodes that were looked at one by one, for jobs with wishes and for room to keep.
    pub nodes_looked_at: u64,
    /// Searches of the pool for cards to keep for a job.
    pub reservations_sought: u64,
    /// Queues whose past use was counted anew from the ledger's last count, not from where a decision left it.
    pub uses_recounted: u64,
}

impl Pool {
    #[must_use]
    pub fn new(state: &State) -> Self {
        Self::with_past(state, Mix::default())
    }

    /// Reads the whole state; the past that `mix` was told stays known.
    fn with_past(state: &State, mix: Mix) -> Self {
        let mut pool = Self { mix, ..Self::default() };
        pool.mix.read(state);
        let nodes: Vec<NodeId> = state.nodes().map(|node| node.id).collect();
        for id in nodes {
            pool.read_node(state, id);
        }
        pool.index.surroundings.read_policies(state);
        pool.line.shapes.recompile(&pool.index, state.config());
        pool.queues.read(state);
        for allocation in state.allocations() {
            pool.victims.update(state, allocation.id, state.time());
            pool.index.surroundings.update(state, allocation.id);
        }
        for job in state.waiting() {
            pool.line.update(state, job.id, state.time(), &pool.index.classes);
        }
        pool
    }

    /// Takes over what applied entries have touched ([`State::take_touched`]); costs as much as was touched.
    pub fn refresh(&mut self, state: &State, touched: &[Touched]) {
        if touched.contains(&Touched::Config) {
            let load = std::mem::take(&mut self.index.surroundings.load);
            *self = Self::with_past(state, std::mem::take(&mut self.mix));
            return self.set_load(load);
        }
        let mut freed = Vec::new();
        // Cards that came or have more room; not those that are only worth another try because their host has.
        let mut changes = 0;
        for touched in touched {
            let Touched::Node(id) = touched else { continue };
            let known = self.index.ledger_node(*id).is_some();
            let cards = self.read_node(state, *id);
            changes += if known { 0 } else { cards.len() };
            freed.extend(cards);
        }
        let mut preemptible = Vec::new();
        for touched in touched {
            match touched {
                Touched::Card(id) => {
                    let card = self.index.read_card(state, *id);
                    changes += usize::from(card.is_some());
                    freed.extend(card);
                }
                Touched::Allocation(id) => {
                    preemptible.extend(self.victims.update(state, *id, state.time()));
                    let workers = state.allocation(*id).into_iter().flat_map(|allocation| allocation.workers.iter());
                    workers.for_each(|worker| self.index.note_allocation(worker.node, *id));
                    // Whoever avoided a job that has left may want any card of the node now.
                    let left = self.index.surroundings.update(state, *id);
                    freed.extend(left.into_iter().flat_map(|node| self.index.usable_cards(node)));
                }
                Touched::Job(id) => {
                    let allocation: Option<AllocationId> = state.job(*id).and_then(|job| job.allocation);
                    self.mix.update(*id, state.job(*id));
                    preemptible.extend(allocation.and_then(|id| self.victims.update(state, id, state.time())));
                }
                Touched::Node(_) | Touched::Queues | Touched::Config => {}
            }
        }
        let queues = if touched.contains(&Touched::Queues) {
            self.index.surroundings.read_policies(state);
            self.queues.read(state)
        } else {
            Changed::default()
        };
        self.tariff.changed(changes);
        self.wake(state, &freed, queues);
        for standing in preemptible {
            self.line.shapes.preemptible_appeared(&standing, &self.queues);
        }
        for touched in touched {
            if let Touched::Job(id) = touched {
                self.read_job(state, *id, state.time());
            }
        }
    }

    /// Returns the counts of the work done so far.
    #[must_use]
    pub fn work(&self) -> Work {
        let (costs_computed, nodes_looked_at) = (self.index.columns.judged, self.index.looked_at);
        Work { costs_computed, nodes_looked_at, uses_recounted: self.queues.uses_recounted(), ..self.work }
    }

    /// The nodes that are heard from and drained.
    pub fn draining(&self) -> impl Iterator<Item = NodeId> {
        self.draining.iter().copied()
    }

    /// Takes over how busy nodes are, as telemetry says; nodes that are not named are idle. It breaks ties
    /// between equally good places and nothing else. It is not replicated: pools that were told differently may
    /// decide differently.
    pub fn set_load(&mut self, load: impl IntoIterator<Item = (NodeId, Percent)>) {
        self.index.surroundings.load = load.into_iter().collect();
    }

    fn read_node(&mut self, state: &State, id: NodeId) -> Vec<CardId> {
        let draining = state
            .node(id)
            .is_some_and(|node| node.eligibility == Eligibility::Draining && node.state == NodeState::Ready);
        put(&mut self.draining, id, draining);
        self.index.read_node(state, id)
    }

    fn read_job(&mut self, state: &State, id: JobId, now: LogTime) {
        self.line.update(state, id, now, &self.index.classes);
    }

    /// Tries the jobs again that could use what has become free.
    fn wake(&mut self, state: &State, freed: &[CardId], queues: Changed) {
        self.line.shapes.recompile(&self.index, state.config());
        self.wake_for_cards(freed, None);
        if self.index.take_hosts_freed() {
            self.line.shapes.hosts_freed();
        }
        if queues.more {
            self.line.shapes.queues_freed();
        }
        self.line.shapes.recall_changed(&self.queues, &queues.recall);
    }

    /// Tries the jobs again that could use these cards; not those of the line `but`.
    pub(crate) fn wake_for_cards(&mut self, cards: &[CardId], but: Option<LineId>) {
        for id in cards {
            if let Some(card) = self.index.card(*id) {
                self.line.shapes.freed(card, &self.victims, &self.queues, but);
            }
        }
    }

    /// Forgets what earlier plans took and the ledger did not confirm, and lets in the jobs whose time has come.
    pub(crate) fn settle(&mut self, state: &State, now: LogTime) {
        self.index.settle();
        let freed = self.index.read_stale(state);
        let queues = self.queues.read_stale(state);
        self.wake(state, &freed, queues);
        if self.queues.settle(state, now) {
            self.line.shapes.queues_freed();
        }
        for standing in self.victims.advance(state, now) {
            self.line.shapes.preemptible_appeared(&standing, &self.queues);
        }
        self.line.planned().into_iter().for_each(|job| self.read_job(state, job, now));
        self.line.advance(now);
    }
}
