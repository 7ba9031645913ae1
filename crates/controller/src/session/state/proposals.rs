//! The proposals of a session from the reports of its agent, and the handling of their outcomes.

use tessera_api::Refusal;
use tessera_api::v1::ErrorReason;
use tessera_ledger::{Command, NodeId, NodeState, Outcome, Request, State};

use super::{MOST_SIGHTED, PAUSE, REPORT_BYTES, REPORTS, Session};
use crate::pool::{Committed, ProposeError};
use crate::session::messages::{Report, violation};
use crate::session::news::news;
use crate::session::said::{acknowledge, not_registered};
use crate::session::step::{Effect, Step};

impl Session {
    pub(super) fn take_report(&mut self, report: Report) -> Result<(), Refusal> {
        let bytes = self.reports.iter().fold(report.bytes, |sum, waiting| sum.saturating_add(waiting.bytes));
        if self.reports.len() >= REPORTS || bytes > REPORT_BYTES {
            return Err(Refusal::new(
                ErrorReason::Overloaded,
                "too many reports wait to be acknowledged; say hello again and wait for acknowledgements",
            ));
        }
        self.book.sight(&report.workers);
        if self.book.sighted() > MOST_SIGHTED {
            return Err(violation("an agent has more workers than a node can have"));
        }
        self.reports.push_back(report);
        Ok(())
    }

    pub(super) fn proposed(
        &mut self,
        step: Step,
        result: Result<Vec<Committed>, ProposeError>,
        state: &State,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Refusal> {
        self.proposing = None;
        match (step, result) {
            (Step::Register, Ok(committed)) => match committed.first().map(|committed| &committed.outcome) {
                Some(Outcome::Registered { node, .. }) => self.welcome(*node, state, effects),
                Some(Outcome::Rejected(rejection)) => return Err(not_registered(rejection)),
                other => {
                    let text = format!("the ledger answered a registration with {other:?}; report this");
                    return Err(Refusal::new(ErrorReason::Internal, text));
                }
            },
            (Step::Report, Ok(committed)) => {
                for outcome in committed.iter().map(|committed| &committed.outcome) {
                    if let Outcome::Rejected(rejection) = outcome {
                        tracing::warn!(%rejection, "the ledger refused what an agent reported");
                    }
                }
                // A report that the ledger refused is out of date: it need not be sent again either.
                let reports = std::mem::take(&mut self.in_flight);
                let reported = reports.iter().flat_map(|report| &report.workers);
                self.book.touch(reported.map(|sighting| sighting.worker.allocation).collect());
                effects.extend(reports.into_iter().filter_map(|report| report.id).map(acknowledge));
            }
            (Step::Kept, Ok(_)) => {}
            (Step::Return, Ok(committed)) => {
                if let Some(Outcome::Rejected(rejection)) = committed.first().map(|committed| &committed.outcome) {
                    return Err(Refusal::from(rejection));
                }
            }
            (step, Err(error)) => return self.not_proposed(step, error, effects),
        }
        Ok(())
    }

    /// A proposal failed. Reports are proposed again by this session; everything else begins with another hello.
    fn not_proposed(&mut self, step: Step, error: ProposeError, effects: &mut Vec<Effect>) -> Result<(), Refusal> {
        use tessera_consensus::ProposeError as Cause;
        let text = format!("{error}; say hello again");
        match error {
            ProposeError::Consensus(Cause::NotLeader { leader }) => {
                let leader = leader.as_ref().map(|leader| (leader.address.as_str(), self.term.0));
                Err(Refusal::not_leader(leader))
            }
            ProposeError::Consensus(Cause::Stopped(_)) => Err(Refusal::new(ErrorReason::MemberStopped, text)),
            // However often it is proposed, it is too large.
            ProposeError::Consensus(Cause::TooLarge { .. }) if step != Step::Kept => {
                Err(Refusal::new(ErrorReason::RequestTooLarge, text))
            }
            _ if step == Step::Report => {
                tracing::warn!(%error, "a report is not committed; it is proposed again");
                for report in std::mem::take(&mut self.in_flight).into_iter().rev() {
                    self.reports.push_front(report);
                }
                // Nothing is proposed before the pause is over.
                self.proposing = Some(Step::Report);
                effects.push(Effect::Pause(PAUSE));
                Ok(())
            }
            // It is compared again with the next heartbeat.
            _ if step == Step::Kept => {
                self.kept.compare_again();
                Ok(())
            }
            ProposeError::Consensus(Cause::Overloaded) => Err(Refusal::new(ErrorReason::Overloaded, text)),
            ProposeError::Consensus(Cause::OutcomeUnknown) => Err(Refusal::new(ErrorReason::OutcomeUnknown, text)),
            ProposeError::StorageFull { .. } => Err(Refusal::new(ErrorReason::StorageFull, text)),
            ProposeError::Consensus(_) => Err(Refusal::new(ErrorReason::NoQuorum, text)),
        }
    }

    /// Proposes everything that was reported since the last proposal, as far as the ledger does not know it.
    pub(super) fn propose_reports(&mut self, node: NodeId, state: &State, effects: &mut Vec<Effect>) {
        if self.proposing.is_some() || self.reports.is_empty() {
            return;
        }
        let reports: Vec<Report> = self.reports.drain(..).collect();
        let news = news(node, &reports, state);
        if news.is_empty() {
            effects.extend(reports.into_iter().filter_map(|report| report.id).map(acknowledge));
            return;
        }
        let actor = self.greeting.as_ref().map(|greeting| greeting.node.name.clone()).unwrap_or_default();
        let request = |command| Request { key: None, actor: actor.clone(), command };
        self.in_flight = reports;
        self.proposing = Some(Step::Report);
        effects.push(Effect::Propose(Step::Report, news.into_iter().map(request).collect()));
    }

    /// A lost node is back once its agent has shown that nothing is there that was not granted (law L2).
    pub(super) fn propose_return(&mut self, node: NodeId, state: &State, effects: &mut Vec<Effect>) {
        let lost = state.node(node).is_some_and(|node| node.state == NodeState::Lost);
        let Some(greeting) = self.greeting.as_ref().filter(|_| lost && self.proposing.is_none()) else { return };
        if !self.reports.is_empty() || !self.book.holds_only_granted(node, state) {
            return;
        }
        self.proposing = Some(Step::Return);
        let command = Command::NodeReturned { node, incarnation: greeting.node.incarnation };
        let request = Request { key: None, actor: greeting.node.name.clone(), command };
        effects.push(Effect::Propose(Step::Return, vec![request]));
    }
}
