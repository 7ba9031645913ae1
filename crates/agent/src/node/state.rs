//! The state of a node and the one place where events enter.

use std::collections::{BTreeMap, BTreeSet};

use tessera_api::v1 as wire;
use tessera_ledger::PartKey;
use tessera_ledger::wire::duration_if_any;

use super::event::{CheckpointNews, Effect, Event, Now, PoolTerms};
use super::launches::starts_at_once;
use super::readings::Readings;
use super::record::{Stage, WorkerRecord};
use super::session::Session;
use crate::boot::BootTime;
use crate::supervisor::status::{Phase, Status};
use crate::worker::{Fence, Lease, Term, WorkerId};

/// Blocks, memory and slices of one card that workers hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardUse {
    pub blocks: u64,
    pub memory_mib: u64,
    pub slices: u64,
}

/// Facts that do not change while an agent runs; only labels may be added.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub name: String,
    pub uid: String,
    /// The number of this start of the agent.
    pub incarnation: u64,
    /// Address at which members read logs.
    pub address: String,
    /// Host name or address at which workers of other nodes reach those of this one.
    pub worker_host: String,
    pub labels: BTreeMap<String, String>,
    pub boot_id: String,
    /// Drawn at this start of the agent.
    pub start_nonce: String,
    /// The part of a worker that ends by itself with its supervisor.
    pub containment: wire::Containment,
    /// Resources that the host offers to workers beside its cards.
    pub host: Option<wire::HostCapacity>,
}

#[derive(Debug)]
pub struct Node {
    pub(super) facts: NodeFacts,
    pub(super) cards: Vec<wire::CardDescription>,
    pub(super) readings: Readings,
    /// The checkpoints on its disk; `None`: not known yet.
    pub(super) kept: Option<BTreeSet<PartKey>>,
    pub(super) cached: BTreeSet<String>,
    /// True if `cached` changed after the hello and before the welcome.
    pub(super) cached_unsaid: bool,
    pub(super) workers: BTreeMap<WorkerId, WorkerRecord>,
    /// Workers that start at the same time at most.
    pub(super) starts_at_once: usize,
    pub(super) highest_term: Term,
    /// The number of times that a leader named a term which no elections can have reached.
    pub(super) terms_refused: u64,
    pub(super) cluster_id: String,
    /// The name is on disk under which a leader took it, or is about to be.
    pub(super) named: bool,
    pub(super) session: Session,
    pub(super) lease: Option<Lease>,
    pub(super) pool: Option<PoolTerms>,
    /// True if the leader was told of less containment than new workers have, because of workers that were adopted.
    pub(super) said_less: bool,
    /// True if the node got labels since the last hello.
    pub(super) labels_unsaid: bool,
}

impl Node {
    /// A node as it was left by the agent before: its cards, the highest term that was kept, the pool it belongs to
    /// (empty before the first welcome), and the workers that were found.
    #[must_use]
    pub fn new(
        facts: NodeFacts,
        cards: Vec<wire::CardDescription>,
        highest_term: Term,
        cluster_id: String,
        workers: impl IntoIterator<Item = WorkerRecord>,
    ) -> Self {
        Self {
            facts,
            cards,
            readings: Readings::default(),
            kept: None,
            cached: BTreeSet::new(),
            cached_unsaid: false,
            workers: workers.into_iter().map(|record| (record.status.worker, record)).collect(),
            starts_at_once: starts_at_once(1),
            highest_term,
            terms_refused: 0,
            cluster_id,
            named: true,
            session: Session::Closed,
            lease: None,
            pool: None,
            said_less: false,
            labels_unsaid: false,
        }
    }

    /// The same node with data on its disks.
    #[must_use]
    pub fn with_data(mut self, names: BTreeSet<String>) -> Self {
        self.cached = names;
        self
    }

    /// The same node on a host of so many processors, instead of one.
    #[must_use]
    pub const fn with_processors(mut self, processors: usize) -> Self {
        self.starts_at_once = starts_at_once(processors);
        self
    }

    /// The same node, whose name is kept, or is yet to be once a leader takes it.
    #[must_use]
    pub const fn named(mut self, kept: bool) -> Self {
        self.named = kept;
        self
    }

    /// Takes what happened and answers with what is to be done, in order.
    pub fn on(&mut self, now: Now, event: Event) -> Vec<Effect> {
        let mut effects = match event {
            Event::HelloWanted => self.hello(),
            Event::FromLeader(message) => self.heard(now, *message),
            Event::SessionClosed => self.session_closed(),
            Event::HeartbeatDue => self.heartbeat(now),
            Event::TermKept(term) => self.term_kept(now, term),
            Event::WorkerStatus(status) => self.worker_status(*status),
            Event::Checkpoint(worker, news) => self.checkpoint_news(worker, news),
            Event::Kept(kept) => self.kept_changed(kept),
            Event::Absent(parts) => {
                self.session.say_absent(parts);
                Vec::new()
            }
            Event::Measured(readings) => {
                self.readings = *readings;
                Vec::new()
            }
            Event::CardsChanged(cards) => self.cards_changed(cards),
            Event::CachedChanged(names) => self.cached_changed(names),
            Event::Labelled(labels) => {
                self.facts.labels.extend(labels);
                self.labels_unsaid = true;
                Vec::new()
            }
        };
        effects.extend(self.say_hello_anew());
        effects.extend(self.launch_waiting(now));
        effects.extend(self.forget_settled());
        effects.extend(self.send_reports(now));
        effects
    }

    /// The workers, for metrics and for whoever reads logs.
    pub fn workers(&self) -> impl Iterator<Item = &WorkerRecord> {
        self.workers.values()
    }

    #[must_use]
    pub fn worker(&self, worker: WorkerId) -> Option<&WorkerRecord> {
        self.workers.get(&worker)
    }

    /// The cards as declared.
    #[must_use]
    pub fn cards(&self) -> &[wire::CardDescription] {
        &self.cards
    }

    /// Until when work may run, if a leader ever said.
    #[must_use]
    pub const fn lease(&self) -> Option<Lease> {
        self.lease
    }

    /// Returns whether the leader knows this node and answers.
    #[must_use]
    pub const fn is_welcome(&self) -> bool {
        matches!(self.session, Session::Open(_))
    }

    #[must_use]
    pub const fn highest_term(&self) -> Term {
        self.highest_term
    }

    /// Counts the terms that were refused because no elections can have reached them.
    #[must_use]
    pub const fn terms_refused(&self) -> u64 {
        self.terms_refused
    }

    /// The fence under which this node speaks to a worker.
    pub(super) const fn fence(&self, worker: WorkerId) -> Fence {
        Fence { term: self.highest_term, epoch: worker.epoch }
    }

    fn worker_status(&mut self, status: Status) -> Vec<Effect> {
        let Some(record) = self.workers.get_mut(&status.worker) else { return Vec::new() };
        // What is over stays over, and a late word of a slow channel cannot bring it back.
        if record.stage == Stage::Over {
            return Vec::new();
        }
        record.status = status;
        record.touch();
        Vec::new()
    }

    fn checkpoint_news(&mut self, worker: WorkerId, news: CheckpointNews) -> Vec<Effect> {
        if let Some(record) = self.workers.get_mut(&worker) {
            match news {
                CheckpointNews::Saved(saved) => record.saved = Some(saved),
                CheckpointNews::Unusable { for_good } => record.unusable = Some(for_good),
                CheckpointNews::Snapshot { failed } => record.snapshot_failed = failed,
            }
            record.touch();
        }
        Vec::new()
    }

    fn kept_changed(&mut self, kept: BTreeSet<PartKey>) -> Vec<Effect> {
        if self.kept.as_ref() != Some(&kept) {
            self.kept = Some(kept);
            self.session.say_kept();
        }
        Vec::new()
    }

    fn cards_changed(&mut self, cards: Vec<wire::CardDescription>) -> Vec<Effect> {
        self.cards = cards;
        self.session.report_cards();
        Vec::new()
    }

    /// The leader is told on the session that there is; a session to come begins with all of it.
    fn cached_changed(&mut self, names: BTreeSet<String>) -> Vec<Effect> {
        if self.cached != names {
            self.cached = names;
            self.session.report_cached();
            self.cached_unsaid = matches!(self.session, Session::Greeting);
        }
        Vec::new()
    }

    /// Forgets what is over, acknowledged, and settled or not granted any more.
    fn forget_settled(&mut self) -> Vec<Effect> {
        let over: Vec<WorkerId> = self
            .workers
            .iter()
            .filter(|(_, record)| record.stage == Stage::Over)
            .filter(|(_, record)| record.settled || (!record.granted && record.is_acknowledged()))
            .map(|(worker, _)| *worker)
            .collect();
        let forget = |worker| {
            let record = self.workers.remove(&worker)?;
            let spec = record.order.as_ref().and_then(|order| order.spec.as_ref());
            let retention = duration_if_any(spec.and_then(|spec| spec.output_retention.as_ref()));
            Some(Effect::Forget { worker, retention })
        };
        over.into_iter().filter_map(forget).collect()
    }

    /// The number of workers in each phase, for metrics.
    #[must_use]
    pub fn phase_counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for record in self.workers.values() {
            let name = match record.status.phase {
                Phase::Preparing => "starting",
                Phase::Running => "running",
                Phase::Stopping => "stopping",
                Phase::Unconfirmed => "unconfirmed",
                Phase::Stopped => "stopped",
            };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Blocks, memory and slices of each of this node's cards that are held by workers which are not over.
    #[must_use]
    pub fn card_use(&self) -> BTreeMap<u32, CardUse> {
        let mut cards: BTreeMap<u32, CardUse> = BTreeMap::new();
        let here = self.workers.values().filter(|record| !record.status.is_final());
        for order in here.filter_map(|record| record.order.as_ref()) {
            for slice in self.slices_here(order) {
                let held = cards.entry(slice.card_index).or_default();
                held.blocks += u64::from(slice.blocks);
                held.memory_mib += slice.memory_mib;
                held.slices += 1;
            }
        }
        cards
    }

    #[must_use]
    pub fn lease_remaining(&self, now: BootTime) -> std::time::Duration {
        self.lease.map_or(std::time::Duration::ZERO, |lease| now.until(lease.stop_at))
    }
}

#[cfg(test)]
#[path = "tests/mod.rs"]
mod tests;
