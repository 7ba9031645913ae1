//! `tessera job list`, once or for ever.

use tessera_api::v1::{JobFilter, JobState, ListJobsRequest};
use tessera_client::watch::Start;

use super::super::Desk;
use super::super::desk::PAGE;
use crate::args::{ListJobsArgs, StateChoice};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::print::{end_without_reader, remark};
use crate::view::{JobUpdateView, JobUseView, JobView};
use crate::{uses, waits};

pub(super) async fn list(mut desk: Desk, args: ListJobsArgs) -> Result<Exit, Failure> {
    let filter = JobFilter {
        job_ids: Vec::new(),
        states: args.state.iter().map(|state| JobState::from(*state).into()).collect(),
        queue: args.queue.clone().unwrap_or_default(),
        submitter: args.user.clone().unwrap_or_default(),
        labels: args.label.iter().cloned().collect(),
        node_name: args.node.clone().unwrap_or_default(),
    };
    let limit = if args.all { usize::MAX } else { args.limit };
    if args.watch {
        return watch(desk, filter, limit).await;
    }
    let mut jobs: Vec<JobView> = Vec::new();
    let mut page_token = String::new();
    loop {
        let wanted = u32::try_from(limit - jobs.len()).unwrap_or(PAGE).min(PAGE);
        let request = ListJobsRequest {
            filter: Some(filter.clone()),
            page_size: wanted,
            page_token,
            consistency: desk.consistency,
        };
        let page = desk.client.list_jobs(request).await;
        let page = page.map_err(|error| Failure::call("the jobs cannot be listed", &error))?;
        jobs.extend(page.jobs.into_iter().map(JobView::from));
        page_token = page.next_page_token;
        if page_token.is_empty() || jobs.len() >= limit {
            break;
        }
    }
    waits::add(&desk.client, desk.consistency, &mut jobs).await;
    if args.r#use {
        let ids: Vec<u64> = jobs.iter().map(|job| job.id).collect();
        let uses = uses::of(&desk.client, &ids, false).await;
        let mut uses = uses.map_err(|error| Failure::call("what the jobs use cannot be told", &error))?;
        jobs.iter_mut().for_each(|job| job.used = uses.remove(&job.id));
        desk.printer.list(&jobs.iter().map(JobUseView::from).collect::<Vec<_>>())?;
    } else {
        desk.printer.list(&jobs)?;
    }
    if !page_token.is_empty() && desk.printer.for_people() {
        remark(&format!("[the newest {} jobs; --all shows every one]", jobs.len()));
    }
    Ok(Exit::Done)
}

/// The newest of the list, at most `limit`, and then every change, for ever.
async fn watch(mut desk: Desk, filter: JobFilter, limit: usize) -> Result<Exit, Failure> {
    desk.printer.streaming();
    end_without_reader();
    let mut listed: Vec<JobView> = Vec::new();
    let mut watch = desk.client.watch_jobs(filter, Start::List);
    let mut outage = Outage::before_an_answer(&desk);
    let by_rows = desk.printer.by_rows();
    loop {
        let next = async |patience| watch.within(patience).next().await;
        let update = JobUpdateView::from(outage.through("the jobs cannot be watched", next).await?);
        match update {
            JobUpdateView::Listed { job } => listed.push(*job),
            JobUpdateView::Synced { .. } if by_rows => {
                desk.printer.list(&newest(std::mem::take(&mut listed), limit))?
            }
            JobUpdateView::Event(change) if by_rows => desk.printer.row(&*change)?,
            JobUpdateView::Relisting { .. } if by_rows => {
                listed.clear();
                remark("[the list begins anew]");
            }
            JobUpdateView::Progress { .. } if by_rows => {}
            JobUpdateView::Synced { .. } => {
                for job in newest(std::mem::take(&mut listed), limit) {
                    desk.printer.data(&JobUpdateView::Listed { job: Box::new(job) })?;
                }
                desk.printer.data(&update)?;
            }
            JobUpdateView::Relisting { .. } => {
                listed.clear();
                desk.printer.data(&update)?;
            }
            JobUpdateView::Event(_) | JobUpdateView::Progress { .. } => desk.printer.data(&update)?,
        }
    }
}

/// The newest of some jobs, in their order.
fn newest(mut jobs: Vec<JobView>, limit: usize) -> Vec<JobView> {
    jobs.sort_by_key(|job| job.id);
    jobs.split_off(jobs.len().saturating_sub(limit))
}

impl From<StateChoice> for JobState {
    fn from(choice: StateChoice) -> Self {
        match choice {
            StateChoice::Pending => Self::Pending,
            StateChoice::Starting => Self::Starting,
            StateChoice::Running => Self::Running,
            StateChoice::Suspending => Self::Suspending,
            StateChoice::Suspended => Self::Suspended,
            StateChoice::Moving => Self::Moving,
            StateChoice::Completing => Self::Completing,
            StateChoice::Completed => Self::Completed,
            StateChoice::Failed => Self::Failed,
            StateChoice::Cancelled => Self::Cancelled,
            StateChoice::Timeout => Self::Timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::v1;

    use super::*;

    #[test]
    fn a_watch_begins_with_as_many_jobs_as_are_wanted() {
        let jobs = || [3, 1, 2].map(|id| JobView::from(v1::Job { id, ..v1::Job::default() })).into();
        let ids = |limit| newest(jobs(), limit).iter().map(|job| job.id).collect::<Vec<_>>();
        assert_eq!((ids(2), ids(usize::MAX), ids(0)), (vec![2, 3], vec![1, 2, 3], Vec::new()));
    }
}
