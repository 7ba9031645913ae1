//! `tessera job run`: submits a command and stays with it, as if it ran here.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use futures::FutureExt;
use futures::future::Fuse;
use nix::sys::signal::Signal;
use tessera_api::v1::{
    Access, Affinity, CancelJobRequest, CardKind, ErrorReason, HostRequest, JobSpec, LogStream, Packing,
    PreferredLabel, RetryPolicy, Span, StreamLogsRequest, VirtualCardRequest,
};
use tessera_client::{Client, ClientError};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::super::Desk;
use super::super::desk::wire_time;
use super::follow::{Standing, Until, end_of, follow};
use super::here;
use super::submit::send;
use crate::args::{JobNumber, KindChoice, PackingChoice, RunArgs, SpanChoice};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::print::{remark, unwritten};
use crate::told::Told;

/// How long output may still come after the job is over.
const LAST_OUTPUT: Duration = Duration::from_secs(10);

pub(in crate::command) async fn run(mut desk: Desk, args: RunArgs) -> Result<Exit, Failure> {
    if args.here {
        return here::run(desk, args).await;
    }
    if args.detach {
        let submission = send(&desk, spec(args), None).await?;
        desk.printer.one(&submission)?;
        return Ok(Exit::Done);
    }
    let mut told = Told::by(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    let mut first = None;
    let submission = {
        let sending = send(&desk, spec(args), None);
        tokio::pin!(sending);
        loop {
            tokio::select! {
                sent = &mut sending => break sent?,
                heard = told.next() => match first {
                    // Whether there is a job to be cancelled is known only when that is answered.
                    None => first = Some(heard),
                    Some(first) => return Ok(Exit::Signalled(first)),
                },
            }
        }
    };
    let job = JobNumber(submission.id);
    if std::io::stderr().is_terminal() {
        remark(&format!("[job {}]", job.0));
    }
    stay(&desk, job, told, first).await
}

/// Prints output and states until the job is over. Whoever tells this command to end has the job cancelled: `first`, if
/// it was told before. A second signal leaves the job as it is.
async fn stay(desk: &Desk, job: JobNumber, mut told: Told, mut first: Option<Signal>) -> Result<Exit, Failure> {
    // States come in bursts of a few; what is not taken in time is not needed any more.
    let (states, mut changed) = mpsc::channel(64);
    let following = follow(desk, job, Until::End, Outage::after_an_answer(desk), |standing| {
        let _ = states.try_send(standing.clone());
    });
    tokio::pin!(following);
    let mut output = Output::new(desk.client.clone(), job);
    let mut cancelling = Fuse::terminated();
    if first.is_some() {
        cancelling = cancel_some_time(desk, job).boxed_local().fuse();
    }
    let last = loop {
        tokio::select! {
            last = &mut following => break last?,
            Some(standing) = changed.recv() => output.on(&standing),
            cancelled = &mut cancelling => cancelled?,
            heard = told.next() => {
                if let Some(first) = first {
                    return Ok(Exit::Signalled(first));
                }
                first = Some(heard);
                cancelling = cancel_some_time(desk, job).boxed_local().fuse();
                // Whoever has hung up reads nothing.
                if heard != Signal::SIGHUP {
                    remark(&format!("[cancelling job {}; interrupt again to leave it]", job.0));
                }
            }
        }
    };
    output.on(&last);
    output.drain().await?;
    match first {
        Some(first) => Ok(Exit::Signalled(first)),
        None => end_of(desk, job, &last).await,
    }
}

/// Cancels a job, unless it is over, as soon as a member answers.
async fn cancel_some_time(desk: &Desk, job: JobNumber) -> Result<(), Failure> {
    loop {
        match cancel(desk, job).await {
            Err(failure) if failure.exit == Exit::Unavailable => {}
            ended => return ended,
        }
    }
}

/// Cancels a job, unless it is over.
pub(super) async fn cancel(desk: &Desk, job: JobNumber) -> Result<(), Failure> {
    let request = CancelJobRequest { request_id: String::new(), job_id: job.0 };
    match desk.client.cancel_job(request).await {
        Err(error) if error.reason() != Some(ErrorReason::IllegalTransition) => {
            Err(Failure::call(format!("job {} was not cancelled", job.0), &error))
        }
        _ => Ok(()),
    }
}

/// The output of rank 0, attempt after attempt.
struct Output {
    client: Client,
    job: JobNumber,
    reading: Option<u64>,
    readers: JoinSet<Result<(), Failure>>,
}

impl Output {
    fn new(client: Client, job: JobNumber) -> Self {
        Self { client, job, reading: None, readers: JoinSet::new() }
    }

    /// Begins to read when an attempt runs, or has ended before it was seen running.
    fn on(&mut self, standing: &Standing) {
        let speaks = matches!(standing.state.as_str(), "running" | "completing" | "completed" | "failed" | "timeout");
        let new = standing.allocation.is_some() && standing.allocation != self.reading;
        let never = self.reading.is_none() && standing.is_over();
        if speaks && (new || never) {
            self.reading = standing.allocation.or(Some(0));
            for stream in [LogStream::Stdout, LogStream::Stderr] {
                self.readers.spawn(copy(self.client.clone(), self.job, stream));
            }
        }
    }

    /// Waits for what was written before the end.
    async fn drain(&mut self) -> Result<(), Failure> {
        let all = async {
            while let Some(ended) = self.readers.join_next().await {
                // A reader is never aborted here and does not panic.
                ended.unwrap_or(Ok(()))?;
            }
            Ok(())
        };
        match tokio::time::timeout(LAST_OUTPUT, all).await {
            Ok(result) => result,
            Err(_elapsed) => {
                remark("[some output may be missing: the node does not answer; `tessera job logs` reads it later]");
                Ok(())
            }
        }
    }
}

async fn copy(client: Client, job: JobNumber, stream: LogStream) -> Result<(), Failure> {
    let mut reader = client.stream_logs(StreamLogsRequest {
        job_id: job.0,
        attempt: 0,
        rank: 0,
        stream: stream.into(),
        offset: 0,
        follow: true,
    });
    loop {
        let chunk = match reader.next().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(()),
            // It never came to have output.
            Err(error) if error.reason() == Some(ErrorReason::WorkerUnknown) => return Ok(()),
            // Whoever follows the job says so.
            Err(ClientError::Unavailable(_)) => continue,
            Err(error) => {
                remark(&format!("[the output ended: {error}]"));
                return Ok(());
            }
        };
        let written = match stream {
            LogStream::Stderr => std::io::stderr().write_all(&chunk.data),
            _ => std::io::stdout().write_all(&chunk.data).and_then(|()| std::io::stdout().flush()),
        };
        written.map_err(|error| unwritten(&error))?;
    }
}

pub(super) fn spec(args: RunArgs) -> JobSpec {
    let program = args.command.first().map(|program| program.rsplit('/').next().unwrap_or(program).to_owned());
    JobSpec {
        name: args.name.or(program).unwrap_or_default(),
        queue: args.queue.unwrap_or_default(),
        command: args.command,
        environment: args.env.into_iter().collect(),
        working_directory: args.workdir.unwrap_or_default(),
        gang: args.gang,
        virtual_card: Some(VirtualCardRequest {
            milli_tflops: args.tflops,
            memory_mib: args.memory,
            span: Span::from(args.span).into(),
            kinds: args.kind.iter().map(|kind| (*kind).into()).collect(),
            mixed: args.mixed,
            whole_cards: args.whole_cards,
            slice_memory_mib: args.slice_memory,
            access: if args.device { Access::Device.into() } else { 0 },
            elastic: args.elastic,
            ..VirtualCardRequest::default()
        }),
        priority: args.priority,
        time_limit: args.time_limit.map(wire_time),
        host: Some(HostRequest { milli_cpus: args.cpus, memory_mib: args.host_memory }),
        gang_min: args.gang_min,
        grow_after: args.grow_after.map(wire_time),
        min_runtime: args.min_runtime.map(wire_time),
        affinity: Some(Affinity {
            preferred: args
                .prefer
                .into_iter()
                .map(|(key, value, weight)| PreferredLabel { key, value, weight })
                .collect(),
            together: args.together,
            spread: args.spread,
            avoid: args.avoid.into_iter().collect(),
            data: args.data,
        }),
        packing: args.packing.map_or(0, Into::into),
        windows: args.windows.clone(),
        retry: Some(RetryPolicy { max_retries: args.retries, ..RetryPolicy::default() }),
        labels: args.label.into_iter().collect(),
        node_labels: args.node_label.into_iter().collect(),
        ..JobSpec::default()
    }
}

impl From<SpanChoice> for Span {
    fn from(choice: SpanChoice) -> Self {
        match choice {
            SpanChoice::Card => Self::Card,
            SpanChoice::Node => Self::Node,
            SpanChoice::Pool => Self::Pool,
        }
    }
}

impl From<PackingChoice> for i32 {
    fn from(choice: PackingChoice) -> Self {
        match choice {
            PackingChoice::Stack => Packing::Stack,
            PackingChoice::Spread => Packing::Spread,
        }
        .into()
    }
}

impl From<KindChoice> for i32 {
    fn from(choice: KindChoice) -> Self {
        match choice {
            KindChoice::Gpu => CardKind::Gpu,
            KindChoice::Npu => CardKind::Npu,
            KindChoice::Fpga => CardKind::Fpga,
            KindChoice::Cpu => CardKind::Cpu,
        }
        .into()
    }
}
