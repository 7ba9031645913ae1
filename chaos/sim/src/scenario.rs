//! The decisions of a seed before anything happens: numbers of everything, settings, clocks.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tessera_api::v1::CardKind;
use tessera_consensus::ConsensusConfig;
use tessera_controller::config::Timings;
use tessera_ledger::LeaseTimings;

use crate::interruptions;
use crate::machine::mix;
use crate::operator::Terms;
use crate::process::Drift;
use crate::script::Script;

/// Time with faults in a run with a script.
const SCRIPTED: Duration = Duration::from_secs(38);

/// Time with faults in a run with a stranger: until members listen to one another again, a minute after its last word.
const STRANGE: Duration = Duration::from_secs(94);

/// The same in a run in which both followers are doubled, one after the other, until two members have elected one of
/// them.
const DEAF: Duration = Duration::from_secs(136);

/// Longest time of a run in which everything is interrupted on purpose; it ends when that is done.
const INTERRUPTED: Duration = Duration::from_secs(1_800);

/// One run.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub seed: u64,
    /// Time of the day at which it begins: some time before the windows of workloads close, so that they do and open
    /// again within the run.
    pub begins_at: Duration,
    /// Founding members.
    pub founders: usize,
    /// Machines on which further members can be started.
    pub spares: usize,
    /// The cards of each node.
    pub nodes: Vec<Vec<(CardKind, u64)>>,
    /// Clients that submit.
    pub clients: usize,
    /// Simulated time of one step.
    pub step: Duration,
    /// Time with faults.
    pub trouble: Duration,
    /// Bounds of the network's delay.
    pub latency: (Duration, Duration),
    /// For how long leases are granted at first.
    pub leases: LeaseTimings,
    /// Blocks that graphics cards offer at first, in percent.
    pub offer: u32,
    /// True if jobs are moved without being asked, so that free blocks come together.
    pub compacts: bool,
    /// Log entries that ledgers remember the events of.
    pub event_limit: u64,
    /// Settings of consensus; members have their own files beside.
    pub consensus: ConsensusConfig,
    /// Largest drift of clocks, in millionths.
    pub drift: i32,
    /// Bounds of how long programs compute, in milliseconds.
    pub computes_ms: (u32, u32),
    /// True if clients move jobs above all.
    pub moves: bool,
    /// True if clients submit only such jobs as leave room elsewhere to be moved to.
    pub small: bool,
    /// True if jobs are laid over all cards rather than beside one another.
    pub spread: bool,
    /// True if there are faults at all.
    pub faults: bool,
    /// Faults on purpose, in the place of drawn ones.
    pub script: Option<Script>,
}

impl Scenario {
    /// Makes the scenario that a seed decides.
    pub fn of(seed: u64) -> Self {
        let drawn = Self::drawn(seed);
        let drawn = if drawn.moves { drawn.for_moves() } else { drawn };
        match Script::drawn_by(seed) {
            Some(script) => drawn.with(script),
            None => drawn,
        }
    }

    /// The same with a script, in the pool that it needs.
    #[must_use]
    pub fn with(self, script: Script) -> Self {
        let scripted = Self { script: Some(script), trouble: SCRIPTED, drift: 0, ..self };
        // Few jobs that run for long: what is cut off has something to do, and yet everything ends soon.
        let lasting = |leases| Self { leases, computes_ms: (8_000, 25_000), clients: 1, ..scripted.clone() };
        match script {
            Script::Stranded | Script::Orphaned => lasting(hasty()),
            // As little as may be between the end of a lease and the loss of a node.
            Script::SlowLine => lasting(LeaseTimings { regrant_after: Duration::from_millis(3_750), ..hasty() }),
            Script::Deposed | Script::Retimed => lasting(LeaseTimings::default()),
            Script::Bereaved => lasting(hasty()),
            Script::StalePlans | Script::Blackouts | Script::Astray => {
                Self { computes_ms: (50, 2_000), clients: 3, ..scripted }
            }
            Script::Rolling => scripted,
            Script::Starved => {
                // Nodes enough that none is starved again before it has had its turns.
                let nodes = vec![vec![(CardKind::Gpu, 16), (CardKind::Gpu, 16)]; 3];
                Self { computes_ms: (500, 6_000), clients: 3, leases: hasty(), nodes, ..scripted }
            }
            Script::Moves => Self { computes_ms: (500, 6_000), clients: 3, leases: hasty(), ..scripted }.for_moves(),
            Script::Interrupted => {
                let nodes = vec![vec![(CardKind::Gpu, interruptions::CARD)]; interruptions::NODES];
                let quiet = Self { clients: 0, founders: 3, spares: 0, moves: false, spread: false, ..scripted };
                Self { nodes, leases: brisk(), offer: 100, compacts: false, trouble: INTERRUPTED, ..quiet }
            }
            Script::Stranger | Script::Deafened => {
                // Small: it takes a minute and a half.
                let nodes = vec![vec![(CardKind::Gpu, 16)]; 2];
                let quiet = Self { clients: 1, founders: 3, spares: 0, moves: false, spread: false, ..scripted };
                let small = Self { nodes, small: true, computes_ms: (500, 6_000), leases: brisk(), ..quiet };
                let trouble = if script == Script::Stranger { STRANGE } else { DEAF };
                Self { trouble, step: Duration::from_millis(5), ..small }
            }
            Script::FalseAlarm | Script::Pauses => Self { founders: 3, spares: 0, ..lasting(LeaseTimings::default()) },
            Script::Scattered => {
                let nodes = vec![vec![(CardKind::Gpu, 16), (CardKind::Gpu, 16)]; 4];
                let scattered = Self { clients: 3, nodes, spread: true, small: true, moves: false, ..scripted };
                Self { computes_ms: (3_000, 12_000), offer: 100, compacts: false, ..scattered }
            }
        }
    }

    /// A pool in which jobs can be moved: cards of one kind and size, and jobs that fit beside one another.
    fn for_moves(self) -> Self {
        let nodes = vec![vec![(CardKind::Gpu, 16), (CardKind::Gpu, 16)]; self.nodes.len().clamp(3, 6)];
        Self { moves: true, small: true, nodes, ..self }
    }

    fn drawn(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(mix(seed));
        let founders = if random.random_bool(0.7) { 3 } else { 5 };
        let nodes = match random.random_range(0..100) {
            0..80 => random.random_range(2..=8),
            80..96 => random.random_range(9..=16),
            _ => random.random_range(17..=50),
        };
        let large = nodes > 16;
        let max_latency = [2, 5, 15][random.random_range(0..3)];
        let leases = if random.random_bool(0.25) { LeaseTimings::default() } else { hasty() };
        Self {
            seed,
            begins_at: Duration::from_millis(random.random_range(17_000..37_000)),
            founders,
            spares: 2,
            nodes: (0..nodes).map(|_| cards(&mut random)).collect(),
            clients: random.random_range(1..=5),
            step: Duration::from_millis(if large { 5 } else { [2, 4, 4][random.random_range(0..3)] }),
            trouble: Duration::from_secs(random.random_range(15..40)),
            latency: (Duration::from_micros(200), Duration::from_millis(max_latency)),
            leases,
            offer: [100, 100, 150][random.random_range(0..3)],
            compacts: random.random_bool(0.5),
            event_limit: if random.random_bool(0.4) { 12 } else { 50_000 },
            consensus: consensus(),
            drift: [0, 200, 10_000][random.random_range(0..3)],
            computes_ms: (50, 9_000),
            moves: random.random_bool(0.1),
            small: false,
            spread: random.random_bool(0.3),
            faults: true,
            script: None,
        }
    }

    /// The smallest whole pool, without faults.
    pub fn calm(seed: u64) -> Self {
        let nodes = vec![vec![(CardKind::Gpu, 10), (CardKind::Gpu, 10)], vec![(CardKind::Npu, 16)]];
        let trouble = Duration::from_secs(10);
        Self { founders: 3, spares: 0, nodes, clients: 1, trouble, faults: false, ..Self::drawn(seed) }
    }

    /// Rates of all cards.
    pub fn cards(&self) -> impl Iterator<Item = u64> {
        self.nodes.iter().flatten().map(|(_, tflops)| *tflops)
    }

    /// The settings that the pool is founded with.
    pub fn terms(&self) -> Terms {
        Terms {
            leases: self.leases,
            offer: self.offer,
            compacts: self.compacts,
            spread: self.spread,
            event_limit: self.event_limit,
            tflops: self.cards().sum(),
            cards: self.cards().count() as u64,
        }
    }

    /// A number for one purpose, unrelated to those for others.
    pub fn seed_for(&self, purpose: &str) -> u64 {
        purpose.bytes().fold(mix(self.seed), |seed, byte| mix(seed ^ u64::from(byte)))
    }

    /// The clock of one machine.
    pub fn drift_of(&self, machine: &str) -> Drift {
        let mut random = SmallRng::seed_from_u64(self.seed_for(machine));
        Drift(random.random_range(-self.drift..=self.drift))
    }
}

fn cards(random: &mut SmallRng) -> Vec<(CardKind, u64)> {
    let kinds = [CardKind::Gpu, CardKind::Gpu, CardKind::Npu, CardKind::Fpga];
    let count = random.random_range(1..=3);
    let mut cards: Vec<(CardKind, u64)> =
        (0..count).map(|_| (kinds[random.random_range(0..kinds.len())], random.random_range(4..=20))).collect();
    // Agents declare cards kind by kind.
    cards.sort_by_key(|(kind, _)| *kind);
    cards
}

/// Four times faster than the defaults, so that a run of a minute sees many leases end.
pub fn hasty() -> LeaseTimings {
    LeaseTimings {
        heartbeat: Duration::from_millis(500),
        stop_after: Duration::from_millis(2_250),
        kill_after: Duration::from_millis(3_000),
        regrant_after: Duration::from_millis(5_000),
    }
}

/// Half as fast as that: a change of leader does not use them up.
pub fn brisk() -> LeaseTimings {
    let LeaseTimings { heartbeat, stop_after, kill_after, regrant_after } = hasty();
    LeaseTimings { heartbeat, stop_after: stop_after * 2, kill_after: kill_after * 2, regrant_after: regrant_after * 2 }
}

/// The timings of leaders: intervals of their checks and ticks, and the time that they leave agents to end a job over
/// its limit.
pub fn timings() -> Timings {
    Timings {
        check: Duration::from_millis(250),
        tick: Duration::from_secs(2),
        limit_slack: Duration::from_secs(5),
        ..Timings::default()
    }
}

fn consensus() -> ConsensusConfig {
    ConsensusConfig {
        digest_interval: 16,
        digest_period: Duration::from_secs(1),
        mailbox: 2_048,
        ..ConsensusConfig::default()
    }
}
