//! The metrics of an agent, for Prometheus. Values are read from the node at each request, so they are never old.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tessera_actor::ActorMeters;
use tessera_api::v1 as wire;
use tessera_devices::{Hardware, Sample};
use tessera_metrics::{revision, table};

use crate::boot::BootTime;
use crate::checkpoints::Shelf;
use crate::node::{CardUse, Node, Readings, WorkerView};
use crate::worker::Ended;

/// A node as metrics and health see it.
#[derive(Clone, Debug)]
pub struct View {
    /// True if the leader knows the node and answers.
    pub welcome: bool,
    phases: BTreeMap<&'static str, u64>,
    lease_remaining_seconds: f64,
    term: u64,
    terms_refused: u64,
    sessions: u64,
    cards: Vec<wire::CardDescription>,
    readings: Readings,
    readings_age: Option<Duration>,
    /// The blocks, memory and slices of each card that workers hold.
    held: BTreeMap<u32, CardUse>,
    workers: Vec<WorkerView>,
}

impl View {
    #[must_use]
    pub fn of(node: &Node, sessions: u64, now: BootTime) -> Self {
        let readings = node.readings(now);
        Self {
            welcome: node.is_welcome(),
            phases: node.phase_counts(),
            lease_remaining_seconds: node.lease_remaining(now).as_secs_f64(),
            term: node.highest_term().0,
            terms_refused: node.terms_refused(),
            sessions,
            cards: node.cards().to_vec(),
            held: node.card_use(),
            workers: node.worker_views(&readings),
            readings_age: readings.age(now),
            readings: readings.into_owned(),
        }
    }

    /// The state of fencing: `unconfirmed` when a kill did not succeed, `stopping` while workers are told to stop.
    fn fence_state(&self) -> &'static str {
        if self.phases.contains_key("unconfirmed") {
            "unconfirmed"
        } else if self.phases.contains_key("stopping") {
            "stopping"
        } else {
            "clear"
        }
    }
}

/// The meters that count on their own, and are not read off the node.
#[derive(Clone)]
pub struct Meters {
    pub actors: ActorMeters,
    pub checkpoints: Shelf,
    pub ended: Ended,
}

/// The page of an agent in OpenMetrics text.
#[must_use]
pub fn page(view: &View, meters: &Meters) -> String {
    let mut registry = Registry::default();
    register_agent(&mut registry, view);
    register_cards(&mut registry, view);
    register_readings(&mut registry, &view.readings.cards);
    register_slices(&mut registry, &view.workers);
    register_servers(&mut registry, &view.workers);
    register_turns(&mut registry, view);
    meters.actors.register(&mut registry);
    meters.checkpoints.register(&mut registry);
    table::AGENT_ENDED_BYTES.register_value(&mut registry, count(meters.ended.bytes()));
    table::AGENT_ENDED_REMOVED_EARLY.register_value(&mut registry, meters.ended.removed_early());
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing into a String does not fail");
    text
}

fn register_agent(registry: &mut Registry, view: &View) {
    table::BUILD_INFO.by_label(registry).of([env!("CARGO_PKG_VERSION"), revision::get()]).set(1);
    table::AGENT_CONNECTED.register_value(registry, f64::from(view.welcome));
    table::AGENT_SESSIONS.register_value(registry, view.sessions);
    table::AGENT_TERM.register_value(registry, count(view.term));
    table::AGENT_TERMS_REFUSED.register_value(registry, view.terms_refused);
    table::AGENT_LEASE_REMAINING.register_value(registry, view.lease_remaining_seconds);
    if let Some(age) = view.readings_age {
        table::AGENT_READINGS_AGE.register_value(registry, age.as_secs_f64());
    }
    let fence = table::AGENT_FENCE_STATE.by_label(registry);
    for state in ["clear", "stopping", "unconfirmed"] {
        fence.of([state]).set(i64::from(view.fence_state() == state));
    }
    let workers = table::AGENT_WORKERS.by_label(registry);
    for state in ["starting", "running", "stopping", "unconfirmed", "stopped"] {
        let number = view.phases.get(state).copied().unwrap_or(0);
        workers.of([state]).set(i64::try_from(number).unwrap_or(i64::MAX));
    }
}

fn register_cards(registry: &mut Registry, view: &View) {
    let info = table::CARD_INFO.by_label(registry);
    let healthy = table::CARD_HEALTHY.by_label(registry);
    let limit = table::CARD_MEMORY_LIMIT.by_label_numbers(registry);
    let blocks = table::CARD_GRANTED.by_label_numbers(registry);
    let memory = table::CARD_MEMORY_GRANTED.by_label_numbers(registry);
    let slices = table::CARD_SLICES.by_label_numbers(registry);
    for card in &view.cards {
        let label = card.index.to_string();
        let kind = card.kind().as_str_name().trim_start_matches("CARD_KIND_").to_ascii_lowercase();
        let simulated = card.simulated.to_string();
        let hardware = view.readings.hardware.get(card.index as usize).cloned().unwrap_or_default();
        let (uuid, vendor, model, address) = (&card.uuid, &card.vendor, &card.model, &card.pci_address);
        let Hardware { serial, driver } = &hardware;
        info.of([&label, uuid, vendor, model, &kind, address, &simulated, serial, driver]).set(1);
        healthy.of([&label]).set(i64::from(card.health() != wire::CardHealth::Unhealthy));
        limit.of([&label]).set(count(card.memory_mib << 20));
        let held = view.held.get(&card.index).copied().unwrap_or_default();
        blocks.of([&label]).set(count(held.blocks));
        memory.of([&label]).set(count(held.memory_mib << 20));
        slices.of([&label]).set(count(held.slices));
    }
}

fn register_readings(registry: &mut Registry, samples: &[Sample]) {
    let utilization = table::CARD_UTILIZATION.by_label_numbers(registry);
    let used = table::CARD_MEMORY_USED.by_label_numbers(registry);
    let temperature = table::CARD_TEMPERATURE.by_label_numbers(registry);
    let power = table::CARD_POWER.by_label_numbers(registry);
    let energy = table::CARD_ENERGY.by_label_numbers(registry);
    let errors = table::CARD_ERRORS.by_label(registry);
    for sample in samples {
        let label = sample.card_index.to_string();
        utilization.of([&label]).set(sample.utilization);
        used.of([&label]).set(count(sample.memory_used_bytes));
        if let Some(celsius) = sample.temperature_celsius {
            temperature.of([&label]).set(celsius);
        }
        if let Some(watts) = sample.power_watts {
            power.of([&label]).set(watts);
        }
        if let Some(joules) = sample.energy_joules {
            energy.of([&label]).inc_by(joules);
        }
        for (kind, number) in &sample.errors {
            errors.of([&label, kind.name()]).inc_by(*number);
        }
    }
}

/// Registers what workers hold and use, from their order on.
fn register_slices(registry: &mut Registry, workers: &[WorkerView]) {
    let utilization = table::SLICE_UTILIZATION.by_label_numbers(registry);
    let memory = table::SLICE_MEMORY_USED.by_label_numbers(registry);
    let limit = table::SLICE_MEMORY_LIMIT.by_label_numbers(registry);
    let blocks = table::SLICE_GRANTED.by_label_numbers(registry);
    let processors = table::WORKER_PROCESSOR_SECONDS.by_label_numbers(registry);
    let host_memory = table::WORKER_MEMORY_USED.by_label_numbers(registry);
    for WorkerView { job, rank, queue, held, used } in workers {
        let (job, rank) = (job.to_string(), rank.to_string());
        processors.of([&job, &rank, queue]).inc_by(used.processor_time.as_secs_f64());
        host_memory.of([&job, &rank, queue]).set(count(used.host.memory_bytes));
        for (card, slice) in held {
            let card_label = card.to_string();
            let labels = [card_label.as_str(), &job, &rank, queue];
            // Nothing is shown of what was not measured yet: a zero would say that a busy worker is idle.
            if let Some(sample) = used.slices.get(card) {
                utilization.of(labels).set(sample.utilization);
                memory.of(labels).set(count(sample.memory_used_bytes));
            }
            limit.of(labels).set(count(slice.memory_mib << 20));
            blocks.of(labels).set(count(slice.blocks));
        }
    }
}

/// Registers what slice servers count of themselves.
fn register_servers(registry: &mut Registry, workers: &[WorkerView]) {
    let computed = table::SLICE_COMPUTED.by_label_numbers(registry);
    let waited = table::SLICE_GATE_WAIT.by_label_numbers(registry);
    let operations = table::SLICE_OPERATIONS.by_label(registry);
    let bytes = table::SLICE_TRANSFERRED.by_label(registry);
    let queued = table::SLICE_QUEUED.by_label_numbers(registry);
    for WorkerView { job, rank, queue, used, .. } in workers {
        let Some((card, counts)) = &used.served else { continue };
        let (card, job, rank) = (card.to_string(), job.to_string(), rank.to_string());
        let labels = [card.as_str(), &job, &rank, queue];
        computed.of(labels).inc_by(counts.computed.as_secs_f64());
        waited.of(labels).inc_by(counts.waited.as_secs_f64());
        operations.of(labels).inc_by(counts.operations);
        bytes.of(labels).inc_by(counts.bytes);
        queued.of(labels).set(count(counts.queued_bytes));
    }
}

/// Registers the rounds and switches of cards whose workers take turns, and the times of those workers.
fn register_turns(registry: &mut Registry, view: &View) {
    let rounds = table::CARD_ROUNDS.by_label(registry);
    let switches = table::CARD_SWITCHES.by_label(registry);
    let ran = table::SLICE_TURN.by_label_numbers(registry);
    let rested = table::SLICE_REST.by_label_numbers(registry);
    for (card, turns) in view.readings.slicing.iter().filter_map(|(card, slicing)| Some((card, slicing.turns()?))) {
        let card = card.to_string();
        rounds.of([&card]).inc_by(turns.rounds);
        switches.of([&card]).inc_by(turns.switches);
    }
    for WorkerView { job, rank, queue, used, .. } in &view.workers {
        let Some((card, times)) = &used.turns else { continue };
        let (card, job, rank) = (card.to_string(), job.to_string(), rank.to_string());
        let labels = [card.as_str(), &job, &rank, queue];
        ran.of(labels).inc_by(times.ran.as_secs_f64());
        rested.of(labels).inc_by(times.rested.as_secs_f64());
    }
}

#[allow(clippy::cast_precision_loss, reason = "a reading, shown to people")]
const fn count(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use tessera_devices::SliceSample;

    use super::*;
    use crate::node::HeldSlice;
    use crate::worker::WorkerUse;

    #[test]
    fn a_worker_that_was_not_measured_yet_is_not_shown_as_idle() {
        let shown = |used: WorkerUse| {
            let held = [(0, HeldSlice { blocks: 2, memory_mib: 64 })].into();
            let worker = WorkerView { job: 5, rank: 1, queue: "batch".into(), held, used };
            let (mut registry, mut text) = (Registry::default(), String::new());
            register_slices(&mut registry, &[worker]);
            encode(&mut text, &registry).expect("writing into a String does not fail");
            let line = |name: &str| text.lines().find(|line| line.starts_with(name)).map(str::to_owned);
            ["granted_blocks", "utilization_ratio", "memory_used_bytes"]
                .map(|name| line(&format!("tessera_slice_{name}{{")))
        };
        let labels = "{card=\"0\",job_id=\"5\",rank=\"1\",queue=\"batch\"}";
        let blocks = Some(format!("tessera_slice_granted_blocks{labels} 2.0"));
        assert_eq!(shown(WorkerUse::default()), [blocks.clone(), None, None]);
        let sample = SliceSample { card_index: 0, utilization: 0.9, memory_used_bytes: 4096 };
        let measured = WorkerUse { slices: [(0, sample)].into(), ..WorkerUse::default() };
        let use_of_card = Some(format!("tessera_slice_utilization_ratio{labels} 0.9"));
        let memory = Some(format!("tessera_slice_memory_used_bytes{labels} 4096.0"));
        assert_eq!(shown(measured), [blocks, use_of_card, memory]);
    }
}
