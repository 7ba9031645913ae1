//! The proposer: packs the commands that wait into one entry, and keeps a few entries on their way.
//!
//! A lone command is proposed at once. While [`max_in_flight`](crate::ConsensusConfig::max_in_flight) entries are on
//! their way, commands gather and share the next entry: one record, one synced write, one round trip and one apply for
//! all of them. Commands keep the order of their arrival within the mailbox.
//!
//! A command is *taken* at the moment it goes into an entry. Until then its caller can withdraw it and knows that
//! nothing was proposed; from then on only the log knows its fate.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bytes::Bytes;
use openraft::errors::{ClientWriteError, ForwardReason, ForwardToLeader};
use openraft::raft::ClientWriteResponse;
use smallvec::SmallVec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::Applier;
use crate::handle::Applied;
use crate::ids::Member;
use crate::machine::{LogIndex, Machine};
use crate::shared::Shared;
use crate::status::Leadership;
use crate::types::{Batch, Deliver, TypeConfig, leader_of, term_of};

/// The reason for which a command was not applied, or for which its fate is unknown, as the proposer sees it.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Not proposed: someone else leads.
    NotLeader(Option<Member>),
    /// Not proposed: no quorum acknowledged this leader lately. Worth another try at once.
    NoQuorum,
    /// Proposed, fate unknown.
    Unknown,
}

/// Commands that go into one entry together; most often there is one.
pub(crate) type Commands = SmallVec<[Bytes; 1]>;

/// One outcome for each of the commands of a proposal, in their order.
pub(crate) type Answer<O> = Result<Applied<SmallVec<[O; 1]>>, Refusal>;

/// A proposer that waits for some commands of one entry, and their number.
struct Asker<O> {
    commands: usize,
    answer: oneshot::Sender<Answer<O>>,
}

/// The proposers that wait for the commands of one entry, in their order.
type Askers<O> = Vec<Asker<O>>;

/// The decision whether commands go into an entry or are withdrawn; made once, by whoever is first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticket(Arc<AtomicU8>);

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Ticket {
    fn decide(&self, for_what: u8) -> bool {
        self.0.compare_exchange(WAITING, for_what, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes the command into an entry; false when its caller has withdrawn it.
    fn take(&self) -> bool {
        self.decide(TAKEN)
    }

    /// Withdraws the command; false when it is in an entry already.
    pub(crate) fn withdraw(&self) -> bool {
        self.decide(WITHDRAWN)
    }
}

/// Commands that wait to be proposed, and are answered together.
pub(crate) struct Proposal<O> {
    /// No more, in number and bytes, than an entry may hold.
    pub commands: Commands,
    pub deadline: Instant,
    pub ticket: Ticket,
    pub answer: oneshot::Sender<Answer<O>>,
    /// Its share of the mailbox's bytes, as many as its commands have, given back when it goes into an entry or is
    /// refused.
    pub room: OwnedSemaphorePermit,
}

impl<O> Proposal<O> {
    fn bytes(&self) -> usize {
        self.room.num_permits()
    }

    fn refuse(self, refusal: Refusal) {
        // First, so that a caller that tries again finds its bytes free.
        drop(self.room);
        // The caller may have gone; it withdrew, or will learn nothing because it does not want to.
        let _ = self.answer.send(Err(refusal));
    }
}

/// Takes proposals from the mailbox and hands entries to raft.
pub(crate) struct Proposer<M: Machine> {
    pub shared: Arc<Shared>,
    pub raft: openraft::Raft<TypeConfig, Applier<M>>,
    pub mailbox: mpsc::Receiver<Proposal<M::Outcome>>,
    pub leadership: watch::Receiver<Leadership>,
    pub slots: Arc<Semaphore>,
    pub waiting: VecDeque<Proposal<M::Outcome>>,
    pub end: CancellationToken,
}

impl<M: Machine> Proposer<M> {
    pub(crate) async fn run(mut self) {
        let end = self.end.clone();
        tokio::select! {
            () = end.cancelled() => {}
            () = self.serve() => {}
        }
    }

    async fn serve(&mut self) {
        while self.gather().await {
            let Some(slot) = self.slot().await else {
                self.refuse_waiting();
                continue;
            };
            self.top_up();
            let (commands, askers) = self.pack();
            if !commands.is_empty() {
                self.hand_in(commands, askers, slot).await;
            }
        }
    }

    /// Waits until something waits to be proposed; false when nobody can propose any more.
    async fn gather(&mut self) -> bool {
        if !self.waiting.is_empty() {
            return true;
        }
        match self.mailbox.recv().await {
            Some(proposal) => {
                self.waiting.push_back(proposal);
                true
            }
            None => false,
        }
    }

    fn top_up(&mut self) {
        while self.waiting.len() < self.shared.config.max_batch_commands {
            match self.mailbox.try_recv() {
                Ok(proposal) => self.waiting.push_back(proposal),
                Err(_) => break,
            }
        }
    }

    /// A place among the entries in flight; `None` when leadership was lost while all were taken, in which case they
    /// may stay taken for as long as this member is cut off.
    async fn slot(&mut self) -> Option<OwnedSemaphorePermit> {
        let slots = Arc::clone(&self.slots);
        if let Ok(slot) = Arc::clone(&slots).try_acquire_owned() {
            return Some(slot);
        }
        tokio::select! {
            slot = slots.acquire_owned() => slot.ok(),
            lost = self.leadership.wait_for(|now| matches!(now, Leadership::Following { .. })) => {
                drop(lost);
                None
            }
        }
    }

    fn refuse_waiting(&mut self) {
        let leader = match &*self.leadership.borrow() {
            Leadership::Following { leader } => leader.clone(),
            Leadership::Leading { .. } => None,
        };
        self.top_up();
        for proposal in self.waiting.drain(..) {
            proposal.refuse(Refusal::NotLeader(leader.clone()));
        }
    }

    /// Takes from the front what fits into one entry.
    fn pack(&mut self) -> (Vec<Bytes>, Askers<M::Outcome>) {
        let limits = &self.shared.config;
        let now = Instant::now();
        let mut commands = Vec::new();
        let mut askers = Vec::new();
        let mut bytes = 0;
        while let Some(proposal) = self.waiting.pop_front() {
            let fits = bytes + proposal.bytes() <= limits.max_batch_bytes
                && commands.len() + proposal.commands.len() <= limits.max_batch_commands;
            if !(fits || commands.is_empty()) {
                self.waiting.push_front(proposal);
                break;
            }
            if proposal.deadline <= now {
                proposal.refuse(Refusal::NoQuorum);
            } else if proposal.ticket.take() {
                bytes += proposal.bytes();
                askers.push(Asker { commands: proposal.commands.len(), answer: proposal.answer });
                commands.extend(proposal.commands);
            }
        }
        (commands, askers)
    }

    async fn hand_in(&self, commands: Vec<Bytes>, askers: Askers<M::Outcome>, slot: OwnedSemaphorePermit) {
        let batch = Batch { time: self.shared.time.stamp(), commands };
        let entered = Instant::now();
        let deliver = Deliver(Box::new(move |result| {
            answer_all::<M::Outcome>(askers, entered, result);
            drop(slot);
        }));
        // An error means that the core has ended: it dropped the responder, and with it told every caller so.
        if let Err(fatal) = self.raft.client_write_ff(batch, Some(deliver)).await {
            tracing::debug!(%fatal, "an entry was not handed in");
        }
    }
}

type Written = Result<ClientWriteResponse<TypeConfig>, ClientWriteError<TypeConfig>>;

fn answer_all<O: Send + 'static>(askers: Askers<O>, entered: Instant, written: Written) {
    let refusal = match written {
        Ok(response) => {
            let (term, index) = (term_of(&response.log_id), LogIndex(response.log_id.index));
            if let Some(outcomes) = response.data.into::<Vec<O>>() {
                let mut outcomes = outcomes.into_iter();
                for asker in askers {
                    let outcome = outcomes.by_ref().take(asker.commands).collect();
                    // A caller that has gone does not care.
                    let _ = asker.answer.send(Ok(Applied { index, term, entered, outcome }));
                }
                return;
            }
            Refusal::Unknown
        }
        Err(ClientWriteError::ForwardToLeader(forward)) => refusal_of(forward),
        Err(error) => {
            tracing::debug!(%error, "an entry was discarded");
            Refusal::Unknown
        }
    };
    for asker in askers {
        // As above.
        let _ = asker.answer.send(Err(refusal.clone()));
    }
}

/// Returns the refusal for a rejected write, whose entry was never appended.
pub(crate) fn refusal_of(forward: ForwardToLeader<TypeConfig>) -> Refusal {
    match forward.reason {
        ForwardReason::LeaseExpired => Refusal::NoQuorum,
        ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => Refusal::NotLeader(leader_of(&forward)),
    }
}
