//! The metrics that are looked up in the ledger when Prometheus asks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tessera_explain::WaitCode;
use tessera_ledger::{BlockCounts, CardKind, Eligibility, JobState, NodeState, Percent, QueueAmount, State};
use tessera_metrics::{QueueLabels, Scrape, table};
use tessera_usage::Keeper;

use super::tally::Tally;
use super::{Waits, label};
use crate::telemetry::Telemetry;
use crate::view::LedgerView;

/// Reads the ledger for Prometheus.
#[derive(Debug)]
pub(super) struct Scraped {
    view: LedgerView,
    telemetry: Telemetry,
    usage: Option<Keeper>,
    queues: Arc<QueueLabels>,
    pending: Arc<Mutex<Option<Waits>>>,
    tally: Mutex<Tally>,
}

impl Scraped {
    pub(super) fn new(
        view: LedgerView,
        telemetry: Telemetry,
        usage: Option<Keeper>,
        queues: Arc<QueueLabels>,
        pending: Arc<Mutex<Option<Waits>>>,
    ) -> Self {
        Self { view, telemetry, usage, queues, pending, tally: Mutex::default() }
    }

    fn jobs(&self, scrape: &mut Scrape<'_>, state: &State) -> std::fmt::Result {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.follow(state);
        // Every queue is there, also while it has no job.
        let queues = state
            .queues()
            .map(|queue| ((label(&self.queues, state, &queue.settings.name), JobState::Pending.name()), 0));
        let mut jobs: BTreeMap<(&str, &str), u64> = queues.collect();
        for ((queue, stands), count) in tally.jobs() {
            *jobs.entry((label(&self.queues, state, queue), stands.name())).or_default() += count;
        }
        scrape.gauges(&table::JOBS, jobs.iter().map(|((queue, state), jobs)| ([*queue, *state], count(*jobs))))?;
        let mut idle: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for job in state.idle_jobs() {
            let Some(step) = job.idle_step() else { continue };
            *idle.entry((label(&self.queues, state, &job.spec.queue), step.name())).or_default() += 1;
        }
        scrape.gauges(&table::JOBS_IDLE, idle.iter().map(|((queue, step), jobs)| ([*queue, *step], count(*jobs))))?;
        let mut pending: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        let placed = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(waits) = &*placed {
            let kept = tally.kept_back().map(|((queue, code), count)| (queue, code, count));
            let waiting = waits.iter().map(|((queue, code), count)| (queue.as_str(), *code, *count));
            for (queue, code, count) in waiting.chain(kept) {
                *pending.entry((label(&self.queues, state, queue), WaitCode::name(code))).or_default() += count;
            }
        }
        let series = pending.iter().map(|((queue, reason), jobs)| ([*queue, *reason], count(*jobs)));
        scrape.gauges(&table::JOBS_PENDING, series)?;
        scrape.gauge(&table::FENCES_PENDING, count(tally.workers_in_doubt()))
    }

    /// The amounts that queues hold and may hold; a queue that is not shown by name is in the sum of the others.
    fn quotas(&self, scrape: &mut Scrape<'_>, state: &State) -> std::fmt::Result {
        let mut amounts: BTreeMap<(&str, &str), QueueAmount> = BTreeMap::new();
        let mut checkpoints: BTreeMap<(&str, &str), u64> = BTreeMap::new();
        for queue in state.queues() {
            let settings = &queue.settings;
            let name = label(&self.queues, state, &settings.name);
            let most = settings.checkpoints.map(|most| most.0.saturating_mul(1 << 20));
            for (kind, bytes) in [("used", Some(state.checkpoint_bytes(&settings.name))), ("maximum", most)] {
                let Some(bytes) = bytes else { continue };
                let sum = checkpoints.entry((name, kind)).or_default();
                *sum = sum.saturating_add(bytes);
            }
            let borrowed = queue.used.minus(settings.guaranteed);
            let kinds = [
                ("used", Some(queue.used)),
                ("borrowed", Some(borrowed)),
                ("guaranteed", Some(settings.guaranteed)),
                ("maximum", settings.maximum),
            ];
            for (kind, amount) in kinds {
                let Some(amount) = amount else { continue };
                let sum = amounts.entry((name, kind)).or_default();
                *sum = sum.plus(amount);
            }
        }
        let tflops = amounts.iter().map(|((queue, kind), sum)| ([*queue, *kind], sum.compute.0 as f64 / 1000.0));
        scrape.gauges(&table::QUOTA_COMPUTE, tflops)?;
        let bytes = |amount: &QueueAmount| count(amount.memory.0.saturating_mul(1 << 20));
        scrape
            .gauges(&table::QUOTA_MEMORY, amounts.iter().map(|((queue, kind), sum)| ([*queue, *kind], bytes(sum))))?;
        let kept = checkpoints.iter().map(|((queue, kind), bytes)| ([*queue, *kind], count(*bytes)));
        scrape.gauges(&table::QUOTA_CHECKPOINTS, kept)
    }
}

impl Collector for Scraped {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let mut scrape = Scrape::new(encoder);
        let scrape = &mut scrape;
        // Only the leader hears of queues that go, at once, so that others get their places before anybody asks;
        // members that follow end series here. Each queue is looked for in the newest state: it may have come since
        // this began.
        self.queues.keep(|queue| self.view.current().queue(queue).is_some());
        let state = self.view.current();
        blocks(scrape, &state)?;
        self.jobs(scrape, &state)?;
        scrape.gauge(&table::REQUEST_IDS, count(state.requests_remembered()))?;
        scrape.gauge(&table::REQUEST_FLOOR, state.request_floor().0 as f64 / 1000.0)?;
        scrape.gauge(&table::MOVES_IN_PROGRESS, count(state.moves().count() as u64))?;
        self.quotas(scrape, &state)?;
        nodes(scrape, &state)?;
        limits(scrape, &state)?;
        let silence = self.telemetry.most_silent().map_or(0.0, |heard| heard.elapsed().as_secs_f64());
        scrape.gauge(&table::HEARTBEAT_AGE, silence)?;
        scrape.gauge(&table::USAGE_KEPT, i64::from(self.usage.as_ref().is_some_and(Keeper::keeps)))?;
        scrape.gauge(&table::SESSIONS, count(self.telemetry.sessions() as u64))
    }
}

/// The blocks that the cards of one class hold and offer.
#[derive(Default)]
struct OfClass {
    counts: BlockCounts,
    offered: u64,
    oversubscribed: u64,
}

/// Blocks by class of card, in one pass: there may be a hundred thousand cards.
fn blocks(scrape: &mut Scrape<'_>, state: &State) -> std::fmt::Result {
    let mut classes: BTreeMap<(&str, &str, &str), OfClass> = BTreeMap::new();
    for (_, card) in state.cards() {
        let class = (card.description.kind.name(), card.description.vendor.as_str(), card.description.model.as_str());
        let of = classes.entry(class).or_default();
        of.counts = of.counts.plus(card.extents.counts());
        of.offered += u64::from(card.blocks.0);
        of.oversubscribed += u64::from(card.oversubscription > Percent::WHOLE);
    }
    let series = classes.iter().flat_map(|((kind, vendor, model), of)| {
        let states = [
            ("free", of.counts.free),
            ("held", of.counts.held),
            ("running", of.counts.running),
            ("draining", of.counts.draining),
            ("lost", of.counts.lost),
            ("offline", of.counts.offline),
        ];
        states.map(|(name, blocks)| ([*kind, *vendor, *model, name], count(blocks)))
    });
    scrape.gauges(&table::BLOCKS, series)?;
    let capacity = classes.iter().map(|((kind, vendor, model), of)| ([*kind, *vendor, *model], count(of.offered)));
    scrape.gauges(&table::BLOCKS_CAPACITY, capacity)?;
    let mut cards: BTreeMap<&str, u64> = BTreeMap::new();
    for ((kind, _, _), of) in &classes {
        *cards.entry(kind).or_default() += of.oversubscribed;
    }
    scrape.gauges(&table::CARDS_OVERSUBSCRIBED, cards.iter().map(|(kind, cards)| ([*kind], count(*cards))))?;
    // The policy is said even where no card follows it yet.
    let ratio = |kind| f64::from(state.config().oversubscribed(kind).0) / 100.0;
    scrape.gauges(&table::OVERSUBSCRIPTION, CardKind::ALL.into_iter().map(|kind| ([kind.name()], ratio(kind))))?;
    // Law L1: what is counted along the way must be what the cards say.
    let total = classes.values().fold(BlockCounts::default(), |sum, of| sum.plus(of.counts));
    scrape.gauge(&table::CONSERVATION_BROKEN, i64::from(total != state.block_counts()))
}

fn nodes(scrape: &mut Scrape<'_>, state: &State) -> std::fmt::Result {
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
    let series = kinds.iter().map(|((lives, takes), nodes)| ([*lives, *takes], count(*nodes)));
    scrape.gauges(&table::NODES, series)?;
    scrape.gauge(&table::DRAIN_REMAINING, count(leaving))
}

/// The amount of each limited resource in the ledger, and its limit.
fn limits(scrape: &mut Scrape<'_>, state: &State) -> std::fmt::Result {
    let limits = &state.config().limits;
    let limited = [
        ("spec_bytes", state.spec_bytes(), limits.spec_bytes),
        ("queues", state.queue_count(), limits.queues),
        ("nodes", state.node_count(), limits.nodes),
        ("cards", state.card_count(), limits.cards),
        ("events", state.events_held(), limits.events),
    ];
    scrape.gauges(&table::POOL_LIMIT_USED, limited.map(|(limit, used, _)| ([limit], count(used))))?;
    scrape.gauges(&table::POOL_LIMIT_MOST, limited.map(|(limit, _, most)| ([limit], count(most))))
}

fn count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
