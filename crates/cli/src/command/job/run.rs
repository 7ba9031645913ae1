//! `tessera job run`: submits a command and stays with it, as if it ran here.

use std::io::IsTerminal;

use nix::sys::signal::Signal;
use tessera_api::v1::{
    Access, Affinity, CancelJobRequest, CardKind, ErrorReason, GetPoolRequest, HostRequest, JobSpec, Packing,
    PreferredLabel, RetryPolicy, Span, VirtualCardRequest,
};
use tessera_client::ClientError;
use tokio::sync::watch;

use super::super::Desk;
use super::super::desk::wire_time;
use super::follow::{Until, end_of, follow};
use super::here;
use super::output::Output;
use super::submit::{NOT_SUBMITTED, remark_unknown_labels, send, submission};
use crate::args::{JobNumber, KindChoice, PackingChoice, RunArgs, SpanChoice};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::print::remark;
use crate::signals::{Signals, first, until_left};

pub(in crate::command) async fn run(mut desk: Desk, mut args: RunArgs) -> Result<Exit, Failure> {
    if args.tflops.is_none() {
        args.tflops = Some(one_block(&desk).await?);
    }
    if args.here {
        return here::run(desk, args).await;
    }
    if args.detach {
        let submission = submission(&desk, spec(args), None).await?;
        desk.printer.one(&submission)?;
        return Ok(Exit::Done);
    }
    let mut signals = Signals::by(&[Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM])?;
    let (first, told) = watch::channel(None);
    tokio::select! {
        ended = stay(&desk, spec(args), told) => ended,
        signal = until_left(async || signals.next().await, &first) => Ok(Exit::Signalled(signal)),
    }
}

/// Returns the compute of one block: what a job gets that does not say, whatever cards there are.
async fn one_block(desk: &Desk) -> Result<u64, Failure> {
    let answer = desk.client.get_pool(GetPoolRequest { consistency: desk.consistency }).await;
    let answer = answer.map_err(|error| Failure::call(NOT_SUBMITTED, &error))?;
    Ok(answer.pool.and_then(|pool| pool.config).unwrap_or_default().block_milli_tflops)
}

/// Submits, and prints output and states until the job is over. It is cancelled when this command is told to end.
async fn stay(desk: &Desk, spec: JobSpec, mut told: watch::Receiver<Option<Signal>>) -> Result<Exit, Failure> {
    let labels = spec.node_labels.clone();
    let job = submitted(desk, spec, &told).await?;
    remark_unknown_labels(desk, labels).await;
    if std::io::stderr().is_terminal() {
        remark(&format!("[job {}]", job.0));
    }
    let mut output = Output::new(&desk.client, job);
    let following = follow(desk, job, Until::End, Outage::after_an_answer(desk), |standing| output.on(standing));
    let mut cancelled = false;
    let last = {
        let mut heard = told.clone();
        let cancelling = async {
            first(&mut heard).await;
            cancel(desk, job, Outage::after_an_answer(desk)).await
        };
        tokio::pin!(following, cancelling);
        loop {
            tokio::select! {
                last = &mut following => break last,
                ended = &mut cancelling, if !cancelled => {
                    ended?;
                    cancelled = true;
                }
            }
        }
    };
    let last = last.map_err(|failure| match told.borrow().is_some() && !cancelled {
        true => failure.next(format!("job {0} was not cancelled: `tessera job cancel {0}`", job.0)),
        false => failure,
    })?;
    if let Some(signal) = *told.borrow() {
        // Whatever becomes of its last words.
        let _ = output.rest().await;
        return Ok(Exit::Signalled(signal));
    }
    let ending = async {
        output.drain().await?;
        end_of(desk, job, &last).await
    };
    tokio::select! {
        signal = first(&mut told) => Ok(Exit::Signalled(signal)),
        ended = ending => ended,
    }
}

/// Submits. Where that is told to end before it is known whether there is a job to be cancelled, it finds that out.
pub(super) async fn submitted(
    desk: &Desk,
    spec: JobSpec,
    told: &watch::Receiver<Option<Signal>>,
) -> Result<JobNumber, Failure> {
    let (request_id, mut outage) = (desk.client.new_request_id(), Outage::after_an_answer(desk));
    loop {
        let error = match send(desk, spec.clone(), request_id.clone()).await {
            Ok(submission) => return Ok(JobNumber(submission.id)),
            Err(error) => error,
        };
        match &error {
            ClientError::Unavailable(silence) if silence.outcome_unknown && told.borrow().is_some() => {
                outage.goes_on(NOT_SUBMITTED, &error)?;
            }
            _ => return Err(Failure::call(NOT_SUBMITTED, &error)),
        }
    }
}

/// Cancels a job, unless it is over.
pub(super) async fn cancel(desk: &Desk, job: JobNumber, mut outage: Outage) -> Result<(), Failure> {
    let ask = async |patience| {
        let request = CancelJobRequest { request_id: String::new(), job_id: job.0 };
        match desk.client.with_deadline(patience).cancel_job(request).await {
            Err(error) if error.reason() != Some(ErrorReason::IllegalTransition) => Err(error),
            _ => Ok(()),
        }
    };
    outage.through(&format!("job {} was not cancelled", job.0), ask).await
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
            milli_tflops: args.tflops.unwrap_or_default(),
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
