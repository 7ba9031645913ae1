//! The end of leases, whoever granted them.

use tessera_ledger::{Command, Outcome, PoolConfig, State};

use super::*;
use crate::fixture::Ledger;

const REGRANT: Duration = Duration::from_secs(20);

fn table() -> (Leases, Ledger, NodeId) {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    (Leases::new(Instant::now(), &ledger.state), ledger, node)
}

/// Timings as the default ones are to one another, so many times as long.
fn times(factor: u32) -> LeaseTimings {
    let plain = LeaseTimings::default();
    LeaseTimings {
        heartbeat: plain.heartbeat * factor,
        stop_after: plain.stop_after * factor,
        kill_after: plain.kill_after * factor,
        regrant_after: plain.regrant_after * factor,
    }
}

fn set(ledger: &mut Ledger, leases: LeaseTimings) {
    let config = PoolConfig { leases, ..ledger.state.config().clone() };
    assert_eq!(ledger.apply(Command::SetConfig { config, expected: None }), Outcome::Done);
}

/// Has the ceiling lowered if the table says that it may be; answers whether it did.
fn settle(leases: &mut Leases, ledger: &mut Ledger, now: Instant) -> bool {
    let settled = leases.settled(now, &ledger.state);
    settled.is_some_and(|changed_at| ledger.apply(Command::SettleLeases { changed_at }) == Outcome::Done)
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_waits_the_full_time_since_it_won() {
    let (leases, ledger, node) = table();
    let won = Instant::now();
    assert!(!leases.is_over(node, won + REGRANT - Duration::from_millis(1), &ledger.state));
    assert!(leases.is_over(node, won + REGRANT, &ledger.state));
}

#[tokio::test(start_paused = true)]
async fn what_is_heard_moves_the_end_and_never_back() {
    let (mut leases, ledger, node) = table();
    let won = Instant::now();
    leases.heard(node, won + Duration::from_secs(5));
    leases.heard(node, won + Duration::from_secs(3));
    assert!(!leases.is_over(node, won + REGRANT + Duration::from_secs(4), &ledger.state));
    assert!(leases.is_over(node, won + REGRANT + Duration::from_secs(5), &ledger.state));
}

#[tokio::test(start_paused = true)]
async fn a_condemned_node_gets_no_lease_until_the_ledger_has_answered() {
    let (mut leases, mut ledger, node) = table();
    let late = Instant::now() + REGRANT;
    let condemn = |leases: &mut Leases, now, state: &State| leases.condemn(node, Epoch(1), now, state);
    assert!(!condemn(&mut leases, late - Duration::from_secs(1), &ledger.state), "its lease may still run");
    assert_eq!(leases.grant(node, late, &ledger.state), Ok(LeaseTimings::default()));
    let later = late + REGRANT;
    assert!(condemn(&mut leases, later, &ledger.state));
    assert_eq!(leases.grant(node, later, &ledger.state), Err(Withheld::Lost), "its loss may be in the log");
    leases.heard(node, later);
    assert!(condemn(&mut leases, later, &ledger.state), "it stays condemned even when it is heard");
    ledger.lose(node);
    leases.spare(node);
    assert_eq!(leases.grant(node, later, &ledger.state), Err(Withheld::Lost), "now the ledger says so");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_node_gets_no_lease() {
    let (mut leases, ledger, _) = table();
    assert_eq!(leases.grant(NodeId(9), Instant::now(), &ledger.state), Err(Withheld::Lost));
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_before_timings_were_shortened_is_waited_for() {
    let (mut leases, mut ledger, node) = table();
    set(&mut ledger, times(3));
    let won = Instant::now();
    assert_eq!(leases.grant(node, won, &ledger.state), Ok(times(3)));
    set(&mut ledger, times(1));
    assert!(!leases.is_over(node, won + REGRANT, &ledger.state), "work may run for 36 s under this lease");
    assert!(!leases.is_over(node, won + 3 * REGRANT - Duration::from_millis(1), &ledger.state));
    assert!(leases.is_over(node, won + 3 * REGRANT, &ledger.state));
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_waits_for_leases_of_before_timings_were_shortened() {
    let (mut leases, mut ledger, node) = table();
    set(&mut ledger, times(3));
    let granted = Instant::now();
    assert_eq!(leases.grant(node, granted, &ledger.state), Ok(times(3)));
    set(&mut ledger, times(1));
    let won = granted + Duration::from_secs(1);
    let mut next = Leases::new(won, &ledger.state);
    assert!(!next.condemn(node, Epoch(1), won + REGRANT, &ledger.state), "work may run for 36 s under that lease");
    assert!(next.condemn(node, Epoch(1), won + 3 * REGRANT, &ledger.state));
}

#[tokio::test(start_paused = true)]
async fn a_leader_lowers_the_ceiling_when_it_has_led_for_so_long_since_the_change() {
    let (mut leases, mut ledger, node) = table();
    let won = Instant::now();
    assert!(!settle(&mut leases, &mut ledger, won + 5 * REGRANT), "nothing was changed");
    set(&mut ledger, times(3));
    set(&mut ledger, times(1));
    let seen = won + 5 * REGRANT;
    assert!(!settle(&mut leases, &mut ledger, seen));
    assert!(!settle(&mut leases, &mut ledger, seen + 3 * REGRANT - Duration::from_millis(1)));

    // Changed again, the time begins again; and so it does for whoever leads next.
    set(&mut ledger, times(2));
    let again = seen + 3 * REGRANT;
    assert!(!settle(&mut leases, &mut ledger, again));
    let mut next = Leases::new(again + REGRANT, &ledger.state);
    assert!(!settle(&mut next, &mut ledger, again + REGRANT));
    assert!(!settle(&mut next, &mut ledger, again + 4 * REGRANT - Duration::from_millis(1)));
    assert!(settle(&mut next, &mut ledger, again + 4 * REGRANT));
    assert!(!settle(&mut next, &mut ledger, again + 9 * REGRANT), "once is enough");
    next.heard(node, again + 5 * REGRANT);
    assert!(next.is_over(node, again + 7 * REGRANT, &ledger.state), "from then on what is in force is enough");
}
