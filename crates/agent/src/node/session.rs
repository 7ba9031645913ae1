//! The session with the leader: hello, welcome, heartbeats, leases, and whose word counts.

use std::collections::BTreeMap;
use std::time::Duration;

use planted::Bug;
use tessera_api::agent::part_name;
use tessera_api::v1 as wire;
use tessera_ledger::wire::{card_from_wire, duration_if_any};
use tessera_ledger::{CardDescription, LeaseTimings, PartKey};
use wire::session_request::Message as ToLeader;
use wire::session_response::Message as FromLeader;

use super::event::{Effect, Now, PoolTerms};
use super::record::Stage;
use super::reports::Reports;
use super::state::Node;
use crate::boot::BootTime;
use crate::worker::{Lease, Term};

/// Heartbeats whose answers are still waited for; older ones are given up.
const MAX_UNANSWERED: usize = 64;

/// Most terms by which a leader may be ahead of those that were heard: more than elections, a few a second at most, can
/// use up.
const MOST_TERMS_AHEAD: u64 = 1 << 32;

#[derive(Debug)]
pub enum Session {
    Closed,
    /// Hello was said.
    Greeting,
    /// The leader has welcomed the node.
    Open(OpenSession),
}

/// A session that works.
#[derive(Debug)]
pub struct OpenSession {
    /// Orders that wait until the term is on disk.
    held: Vec<wire::Orders>,
    /// Number of the last heartbeat.
    sequence: u64,
    /// Send times of unanswered heartbeats, by their numbers.
    sent: BTreeMap<u64, BootTime>,
    /// The longest time that the leader may leave a heartbeat unanswered: half of what leases last, so that another
    /// leader is found before they end. Unknown before the first grant.
    patience: Option<Duration>,
    /// True if the leader was told which checkpoints are kept here.
    kept_said: bool,
    /// Checkpoints that the leader missed and that were looked for in vain, until it is told.
    absent: Vec<PartKey>,
    /// The reports of this session, due or not yet acknowledged.
    pub(super) reports: Reports,
}

impl Session {
    /// Notes that the cards have to be reported.
    pub fn report_cards(&mut self) {
        if let Self::Open(open) = self {
            open.reports.cards_changed();
        }
    }

    /// Notes that the checkpoints kept here have to be told.
    pub fn say_kept(&mut self) {
        if let Self::Open(open) = self {
            open.kept_said = false;
        }
    }

    /// Notes that checkpoints which the leader missed are not here.
    pub fn say_absent(&mut self, parts: Vec<PartKey>) {
        if let Self::Open(open) = self {
            open.kept_said &= parts.is_empty();
            open.absent = parts;
        }
    }

    /// Notes that the data on the node's disks has to be reported.
    pub fn report_cached(&mut self) {
        if let Self::Open(open) = self {
            open.reports.cached_changed();
        }
    }
}

/// The time between heartbeats that a leader asks for, as far as it can be had.
fn interval(asked: Option<prost_types::Duration>) -> Option<Duration> {
    let interval = duration_if_any(asked.as_ref())?;
    Some(interval.clamp(LeaseTimings::HEARTBEAT.0, LeaseTimings::HEARTBEAT.1))
}

pub(super) fn send(message: ToLeader) -> Effect {
    Effect::Send(Box::new(wire::SessionRequest { message: Some(message) }))
}

impl Node {
    pub(super) fn hello(&mut self) -> Vec<Effect> {
        self.session = Session::Greeting;
        self.cached_unsaid = false;
        self.labels_unsaid = false;
        let containment = self.containment();
        self.said_less = containment != self.facts.containment;
        for record in self.workers.values_mut() {
            record.sent = 0;
        }
        let known = self.workers.values().filter(|record| record.stage != Stage::Over || !record.is_acknowledged());
        vec![Effect::SayHello(Box::new(wire::Hello {
            node_name: self.facts.name.clone(),
            node_uid: self.facts.uid.clone(),
            incarnation: self.facts.incarnation,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            address: self.facts.address.clone(),
            worker_host: self.facts.worker_host.clone(),
            labels: self.facts.labels.clone(),
            cards: self.cards.clone(),
            workers: known.map(super::record::WorkerRecord::report).collect(),
            highest_term: if planted::is(Bug::TermUncheckedAtAgent) { 0 } else { self.highest_term.0 },
            cluster_id: self.cluster_id.clone(),
            host: self.facts.host,
            cached: self.cached.iter().cloned().collect(),
            boot_id: self.facts.boot_id.clone(),
            start_nonce: self.facts.start_nonce.clone(),
            containment: Some(containment),
            sent_at_unix_ms: 0,
        }))]
    }

    /// The containment of the workers here: the part of each that ends by itself with its supervisor. It is that of new
    /// workers, unless an older one has less.
    fn containment(&self) -> wire::Containment {
        let adopted = self.workers.values().find(|record| record.may_outlive_supervisor());
        match adopted.filter(|_| self.facts.containment.whole) {
            Some(record) => wire::Containment {
                whole: false,
                missing: format!("worker {} was started by an agent that did not contain it", record.status.worker),
            },
            None => self.facts.containment.clone(),
        }
    }

    /// Containment and labels are said with the hello only: once workers with less of the one are over, or there are
    /// more of the other, the session begins anew.
    pub(super) fn say_hello_anew(&mut self) -> Vec<Effect> {
        let contains = self.said_less && self.containment() == self.facts.containment;
        // Ends of workers are told first, on the session that there is.
        let told = self.workers.values().all(|record| record.stage != Stage::Over || record.is_acknowledged());
        if !(contains || self.labels_unsaid) || !told || !matches!(self.session, Session::Open(_)) {
            return Vec::new();
        }
        self.end_session("there is more to say of this node than there was".to_owned())
    }

    pub(super) fn session_closed(&mut self) -> Vec<Effect> {
        self.session = Session::Closed;
        Vec::new()
    }

    /// Ends the session: nothing that it brings is listened to any more.
    fn end_session(&mut self, reason: String) -> Vec<Effect> {
        self.session = Session::Closed;
        vec![Effect::CloseSession(reason)]
    }

    pub(super) fn heard(&mut self, now: Now, message: wire::SessionResponse) -> Vec<Effect> {
        match (&self.session, message.message) {
            (Session::Closed, _) => Vec::new(),
            (Session::Greeting, Some(FromLeader::Welcome(welcome))) => self.welcomed(now, &welcome),
            (Session::Open(_), Some(FromLeader::LeaseGrant(grant))) => self.granted(now, &grant),
            (Session::Open(_), Some(FromLeader::Orders(orders))) => self.ordered(now, orders),
            (Session::Open(_), Some(FromLeader::ReportAcknowledged(report))) => self.acknowledged(report.report_id),
            (Session::Open(_), Some(FromLeader::CheckpointOrders(orders))) => self.tend(orders),
            (Session::Greeting | Session::Open(_), _) => {
                self.end_session("the leader sent a message that has no place at this point of a session".to_owned())
            }
        }
    }

    fn welcomed(&mut self, now: Now, welcome: &wire::Welcome) -> Vec<Effect> {
        let term = Term(welcome.term);
        if let Some(reason) = self.unfit(term) {
            return self.end_session(reason);
        }
        if !self.cluster_id.is_empty() && self.cluster_id != welcome.cluster_id {
            let reason =
                format!("this node belongs to pool {}, the member to pool {}", self.cluster_id, welcome.cluster_id);
            return self.end_session(reason);
        }
        let pool = PoolTerms {
            node_id: welcome.node_id,
            reference: welcome.reference_precision(),
            block_milli_tflops: welcome.block_milli_tflops,
        };
        let told = self.pool.replace(pool) == Some(pool);
        let news = term > self.highest_term || self.cluster_id != welcome.cluster_id || !self.named;
        self.named = true;
        self.highest_term = term;
        self.cluster_id.clone_from(&welcome.cluster_id);
        let held = if news { Some(Vec::new()) } else { None };
        self.session = Session::Open(OpenSession {
            held: held.unwrap_or_default(),
            sequence: 0,
            sent: BTreeMap::new(),
            patience: None,
            kept_said: false,
            absent: Vec::new(),
            reports: Reports::new(!news),
        });
        if std::mem::take(&mut self.cached_unsaid) {
            self.session.report_cached();
        }
        let mut effects =
            vec![Effect::HeartbeatEvery(interval(welcome.heartbeat_interval).unwrap_or(LeaseTimings::HEARTBEAT.0))];
        if !told {
            effects.extend(self.cards_without_blocks(pool));
        }
        if news {
            effects.push(self.keep_term());
        }
        effects.extend(self.heartbeat(now));
        effects
    }

    /// Says which cards no job will ever run on in this pool.
    fn cards_without_blocks(&self, pool: PoolTerms) -> Vec<Effect> {
        let Some((reference, block_size)) = pool.blocks() else { return Vec::new() };
        let warning = |card: CardDescription| {
            let why = card.lack_of_blocks(reference, block_size)?;
            Some(Effect::Warn(format!("card {} ({} {}): {why}", card.index, card.kind.name(), card.model)))
        };
        self.known_cards().filter_map(warning).collect()
    }

    /// The cards as the ledger describes them.
    pub(super) fn known_cards(&self) -> impl Iterator<Item = CardDescription> {
        self.cards.iter().filter_map(|card| card_from_wire(card.clone()).ok())
    }

    fn keep_term(&self) -> Effect {
        Effect::KeepTerm { term: self.highest_term, cluster_id: self.cluster_id.clone() }
    }

    /// Returns what speaks against whoever leads in this term; `None`: nothing does. A term that no elections can have
    /// reached would, once kept, leave this node without a leader for ever: it is counted, as only a stranger names
    /// one.
    fn unfit(&mut self, term: Term) -> Option<String> {
        let highest = self.highest_term;
        if term < highest && !planted::is(Bug::TermUncheckedAtAgent) {
            return Some(format!(
                "term {term} is older than term {highest}, which was seen before: its leader is deposed"
            ));
        }
        if term.0 <= highest.0.saturating_add(MOST_TERMS_AHEAD) {
            return None;
        }
        self.terms_refused += 1;
        Some(format!("term {term} is implausible after term {highest}: no elections can have reached it"))
    }

    pub(super) fn term_kept(&mut self, now: Now, term: Term) -> Vec<Effect> {
        if term != self.highest_term {
            return Vec::new();
        }
        let Session::Open(open) = &mut self.session else { return Vec::new() };
        open.reports.term_is_kept();
        let held = std::mem::take(&mut open.held);
        held.into_iter().flat_map(|orders| self.obey(now, orders)).collect()
    }

    pub(super) fn heartbeat(&mut self, now: Now) -> Vec<Effect> {
        let readings = self.readings(now);
        let (samples, workers) = (self.card_samples(&readings), self.worker_samples(&readings));
        let Session::Open(open) = &mut self.session else { return Vec::new() };
        let keeps = planted::is(Bug::AgentsKept) || planted::is(Bug::LeaseFromReceipt);
        let waited = open.sent.values().next().map(|sent_at| sent_at.until(now)).filter(|_| !keeps);
        if let Some((waited, patience)) = waited.zip(open.patience).filter(|(waited, patience)| waited >= patience) {
            self.session = Session::Closed;
            let reason = format!(
                "the leader has not answered a heartbeat for {} ms; leases allow for {} ms",
                waited.as_millis(),
                patience.as_millis()
            );
            return vec![Effect::LeaveLeader(reason)];
        }
        open.sequence += 1;
        open.sent.insert(open.sequence, now);
        while open.sent.len() > MAX_UNANSWERED {
            open.sent.pop_first();
        }
        let again = open.reports.overdue(now);
        for (worker, version) in again {
            if let Some(record) = self.workers.get_mut(&worker) {
                record.sent = record.sent.min(version.saturating_sub(1));
            }
        }
        let kept = self.kept.as_ref().filter(|_| !open.kept_said);
        open.kept_said |= kept.is_some();
        let absent = if kept.is_some() { std::mem::take(&mut open.absent) } else { Vec::new() };
        let heartbeat = wire::Heartbeat {
            sequence: open.sequence,
            sent_at_boottime_ms: now.0,
            samples,
            kept: kept.map(|kept| wire::KeptCheckpoints {
                names: kept.iter().map(part_name).collect(),
                absent: absent.iter().map(part_name).collect(),
            }),
            workers,
            sent_at_unix_ms: 0,
        };
        vec![send(ToLeader::Heartbeat(heartbeat))]
    }

    /// Passes on orders for checkpoints if they come from the newest leader; otherwise ends the session.
    fn tend(&mut self, mut orders: wire::CheckpointOrders) -> Vec<Effect> {
        let term = Term(orders.term);
        if let Some(reason) = self.unfit(term) {
            return self.end_session(reason);
        }
        let missed = std::mem::take(&mut orders.missed);
        let look = (!missed.is_empty()).then_some(Effect::LookFor(missed));
        [Effect::Tend(Box::new(orders))].into_iter().chain(look).collect()
    }

    /// A lease is counted from this agent's own record of when it sent the heartbeat.
    fn granted(&mut self, now: Now, grant: &wire::LeaseGrant) -> Vec<Effect> {
        if let Some(reason) = self.unfit(Term(grant.term)) {
            return self.end_session(reason);
        }
        let Session::Open(open) = &mut self.session else { return Vec::new() };
        let Some(sent_at) = open.sent.get(&grant.heartbeat_sequence).copied() else { return Vec::new() };
        let sent_at = if planted::is(Bug::LeaseFromReceipt) { now } else { sent_at };
        open.sent.retain(|sequence, _| *sequence > grant.heartbeat_sequence);
        open.patience = Some(Duration::from_millis(grant.stop_after_ms) / 2);
        let lease = Lease {
            stop_at: sent_at.after(Duration::from_millis(grant.stop_after_ms)),
            kill_at: sent_at.after(Duration::from_millis(grant.kill_after_ms.max(grant.stop_after_ms))),
        };
        let lease = self.lease.map_or(lease, |before| before.extended_by(lease));
        self.lease = Some(lease);
        let leased =
            self.workers.values().filter(|record| record.stage == Stage::Launched && !record.keeps_on_disconnect());
        let renewals = leased.map(|record| {
            let worker = record.status.worker;
            Effect::Renew { worker, fence: self.fence(worker), lease }
        });
        // The pool's settings may have changed since the welcome.
        let pace = interval(grant.heartbeat_interval).map(Effect::HeartbeatEvery);
        let kept = duration_if_any(grant.output_retention.as_ref()).map(Effect::KeepOutput);
        pace.into_iter().chain(kept).chain(renewals).collect()
    }

    fn ordered(&mut self, now: Now, orders: wire::Orders) -> Vec<Effect> {
        let term = Term(orders.term);
        if let Some(reason) = self.unfit(term) {
            return self.end_session(reason);
        }
        let raised = term > self.highest_term;
        self.highest_term = term;
        let Session::Open(open) = &mut self.session else { return Vec::new() };
        if raised {
            open.reports.wait_for_term();
        }
        if open.reports.is_term_kept() {
            return self.obey(now, orders);
        }
        // What is to be started waits for the disk. What is to be stopped does not: it may be what fills the disk.
        let stops = orders.workers.iter().filter(|order| order.desire() == wire::WorkerDesire::Stop);
        let stops: Vec<wire::WorkerOrder> = stops.cloned().collect();
        open.held.push(orders);
        let mut effects = if raised { vec![self.keep_term()] } else { Vec::new() };
        effects.extend(stops.into_iter().flat_map(|order| self.stop_early(now, order)));
        effects
    }
}
