//! `tessera job submit` and `tessera job plan`: job files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use tessera_api::job_file::{self, Notation};
use tessera_api::limits;
use tessera_api::v1::{
    JobSpec, ListNodesRequest, PlanJobRequest, PlanVerdict, SubmitJobRequest, WhyRequest, WhyResponse,
};
use tessera_client::ClientError;

use super::super::Desk;
use super::follow::{Until, follow};
use crate::args::{JobNumber, PlanArgs, SubmitArgs};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::print::remark;
use crate::view::{PlanView, SubmissionView};

/// The words for a submission that failed.
pub(super) const NOT_SUBMITTED: &str = "the job was not submitted";

pub(super) async fn submit(mut desk: Desk, args: SubmitArgs) -> Result<Exit, Failure> {
    let spec = read(&args.file)?;
    let submission = submission(&desk, spec, args.request_id).await?;
    desk.printer.one(&submission)?;
    if args.wait {
        return wait_for_start(&desk, JobNumber(submission.id), args.wait_timeout).await;
    }
    Ok(Exit::Done)
}

/// Submits and says under which number and request id.
pub(super) async fn submission(
    desk: &Desk,
    spec: JobSpec,
    request_id: Option<String>,
) -> Result<SubmissionView, Failure> {
    let request_id = request_id.unwrap_or_else(|| desk.client.new_request_id());
    let labels = spec.node_labels.clone();
    let sent = send(desk, spec, request_id).await.map_err(|error| Failure::call(NOT_SUBMITTED, &error))?;
    remark_unknown_labels(desk, labels).await;
    Ok(sent)
}

pub(super) async fn send(desk: &Desk, spec: JobSpec, request_id: String) -> Result<SubmissionView, ClientError> {
    let request = SubmitJobRequest { request_id: request_id.clone(), spec: Some(spec) };
    let answer = desk.client.submit_job(request).await?;
    Ok(SubmissionView { id: answer.job_id, revision: answer.revision, request_id })
}

/// Says that no node carries the labels that a job asks for, if that is so: it may be a typing error, and a node that
/// has them may be about to come.
pub(super) async fn remark_unknown_labels(desk: &Desk, labels: BTreeMap<String, String>) {
    if labels.is_empty() {
        return;
    }
    let named: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let consistency = desk.consistency;
    let request = ListNodesRequest { labels, page_size: 1, consistency, ..Default::default() };
    // It is only a remark, and waits for nobody.
    let client = desk.client.with_deadline(Duration::from_secs(1));
    if client.list_nodes(request).await.is_ok_and(|answer| answer.nodes.is_empty()) {
        remark(&format!("no node carries {}: it waits until one does", named.join(" and ")));
    }
}

async fn wait_for_start(desk: &Desk, job: JobNumber, patience: Duration) -> Result<Exit, Failure> {
    let following = follow(desk, job, Until::Running, Outage::after_an_answer(desk), |_| {});
    match tokio::time::timeout(patience, following).await {
        Ok(followed) => {
            followed?;
            Ok(Exit::Done)
        }
        Err(_elapsed) => {
            let request = WhyRequest { job_id: job.0, consistency: desk.consistency, ..Default::default() };
            Err(not_running(job, patience, desk.client.why(request).await))
        }
    }
}

/// Says that a job was not seen running in time; `why`: what it waits for.
fn not_running(job: JobNumber, patience: Duration, why: Result<WhyResponse, ClientError>) -> Failure {
    if let Err(error @ ClientError::Unavailable(_)) = why {
        return Failure::call(format!("it is not known whether job {} runs", job.0), &error);
    }
    let why = why.ok().and_then(|answer| answer.explanation).map(|explanation| explanation.sentence);
    let why = why.unwrap_or_else(|| format!("it was not started within {} s", patience.as_secs()));
    Failure::new(Exit::Waiting, format!("job {} does not run yet", job.0), why)
        .next(format!("it stays submitted; `tessera job why {}` says what it waits for", job.0))
}

pub(super) async fn plan(mut desk: Desk, args: PlanArgs) -> Result<Exit, Failure> {
    let request = PlanJobRequest {
        spec: Some(read(&args.file)?),
        consistency: desk.consistency,
        when: args.when.when,
        assumed_limit: super::assumed(args.when),
    };
    let answer = desk.client.plan_job(request).await;
    let view = PlanView::from(answer.map_err(|error| Failure::call("the job cannot be planned", &error))?);
    desk.printer.one(&view)?;
    Ok(match view.verdict() {
        PlanVerdict::Waits => Exit::Waiting,
        PlanVerdict::Refused => Exit::Refused,
        _ => Exit::Done,
    })
}

/// Reads a job file; everything wrong in it is named by line and column.
pub(super) fn read(path: &Path) -> Result<JobSpec, Failure> {
    let name = path.display().to_string();
    let unreadable =
        |error: std::io::Error| Failure::from_error(Exit::Usage, format!("the job file {name} cannot be read"), &error);
    // One byte more than is allowed is enough to know that it is too much.
    let most = limits::JOB_FILE as u64 + 1;
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes).map_err(unreadable)?;
    } else {
        fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(unreadable)?;
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        Failure::from_error(Exit::Usage, format!("the job file {name} is not text"), &error.utf8_error())
    })?;
    let notation = Notation::of(&name, &text);
    job_file::read(&text, notation).map_err(|error| {
        Failure::new(Exit::Usage, format!("the job file {name} cannot be used"), error)
            .next("docs/job-file.md describes every field; `tessera schema` prints the JSON Schema for editors")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outage::tests::after;

    #[test]
    fn of_a_job_that_nobody_could_be_asked_about_nothing_is_claimed() {
        let ended = |why| not_running(JobNumber(1), Duration::from_secs(30), why).exit;
        assert_eq!(ended(Err(after(Duration::from_secs(3)))), Exit::Unavailable);
        assert_eq!(ended(Ok(WhyResponse::default())), Exit::Waiting);
    }

    fn refused(name: &str, text: &[u8]) -> Failure {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        read(&path).expect_err("refused")
    }

    #[test]
    fn errors_name_line_and_column_and_exit_with_two() {
        let failure = refused("job.yaml", b"command: [true]\nvirtual_card:\n  tflops: 1\n  memroy: 1GiB\n");
        assert_eq!(failure.exit, Exit::Usage);
        let text = failure.to_string();
        assert!(text.contains("line 4, column 3") && text.contains("memory"), "{text}");
    }

    #[test]
    fn what_is_no_text_and_what_is_too_long_is_said() {
        assert!(refused("job.yaml", &[0xff, 0xfe]).to_string().contains("is not text"));
        let long = vec![b'#'; limits::JOB_FILE + 10];
        assert!(refused("job.yaml", &long).to_string().contains("has at most"));
        assert!(read(Path::new("/nowhere/job.yaml")).expect_err("refused").to_string().contains("cannot be read"));
    }
}
