use std::time::Duration;

use proptest::prelude::*;
use tessera_ledger::{KEEP_LABEL, Observation, Outcome, Percent, QueueSettings, Reason, StopCause};

use super::*;
use crate::fixture::{self, Ledger};

const BELOW: f64 = 0.10;

/// One job that runs in a queue with a ladder, and the clock that everybody goes by.
struct World {
    ledger: Ledger,
    job: JobId,
    began: (Instant, LogTime),
    passed: Duration,
    judge: Judge,
}

/// A ladder of 4, 8, 12 and 30 seconds.
fn policy() -> IdlePolicy {
    let after = |seconds| Some(Duration::from_secs(seconds));
    IdlePolicy {
        below: Percent(10),
        notify_after: after(4),
        preemptible_after: after(8),
        suspend_after: after(12),
        release_after: after(30),
    }
}

impl World {
    fn new(kept: bool) -> Self {
        Self::with(policy(), kept)
    }

    fn with(idle: IdlePolicy, kept: bool) -> Self {
        let mut ledger = Ledger::default();
        let settings = ledger.state.queue("default").expect("there is always one").settings.clone();
        let queue = QueueSettings { idle: Some(idle), ..settings };
        assert_eq!(ledger.apply(Command::SetQueue { queue }), Outcome::Done);
        let node = ledger.node("n", &[10]);
        let mut spec = fixture::job(4);
        if kept {
            spec.labels.insert(KEEP_LABEL.0.to_owned(), KEEP_LABEL.1.to_owned());
        }
        let job = ledger.submit(spec);
        let allocation = ledger.grant(job, &[(node, 0, 4)]);
        ledger.report(node, fixture::owner(&allocation, 0), Observation::Running);
        let began = (Instant::now(), ledger.now());
        Self { ledger, job, began, passed: Duration::ZERO, judge: Judge::default() }
    }

    fn job(&self) -> &Job {
        self.ledger.state.job(self.job).expect("it is in the ledger")
    }

    fn step(&self) -> Option<IdleStep> {
        self.job().idle_step()
    }

    /// Two seconds later its use is this, and somebody looks. The ledger takes all that it is told.
    fn look(&mut self, used: Option<f64>) {
        self.look_at_old(used, Duration::ZERO);
    }

    /// The same with a reading that is so old.
    fn look_at_old(&mut self, used: Option<f64>, age: Duration) {
        self.passed += Duration::from_secs(2);
        let look = Look { now: self.began.0 + self.passed, log_now: self.began.1.after(self.passed) };
        let read = |_: &Job| used.map(|utilization_ratio| Reading { at: look.now - age, utilization_ratio });
        let due = self.judge.due(&self.ledger.state, look, read);
        for command in due {
            let answer = tessera_testkit::apply(&mut self.ledger.state, look.log_now, command);
            assert_eq!(answer, Outcome::Done, "the ledger agrees");
        }
        if self.job().state == JobState::Suspending {
            let allocation = self.ledger.allocation(self.job().allocation.expect("it holds its blocks yet"));
            let exit = fixture::exit(StopCause::Ordered, None, true);
            self.ledger.report(allocation.workers[0].node, fixture::owner(&allocation, 0), Observation::Stopped(exit));
        }
    }
}

#[test]
fn one_that_sleeps_goes_up_the_ladder_step_by_step_and_one_that_is_kept_does_not() {
    let mut world = World::new(false);
    let steps: Vec<Option<IdleStep>> = (0..20)
        .map(|_| {
            world.look(Some(0.0));
            world.step()
        })
        .collect();
    let at = |step| steps.iter().position(|seen| *seen == Some(step));
    // The first look is the beginning, and each further one two seconds later.
    assert_eq!(IdleStep::ALL.map(at), [Some(2), Some(4), Some(6), Some(15)]);
    assert_eq!((world.job().state, &world.job().reason), (JobState::Cancelled, &Reason::IdleReleased));
    let mut kept = World::new(true);
    (0..20).for_each(|_| kept.look(Some(0.0)));
    assert_eq!((kept.step(), kept.job().state), (None, JobState::Running));
}

#[test]
fn each_step_follows_after_the_time_and_below_the_share_that_its_queue_sets() {
    let after = |seconds| Some(Duration::from_secs(seconds));
    let steps_of = |idle: IdlePolicy, used: f64| {
        let mut world = World::with(idle, false);
        let look = |_| {
            world.look(Some(used));
            world.step()
        };
        let steps: Vec<Option<IdleStep>> = (0..20).map(look).collect();
        IdleStep::ALL.map(|step| steps.iter().position(|seen| *seen == Some(step)))
    };
    let usual = [Some(2), Some(4), Some(6), Some(15)];
    assert_eq!(steps_of(policy(), 0.09), usual);
    assert_eq!(steps_of(IdlePolicy { below: Percent(5), ..policy() }, 0.09), [None; 4], "it computes enough");
    let [noticed, preemptible, suspended, released] = usual;
    let later = steps_of(IdlePolicy { notify_after: after(6), ..policy() }, 0.0);
    assert_eq!(later, [Some(3), preemptible, suspended, released]);
    let later = steps_of(IdlePolicy { preemptible_after: after(10), ..policy() }, 0.0);
    assert_eq!(later, [noticed, Some(5), suspended, released]);
    let later = steps_of(IdlePolicy { suspend_after: after(20), ..policy() }, 0.0);
    assert_eq!(later, [noticed, preemptible, Some(10), released]);
    let later = steps_of(IdlePolicy { release_after: after(36), ..policy() }, 0.0);
    assert_eq!(later, [noticed, preemptible, suspended, Some(18)]);
}

#[test]
fn a_ladder_that_is_taken_away_takes_its_steps_with_it() {
    let mut world = World::new(false);
    (0..6).for_each(|_| world.look(Some(0.0)));
    assert_eq!(world.step(), Some(IdleStep::Preemptible));
    let settings = world.ledger.state.queue("default").expect("there is always one").settings.clone();
    world.ledger.apply(Command::SetQueue { queue: QueueSettings { idle: None, ..settings } });
    world.look(Some(0.0));
    assert_eq!((world.step(), &world.job().reason), (None, &Reason::Started));
}

#[test]
fn what_was_measured_while_a_job_was_prepared_neither_counts_nor_is_in_the_way_of_what_follows() {
    let mut world = World::new(false);
    world.look_at_old(Some(0.0), Duration::from_secs(3));
    (0..2).for_each(|_| world.look(Some(0.0)));
    assert_eq!(world.step(), None, "it has been seen to be idle for two seconds");
    (0..6).for_each(|_| world.look(Some(0.0)));
    assert_eq!((world.step(), world.job().state), (Some(IdleStep::Suspended), JobState::Suspended));
}

#[test]
fn a_log_time_that_goes_slowly_puts_the_steps_off_and_takes_none_away() {
    let mut world = World::new(false);
    let (began, log_began) = world.began;
    let seconds = Duration::from_secs;
    // For ten seconds it goes at half the pace; from then on as fast as the clock.
    let looks = (1..20u64).map(|look| (seconds(look * 2), seconds(if look < 5 { look } else { look * 2 - 5 })));
    for (passed, log_passed) in looks {
        let look = Look { now: began + passed, log_now: log_began.after(log_passed) };
        let read = |_: &Job| Some(Reading { at: look.now, utilization_ratio: 0.0 });
        for command in world.judge.due(&world.ledger.state, look, read) {
            tessera_testkit::apply(&mut world.ledger.state, look.log_now, command);
        }
    }
    assert_eq!(world.step(), Some(IdleStep::Suspended));
}

/// An observation of a job: the share that it uses (nothing, a little more than idle, or work), or nothing known; or a
/// change to another leader, which has observed nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    Used(f64),
    Unknown,
    OtherLeader,
}

fn moments() -> impl Strategy<Value = Vec<Moment>> {
    let moment = prop_oneof![
        12 => (0.0..BELOW).prop_map(Moment::Used),
        2 => (BELOW..2.0 * BELOW).prop_map(Moment::Used),
        1 => (2.0 * BELOW..1.2).prop_map(Moment::Used),
        1 => Just(Moment::Unknown),
        1 => Just(Moment::OtherLeader),
        1 => Just(Moment::Used(f64::NAN)),
    ];
    prop::collection::vec(moment, 1..60)
}

proptest! {
    /// A step follows only on a time in which the same leader saw at every look that the job was not busy; one that is
    /// seen to be busy is on no step at once; and nothing else takes a step back.
    #[test]
    fn nobody_is_taken_for_idle_who_was_not_seen_to_be(moments in moments()) {
        let mut world = World::new(false);
        let mut seen_for: Option<Duration> = None;
        for moment in moments {
            let before = world.step();
            let used = match moment {
                Moment::Used(used) => Some(used),
                Moment::Unknown => None,
                Moment::OtherLeader => {
                    world.judge = Judge::default();
                    seen_for = None;
                    continue;
                }
            };
            let runs = world.job().state == JobState::Running;
            world.look(used);
            seen_for = match used {
                Some(used) if used < BELOW => Some(seen_for.map_or(Duration::ZERO, |time| time + Duration::from_secs(2))),
                Some(used) if used < 2.0 * BELOW => seen_for.map(|time| time + Duration::from_secs(2)),
                _ => None,
            };
            let after = world.step();
            if !runs {
                continue;
            }
            let busy = used.is_some_and(|used| used >= 2.0 * BELOW);
            if busy {
                prop_assert_eq!(after, None);
                prop_assert_eq!(world.job().state, JobState::Running);
            } else {
                prop_assert!(after >= before, "{:?} after {:?}", after, before);
            }
            if after > before {
                let due = after.and_then(|step| policy().after(step)).expect("it has a time");
                prop_assert!(seen_for.is_some_and(|time| time >= due), "{:?} after {:?} of idleness", after, seen_for);
            }
        }
    }

    /// Whatever happened before, one that is idle for long enough is suspended.
    #[test]
    fn whoever_sleeps_for_long_is_suspended(moments in moments()) {
        let mut world = World::new(false);
        for moment in moments {
            match moment {
                Moment::Used(used) => world.look(Some(used)),
                Moment::Unknown => world.look(None),
                Moment::OtherLeader => world.judge = Judge::default(),
            }
        }
        (0..8).for_each(|_| world.look(Some(0.0)));
        prop_assert!(world.step() >= Some(IdleStep::Suspended));
        prop_assert!(matches!(world.job().state, JobState::Suspended | JobState::Cancelled));
    }
}
