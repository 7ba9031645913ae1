//! L3: what was acknowledged is there, exactly once, whatever happened to leaders and however often a client tried.

use std::collections::BTreeMap;

use tessera_ledger::{JobId, Outcome, RequestId, Revision};

use super::{Oracle, View};
use crate::history::{Answer, Submission, id_of};
use crate::journal::Applied;

#[derive(Default)]
pub struct Acknowledged {
    /// The job of each request, as it was answered first.
    jobs: BTreeMap<RequestId, JobId>,
    /// The last comparison of each member: its revision, and the number of submissions that had been accepted by then.
    compared: BTreeMap<String, (Revision, usize)>,
}

/// Job, revision and request of a submission that was accepted.
fn accepted(submission: &Submission) -> Option<(u64, u64, String)> {
    match submission.answer {
        Answer::Accepted { job, revision } => Some((job, revision, submission.request.clone())),
        _ => None,
    }
}

impl Oracle for Acknowledged {
    fn name(&self) -> &'static str {
        "acknowledged exactly once (L3)"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        for (request, outcome) in entry.requests.iter().zip(&entry.outcomes) {
            let (Some(key), Outcome::Submitted(job)) = (request.key, outcome) else { continue };
            if let Some(before) = self.jobs.insert(key.id, *job).filter(|before| before != job) {
                return Err(format!("one request made the jobs {} and {}", before.0, job.0));
            }
        }
        Ok(())
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let accepted: Vec<(u64, u64, String)> =
            view.history.submissions().iter().filter_map(|own| accepted(own)).collect();
        for member in &view.members {
            let Some(state) = &member.state else { continue };
            let compared = (state.revision(), accepted.len());
            if self.compared.insert(member.name.clone(), compared) == Some(compared) {
                continue;
            }
            for (job, revision, request) in accepted.iter().filter(|(_, revision, _)| *revision <= state.revision().0) {
                let found = state.job(JobId(*job));
                let right = found.is_some_and(|found| found.request.is_some() && found.request == id_of(request));
                if !right {
                    return Err(format!(
                        "job {job} was acknowledged at revision {revision} for request {request}; {} at revision {} has {}",
                        member.name,
                        state.revision().0,
                        found.map_or("nothing".to_owned(), |found| format!(
                            "it for another request: {:?}",
                            found.request
                        )),
                    ));
                }
            }
        }
        Ok(())
    }
}
