//! Jobs as engineers submit them: of every size and shape, in several queues, alone and in gangs, with wishes and
//! without.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::SmallRng;
use tessera_api::v1::{self, CardKind, CheckpointMode, OnDisconnect, Packing, Span};

/// Queues with guarantees, and what each is guaranteed of the pool, in percent. What the rest of it runs is on loan
/// from them.
pub const TENANTS: [(&str, u64); 2] = [("blue", 40), ("red", 30)];
/// A queue that nobody ever makes.
const NOBODYS_QUEUE: &str = "nobody";
/// The label of nodes that wishes are about, and its values.
pub const ZONE: &str = "zone";
/// See [`ZONE`].
pub const ZONES: [&str; 2] = ["north", "south"];
/// The label of jobs that others avoid.
const LOUD: (&str, &str) = ("noise", "loud");

/// What the jobs of one client look like.
#[derive(Clone, Copy, Debug)]
pub struct Taste {
    /// Blocks of the largest card.
    pub card: u64,
    /// Blocks of the whole pool.
    pub pool: u64,
    /// Bounds of how long programs compute, in milliseconds.
    pub computes_ms: (u32, u32),
    /// Only such as leave room elsewhere to be moved to.
    pub small: bool,
}

impl Taste {
    /// Some job that the pool may or may not have room for.
    pub fn job(&self, random: &mut SmallRng) -> v1::JobSpec {
        let spec = shaped(random, self);
        if self.small { small(spec) } else { spec }
    }
}

fn duration(ms: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds: ms / 1000, nanos: i32::try_from(ms % 1000).unwrap_or(0) * 1_000_000 })
}

fn shaped(random: &mut SmallRng, taste: &Taste) -> v1::JobSpec {
    let gang = if random.random_bool(0.65) { 1 } else { random.random_range(2..=4) };
    let elastic = gang > 1 && random.random_bool(0.75);
    let cooperative = random.random_bool(0.4);
    v1::JobSpec {
        name: "simulated".to_owned(),
        queue: queue(random).to_owned(),
        command: vec!["compute".to_owned()],
        environment: behaviour(random, taste.computes_ms),
        gang,
        gang_min: elastic.then(|| random.random_range(1..gang)),
        virtual_card: Some(virtual_card(random, taste)),
        priority: Some([10, 50, 50, 90][random.random_range(0..4)]),
        preemptible: Some(random.random_bool(0.8)),
        checkpoint: Some(v1::CheckpointPolicy {
            mode: if cooperative { CheckpointMode::Cooperative } else { CheckpointMode::Requeue }.into(),
            grace: duration(random.random_range(100..3_000)),
            every: if cooperative && random.random_bool(0.5) {
                duration(random.random_range(1_000..2_500))
            } else {
                None
            },
            ..v1::CheckpointPolicy::default()
        }),
        on_disconnect: if random.random_bool(0.15) { OnDisconnect::Keep } else { OnDisconnect::Stop }.into(),
        time_limit: if random.random_bool(0.2) { duration(random.random_range(1_000..6_000)) } else { None },
        retry: Some(v1::RetryPolicy {
            max_retries: random.random_range(0..3),
            backoff: duration(200),
            max_backoff: duration(1_000),
        }),
        labels: labels(random),
        held: random.random_bool(0.05),
        host: host(random),
        min_runtime: if random.random_bool(0.1) { duration(random.random_range(500..3_000)) } else { None },
        affinity: affinity(random, gang),
        packing: [Packing::Unspecified, Packing::Unspecified, Packing::Stack, Packing::Spread]
            [random.random_range(0..4)]
        .into(),
        ..v1::JobSpec::default()
    }
}

fn queue(random: &mut SmallRng) -> &'static str {
    match random.random_range(0..100) {
        0..30 => TENANTS[0].0,
        30..50 => TENANTS[1].0,
        50..97 => "",
        _ => NOBODYS_QUEUE,
    }
}

fn behaviour(random: &mut SmallRng, (least, most): (u32, u32)) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("RUN_MS".to_owned(), random.random_range(least..most).to_string()),
        ("EXIT".to_owned(), u32::from(random.random_bool(0.12)).to_string()),
        ("STOP_MS".to_owned(), random.random_range(5..4_000u32).to_string()),
    ])
}

fn virtual_card(random: &mut SmallRng, taste: &Taste) -> v1::VirtualCardRequest {
    let Taste { card, pool, .. } = *taste;
    let span = [Span::Card, Span::Card, Span::Node, Span::Pool][random.random_range(0..4)];
    let blocks = match span {
        Span::Pool => random.random_range(1..=pool.min(card * 2)),
        Span::Node => random.random_range(1..=card + card / 2),
        _ => random.random_range(1..=card),
    };
    v1::VirtualCardRequest {
        milli_tflops: blocks * 1000,
        memory_mib: random.random_range(0..4_096),
        span: span.into(),
        kinds: if random.random_bool(0.3) { vec![CardKind::Gpu.into()] } else { Vec::new() },
        mixed: random.random_bool(0.5),
        ..v1::VirtualCardRequest::default()
    }
}

fn labels(random: &mut SmallRng) -> BTreeMap<String, String> {
    let loud = random.random_bool(0.2);
    loud.then(|| (LOUD.0.to_owned(), LOUD.1.to_owned())).into_iter().collect()
}

/// What a worker asks of its host: a few of them fill one.
fn host(random: &mut SmallRng) -> Option<v1::HostRequest> {
    random.random_bool(0.4).then(|| v1::HostRequest {
        milli_cpus: random.random_range(1..=12) * 500,
        memory_mib: random.random_range(0..=8) * 1_024,
    })
}

fn affinity(random: &mut SmallRng, gang: u32) -> Option<v1::Affinity> {
    let key = |random: &mut SmallRng| [ZONE, tessera_ledger::NODE_KEY][random.random_range(0..2)].to_owned();
    let mut wishes = v1::Affinity::default();
    match random.random_range(0..10) {
        0 | 1 if gang > 1 => wishes.together = key(random),
        2 | 3 if gang > 1 => wishes.spread = key(random),
        4 => wishes.avoid = BTreeMap::from([(LOUD.0.to_owned(), LOUD.1.to_owned())]),
        5 => {
            let value = ZONES[random.random_range(0..ZONES.len())].to_owned();
            wishes.preferred = vec![v1::PreferredLabel { key: ZONE.to_owned(), value, weight: 50 }];
        }
        _ => return None,
    }
    Some(wishes)
}

/// The same job on a quarter of a card, so that there is room for it elsewhere.
fn small(job: v1::JobSpec) -> v1::JobSpec {
    let asked = job.virtual_card.unwrap_or_default();
    let milli_tflops = 1_000 + asked.milli_tflops / 1_000 % 4 * 1_000;
    let virtual_card = Some(v1::VirtualCardRequest { milli_tflops, span: Span::Card.into(), ..asked });
    v1::JobSpec { virtual_card, ..job }
}
