//! The spans of a job's trace that agents tell, each of one worker: `launch`, `run` and `stop`. All are told when they
//! are over, with the times that the worker's status has kept: so a worker that was started by an earlier agent has
//! them too.

use std::time::SystemTime;

use tessera_api::v1 as wire;
use tessera_otlp::span::{at_millis, is_collected, number};
use tessera_otlp::{Draft, SpanIdentity};

use crate::node::{Stage, WorkerRecord, cause_of};
use crate::supervisor::status::{Cause, Exit, Status};
use crate::worker::WorkerId;

/// The trace context that a worker's program goes on from: that of its `run` where that is told, else that of
/// the submission.
#[must_use]
pub fn context_of_program(order: &wire::WorkerOrder) -> String {
    let worker = order.worker.as_ref().map(crate::node::from_ref);
    let own = worker.and_then(|worker| identity("run", worker).traceparent(&order.traceparent));
    own.unwrap_or_else(|| order.traceparent.clone())
}

/// Tells what is over now that a worker stands differently.
pub fn changed(record: &WorkerRecord, now: &Status, node: &str) {
    if !is_collected() || record.stage == Stage::Over {
        return;
    }
    if record.status.started_unix_ms.is_none() && now.started_unix_ms.is_some() {
        launched(record, now, node);
    }
    if now.is_final() {
        ended(record, now, node);
    }
}

/// Tells of a worker that ended while there was no agent.
pub fn found_ended(record: &WorkerRecord, node: &str) {
    if is_collected() {
        ended(record, &record.status, node);
    }
}

fn launched(record: &WorkerRecord, now: &Status, node: &str) {
    let Some(span) = span("launch", record, now, node) else { return };
    let started = time(now.started_unix_ms);
    span.since(now.ordered_unix_ms.map_or(started, at_millis)).until(started);
}

fn ended(record: &WorkerRecord, now: &Status, node: &str) {
    let stopped = time(now.stopped_unix_ms);
    let Some(started) = now.started_unix_ms.map(at_millis) else {
        let Some(span) = span("launch", record, now, node) else { return };
        let span = span.with_some("tessera.stop.cause", now.cause.map(name_of)).failed(Some(now.message.clone()));
        return span.since(now.ordered_unix_ms.map_or(stopped, at_millis)).until(stopped);
    };
    let exited = now.exited_unix_ms.map_or(stopped, at_millis);
    if let Some(span) = span("run", record, now, node) {
        let (code, signal) = match now.exit {
            Some(Exit::Code(code)) => (Some(i64::from(code)), None),
            Some(Exit::Signal(number)) => (None, Some(i64::from(number))),
            None => (None, None),
        };
        let span = span.with_some("process.exit.code", code).with_some("tessera.exit.signal", signal);
        span.failed(why_failed(now)).since(started).until(exited);
    }
    if let Some(span) = span("stop", record, now, node) {
        let vanished = (now.cause == Some(Cause::Vanished)).then(|| now.message.clone());
        let span = span.with("tessera.stop.within_grace", now.within_grace).failed(vanished);
        let span = span.with_some("tessera.stop.cause", now.cause.map(name_of));
        span.since(now.ending_unix_ms.map_or(exited, at_millis)).until(stopped);
    }
}

/// The reason why a run did not go well; `None` for one that ended well, or was stopped by order.
fn why_failed(now: &Status) -> Option<String> {
    let well = match now.cause {
        Some(Cause::Ordered) => true,
        Some(Cause::Exited) => now.exit == Some(Exit::Code(0)),
        _ => false,
    };
    (!well).then(|| now.message.clone())
}

fn span(name: &'static str, record: &WorkerRecord, now: &Status, node: &str) -> Option<Draft> {
    let order = record.order.as_ref()?;
    let WorkerId { allocation, epoch, rank } = now.worker;
    let span = Draft::following(name, &order.traceparent)?
        .known_as(identity(name, now.worker))
        .with("tessera.job.id", number(now.job))
        .with("tessera.job.attempt", i64::from(order.attempt))
        .with("tessera.allocation.id", number(allocation.0))
        .with("tessera.epoch", number(epoch.0))
        .with("tessera.rank", i64::from(rank.0))
        .with("tessera.node.name", node.to_owned());
    Some(span.with_some("process.pid", now.process.map(|process| i64::from(process.pid))))
}

fn identity(name: &str, worker: WorkerId) -> SpanIdentity {
    SpanIdentity::of(name, &[worker.allocation.0, worker.epoch.0, u64::from(worker.rank.0)])
}

/// The name of a cause in the API.
fn name_of(cause: Cause) -> &'static str {
    cause_of(cause).as_str_name().trim_start_matches("STOP_CAUSE_")
}

/// A time that was kept, or else now.
fn time(unix_ms: Option<u64>) -> SystemTime {
    unix_ms.map_or_else(SystemTime::now, at_millis)
}
