//! Changing jobs: cancel, hold, release, suspend, resume. Each job by itself: one that cannot be changed stops
//! no other.

use tessera_api::v1::{CancelJobRequest, HoldJobRequest, ReleaseJobRequest, ResumeJobRequest, SuspendJobRequest};

use super::super::Desk;
use crate::args::JobNumber;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::confirm;
use crate::view::MutationView;

macro_rules! steers {
    ($($verb:ident $call:ident($request:ident) $done:literal $failed:literal;)*) => {
        $(
            pub(super) async fn $verb(desk: Desk, jobs: Vec<JobNumber>) -> Result<Exit, Failure> {
                let mut results = Vec::with_capacity(jobs.len());
                for JobNumber(job_id) in jobs {
                    let request = $request { request_id: String::new(), job_id };
                    let answer = desk.client.$call(request).await;
                    results.push(match answer {
                        Ok(answer) => Ok(MutationView {
                            name: format!("job/{job_id}"),
                            done: $done.to_owned(),
                            revision: answer.revision,
                        }),
                        Err(error) => Err(Failure::call(format!(concat!("job {} was not ", $failed), job_id), &error)),
                    });
                }
                desk.report(results)
            }
        )*
    };
}

steers! {
    cancel_all cancel_job(CancelJobRequest) "is being cancelled" "cancelled";
    hold hold_job(HoldJobRequest) "is held" "held";
    release release_job(ReleaseJobRequest) "is released" "released";
    suspend suspend_job(SuspendJobRequest) "is being suspended" "suspended";
    resume resume_job(ResumeJobRequest) "goes on when there is room" "resumed";
}

pub(super) async fn cancel(desk: Desk, jobs: Vec<JobNumber>, yes: bool) -> Result<Exit, Failure> {
    let numbers: Vec<String> = jobs.iter().map(|job| job.0.to_string()).collect();
    confirm(yes, &format!("Cancel {} {}? What they have not saved is lost.", plural(jobs.len()), numbers.join(", ")))?;
    cancel_all(desk, jobs).await
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "job" } else { "jobs" }
}
