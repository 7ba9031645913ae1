//! Time windows: queues and jobs whose work may run only at some times.
//!
//! When windows are open depends on calendars and on rules of time zones, which change with releases and must not
//! decide anything here (law L8). So the ledger holds windows as text, and is told what follows from them: the leader
//! says of each queue and job with windows until when it is closed
//! ([`Command::CloseUntil`](crate::Command::CloseUntil)). Then
//!
//! * nothing of it is granted before that time: of a queue, nothing of those below it either;
//! * what runs of it is suspended, whatever its priority and for how long it ran, and resumes by itself;
//! * when the time has come it is open, without another word.
//!
//! What has windows that nobody has judged yet is closed until [`UNKNOWN`], so that nothing starts outside of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ids::JobId;
use crate::job::{Job, JobState};
use crate::queue::Queue;
use crate::state::State;
use crate::units::LogTime;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WindowOf {
    /// A queue's; they count for the queues below it too.
    Queue(String),
    /// A job's own.
    Job(JobId),
}

/// Closed until somebody says until when: for windows that nobody has judged yet, that cannot be read, and that never
/// open.
pub const UNKNOWN: LogTime = LogTime(u64::MAX);

/// The opening time of something that is closed until `closed_until`; zero: not known.
pub(crate) fn opening(closed_until: LogTime) -> LogTime {
    if closed_until == UNKNOWN { LogTime::default() } else { closed_until }
}

impl Job {
    /// Returns whether the job has windows of its own that still matter.
    pub(crate) fn has_windows(&self) -> bool {
        !self.spec.windows.is_empty() && !self.state.is_terminal()
    }
}

impl State {
    pub fn windowed_queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues().filter(|queue| !queue.settings.windows.is_empty())
    }

    /// The jobs that are not over and have windows of their own.
    pub fn windowed_jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.windowed.into_iter().filter_map(|(id, ())| self.jobs.get(id))
    }

    /// Until when a queue is closed, by its own windows or those of a queue above it; in the past: it is open.
    #[must_use]
    pub fn queue_closed_until(&self, name: &str) -> LogTime {
        let line = self.queue_line(name);
        line.iter().filter_map(|name| self.queues.get(name)).map(|queue| queue.closed_until).max().unwrap_or_default()
    }

    /// Until when a job is closed, by its own windows or those of its queues; in the past: it is open.
    #[must_use]
    pub fn job_closed_until(&self, job: &Job) -> LogTime {
        job.closed_until.max(self.queue_closed_until(&job.spec.queue))
    }

    /// The jobs that hold blocks and have to be suspended when `whose` closes.
    pub fn running_within(&self, whose: &WindowOf) -> BTreeSet<JobId> {
        let runs = |id: &JobId| {
            let job = self.jobs.get(id)?;
            matches!(job.state, JobState::Starting | JobState::Running | JobState::Moving).then_some(job)
        };
        match whose {
            WindowOf::Job(id) => runs(id).map(|job| job.id).into_iter().collect(),
            WindowOf::Queue(name) => {
                let below = self.queues().map(|queue| &queue.settings.name);
                let below: BTreeSet<&String> = below.filter(|below| self.queue_line(below).contains(name)).collect();
                let holders = self.allocations().filter_map(|allocation| runs(&allocation.job));
                holders.filter(|job| below.contains(&job.spec.queue)).map(|job| job.id).collect()
            }
        }
    }
}
