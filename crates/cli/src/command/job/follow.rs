//! Staying with a job until it runs or is over, by a watch.

use tessera_api::v1::{JobFilter, JobState};
use tessera_client::watch::Start;

use super::super::Desk;
use crate::args::{JobNumber, WaitArgs, WaitFor};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::view::{JobUpdateView, JobView};

/// The state up to which a job is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// All workers run, or it is over.
    Running,
    End,
}

/// The state of a job, for a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub state: String,
    pub allocation: Option<u64>,
    pub sentence: String,
}

impl Standing {
    fn of(job: &JobView) -> Self {
        Self {
            state: job.stands(),
            allocation: job.allocation.as_ref().map(|allocation| allocation.id),
            sentence: job.why().sentence,
        }
    }

    /// Returns whether the state is final.
    pub fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "failed" | "cancelled" | "timeout")
    }
}

/// Watches `job` and tells `seen` of every state, the present one first. Ends with the last. Goes on through an
/// `outage`.
pub(super) async fn follow(
    desk: &Desk,
    job: JobNumber,
    until: Until,
    mut outage: Outage,
    mut seen: impl FnMut(&Standing),
) -> Result<Standing, Failure> {
    let filter = JobFilter { job_ids: vec![job.0], ..JobFilter::default() };
    let mut watch = desk.client.watch_jobs(filter, Start::List);
    let mut known = false;
    loop {
        let next = async |patience| watch.within(patience).next().await;
        let update = outage.through(&format!("job {} cannot be watched", job.0), next).await?;
        let standing = match JobUpdateView::from(update) {
            JobUpdateView::Listed { job } => Standing::of(&job),
            JobUpdateView::Event(change) if change.change == "state" => Standing {
                state: change.to.clone().unwrap_or_default(),
                allocation: change.allocation_id,
                sentence: change.sentence.clone(),
            },
            JobUpdateView::Event(change) if change.change == "removed" => return Err(gone(job)),
            JobUpdateView::Synced { .. } if !known => return Err(gone(job)),
            _ => continue,
        };
        known = true;
        seen(&standing);
        if standing.is_over() || (until == Until::Running && standing.state == "running") {
            return Ok(standing);
        }
    }
}

fn gone(job: JobNumber) -> Failure {
    Failure::new(Exit::NotFound, format!("job {} cannot be watched", job.0), "there is no such job (any more)")
        .next("`tessera job list` shows the jobs")
}

pub(super) async fn wait(desk: Desk, args: WaitArgs) -> Result<Exit, Failure> {
    let until = match args.what {
        WaitFor::Running => Until::Running,
        WaitFor::End => Until::End,
    };
    let staying = async {
        let standing = follow(&desk, args.job, until, Outage::before_an_answer(&desk), |_| {}).await?;
        if standing.is_over() { end_of(&desk, args.job, &standing).await } else { Ok(Exit::Done) }
    };
    let Some(patience) = args.wait_timeout else { return staying.await };
    tokio::time::timeout(patience, staying).await.unwrap_or_else(|_elapsed| {
        let what = format!("job {} is not there yet", args.job.0);
        let why = format!("{} have passed", humantime::format_duration(patience));
        Err(Failure::new(Exit::TimedOut, what, why)
            .next(format!("`tessera job show {}` says where it stands", args.job.0)))
    })
}

/// The exit of the command when the job has ended: with the job's own code.
pub(super) async fn end_of(desk: &Desk, job: JobNumber, standing: &Standing) -> Result<Exit, Failure> {
    if standing.state == "completed" {
        return Ok(Exit::Done);
    }
    let view = super::get(desk, job, &mut Outage::after_an_answer(desk)).await?;
    let exit = exit_of(&view);
    let rank = view.failed_by().map(|(rank, _)| format!(" --rank {rank}")).unwrap_or_default();
    Err(Failure::new(exit, format!("job {} ended as {}", job.0, view.stands()), view.why_ended())
        .next(format!("`tessera job show {0}` and `tessera job logs {0}{rank} --stderr` say more", job.0)))
}

/// The exit code of a job that did not complete, which is never 0.
fn exit_of(job: &JobView) -> Exit {
    match (job.state(), job.exit_code, job.signal) {
        (JobState::Failed, _, Some(signal)) => Exit::Job(u8::try_from(128 + signal).unwrap_or(1)),
        (JobState::Failed, Some(code), None) => match u8::try_from(code & 0xff) {
            Ok(0) | Err(_) => Exit::Failed,
            Ok(code) => Exit::Job(code),
        },
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_api::v1::{Attempt, Job};

    fn exit(state: JobState, exit_code: Option<i32>, signal: Option<i32>) -> u8 {
        let history = vec![Attempt { number: 1, exit_code, signal, ..Attempt::default() }];
        exit_of(&JobView::from(Job { state: state.into(), history, ..Job::default() })).code()
    }

    #[test]
    fn the_code_of_the_job_is_passed_through_and_never_good_when_it_failed() {
        assert_eq!(exit(JobState::Failed, Some(3), None), 3);
        assert_eq!(exit(JobState::Failed, None, Some(9)), 137);
        assert_eq!(exit(JobState::Failed, Some(0), None), 1, "one worker of many failed otherwise");
        assert_eq!(exit(JobState::Failed, None, None), 1);
        assert_eq!(exit(JobState::Cancelled, Some(143), None), 1);
        assert_eq!(exit(JobState::Timeout, None, Some(15)), 1);
    }
}
