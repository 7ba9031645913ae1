//! What is looked up in the ledger when Prometheus asks.

use std::collections::BTreeMap;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tessera_ledger::{BlockCounts, CardKind, Eligibility, JobState, NodeState, Percent, State};

use crate::telemetry::Telemetry;
use crate::view::LedgerView;

/// Reads the ledger for Prometheus.
#[derive(Debug)]
pub(super) struct Scraped {
    view: LedgerView,
    telemetry: Telemetry,
}

impl Scraped {
    pub(super) const fn new(view: LedgerView, telemetry: Telemetry) -> Self {
        Self { view, telemetry }
    }
}

impl Collector for Scraped {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let state = self.view.current();
        blocks(&mut encoder, &state)?;
        jobs(&mut encoder, &state)?;
        queues(&mut encoder, &state)?;
        nodes(&mut encoder, &state)?;
        limits(&mut encoder, &state)?;
        let silence = self.telemetry.most_silent().map_or(0.0, |heard| heard.elapsed().as_secs_f64());
        gauge(
            &mut encoder,
            "tessera_node_heartbeat_age_seconds",
            "Age of the oldest last heartbeat of a session",
            silence,
        )?;
        let sessions = count(self.telemetry.sessions() as u64);
        gauge(&mut encoder, "tessera_sessions", "Agents with a session with this member", sessions)
    }
}

fn blocks(encoder: &mut DescriptorEncoder<'_>, state: &State) -> std::fmt::Result {
    let mut classes: BTreeMap<(&str, &str, &str), (BlockCounts, u64)> = BTreeMap::new();
    let mut total = BlockCounts::default();
    for (_, card) in state.cards() {
        let class = (card.description.kind.name(), card.description.vendor.as_str(), card.description.model.as_str());
        let (counts, blocks) = classes.entry(class).or_default();
        *counts = counts.plus(card.extents.counts());
        *blocks += u64::from(card.blocks.0);
        total = total.plus(card.extents.counts());
    }
    let mut family = encoder.encode_descriptor("tessera_blocks", "Blocks by state", None, MetricType::Gauge)?;
    for ((kind, vendor, model), (counts, _)) in &classes {
        let states = [
            ("free", counts.free),
            ("held", counts.held),
            ("running", counts.running),
            ("draining", counts.draining),
            ("lost", counts.lost),
            ("offline", counts.offline),
        ];
        for (name, blocks) in states {
            let labels = [("kind", *kind), ("vendor", *vendor), ("model", *model), ("state", name)];
            ConstGauge::new(count(blocks)).encode(family.encode_family(&labels)?)?;
        }
    }
    let mut family =
        encoder.encode_descriptor("tessera_blocks_capacity", "Blocks that cards offer", None, MetricType::Gauge)?;
    for ((kind, vendor, model), (_, blocks)) in &classes {
        let labels = [("kind", *kind), ("vendor", *vendor), ("model", *model)];
        ConstGauge::new(count(*blocks)).encode(family.encode_family(&labels)?)?;
    }
    oversubscription(encoder, state)?;
    // Law L1: what is counted along the way must be what the cards say.
    let broken = i64::from(total != state.block_counts());
    gauge(
        encoder,
        "tessera_ledger_conservation_broken",
        "1 when blocks are counted wrongly (law L1); must stay 0",
        broken,
    )
}

/// Cards that offer more blocks than they are rated for. The policy is said even where no card follows it yet.
fn oversubscription(encoder: &mut DescriptorEncoder<'_>, state: &State) -> std::fmt::Result {
    let mut cards: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, card) in state.cards() {
        let sum = cards.entry(card.description.kind.name()).or_default();
        *sum += u64::from(card.oversubscription > Percent::WHOLE);
    }
    let help = "Cards that offer more blocks than they are rated for, with isolation `shared` only";
    let mut family = encoder.encode_descriptor("tessera_cards_oversubscribed", help, None, MetricType::Gauge)?;
    for (kind, cards) in cards {
        ConstGauge::new(count(cards)).encode(family.encode_family(&[("kind", kind)])?)?;
    }
    let help = "Blocks that cards may offer, as a share of those that they are rated for";
    let mut family = encoder.encode_descriptor("tessera_oversubscription_ratio", help, None, MetricType::Gauge)?;
    for kind in CardKind::ALL {
        let ratio = f64::from(state.config().oversubscribed(kind).0) / 100.0;
        ConstGauge::new(ratio).encode(family.encode_family(&[("kind", kind.name())])?)?;
    }
    Ok(())
}

fn jobs(encoder: &mut DescriptorEncoder<'_>, state: &State) -> std::fmt::Result {
    let mut family = encoder.encode_descriptor("tessera_jobs", "Jobs by state", None, MetricType::Gauge)?;
    for job_state in JobState::ALL {
        let labels = [("state", job_state.name())];
        ConstGauge::new(count(state.job_count(job_state))).encode(family.encode_family(&labels)?)?;
    }
    let ids = count(state.requests_remembered());
    gauge(encoder, "tessera_request_ids", "Answered request ids that are remembered", ids)?;
    gauge(
        encoder,
        "tessera_request_floor_timestamp_seconds",
        "Unix time until which request ids were made that are forgotten, and refused; 0 while none is",
        state.request_floor().0 as f64 / 1000.0,
    )?;
    let moves = count(state.moves().count() as u64);
    gauge(encoder, "tessera_moves_in_progress", "Moves of jobs between cards in progress", moves)
}

fn queues(encoder: &mut DescriptorEncoder<'_>, state: &State) -> std::fmt::Result {
    let mut family = encoder.encode_descriptor(
        "tessera_queue_jobs",
        "Jobs of a queue that are not over",
        None,
        MetricType::Gauge,
    )?;
    for queue in state.queues() {
        let labels = [("queue", queue.settings.name.as_str())];
        ConstGauge::new(count(queue.jobs)).encode(family.encode_family(&labels)?)?;
    }
    let mut family = encoder.encode_descriptor(
        "tessera_quota_tflops",
        "Compute of a queue at the reference precision: what it uses, is guaranteed, and may use at most",
        None,
        MetricType::Gauge,
    )?;
    for queue in state.queues() {
        let settings = &queue.settings;
        let amounts =
            [("used", Some(queue.used)), ("guaranteed", Some(settings.guaranteed)), ("maximum", settings.maximum)];
        for (kind, amount) in amounts {
            let Some(amount) = amount else { continue };
            let labels = [("queue", settings.name.as_str()), ("kind", kind)];
            let tflops = amount.compute.0 as f64 / 1000.0;
            ConstGauge::new(tflops).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

fn nodes(encoder: &mut DescriptorEncoder<'_>, state: &State) -> std::fmt::Result {
    let mut kinds: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut leaving = 0u64;
    for node in state.nodes() {
        let lives = match node.state {
            NodeState::Ready => "ready",
            NodeState::Lost => "lost",
            NodeState::Forgotten => continue,
        };
        let takes = match node.eligibility {
            Eligibility::Eligible => "eligible",
            Eligibility::Cordoned => "cordoned",
            Eligibility::Draining => "draining",
        };
        *kinds.entry((lives, takes)).or_default() += 1;
        if node.eligibility == Eligibility::Draining {
            leaving += state.allocations_on(node.id).count() as u64;
        }
    }
    let mut family = encoder.encode_descriptor("tessera_nodes", "Nodes by state", None, MetricType::Gauge)?;
    for ((lives, takes), nodes) in kinds {
        let labels = [("state", lives), ("eligibility", takes)];
        ConstGauge::new(count(nodes)).encode(family.encode_family(&labels)?)?;
    }
    gauge(encoder, "tessera_drain_remaining_allocations", "Grants still on nodes that are drained", count(leaving))
}

/// What the ledger holds of each thing that is limited, and the limit.
fn limits(encoder: &mut DescriptorEncoder<'_>, state: &State) -> std::fmt::Result {
    let limits = &state.config().limits;
    let limited = [
        ("spec_bytes", state.spec_bytes(), limits.spec_bytes),
        ("queues", state.queue_count(), limits.queues),
        ("nodes", state.node_count(), limits.nodes),
        ("cards", state.card_count(), limits.cards),
        ("events", state.events_held(), limits.events),
    ];
    let help = "What the ledger holds of each thing that is limited";
    let mut family = encoder.encode_descriptor("tessera_pool_limit_used", help, None, MetricType::Gauge)?;
    for (limit, used, _) in limited {
        ConstGauge::new(count(used)).encode(family.encode_family(&[("limit", limit)])?)?;
    }
    let mut family = encoder.encode_descriptor("tessera_pool_limit_most", "The limits", None, MetricType::Gauge)?;
    for (limit, _, most) in limited {
        ConstGauge::new(count(most)).encode(family.encode_family(&[("limit", limit)])?)?;
    }
    Ok(())
}

fn gauge<N>(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: N) -> std::fmt::Result
where
    ConstGauge<N>: EncodeMetric,
{
    let metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(value).encode(metric)
}

fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
