//! What Prometheus sees of an agent. Values are read from the node when somebody asks, so they are never old.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};
use tessera_actor::ActorMeters;
use tessera_api::v1 as wire;

use crate::boot::BootTime;
use crate::node::Node;

type Number = Gauge<f64, std::sync::atomic::AtomicU64>;

/// A node as metrics and health see it.
#[derive(Clone, Debug)]
pub struct View {
    /// Whether the leader knows the node and answers.
    pub welcome: bool,
    phases: BTreeMap<&'static str, u64>,
    lease_remaining_seconds: f64,
    term: u64,
    sessions: u64,
    cards: Vec<wire::CardDescription>,
    samples: Vec<wire::CardSample>,
}

impl View {
    /// The node as it is now.
    #[must_use]
    pub fn of(node: &Node, sessions: u64, now: BootTime) -> Self {
        Self {
            welcome: node.is_welcome(),
            phases: node.phase_counts(),
            lease_remaining_seconds: node.lease_remaining(now).as_secs_f64(),
            term: node.highest_term().0,
            sessions,
            cards: node.cards().to_vec(),
            samples: node.samples().to_vec(),
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CardLabel {
    card: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CardInfo {
    card: u32,
    uuid: String,
    vendor: String,
    model: String,
    kind: String,
    simulated: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Build {
    version: &'static str,
}

/// The page of an agent in OpenMetrics text.
#[must_use]
pub fn page(view: &View, meters: &ActorMeters) -> String {
    let mut registry = Registry::default();
    register_agent(&mut registry, view);
    register_cards(&mut registry, view);
    meters.register(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing into a String does not fail");
    text
}

fn register_agent(registry: &mut Registry, view: &View) {
    let build = Family::<Build, Gauge>::default();
    build.get_or_create(&Build { version: env!("CARGO_PKG_VERSION") }).set(1);
    registry.register("tessera_build_info", "Release of this agent", build);
    registry.register(
        "tessera_agent_connected",
        "Whether the leader knows this node and answers",
        gauge(f64::from(view.welcome)),
    );
    let sessions = ConstCounter::new(view.sessions);
    registry.register("tessera_agent_sessions", "Sessions opened with a leader since the agent's start", sessions);
    registry.register(
        "tessera_agent_term",
        "Highest term of a leader that this node has seen",
        gauge(count(view.term)),
    );
    registry.register_with_unit(
        "tessera_agent_lease_remaining",
        "Time until workers are told to stop if the lease is not renewed",
        Unit::Seconds,
        gauge(view.lease_remaining_seconds),
    );
    let fence = Family::<State, Gauge>::default();
    for state in ["clear", "stopping", "unconfirmed"] {
        fence.get_or_create(&State { state }).set(i64::from(view.fence_state() == state));
    }
    registry.register("tessera_agent_fence_state", "1 for the state that fencing on this node is in", fence);
    let workers = Family::<State, Gauge>::default();
    for state in ["starting", "running", "stopping", "unconfirmed", "stopped"] {
        let number = view.phases.get(state).copied().unwrap_or(0);
        workers.get_or_create(&State { state }).set(i64::try_from(number).unwrap_or(i64::MAX));
    }
    registry.register("tessera_agent_workers", "Workers on this node by where they stand", workers);
}

fn register_cards(registry: &mut Registry, view: &View) {
    let info = Family::<CardInfo, Gauge>::default();
    let healthy = Family::<CardLabel, Gauge>::default();
    let limit = Family::<CardLabel, Number>::default();
    for card in &view.cards {
        let label = CardLabel { card: card.index };
        let kind = card.kind().as_str_name().trim_start_matches("CARD_KIND_").to_ascii_lowercase();
        let described = CardInfo {
            card: card.index,
            uuid: card.uuid.clone(),
            vendor: card.vendor.clone(),
            model: card.model.clone(),
            kind,
            simulated: card.simulated.to_string(),
        };
        info.get_or_create(&described).set(1);
        healthy.get_or_create(&label).set(i64::from(card.health() != wire::CardHealth::Unhealthy));
        limit.get_or_create(&label).set(count(card.memory_mib << 20));
    }
    let utilization = Family::<CardLabel, Number>::default();
    let used = Family::<CardLabel, Number>::default();
    let temperature = Family::<CardLabel, Number>::default();
    let power = Family::<CardLabel, Number>::default();
    for sample in &view.samples {
        let label = CardLabel { card: sample.card_index };
        utilization.get_or_create(&label).set(sample.utilization_ratio);
        used.get_or_create(&label).set(count(sample.memory_used_bytes));
        if let Some(celsius) = sample.temperature_celsius {
            temperature.get_or_create(&label).set(celsius);
        }
        if let Some(watts) = sample.power_watts {
            power.get_or_create(&label).set(watts);
        }
    }
    registry.register("tessera_card_info", "What a card is", info);
    registry.register("tessera_card_healthy", "Whether a card is usable", healthy);
    registry.register("tessera_card_utilization_ratio", "Share of time that a card computed", utilization);
    registry.register_with_unit(
        "tessera_card_memory_limit",
        "Memory of a card that can be granted",
        Unit::Bytes,
        limit,
    );
    registry.register_with_unit("tessera_card_memory_used", "Memory of a card in use", Unit::Bytes, used);
    registry.register_with_unit("tessera_card_temperature", "Temperature of a card", Unit::Celsius, temperature);
    registry.register("tessera_card_power_watts", "Power that a card draws", power);
}

fn gauge(value: f64) -> ConstGauge<f64> {
    ConstGauge::new(value)
}

#[allow(clippy::cast_precision_loss, reason = "a reading, shown to people")]
const fn count(value: u64) -> f64 {
    value as f64
}
