//! L3: what was acknowledged is there, exactly once, whatever happened to leaders and however often a client tried.

use std::collections::BTreeMap;

use tessera_ledger::{JobId, RequestId};

use super::{Oracle, View};
use crate::history::Answer;

/// See the module.
#[derive(Default)]
pub struct Acknowledged {
    /// The job of each request, as first seen in any state.
    jobs: BTreeMap<RequestId, JobId>,
    /// Up to which job the newest state was searched.
    searched: u64,
}

fn id_of(request: &str) -> Option<RequestId> {
    let digits: String = request.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(RequestId)
}

impl Oracle for Acknowledged {
    fn name(&self) -> &'static str {
        "acknowledged exactly once (L3)"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(newest) = view.newest() else { return Ok(()) };
        for job in newest.jobs_from(JobId(self.searched + 1)) {
            self.searched = job.id.0;
            let Some(request) = job.request else { continue };
            if let Some(before) = self.jobs.insert(request, job.id).filter(|before| *before != job.id) {
                return Err(format!("one request made the jobs {} and {}", before.0, job.id.0));
            }
        }
        for submission in view.history.submissions() {
            let Answer::Accepted { job, revision } = submission.answer else { continue };
            for member in &view.members {
                let Some(state) = member.state.as_ref().filter(|state| state.revision().0 >= revision) else {
                    continue;
                };
                let found = state.job(JobId(job));
                let right = found.is_some_and(|found| found.request == id_of(&submission.request));
                if !right {
                    return Err(format!(
                        "job {job} was acknowledged at revision {revision} for request {}; {} at revision {} has {}",
                        submission.request,
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
