//! The timings of leases: which are taken, and that nobody ever waits for less than what may be out there (law L2).

use std::time::Duration;

use proptest::prelude::*;
use tessera_ledger::wire::{decode_snapshot, encode_snapshot};
use tessera_ledger::{CardKind, Command, LeaseTimings, Outcome, PoolConfig, Rejection, Revision};

use crate::pool::{Pool, card};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Timings as the default ones are to one another, so many times as long.
fn times(factor: u32) -> LeaseTimings {
    let plain = LeaseTimings::default();
    LeaseTimings {
        heartbeat: plain.heartbeat * factor / 2,
        stop_after: plain.stop_after * factor / 2,
        kill_after: plain.kill_after * factor / 2,
        regrant_after: plain.regrant_after * factor / 2,
    }
}

fn set(pool: &mut Pool, leases: LeaseTimings) -> Outcome {
    let config = PoolConfig { leases, ..pool.state.config().clone() };
    pool.run(Command::SetConfig { config, expected: None })
}

fn settle(pool: &mut Pool, changed_at: Revision) -> Outcome {
    pool.run(Command::SettleLeases { changed_at })
}

fn ceiling(pool: &Pool) -> Duration {
    pool.state.lease_ceiling().regrant_after
}

/// A pool with a node, so that leases may be out.
fn busy_pool() -> Pool {
    Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]])
}

#[test]
fn each_broken_rule_is_refused_by_its_name_and_changes_nothing() {
    let plain = LeaseTimings::default();
    let broken = [
        (LeaseTimings { heartbeat: Duration::from_millis(19), ..plain }, "heartbeat", "at least 20 ms"),
        (LeaseTimings { heartbeat: seconds(61), ..times(100) }, "heartbeat", "at most a minute"),
        (LeaseTimings { heartbeat: seconds(4), ..plain }, "stop_after", "three heartbeats"),
        (LeaseTimings { kill_after: seconds(9), ..plain }, "kill_after", "half a heartbeat"),
        (LeaseTimings { regrant_after: seconds(14), ..plain }, "regrant_after", "a quarter longer"),
        (LeaseTimings { regrant_after: seconds(24 * 3600 + 1), ..plain }, "regrant_after", "at most a day"),
        (
            LeaseTimings { heartbeat: Duration::MAX, stop_after: Duration::MAX, ..plain },
            "heartbeat",
            "at most a minute",
        ),
        (
            LeaseTimings { stop_after: Duration::MAX, kill_after: Duration::MAX, ..plain },
            "regrant_after",
            "a quarter longer",
        ),
    ];
    let mut pool = busy_pool();
    for (timings, name, rule) in broken {
        let outcome = set(&mut pool, timings);
        let Outcome::Rejected(Rejection::Invalid { field, problem }) = outcome else {
            panic!("{timings:?} must be refused: {outcome:?}")
        };
        assert_eq!(field, format!("config.leases.{name}"));
        assert!(problem.contains(rule), "{problem}");
        assert_eq!((pool.state.config().leases, ceiling(&pool)), (plain, plain.regrant_after));
    }
}

#[test]
fn shorter_timings_hold_at_once_and_the_longer_leases_are_waited_for_until_they_are_over() {
    let mut pool = busy_pool();
    assert_eq!(set(&mut pool, times(1)), Outcome::Done);
    assert_eq!((pool.state.config().leases, ceiling(&pool)), (times(1), times(2).regrant_after));
    let shortened = pool.state.lease_ceiling().changed_at;

    assert_eq!(set(&mut pool, times(3)), Outcome::Done);
    assert_eq!(ceiling(&pool), times(3).regrant_after, "longer ones count at once");
    assert_eq!(settle(&mut pool, shortened), Outcome::Rejected(Rejection::ConfigChanged));

    assert_eq!(set(&mut pool, times(1)), Outcome::Done);
    let last = pool.state.lease_ceiling().changed_at;
    assert_eq!(ceiling(&pool), times(3).regrant_after);
    assert_eq!(settle(&mut pool, last), Outcome::Done);
    assert_eq!(ceiling(&pool), times(1).regrant_after);
    assert_eq!(settle(&mut pool, last), Outcome::Done, "said twice it changes nothing");
}

#[test]
fn what_is_said_again_is_no_change() {
    let mut pool = busy_pool();
    set(&mut pool, times(1));
    let before = pool.state.lease_ceiling();
    set(&mut pool, times(1));
    assert_eq!(pool.state.lease_ceiling(), before, "the leader goes on counting from the first time");
}

#[test]
fn nothing_is_waited_for_where_there_never_was_a_node() {
    let mut pool = Pool::with_nodes(&[]);
    set(&mut pool, times(1));
    assert_eq!(ceiling(&pool), times(1).regrant_after);
}

/// A later member reads from a snapshot the ceiling that the log established.
#[test]
fn the_ceiling_outlives_a_snapshot() {
    let mut pool = busy_pool();
    set(&mut pool, times(1));
    let read = decode_snapshot(encode_snapshot(&pool.state)).expect("it was just written");
    assert_eq!(read.lease_ceiling(), pool.state.lease_ceiling());
    assert_eq!(read.config().leases, times(1));
}

/// An event of a pool whose timings are changed while leaders come and go. Times are in seconds.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Time passes.
    Wait(u64),
    /// The leader grants a lease.
    Grant,
    /// An operator changes the timings.
    Set(u32),
    /// Another member wins.
    Elect,
    /// The leader looks whether what it waited for is over, and proposes that.
    Look,
    /// The oldest proposal that has not been applied is applied: proposals may be under way for long.
    Apply,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..40).prop_map(Step::Wait),
        4 => Just(Step::Grant),
        2 => (1u32..8).prop_map(Step::Set),
        1 => Just(Step::Elect),
        4 => Just(Step::Look),
        4 => Just(Step::Apply),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn nobody_waits_for_less_than_what_may_be_out(steps in prop::collection::vec(step(), 1..80)) {
        let mut pool = busy_pool();
        let (mut now, mut began) = (seconds(1_000), seconds(1_000));
        let mut seen = (Revision(0), began);
        let mut leases: Vec<(Duration, LeaseTimings)> = vec![];
        let mut proposed: Vec<Revision> = vec![];
        for step in steps {
            match step {
                Step::Wait(time) => now += seconds(time),
                Step::Grant => leases.push((now, pool.state.config().leases)),
                Step::Set(factor) => {
                    set(&mut pool, times(factor));
                }
                Step::Elect => (began, seen) = (now, (Revision(0), now)),
                Step::Look => {
                    let at = pool.state.lease_ceiling();
                    if seen.0 != at.changed_at {
                        seen = (at.changed_at, now);
                    }
                    if now - seen.1.max(began) >= at.regrant_after {
                        proposed.push(at.changed_at);
                    }
                }
                Step::Apply => if !proposed.is_empty() {
                    settle(&mut pool, proposed.remove(0));
                },
            }
            leases.retain(|(granted, under)| now - *granted < under.regrant_after);
            for (granted, under) in &leases {
                prop_assert!(
                    ceiling(&pool) >= under.regrant_after,
                    "a lease of {granted:?} runs under {under:?} at {now:?}, and {:?} are waited", ceiling(&pool)
                );
            }
        }
    }
}
