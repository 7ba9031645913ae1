//! Tests of the commands about windows that the judge sends to a ledger, applied to one.

#![allow(clippy::panic, clippy::unreachable, clippy::unwrap_used, reason = "a test fails by a panic")]

use tessera_calendar::Judge;
use tessera_ledger::{Command, JobId, JobSpec, Level, LogTime, Outcome, State, UNKNOWN, WindowOf};

/// Friday, 27 November 2026, at this hour and minute, UTC.
fn friday(hour: u64, minute: u64) -> LogTime {
    LogTime(1_795_737_600_000 + (hour * 60 + minute) * 60_000)
}

struct Pool(State);

impl Pool {
    fn apply(&mut self, time: LogTime, command: Command) -> Outcome {
        tessera_testkit::apply(&mut self.0, time, command)
    }

    fn submit(&mut self, time: LogTime, window: &str) -> JobId {
        let spec = JobSpec { windows: vec![window.to_owned()], ..tessera_testkit::job(1, 0) };
        match self.apply(time, tessera_testkit::submission(spec)) {
            Outcome::Submitted(job) => job,
            other => panic!("{other:?}"),
        }
    }

    /// Looks at all windows and tells the ledger what is due.
    fn look(&mut self, judge: &mut Judge, time: LogTime) -> Vec<(WindowOf, LogTime)> {
        let due = judge.due(&self.0, time);
        let tell = |command: Command| {
            assert_eq!(self.apply(time, command.clone()), Outcome::Done);
            match command {
                Command::CloseUntil { whose, time, .. } => (whose, time),
                other => panic!("{other:?}"),
            }
        };
        due.into_iter().map(tell).collect()
    }
}

fn pool() -> Pool {
    let mut pool = Pool(State::at(Level::NEWEST));
    let card = tessera_testkit::card(tessera_ledger::CardKind::Gpu, 8, 1024);
    let command = Command::RegisterNode { node: tessera_testkit::node("a"), cards: vec![card] };
    assert!(matches!(pool.apply(friday(11, 0), command), Outcome::Registered { .. }));
    pool
}

#[test]
fn the_ledger_is_told_once_and_again_when_a_window_closes() {
    let (mut pool, mut judge) = (pool(), Judge::default());
    assert_eq!(judge.due(&pool.0, friday(11, 30)), []);
    let job = pool.submit(friday(12, 0), "0 20 * * * for 2h");
    let whose = WindowOf::Job(job);
    assert_eq!(pool.look(&mut judge, friday(12, 0)), [(whose.clone(), friday(20, 0))]);
    assert_eq!(pool.look(&mut judge, friday(12, 1)), [], "it is known");
    assert_eq!(judge.next(), Some(friday(20, 0)));
    assert_eq!(pool.look(&mut judge, friday(20, 0)), [], "it opens by itself");
    assert_eq!(judge.next(), Some(friday(22, 0)));
    assert_eq!(pool.look(&mut judge, friday(22, 0)), [(whose.clone(), friday(44, 0))]);
    // Who leads next finds the same, and has nothing to say.
    assert_eq!(Judge::default().due(&pool.0, friday(23, 0)), []);
}

#[test]
fn what_is_open_when_it_is_submitted_is_opened_and_what_cannot_be_read_waits() {
    let (mut pool, mut judge) = (pool(), Judge::default());
    let open = pool.submit(friday(21, 0), "0 20 * * * for 2h");
    let strange = pool.submit(friday(21, 0), "whenever the moon is full");
    assert_eq!(pool.look(&mut judge, friday(21, 0)), [(WindowOf::Job(open), LogTime(0))]);
    assert_eq!(
        pool.0.job(strange).unwrap().closed_until,
        UNKNOWN,
        "nothing of it starts, and nothing of it is stopped"
    );
    assert_eq!(pool.look(&mut judge, friday(21, 1)), []);
}

#[test]
fn a_thousand_jobs_with_the_same_windows_are_told_a_part_at_a_time() {
    let (mut pool, mut judge) = (pool(), Judge::default());
    for _ in 0..600 {
        pool.submit(friday(12, 0), "0 20 * * * for 2h");
    }
    let told: Vec<usize> = (0..4).map(|_| pool.look(&mut judge, friday(12, 1)).len()).collect();
    assert_eq!(told, [256, 256, 88, 0]);
}
