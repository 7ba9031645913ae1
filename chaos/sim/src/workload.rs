//! Jobs as engineers submit them: of every size and shape, in several queues, alone and in gangs, with wishes and
//! without.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use tessera_api::v1::{self, CardKind, CheckpointMode, OnDisconnect, Packing, Span};

/// Queues with guarantees, and what each is guaranteed of the pool, in percent. What the rest of it runs is on loan
/// from them.
pub const TENANTS: [(&str, u64); 2] = [("blue", 40), ("red", 30)];
/// The queue whose jobs are not to hold blocks that they do nothing with.
pub const WITH_LADDER: &str = "desk";
/// The label of its jobs that may nevertheless, and its value.
pub const KEPT: (&str, &str) = ("tessera.idle", "keep");
/// The queue whose jobs run in a part of each minute.
pub const SHIFT: &str = "shift";
/// That part.
pub const SHIFT_WINDOW: Window = Window { text: "* * * * * for 45s", lasts: Duration::from_secs(45) };
/// The part in which jobs run that have windows of their own.
pub const OWN_WINDOW: Window = Window { text: "* * * * * for 48s in Europe/Berlin", lasts: Duration::from_secs(48) };
/// A queue that nobody ever makes.
const NOBODYS_QUEUE: &str = "nobody";
/// The label of nodes that wishes are about, and its values.
pub const ZONE: &str = "zone";
/// See [`ZONE`].
pub const ZONES: [&str; 2] = ["north", "south"];
/// The least time that gangs compute which may grow: leaders look for room every five seconds.
const GROWING_MS: u32 = 6_000;
/// The label of jobs that others avoid.
const LOUD: (&str, &str) = ("noise", "loud");

/// A time window that opens at the beginning of each minute.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// As it is written.
    pub text: &'static str,
    /// Duration for which it stays open.
    pub lasts: Duration,
}

/// The steps that are taken for a job of [`WITH_LADDER`] that computes nothing.
pub struct Ladder;

impl Ladder {
    /// After so long it is said.
    pub const TOLD_AFTER: Duration = Duration::from_millis(1_500);
    /// After so long others may have its blocks.
    pub const GIVES_WAY_AFTER: Duration = Duration::from_millis(2_500);
    /// After so long it is suspended: time enough to begin again, and for what is saved now and then to be kept.
    pub const SUSPENDED_AFTER: Duration = Duration::from_secs(4);
    /// After so long it is ended.
    pub const AFTER_ALL: Duration = Duration::from_secs(9);

    /// As the operator sets it.
    pub fn to_wire() -> v1::IdlePolicy {
        let after = |time: Duration| prost_types::Duration::try_from(time).ok();
        v1::IdlePolicy {
            below_percent: 10,
            notify_after: after(Self::TOLD_AFTER),
            preemptible_after: after(Self::GIVES_WAY_AFTER),
            suspend_after: after(Self::SUSPENDED_AFTER),
            release_after: after(Self::AFTER_ALL),
        }
    }
}

/// Properties of the jobs of one client.
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

/// With how many virtual cards a job runs.
struct Gang {
    size: u32,
    least: Option<u32>,
    grow_after: Option<prost_types::Duration>,
}

impl Gang {
    fn of(random: &mut SmallRng) -> Self {
        let size = if random.random_bool(0.65) { 1 } else { random.random_range(2..=4) };
        let elastic = size > 1 && random.random_bool(0.75);
        let least = elastic.then(|| random.random_range(1..size));
        let grows = elastic && random.random_bool(0.4);
        let grow_after = if grows { duration(random.random_range(1_000..3_000)) } else { None };
        Self { size, least, grow_after }
    }
}

/// The way in which a job saves its computed work.
struct Saving {
    cooperative: bool,
    every: Option<prost_types::Duration>,
}

impl Saving {
    /// Some way; one by which work goes on whatever happens, if that `must` be.
    fn of(random: &mut SmallRng, must: bool) -> Self {
        let cooperative = must || random.random_bool(0.35);
        let often = must || cooperative && random.random_bool(0.5);
        let every = if often { duration(random.random_range(1_000..2_500)) } else { None };
        Self { cooperative, every }
    }

    fn policy(&self, random: &mut SmallRng) -> v1::CheckpointPolicy {
        let mode = if self.cooperative { CheckpointMode::Cooperative } else { CheckpointMode::Requeue };
        v1::CheckpointPolicy {
            mode: mode.into(),
            grace: duration(random.random_range(100..3_000)),
            every: self.every,
            ..v1::CheckpointPolicy::default()
        }
    }
}

/// A pause in the life of a program, in which it computes nothing: most programs have none, and none has two.
struct Pause {
    from_ms: u32,
    lasts_ms: u32,
}

impl Pause {
    /// One that would never come to its end if it were suspended for it pauses for a shorter time.
    fn of(random: &mut SmallRng, queue: &str, saving: &Saving) -> Option<Self> {
        let likely = if queue == WITH_LADDER { 0.65 } else { 0.04 };
        let lasts_ms = match saving.every {
            None => 500..3_000,
            Some(_) if random.random_bool(0.2) => 11_000..14_000,
            Some(_) => 3_000..7_000,
        };
        random
            .random_bool(likely)
            .then(|| Self { from_ms: random.random_range(0..1_500), lasts_ms: random.random_range(lasts_ms) })
    }
}

fn shaped(random: &mut SmallRng, taste: &Taste) -> v1::JobSpec {
    let queue = queue(random);
    let Gang { size: gang, least, grow_after } = Gang::of(random);
    let grows = grow_after.is_some();
    // Only what is saved now and then may grow, and only what runs for a while is looked at.
    let (shortest, longest) = taste.computes_ms;
    let computes_ms =
        if grows { (shortest.max(GROWING_MS), longest.max(GROWING_MS + 4_000)) } else { taste.computes_ms };
    let must_save = grows || queue == WITH_LADDER && random.random_bool(0.8);
    let saving = Saving::of(random, must_save);
    let pause = Pause::of(random, queue, &saving);
    v1::JobSpec {
        name: "simulated".to_owned(),
        queue: queue.to_owned(),
        command: vec!["compute".to_owned()],
        environment: behaviour(random, computes_ms, pause),
        gang,
        gang_min: least,
        grow_after,
        virtual_card: Some(virtual_card(random, taste)),
        priority: Some([10, 50, 50, 90][random.random_range(0..4)]),
        preemptible: Some(random.random_bool(0.8)),
        checkpoint: Some(saving.policy(random)),
        on_disconnect: if random.random_bool(0.15) { OnDisconnect::Keep } else { OnDisconnect::Stop }.into(),
        time_limit: if random.random_bool(0.2) { duration(random.random_range(1_000..6_000)) } else { None },
        retry: Some(v1::RetryPolicy {
            max_retries: random.random_range(0..3),
            backoff: duration(200),
            max_backoff: duration(1_000),
        }),
        labels: labels(random, queue),
        held: random.random_bool(0.05),
        host: host(random),
        min_runtime: if random.random_bool(0.1) { duration(random.random_range(500..3_000)) } else { None },
        affinity: affinity(random, gang),
        windows: if random.random_bool(0.05) { vec![OWN_WINDOW.text.to_owned()] } else { Vec::new() },
        packing: [Packing::Unspecified, Packing::Unspecified, Packing::Stack, Packing::Spread]
            [random.random_range(0..4)]
        .into(),
        ..v1::JobSpec::default()
    }
}

fn queue(random: &mut SmallRng) -> &'static str {
    match random.random_range(0..100) {
        0..28 => TENANTS[0].0,
        28..46 => TENANTS[1].0,
        46..57 => WITH_LADDER,
        57..68 => SHIFT,
        68..97 => "",
        _ => NOBODYS_QUEUE,
    }
}

fn behaviour(random: &mut SmallRng, (least, most): (u32, u32), pause: Option<Pause>) -> BTreeMap<String, String> {
    let computes_ms = random.random_range(least..most);
    // One that pauses for long computes for little, or runs would be long.
    let runs_ms = pause.as_ref().map_or(computes_ms, |pause| pause.from_ms + pause.lasts_ms + computes_ms.min(2_000));
    let still = pause.map(|pause| [("STILL_FROM_MS", pause.from_ms), ("STILL_MS", pause.lasts_ms)]);
    let all = [
        ("RUN_MS", runs_ms),
        ("EXIT", u32::from(random.random_bool(0.12))),
        ("STOP_MS", random.random_range(5..4_000u32)),
    ];
    let all = all.into_iter().chain(still.into_iter().flatten());
    all.map(|(name, value)| (name.to_owned(), value.to_string())).collect()
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

fn labels(random: &mut SmallRng, queue: &str) -> BTreeMap<String, String> {
    let loud = random.random_bool(0.2).then_some(LOUD);
    let kept = (queue == WITH_LADDER && random.random_bool(0.15)).then_some(KEPT);
    loud.into_iter().chain(kept).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// The host request of a worker: a few of them fill one host.
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
