//! The laws of rounds, over cards, workers and programs of any kind: played through with time that is made up.

use proptest::prelude::*;
use tessera_ledger::{AllocationId, Epoch, Rank};

use super::*;

const TERMS: Terms = Terms { round: Duration::from_millis(500), quantum: Duration::from_millis(10) };
const ROUND: f64 = 0.5;
const QUANTUM: f64 = 0.01;
/// The longest delay of a turn beyond its time, in seconds.
const LATE: f64 = 0.004;

fn id(number: u64) -> WorkerId {
    WorkerId { allocation: AllocationId(number), epoch: Epoch(1), rank: Rank(0) }
}

fn tenant(number: u64, blocks: &[(u32, u32)], elastic: bool) -> Tenant {
    Tenant { worker: id(number), blocks: blocks.to_vec(), elastic }
}

/// The results of some rounds.
#[derive(Debug, Default)]
struct Played {
    /// Seconds that each computed or could have.
    ran: BTreeMap<WorkerId, f64>,
    /// The lent part of `ran`.
    lent: BTreeMap<WorkerId, f64>,
    /// All of it, and the time of nobody.
    seconds: f64,
    /// The number of times that a worker was put on the card.
    switches: u32,
    /// Longest time between two turns.
    waited: BTreeMap<WorkerId, f64>,
    last: BTreeMap<WorkerId, f64>,
    runs: Option<WorkerId>,
}

impl Played {
    fn ratio(&self, number: u64) -> f64 {
        self.ran.get(&id(number)).copied().unwrap_or_default() / self.seconds
    }

    /// Plays a round. `late` says how much longer each turn takes, `busy` who computes.
    fn round(
        &mut self,
        rounds: &mut Rounds,
        late: &mut dyn FnMut() -> f64,
        busy: &dyn Fn(WorkerId) -> bool,
    ) -> Vec<Turn> {
        let mut turns = Vec::new();
        while let Some(turn) = rounds.next_turn() {
            assert!(turn.seconds > 0.0 && turn.seconds <= ROUND + 2.0 * QUANTUM, "{turn:?}");
            let took = turn.seconds + late();
            if let Some(worker) = turn.whose {
                let waited = self.waited.entry(worker).or_default();
                *waited = waited.max(self.seconds - self.last.get(&worker).copied().unwrap_or_default());
                *self.ran.entry(worker).or_default() += took;
                if turn.kind == Kind::Lent {
                    *self.lent.entry(worker).or_default() += took;
                }
                self.switches += u32::from(self.runs != Some(worker));
                self.last.insert(worker, self.seconds + took);
            }
            self.runs = turn.whose;
            self.seconds += took;
            rounds.over(turn, Duration::from_secs_f64(took), turn.whose.is_some_and(busy));
            turns.push(turn);
        }
        turns
    }
}

fn play(blocks: u32, tenants: &[Tenant], count: u32, busy: impl Fn(WorkerId) -> bool) -> Played {
    let (mut rounds, mut played) = (Rounds::new(TERMS), Played::default());
    for _ in 0..count {
        rounds.begin(blocks, tenants.to_vec());
        played.round(&mut rounds, &mut || 0.0, &busy);
    }
    played
}

#[test]
fn a_round_follows_the_numbers_of_blocks_and_compaction_spares_switches() {
    let scattered = [tenant(1, &[(0, 4), (8, 4)], false), tenant(2, &[(4, 4), (12, 4)], false)];
    let compact = [tenant(1, &[(0, 8)], false), tenant(2, &[(8, 8)], false)];
    let mut rounds = Rounds::new(TERMS);
    rounds.begin(16, scattered.to_vec());
    let turns = Played::default().round(&mut rounds, &mut || 0.0, &|_| true);
    let order: Vec<_> = turns.iter().map(|turn| turn.whose).collect();
    assert_eq!(order, [1, 2, 1, 2].map(|number| Some(id(number))));
    let switches = |tenants: &[Tenant]| play(16, tenants, 100, |_| true).switches;
    assert_eq!((switches(&scattered), switches(&compact)), (400, 200));
}

#[test]
fn a_strict_worker_stands_still_while_nobody_s_blocks_come_round_and_an_elastic_one_does_not() {
    let strict = play(16, &[tenant(1, &[(0, 4)], false)], 20, |_| true);
    assert!((strict.ratio(1) - 0.25).abs() < 0.001, "{strict:?}");
    let mut rounds = Rounds::new(TERMS);
    rounds.begin(16, vec![tenant(1, &[(0, 4)], true)]);
    assert_eq!(rounds.only(), Some(id(1)), "nobody has to stand still for it");
    rounds.begin(16, vec![tenant(1, &[(0, 4)], false)]);
    assert_eq!(rounds.only(), None);
    rounds.begin(16, vec![tenant(1, &[(0, 16)], false)]);
    assert_eq!(rounds.only(), Some(id(1)), "all of it is its own");
}

#[test]
fn rounds_and_turns_are_as_long_as_is_set() {
    let tenants = [tenant(1, &[(0, 1)], false), tenant(2, &[(1, 63)], false)];
    // The turns of the small one in eight rounds, and the seconds of all.
    let played = |round, quantum| {
        let (mut rounds, mut turns, mut seconds) = (Rounds::new(Terms { round, quantum }), 0, 0.0);
        for _ in 0..8 {
            rounds.begin(64, tenants.to_vec());
            while let Some(turn) = rounds.next_turn() {
                turns += u32::from(turn.whose == Some(id(1)));
                seconds += turn.seconds;
                rounds.over(turn, Duration::from_secs_f64(turn.seconds), true);
            }
        }
        (turns, seconds)
    };
    let [short, long] = [200, 800].map(Duration::from_millis);
    let (fine, coarse) = (Duration::from_millis(2), Duration::from_millis(10));
    let (turns, seconds) = played(short, fine);
    assert_eq!(turns, 8, "3 ms of each round are a turn");
    assert!((seconds - 1.6).abs() < 0.05, "{seconds}");
    assert!((played(long, fine).1 - 6.4).abs() < 0.05);
    assert!((1..=3).contains(&played(short, coarse).0), "what is less than a turn comes together over some rounds");
}

#[test]
fn time_that_is_not_used_is_lent_and_back_within_a_round() {
    let tenants = [tenant(1, &[(0, 8)], false), tenant(2, &[(8, 4)], true), tenant(3, &[(12, 4)], false)];
    let (mut rounds, mut played) = (Rounds::new(TERMS), Played::default());
    for _ in 0..20 {
        rounds.begin(16, tenants.to_vec());
        played.round(&mut rounds, &mut || 0.0, &|worker| worker != id(1));
    }
    // Its first turn was its own, and later it was looked once in a round whether it has work.
    assert!(played.lent[&id(2)] > 18.0 * (ROUND / 2.0 - QUANTUM), "{played:?}");
    assert!((played.ratio(3) - 0.25).abs() < 0.01, "a strict one is lent nothing: {played:?}");
    let mut again = Played::default();
    rounds.begin(16, tenants.to_vec());
    again.round(&mut rounds, &mut || 0.0, &|_| true);
    assert!((again.ran[&id(1)] - ROUND / 2.0).abs() < 0.001, "{again:?}");
    assert!(again.lent.is_empty(), "nothing is left to be lent");
}

#[test]
fn what_is_lent_is_divided_by_what_the_borrowers_hold() {
    let tenants = [tenant(1, &[(0, 1)], true), tenant(2, &[(1, 3)], true)];
    let played = play(16, &tenants, 200, |_| true);
    let lent = played.lent[&id(2)] / played.lent[&id(1)];
    assert!((lent - 3.0).abs() < 0.2, "{lent}");
}

#[test]
fn a_worker_that_leaves_or_comes_in_the_middle_disturbs_nobody() {
    let (mut rounds, mut played) = (Rounds::new(TERMS), Played::default());
    let two = [tenant(1, &[(0, 8)], false), tenant(2, &[(8, 4)], false)];
    rounds.begin(16, two.to_vec());
    let first = rounds.next_turn().expect("a turn");
    rounds.leave(id(1));
    rounds.over(first, Duration::from_millis(100), true);
    let rest = played.round(&mut rounds, &mut || 0.0, &|_| true);
    assert!(rest.iter().all(|turn| turn.whose != Some(id(1))) && played.ran.contains_key(&id(2)), "{rest:?}");
    // Another takes its blocks: it owes nothing for the one before.
    let mut later = Played::default();
    for _ in 0..10 {
        rounds.begin(16, vec![tenant(3, &[(0, 8)], false), two[1].clone()]);
        later.round(&mut rounds, &mut || 0.0, &|_| true);
    }
    assert!((later.ratio(3) - 0.5).abs() < 0.001 && (later.ratio(2) - 0.25).abs() < 0.001, "{later:?}");
}

#[test]
fn an_agent_that_was_stopped_locks_nobody_out_for_long() {
    let tenants = [tenant(1, &[(0, 8)], false), tenant(2, &[(8, 8)], false)];
    let mut rounds = Rounds::new(TERMS);
    rounds.begin(16, tenants.to_vec());
    let first = rounds.next_turn().expect("a turn");
    rounds.over(first, Duration::from_secs(60), true);
    let mut played = Played::default();
    for _ in 0..4 {
        rounds.begin(16, tenants.to_vec());
        played.round(&mut rounds, &mut || 0.0, &|_| true);
    }
    assert!(played.ran.get(&id(1)).is_some_and(|ran| *ran > ROUND / 2.0), "{played:?}");
}

/// Blocks in runs of some length, each of one of up to five workers or of nobody, and who of them is elastic.
fn cards() -> impl Strategy<Value = (u32, Vec<Tenant>)> {
    let runs = prop::collection::vec((0_u64..6, 1_u32..40), 1..12);
    (runs, prop::collection::vec(any::<bool>(), 6)).prop_map(|(runs, elastic)| {
        let (mut next, mut tenants) = (0, BTreeMap::<u64, Tenant>::new());
        for (whose, count) in runs {
            if whose > 0 {
                let held = tenants.entry(whose).or_insert_with(|| tenant(whose, &[], elastic[whose as usize]));
                held.blocks.push((next, count));
            }
            next += count;
        }
        (next, tenants.into_values().collect())
    })
}

proptest! {
    #[test]
    fn shares_hold_nobody_starves_and_strict_workers_get_no_more(
        (blocks, tenants) in cards(),
        late in prop::collection::vec(0.0..LATE, 97),
    ) {
        let (mut rounds, mut played, mut turn) = (Rounds::new(TERMS), Played::default(), 0);
        let mut late = || { turn += 1; late[turn % late.len()] };
        let mut due = 0.0;
        for _ in 0..400 {
            rounds.begin(blocks, tenants.clone());
            played.round(&mut rounds, &mut late, &|_| true);
            due += ROUND;
        }
        for tenant in &tenants {
            let share = held(tenant) / f64::from(blocks);
            let ran = played.ran.get(&tenant.worker).copied().unwrap_or_default();
            let lent = played.lent.get(&tenant.worker).copied().unwrap_or_default();
            // What it got of its own is what it holds, but for the last turn.
            let missed = share * due - (ran - lent);
            prop_assert!(missed.abs() <= share * ROUND + 2.0 * QUANTUM + LATE, "{tenant:?}: {missed} of {due}");
            prop_assert!(tenant.elastic || lent == 0.0);
            // In one round, or in as many as it takes to earn the turn before and a quantum.
            let longest = ((QUANTUM + LATE) / (share * ROUND)).ceil() + 1.0;
            let waited = played.waited[&tenant.worker];
            prop_assert!(waited <= longest * (ROUND + QUANTUM + LATE * 24.0), "{tenant:?} waited {waited}");
        }
    }

    #[test]
    fn turns_come_in_the_order_of_blocks((blocks, tenants) in cards()) {
        let mut rounds = Rounds::new(TERMS);
        for _ in 0..4 {
            rounds.begin(blocks, tenants.clone());
            let turns = Played::default().round(&mut rounds, &mut || 0.0, &|_| true);
            let own: Vec<_> = turns.iter().filter(|turn| turn.kind == Kind::Own).filter_map(|turn| turn.whose).collect();
            let mut in_order: Vec<(u32, WorkerId)> =
                tenants.iter().flat_map(|tenant| tenant.blocks.iter().map(|run| (run.0, tenant.worker))).collect();
            in_order.sort_unstable();
            // Some may be left out; none is out of its place.
            let mut left = in_order.iter().map(|(_, worker)| *worker);
            prop_assert!(own.iter().all(|worker| left.any(|next| next == *worker)), "{own:?} in {in_order:?}");
        }
    }

    #[test]
    fn idle_workers_keep_nobody_from_the_card(
        (blocks, tenants) in cards(),
        idle in prop::collection::vec(any::<bool>(), 6),
    ) {
        let works = |worker: WorkerId| !idle[worker.allocation.0 as usize];
        let played = play(blocks, &tenants, 100, works);
        let elastic: Vec<_> = tenants.iter().filter(|tenant| tenant.elastic && works(tenant.worker)).collect();
        let strict = tenants.iter().filter(|tenant| !tenant.elastic && works(tenant.worker));
        let busy: f64 = tenants.iter().filter(|one| works(one.worker)).filter_map(|one| played.ran.get(&one.worker)).sum();
        if !elastic.is_empty() {
            // All but the looks at those that do nothing, and the first round.
            let looks = tenants.len() as f64 * QUANTUM / ROUND;
            prop_assert!(busy >= played.seconds * (0.98 - looks), "{busy} of {}", played.seconds);
        }
        for tenant in strict {
            let share = held(tenant) / f64::from(blocks);
            let ran = played.ran.get(&tenant.worker).copied().unwrap_or_default();
            prop_assert!(ran <= share * ROUND * 100.0 + 2.0 * QUANTUM, "{tenant:?}: {ran}");
        }
    }
}
