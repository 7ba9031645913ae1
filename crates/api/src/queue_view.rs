//! Queues as the API shows them and takes them.

use tessera_ledger::wire::{
    FieldError, WireEnum, attained_order_from_wire, attained_order_to_wire, enum_from_wire, idle_policy_from_wire,
    idle_policy_to_wire,
};
use tessera_ledger::{
    IdleStep, LogTime, Mebibytes, MilliTflops, Queue, QueueAmount, QueueSettings, Rejection, State, UNKNOWN,
};

use crate::error::Refusal;
use crate::fields::{Check, name, number, time};
use crate::time::timestamp;
use crate::{limits, v1};

/// A queue, as of the time of the state.
#[must_use]
pub fn queue(state: &State, queue: &Queue) -> v1::Queue {
    v1::Queue {
        settings: Some(settings(&queue.settings)),
        used: Some(amount(queue.used)),
        jobs: queue.jobs,
        mean_used: Some(amount(queue.mean_use(state.time(), state.config()))),
        share_ppm: state.share_of(queue),
        leaving: Some(amount(queue.leaving)),
        closed_until: told(state.queue_closed_until(&queue.settings.name), state.time()).map(timestamp),
        checkpoint_bytes: state.checkpoint_bytes(&queue.settings.name),
    }
}

/// A time until which something is closed, if it is yet to come and known.
pub(crate) fn told(closed_until: LogTime, now: LogTime) -> Option<LogTime> {
    Some(closed_until).filter(|until| *until > now && *until != UNKNOWN)
}

fn settings(settings: &QueueSettings) -> v1::QueueSettings {
    v1::QueueSettings {
        name: settings.name.clone(),
        parent: settings.parent.clone(),
        guaranteed: Some(amount(settings.guaranteed)),
        maximum: settings.maximum.map(amount),
        weight: settings.weight,
        packing: settings.packing.map_or(0, WireEnum::to_wire),
        windows: settings.windows.clone(),
        idle: settings.idle.as_ref().map(idle_policy_to_wire),
        checkpoints_mib: settings.checkpoints.map(|most| most.0),
        attained: settings.attained.as_ref().map(attained_order_to_wire),
    }
}

fn amount(amount: QueueAmount) -> v1::QueueAmount {
    v1::QueueAmount { milli_tflops: amount.compute.0, memory_mib: amount.memory.0 }
}

fn amount_of(amount: v1::QueueAmount) -> QueueAmount {
    QueueAmount { compute: MilliTflops(amount.milli_tflops), memory: Mebibytes(amount.memory_mib) }
}

/// Takes the settings of a request.
///
/// # Errors
/// A [`Refusal`] with the fields that are not acceptable.
pub fn settings_of_request(queue: Option<v1::QueueSettings>) -> Result<QueueSettings, Refusal> {
    let queue = queue.ok_or_else(|| Refusal::from(FieldError::missing("queue")))?;
    let idle = queue.idle.as_ref().map(idle_policy_from_wire);
    let attained = queue.attained.as_ref().map(attained_order_from_wire);
    let settings = QueueSettings {
        name: queue.name,
        parent: queue.parent,
        guaranteed: queue.guaranteed.map(amount_of).unwrap_or_default(),
        maximum: queue.maximum.map(amount_of),
        weight: queue.weight.max(1),
        packing: enum_from_wire("queue.packing", queue.packing)?,
        windows: queue.windows,
        idle: idle.transpose().map_err(|error| error.under("queue.idle"))?,
        checkpoints: queue.checkpoints_mib.map(Mebibytes),
        attained: attained.transpose().map_err(|error| error.under("queue.attained"))?,
    };
    let mut check = Check::default();
    check.of(name("queue.name", &settings.name));
    if !settings.parent.is_empty() {
        check.of(name("queue.parent", &settings.parent));
    }
    check_amount(&mut check, "queue.guaranteed", settings.guaranteed);
    check_amount(&mut check, "queue.maximum", settings.maximum.unwrap_or_default());
    let checkpoints = settings.checkpoints.unwrap_or_default();
    check.of(number("queue.checkpoints_mib", checkpoints, Mebibytes::ZERO..=limits::QUEUE_CHECKPOINTS));
    check.of(number("queue.weight", settings.weight, 1..=limits::QUEUE_WEIGHT));
    check.windows("queue.windows", &settings.windows);
    let idle = settings.idle.map(|idle| idle.check("queue.idle"));
    let attained = settings.attained.map(|order| order.check("queue.attained"));
    for refused in idle.into_iter().chain(attained).filter_map(Result::err) {
        if let Rejection::Invalid { field, problem } = refused {
            check.refuse(field, problem);
        }
    }
    if let Some(idle) = settings.idle {
        for step in IdleStep::ALL {
            let after = idle.after(step).unwrap_or_default();
            check.of(time(&format!("queue.idle.{}", step.field()), after, limits::LADDER));
        }
    }
    check.that(settings.parent != settings.name, "queue.parent", || "must be another queue".to_owned());
    let within = settings.maximum.is_none_or(|maximum| settings.guaranteed.within(maximum));
    check.that(within, "queue.guaranteed", || "must not be more than queue.maximum".to_owned());
    check.done().map(|()| settings)
}

fn check_amount(check: &mut Check, field: &str, amount: QueueAmount) {
    let QueueAmount { compute, memory } = amount;
    check.of(number(&format!("{field}.milli_tflops"), compute, MilliTflops::ZERO..=limits::QUEUE_COMPUTE));
    check.of(number(&format!("{field}.memory_mib"), memory, Mebibytes::ZERO..=limits::QUEUE_MEMORY));
}
