//! Reports on their way: sent again until they are acknowledged.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_api::v1 as wire;
use wire::session_request::Message as ToLeader;

use super::event::{Effect, Now};
use super::record::WorkerRecord;
use super::session::{Session, send};
use super::state::Node;
use crate::boot::BootTime;
use crate::worker::WorkerId;

/// The time to wait for an acknowledgement before the same is reported again.
const PATIENCE: Duration = Duration::from_secs(5);
/// Workers in one report; more go into the next.
const MAX_WORKERS: usize = 256;

/// The reports of this session: those that are due, and those that wait for an acknowledgement.
#[derive(Debug)]
pub struct Reports {
    /// The session's term is on disk.
    term_kept: bool,
    last_id: u64,
    cards_due: bool,
    cached_due: bool,
    unanswered: BTreeMap<u64, Unanswered>,
}

#[derive(Debug)]
struct Unanswered {
    sent_at: BootTime,
    workers: Vec<(WorkerId, u64)>,
    cards: bool,
    cached: bool,
}

impl Reports {
    pub const fn new(term_kept: bool) -> Self {
        Self { term_kept, last_id: 0, cards_due: false, cached_due: false, unanswered: BTreeMap::new() }
    }

    /// The cards have to be reported.
    pub const fn cards_changed(&mut self) {
        self.cards_due = true;
    }

    /// The data on the node's disks has to be reported.
    pub const fn cached_changed(&mut self) {
        self.cached_due = true;
    }

    /// The session's term is on disk.
    pub const fn term_is_kept(&mut self) {
        self.term_kept = true;
    }

    /// A new term has come and is not on disk yet.
    pub const fn wait_for_term(&mut self) {
        self.term_kept = false;
    }

    /// Returns whether orders may be obeyed: the session's term is on disk.
    pub const fn is_term_kept(&self) -> bool {
        self.term_kept
    }

    /// Gives up waiting for old reports; returns what was in them.
    pub fn overdue(&mut self, now: BootTime) -> Vec<(WorkerId, u64)> {
        let late = |report: &Unanswered| report.sent_at.after(PATIENCE) <= now;
        let mut workers = Vec::new();
        for report in self.unanswered.extract_if(.., |_, report| late(report)).map(|(_, report)| report) {
            self.cards_due |= report.cards;
            self.cached_due |= report.cached;
            workers.extend(report.workers);
        }
        workers
    }
}

impl Node {
    /// Reports every worker whose state the leader was not told on this session; those that have ended in the order in
    /// which they did: the first of a gang to fail decides.
    pub(super) fn send_reports(&mut self, now: Now) -> Vec<Effect> {
        let Session::Open(open) = &mut self.session else { return Vec::new() };
        let mut effects = Vec::new();
        loop {
            let due = self.workers.values_mut().filter(|record| record.version > record.acknowledged.max(record.sent));
            let mut due: Vec<&mut WorkerRecord> = due.collect();
            due.sort_by_key(|record| record.status.exited_unix_ms);
            let mut workers = Vec::new();
            let mut versions = Vec::new();
            for record in due.into_iter().take(MAX_WORKERS) {
                record.sent = record.version;
                workers.push(record.report());
                versions.push((record.status.worker, record.version));
            }
            let cards = std::mem::take(&mut open.reports.cards_due);
            let cached = std::mem::take(&mut open.reports.cached_due);
            if workers.is_empty() && !cards && !cached {
                return effects;
            }
            open.reports.last_id += 1;
            let report_id = open.reports.last_id;
            open.reports.unanswered.insert(report_id, Unanswered { sent_at: now, workers: versions, cards, cached });
            let cards = if cards { self.cards.clone() } else { Vec::new() };
            let cached = cached.then(|| wire::CachedData { names: self.cached.iter().cloned().collect() });
            effects.push(send(ToLeader::Report(wire::Report { report_id, workers, cards, cached })));
        }
    }

    pub(super) fn acknowledged(&mut self, report_id: u64) -> Vec<Effect> {
        let Session::Open(open) = &mut self.session else { return Vec::new() };
        let Some(report) = open.reports.unanswered.remove(&report_id) else { return Vec::new() };
        for (worker, version) in report.workers {
            if let Some(record) = self.workers.get_mut(&worker) {
                record.acknowledged = record.acknowledged.max(version);
            }
        }
        Vec::new()
    }
}
