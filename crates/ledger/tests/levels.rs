//! Release levels (L7): what needs a level waits for it; it is raised once and never lowered; what was accepted before
//! is accepted whenever the log is replayed.

use tessera_ledger::wire::{WireError, decode_request, decode_snapshot, encode_request, encode_snapshot};
use tessera_ledger::{
    Command, DRILL_QUEUE, Level, Outcome, PoolConfig, QueueSettings, Rejection, Request, RequestId, RequestKey, State,
};

use crate::pool::Pool;
use crate::samples;

fn hold(hold_level: bool) -> Command {
    Command::SetConfig { config: PoolConfig { hold_level, ..PoolConfig::default() }, expected: None }
}

fn drill_queue() -> Command {
    let queue = QueueSettings { name: DRILL_QUEUE.to_owned(), parent: String::new(), ..samples::queue() };
    Command::SetQueue { queue }
}

#[test]
fn what_needs_a_level_is_neither_written_nor_applied_before_it_is_in_force() {
    let mut pool = Pool::begin(State::new(), &[]);
    let refusal = Rejection::LevelNotInForce { needs: Level::Drill, in_force: Level::One };
    assert_eq!(encode_request(&samples::request(Command::Drill), Level::One), Err(refusal.clone()));
    assert_eq!(pool.run(Command::Drill), Outcome::Rejected(refusal));
    assert_eq!(pool.run(Command::RaiseLevel { to: Level::Drill }), Outcome::Done);
    assert!(encode_request(&samples::request(Command::Drill), Level::Drill).is_ok());
    assert_eq!(pool.run(Command::Drill), Outcome::Done);
}

#[test]
fn a_level_is_never_lowered_and_not_raised_while_it_is_held() {
    let mut pool = Pool::begin(State::new(), &[]);
    assert_eq!(pool.state.level(), Level::One);
    pool.run(hold(true));
    let held = Outcome::Rejected(Rejection::LevelHeld { in_force: Level::One });
    assert_eq!(pool.run(Command::RaiseLevel { to: Level::Drill }), held);
    assert_eq!(pool.state.level(), Level::One);
    pool.run(hold(false));
    assert_eq!(pool.run(Command::RaiseLevel { to: Level::Drill }), Outcome::Done);
    assert_eq!(pool.run(Command::RaiseLevel { to: Level::One }), Outcome::Done);
    assert_eq!(pool.state.level(), Level::Drill);
}

#[test]
fn a_new_refusal_changes_nothing_of_what_was_accepted_before() {
    let mut pool = Pool::begin(State::new(), &[]);
    assert_eq!(pool.run(drill_queue()), Outcome::Done, "the rule is not in force");
    assert_eq!(pool.run(Command::RaiseLevel { to: Level::Drill }), Outcome::Done);
    assert!(matches!(pool.run(drill_queue()), Outcome::Rejected(Rejection::Invalid { .. })));
    let mut replayed = State::new();
    for (at, requests) in &pool.log {
        replayed.apply(*at, requests);
    }
    assert!(replayed.queue(DRILL_QUEUE).is_some(), "the entry from before means what it meant");
    assert_eq!(replayed.digest(), pool.state.digest());
}

/// L3: two copies of a request under way at once, the first of which is forgotten before the second is applied.
#[test]
fn a_request_whose_id_was_forgotten_is_not_carried_out_again() {
    let made_at = |ms: u64| RequestId((u128::from(ms) << 80) | (7 << 76) | (2 << 62) | 9);
    let mut pool = Pool::begin(State::new(), &[]);
    // No id that could still be overtaken by an older one is forgotten.
    pool.time += 600_000;
    pool.run(Command::SetConfig { config: PoolConfig { request_limit: 1, ..PoolConfig::default() }, expected: None });
    let mut set = |ms: u64, name: &str| {
        let queue = QueueSettings { name: name.to_owned(), parent: String::new(), ..samples::queue() };
        let request = Request {
            key: Some(RequestKey { id: made_at(ms), fingerprint: ms }),
            ..samples::request(Command::SetQueue { queue })
        };
        pool.apply(&[request]).remove(0)
    };
    assert_eq!(set(1_000, "first"), Outcome::Done);
    assert_eq!(set(1_000, "first"), Outcome::Done, "answered as before");
    assert_eq!(set(2_000, "second"), Outcome::Done);
    assert_eq!(set(1_000, "first"), Outcome::Rejected(Rejection::RequestForgotten));
    assert_eq!(set(2_001, "third"), Outcome::Done);
}

#[test]
fn a_snapshot_keeps_its_level() {
    let mut pool = Pool::begin(State::new(), &[]);
    let read = |state: &State| decode_snapshot(encode_snapshot(state)).expect("it is whole");
    assert_eq!(read(&pool.state).level(), Level::One);
    pool.run(Command::RaiseLevel { to: Level::Drill });
    assert_eq!(read(&pool.state).level(), Level::Drill);
}

#[test]
fn a_level_that_this_release_does_not_know_stops_its_member() {
    let request = Request { key: None, actor: String::new(), command: Command::RaiseLevel { to: Level::One } };
    let mut bytes = encode_request(&request, Level::One).expect("every member that is asked for it can read it");
    let last = bytes.len() - 1;
    assert_eq!(bytes[last], 1, "the level comes last");
    bytes[last] = 7;
    let error = decode_request(&bytes).expect_err("no release has that level");
    assert!(matches!(error, WireError::UnknownLevel { number: 7 }));
    assert_eq!(
        error.to_string(),
        "the pool is at release level 7, and this release goes up to 1: start the release that brought that level or a \
         newer one"
    );
}
