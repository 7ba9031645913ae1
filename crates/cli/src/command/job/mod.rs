//! `tessera job`.

mod events;
mod follow;
mod here;
mod list;
mod moving;
mod output;
mod run;
mod steer;
mod submit;

use tessera_api::v1::{GetJobRequest, LogStream, StreamLogsRequest, WhyRequest};

use super::Desk;
use crate::args::{JobNumber, JobVerb, LogsArgs, WhenArgs, WhyArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::print::end_without_reader;
use crate::view::{JobView, WhyView};
use crate::{uses, waits};

pub(super) use run::run;

pub(super) async fn job(desk: Desk, verb: JobVerb) -> Result<Exit, Failure> {
    match verb {
        JobVerb::Submit(args) => submit::submit(desk, args).await,
        JobVerb::Run(args) => run(desk, *args).await,
        JobVerb::Plan(args) => submit::plan(desk, args).await,
        JobVerb::List(args) => list::list(desk, args).await,
        JobVerb::Top { all } => super::top::jobs(desk, all).await,
        JobVerb::Show(one) => show(desk, one.job).await,
        JobVerb::Checkpoints(one) => checkpoints(desk, one.job).await,
        JobVerb::Why(args) => why(desk, args).await,
        JobVerb::Move(args) => moving::run(desk, args).await,
        JobVerb::Logs(args) => logs(desk, args).await,
        JobVerb::Events(args) => events::events(desk, args).await,
        JobVerb::Cancel { jobs, yes } => steer::cancel(desk, jobs.jobs, yes).await,
        JobVerb::Hold(jobs) => steer::hold(desk, jobs.jobs).await,
        JobVerb::Release(jobs) => steer::release(desk, jobs.jobs).await,
        JobVerb::Suspend(jobs) => steer::suspend(desk, jobs.jobs).await,
        JobVerb::Resume(jobs) => steer::resume(desk, jobs.jobs).await,
        JobVerb::Wait(args) => follow::wait(desk, args).await,
    }
}

async fn get(desk: &Desk, job: JobNumber, outage: &mut Outage) -> Result<JobView, Failure> {
    let request = GetJobRequest { job_id: job.0, consistency: desk.consistency };
    let ask = async |patience| desk.client.with_deadline(patience).get_job(request).await;
    let answer = outage.through(&format!("job {} cannot be shown", job.0), ask).await?;
    Ok(answer.job.unwrap_or_default().into())
}

async fn show(mut desk: Desk, job: JobNumber) -> Result<Exit, Failure> {
    let mut job = get(&desk, job, &mut Outage::never(&desk)).await?;
    waits::add(&desk.client, desk.consistency, std::slice::from_mut(&mut job)).await;
    // Only the leader knows; without one, what it holds is shown all the same.
    job.used = uses::of(&desk.client, &[job.id], true).await.ok().and_then(|mut uses| uses.remove(&job.id));
    desk.printer.one(&job)?;
    Ok(Exit::Done)
}

async fn checkpoints(mut desk: Desk, job: JobNumber) -> Result<Exit, Failure> {
    let job = get(&desk, job, &mut Outage::never(&desk)).await?;
    desk.printer.list(&job.checkpoints())?;
    Ok(Exit::Done)
}

async fn why(mut desk: Desk, args: WhyArgs) -> Result<Exit, Failure> {
    let job = args.job;
    let request = WhyRequest {
        job_id: job.0,
        consistency: desk.consistency,
        when: args.when.when,
        assumed_limit: assumed(args.when),
    };
    let response = desk.client.why(request).await;
    let response = response.map_err(|error| Failure::call(format!("job {} cannot be explained", job.0), &error))?;
    desk.printer.one(&WhyView::of(job.0, response))?;
    Ok(Exit::Done)
}

/// The run time that is assumed for jobs without a time limit.
fn assumed(when: WhenArgs) -> Option<prost_types::Duration> {
    when.assume_limit.and_then(|limit| prost_types::Duration::try_from(limit).ok())
}

async fn logs(mut desk: Desk, args: LogsArgs) -> Result<Exit, Failure> {
    let stream = if args.stderr { LogStream::Stderr } else { LogStream::Stdout };
    let mut reader = desk.client.stream_logs(StreamLogsRequest {
        job_id: args.job.0,
        attempt: args.attempt.unwrap_or(0),
        rank: args.rank,
        stream: stream.into(),
        offset: args.offset,
        follow: args.follow,
    });
    let what = format!("the output of job {} cannot be read", args.job.0);
    let mut outage = Outage::of_stay(&desk, args.follow);
    if args.follow {
        end_without_reader();
        // It may say nothing for long, and whether a member was ever reached is to be known before that.
        get(&desk, args.job, &mut outage).await?;
    }
    loop {
        let next = async |patience| reader.within(patience).next().await;
        let Some(chunk) = outage.through(&what, next).await? else { return Ok(Exit::Done) };
        if chunk.lost > 0 {
            crate::print::remark(&format!("[{} bytes before this were dropped by rotation]", chunk.lost));
        }
        desk.printer.output_of_job(&chunk.data)?;
    }
}
