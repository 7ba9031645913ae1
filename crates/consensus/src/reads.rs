//! Rounds that confirm leadership: a quorum acknowledges the leader after the question was asked, never by a lease.
//!
//! One round is under way at a time and answers everyone who asked before it began; whoever asks meanwhile is answered
//! by the next. A follower's round asks the leader.

use std::sync::Arc;
use std::time::Duration;

use openraft::LinearizerOption;
use openraft::errors::{ForwardReason, LinearizableReadError, RaftError};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::apply::Applier;
use crate::ids::Member;
use crate::machine::Machine;
use crate::shared::Shared;
use crate::transport::Links;
use crate::types::{LogId, TypeConfig, leader_of};

/// The reason for which a round confirmed nothing.
#[derive(Clone, Debug)]
pub(crate) enum NotConfirmed {
    NotLeader(Option<Member>),
    /// No leader with a quorum answered. Worth another try.
    NoQuorum,
}

/// Up to where a reader must have applied.
pub(crate) type Confirmed = Result<LogId, NotConfirmed>;

/// A caller that waits for the confirmation of a round.
pub(crate) struct Question {
    /// True if only this member's own leadership counts.
    pub own: bool,
    pub answer: oneshot::Sender<Confirmed>,
}

const ASKED_TOGETHER: usize = 4_096;

/// Runs the rounds.
pub(crate) struct Rounds<M: Machine> {
    pub shared: Arc<Shared>,
    pub raft: openraft::Raft<TypeConfig, Applier<M>>,
    pub links: Arc<Links>,
    pub questions: mpsc::Receiver<Question>,
    pub end: CancellationToken,
}

impl<M: Machine> Rounds<M> {
    pub(crate) async fn run(mut self) {
        let end = self.end.clone();
        tokio::select! {
            () = end.cancelled() => {}
            () = self.serve() => {}
        }
    }

    async fn serve(&mut self) {
        let mut asked = Vec::new();
        while self.questions.recv_many(&mut asked, ASKED_TOGETHER).await > 0 {
            asked.retain(|question: &Question| !question.answer.is_closed());
            if asked.is_empty() {
                continue;
            }
            let own = self.own_round().await;
            let others_ask = asked.iter().any(|question| !question.own);
            let leaders = match &own {
                Err(NotConfirmed::NotLeader(Some(leader))) if others_ask => self.leaders_round(leader).await,
                _ => own.clone(),
            };
            for question in asked.drain(..) {
                let answer = if question.own { own.clone() } else { leaders.clone() };
                // Whoever asked may have given up.
                let _ = question.answer.send(answer);
            }
        }
    }

    /// Confirms this member's own leadership: a heartbeat sent now must be acknowledged by a quorum.
    async fn own_round(&self) -> Confirmed {
        let option = LinearizerOption::new(Some(Duration::ZERO), true)
            .with_wait_timeout(self.shared.config.election_timeout_max);
        match self.raft.get_read_linearizer(option).await {
            Ok(linearizer) => Ok(*linearizer.read_log_id().log_id()),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => match forward.reason {
                ForwardReason::LeaseExpired => Err(NotConfirmed::NoQuorum),
                ForwardReason::NotLeader | ForwardReason::LeadershipTransfer => {
                    Err(NotConfirmed::NotLeader(leader_of(&forward)))
                }
            },
            Err(RaftError::APIError(LinearizableReadError::QuorumNotEnough(_))) => Err(NotConfirmed::NoQuorum),
            Err(RaftError::Fatal(_)) => Err(NotConfirmed::NoQuorum),
        }
    }

    async fn leaders_round(&self, leader: &Member) -> Confirmed {
        let deadline = Instant::now() + self.shared.config.election_timeout_max * 2;
        match self.links.read_index(leader, deadline).await {
            Ok(confirmed) => confirmed,
            Err(error) => {
                tracing::debug!(%leader, %error, "the leader did not say up to where to wait");
                Err(NotConfirmed::NoQuorum)
            }
        }
    }
}
