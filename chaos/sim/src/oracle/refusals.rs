//! A refused request leaves nothing.
//!
//! * **In the ledger**, at every entry of the log in which something was refused: the same entry without that gives the
//!   same state, to the last bit of its digest, and the same answers to everything else. Of a plan, which is refused
//!   part by part, the parts that were refused are left out.
//! * **Towards clients**: what a client was told to be refused was never carried out under its id, neither before it
//!   was told nor at any time after.

use std::collections::BTreeMap;

use tessera_ledger::{Command, JobId, Outcome, Plan, Rejection, Request, RequestId, Revision};

use super::{Oracle, View};
use crate::history::{Refused, id_of};
use crate::journal::Applied;

#[derive(Default)]
pub struct Refusals {
    /// Revision at which each request was first carried out.
    made: BTreeMap<RequestId, Revision>,
    /// Requests that were refused, as clients were told.
    refused: BTreeMap<RequestId, Refused>,
    told: usize,
    /// Requests that were carried out since the last look.
    news: Vec<RequestId>,
}

/// Returns whether a request was refused, or a part of it.
pub fn is_refused(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Rejected(_) => true,
        Outcome::Planned(parts) => parts.iter().any(Result::is_err),
        _ => false,
    }
}

/// No job has this number.
const NOBODYS: JobId = JobId(u64::MAX);

/// A request and its answer without what was refused of it: a plan without those parts, or nothing that is done at all.
/// That it was refused is remembered under its id, whatever it was.
fn without(request: &Request, outcome: &Outcome) -> (Request, Outcome) {
    // What is refused in part, or for its id, is not.
    let bare = |command| Request { key: None, actor: request.actor.clone(), command };
    match (&request.command, outcome) {
        (Command::CommitPlan { plan }, Outcome::Planned(answers)) => {
            let accepted = plan.parts.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
            let (parts, answers) = accepted.map(|(part, answer)| (part.clone(), answer.clone())).unzip();
            let plan = Plan { revision: plan.revision, parts };
            (bare(Command::CommitPlan { plan }), Outcome::Planned(answers))
        }
        (
            _,
            Outcome::Rejected(Rejection::RequestIdReused | Rejection::RequestForgotten | Rejection::RequestRefused),
        ) => (bare(Command::Tick), Outcome::Done),
        _ => {
            let command = Command::CancelJob { job: NOBODYS };
            let refused = Outcome::Rejected(Rejection::UnknownJob(NOBODYS));
            (Request { key: request.key, actor: request.actor.clone(), command }, refused)
        }
    }
}

/// A command, for people: what it is, and the beginning of what it says.
fn in_brief(command: &Command) -> String {
    format!("{command:?}").chars().take(100).collect()
}

/// Checks that an entry came to the same as it would have without the requests that it refused.
fn left_nothing(entry: &Applied) -> Result<(), String> {
    if !entry.outcomes.iter().any(is_refused) {
        return Ok(());
    }
    let pairs = entry.requests.iter().zip(&entry.outcomes);
    let kept = |(request, outcome): (&Request, &Outcome)| match is_refused(outcome) {
        true => without(request, outcome),
        false => (request.clone(), outcome.clone()),
    };
    let (requests, expected): (Vec<Request>, Vec<Outcome>) = pairs.map(kept).unzip();
    let mut other = entry.before.clone();
    let outcomes = other.apply(entry.at, &requests);
    let refused = || {
        let refused = entry.requests.iter().zip(&entry.outcomes).filter(|(_, outcome)| is_refused(outcome));
        refused
            .map(|(request, outcome)| format!("{} ({outcome:?})", in_brief(&request.command)))
            .collect::<Vec<_>>()
            .join("; ")
    };
    if outcomes != expected {
        return Err(format!(
            "revision {}: without what was refused, the rest is answered {outcomes:?} instead of {expected:?}; refused: {}",
            entry.at.revision,
            refused()
        ));
    }
    if other.digest() != entry.after.digest() {
        return Err(format!("revision {}: what was refused left something behind: {}", entry.at.revision, refused()));
    }
    Ok(())
}

impl Refusals {
    fn carried_out(&self, refused: &Refused, id: RequestId) -> Result<(), String> {
        let Some(revision) = self.made.get(&id) else { return Ok(()) };
        let Refused { request, told, reason } = refused;
        Err(format!("request {request} was refused ({reason}) at {told:?}, and carried out at revision {revision}"))
    }
}

impl Oracle for Refusals {
    fn name(&self) -> &'static str {
        "a refused request leaves nothing"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        for (request, outcome) in entry.requests.iter().zip(&entry.outcomes) {
            if let Some(key) = request.key.filter(|_| !is_refused(outcome)) {
                self.made.entry(key.id).or_insert(entry.at.revision);
                self.news.push(key.id);
            }
        }
        left_nothing(entry)
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        for id in std::mem::take(&mut self.news) {
            if let Some(refused) = self.refused.get(&id) {
                self.carried_out(refused, id)?;
            }
        }
        for refused in view.history.refusals_after(self.told) {
            self.told += 1;
            let Some(id) = id_of(&refused.request) else {
                return Err(format!("a client made the request id {:?}", refused.request));
            };
            self.carried_out(&refused, id)?;
            self.refused.insert(id, refused);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tessera_ledger::{EntryPosition, Level, LogTime, PoolConfig, RequestKey, State};
    use tessera_testkit::request;

    use super::*;

    fn limit_of(job_limit: u64) -> Request {
        request(Command::SetConfig { config: PoolConfig { job_limit, ..PoolConfig::default() }, expected: None })
    }

    /// An entry of a request that is refused and one that sets a limit of 7; and the state has the limit given.
    fn entry(job_limit: u64) -> Applied {
        let at = EntryPosition { revision: Revision(1), time: LogTime(1) };
        let key = Some(RequestKey { id: RequestId(5), fingerprint: 6 });
        let refused = Request { key, ..request(Command::CancelJob { job: JobId(3) }) };
        let before = State::at(Level::NEWEST);
        let mut after = before.clone();
        let outcomes = after.apply(at, &[refused.clone(), limit_of(job_limit)]);
        assert_eq!(outcomes, [Outcome::Rejected(Rejection::UnknownJob(JobId(3))), Outcome::Done]);
        let requests = vec![refused, limit_of(7)];
        let (seen, events, after) = (Duration::ZERO, Arc::from([]), Arc::new(after));
        Applied { at, seen, before, requests, outcomes, events, after }
    }

    #[test]
    fn what_a_refusal_leaves_is_seen_beside_what_was_done() {
        assert_eq!(left_nothing(&entry(7)), Ok(()));
        let left = left_nothing(&entry(8)).expect_err("something else has happened");
        assert!(left.contains("left something behind: CancelJob"), "{left}");
    }
}
