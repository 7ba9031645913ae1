//! Log time is what the pool's promises about time hang on: whatever the clocks show, it goes on, and no minority moves
//! it.

use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::clocks::Clocks;
use crate::ids::MemberId;

const BOUND: Duration = Duration::from_secs(10);
const NOON: Duration = Duration::from_secs(1_790_000_000);
const DAY: Duration = Duration::from_secs(86_400);
const YEARS: Duration = Duration::from_secs(10 * 365 * 86_400);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A leader's clock that is read from time to time, while the agreed time is `ahead` of noon or so.
struct Stage {
    clock: LogClock,
    began: Instant,
}

impl Stage {
    fn new(log_time: Duration) -> Self {
        let began = Instant::now();
        let mut clock = LogClock::new(BOUND, began);
        clock.note(began, millis(log_time));
        clock.lead(Some(Term(1)));
        Self { clock, began }
    }

    fn read(&mut self, after: Duration, agreed: Duration) -> (Duration, Option<Duration>) {
        let agreed = Agreed { time: agreed, alone: false };
        self.read_with(after, Some(agreed))
    }

    fn read_with(&mut self, after: Duration, agreed: Option<Agreed>) -> (Duration, Option<Duration>) {
        let (shown, step) = self.clock.read(self.began + after, agreed);
        (ms(shown.0), step.map(|step| step.by))
    }
}

#[test]
fn the_first_log_time_ever_is_what_a_quorum_agrees_on() {
    let began = Instant::now();
    let mut clock = LogClock::new(BOUND, began);
    let agreed = Some(Agreed { time: NOON, alone: false });
    assert_eq!(clock.read(began, agreed), (LogTime(0), None), "who does not lead knows no log time");
    clock.lead(Some(Term(1)));
    assert_eq!(clock.read(began, None), (LogTime(0), None), "nor does a leader that knows no clocks");
    assert_eq!(clock.read(began, agreed), (millis(NOON), None));
}

#[test]
fn log_time_that_is_years_ahead_goes_on_at_half_the_pace() {
    let mut stage = Stage::new(NOON + YEARS);
    assert_eq!(stage.read(seconds(0), NOON).0, NOON + YEARS);
    assert_eq!(stage.read(seconds(2), NOON + seconds(2)).0, NOON + YEARS + seconds(1));
    let in_a_second = millis(NOON + YEARS + seconds(2));
    let agreed = Some(Agreed { time: NOON + seconds(2), alone: false });
    assert_eq!(stage.clock.until(agreed, in_a_second), seconds(2), "a backoff of a second takes two");
    let often = (1..=4).map(|more| stage.read(ms(2_000 + more), NOON).0);
    assert_eq!(often.last(), Some(NOON + YEARS + ms(1_002)), "however often it is read");
}

#[test]
fn log_time_that_is_a_little_ahead_waits_for_the_clocks_and_no_longer() {
    let mut stage = Stage::new(NOON + seconds(2));
    let agreed = |after| NOON + seconds(after);
    assert_eq!(stage.read(seconds(2), agreed(2)).0, NOON + seconds(3));
    assert_eq!(stage.read(seconds(10), agreed(10)).0, NOON + seconds(10), "they have caught up");
    let due = millis(NOON + seconds(11));
    let until = stage.clock.until(Some(Agreed { time: agreed(10), alone: false }), due);
    assert_eq!(until, seconds(1));
}

#[test]
fn after_an_outage_of_the_whole_pool_log_time_is_the_clocks_at_once() {
    let mut stage = Stage::new(NOON);
    assert_eq!(stage.read(seconds(1), NOON + DAY), (NOON + DAY, Some(DAY - seconds(1))));
}

#[test]
fn a_gap_in_the_middle_of_a_reign_must_stand_before_it_is_stepped_over() {
    let mut stage = Stage::new(NOON);
    stage.read(seconds(0), NOON);
    assert_eq!(stage.read(seconds(1), NOON + DAY), (NOON + seconds(1), None));
    assert_eq!(stage.read(seconds(2), NOON + seconds(2)), (NOON + seconds(2), None), "the clocks changed their mind");
    assert_eq!(stage.read(seconds(3), NOON + DAY), (NOON + seconds(3), None));
    assert_eq!(stage.read(seconds(12), NOON + DAY), (NOON + seconds(12), None));
    assert_eq!(stage.read(seconds(13), NOON + DAY), (NOON + DAY, Some(DAY - seconds(13))));
}

#[test]
fn a_small_gap_is_made_up_at_twice_the_pace() {
    let mut stage = Stage::new(NOON);
    stage.read(seconds(0), NOON);
    assert_eq!(stage.read(seconds(1), NOON + seconds(5)), (NOON + seconds(2), None));
    assert_eq!(stage.read(seconds(9), NOON + seconds(13)), (NOON + seconds(13), None));
}

#[test]
fn a_pool_of_one_does_not_believe_its_clock_everything() {
    let mut stage = Stage::new(NOON);
    let alone = |time| Some(Agreed { time, alone: true });
    assert_eq!(stage.read_with(seconds(0), alone(NOON + DAY)), (NOON + DAY, Some(DAY)), "it was down for a day");
    let (shown, step) = stage.read_with(seconds(1), alone(NOON + YEARS));
    assert_eq!((shown, step), (NOON + DAY + seconds(1), None));
    let (shown, step) = stage.read_with(seconds(11), alone(NOON + YEARS));
    assert_eq!((shown, step), (NOON + ALONE + seconds(11), Some(ALONE - DAY)), "a month in all");
    let (shown, step) = stage.read_with(seconds(31), alone(NOON + YEARS));
    assert!(step.is_none() && shown <= NOON + ALONE + seconds(51), "{shown:?}");
}

#[test]
fn a_follower_carries_on_from_what_it_applied_and_steers_nothing() {
    let mut stage = Stage::new(NOON);
    stage.clock.lead(None);
    assert_eq!(stage.read(seconds(5), NOON + DAY).0, NOON + seconds(5));
    stage.clock.note(stage.began + seconds(6), millis(NOON + seconds(60)));
    assert_eq!(stage.read(seconds(7), NOON + DAY).0, NOON + seconds(61));
    stage.clock.lead(Some(Term(2)));
    assert_eq!(stage.read(seconds(8), NOON + seconds(63)).0, NOON + seconds(63));
}

/// One thing that happens: time passes, and then a clock jumps, the reign changes, or log time is read.
#[derive(Clone, Debug)]
struct Happening {
    after_ms: u64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Read,
    Jump { liar: usize, to_s: u64 },
    Hear { member: u64 },
    Elected,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let what = prop_oneof![
        4 => Just(What::Read),
        2 => (0usize..2, 0u64..4_000_000_000).prop_map(|(liar, to_s)| What::Jump { liar, to_s }),
        4 => (2u64..=5).prop_map(|member| What::Hear { member }),
        1 => Just(What::Elected),
    ];
    let pause = prop_oneof![0u64..50, 0u64..20_000];
    prop::collection::vec((pause, what).prop_map(|(after_ms, what)| Happening { after_ms, what }), 1..120)
}

proptest! {
    /// Two of five clocks show what they like, that of the leader among them. The others are right to a second.
    #[test]
    fn no_minority_of_clocks_moves_log_time(happenings in happenings(), skews in prop::array::uniform3(0u64..1_000)) {
        let began = Instant::now();
        let mut now = began;
        let mut clock = LogClock::new(BOUND, began);
        let mut clocks = Clocks::new(MemberId(1));
        clocks.set_voters((1..=5).map(MemberId));
        // Members 1 and 2 lie.
        let mut lies = [NOON, NOON];
        let (mut term, mut before, mut read_at) = (1, Duration::ZERO, began);
        clock.lead(Some(Term(term)));
        for Happening { after_ms, what } in happenings {
            now += ms(after_ms);
            let right = NOON + (now - began);
            match what {
                What::Jump { liar, to_s } => lies[liar] = seconds(to_s),
                What::Hear { member: 2 } => clocks.note(MemberId(2), now, now, millis(lies[1])),
                What::Hear { member } => {
                    let skew = usize::try_from(member - 3).map(|place| ms(skews[place])).expect("small");
                    clocks.note(MemberId(member), now, now, millis(right + skew));
                }
                What::Elected => {
                    term += 1;
                    clock.lead(Some(Term(term)));
                }
                What::Read => {
                    let agreed = clocks.sight(now, millis(lies[0])).agreed;
                    let (shown, _) = clock.read(now, agreed);
                    let (shown, elapsed) = (ms(shown.0), now - read_at);
                    if !before.is_zero() {
                        prop_assert!(shown >= before, "it never goes back");
                        prop_assert!(shown + ms(1) >= before + elapsed / 2, "it always moves on: {before:?} {shown:?}");
                    }
                    prop_assert!(shown <= right + seconds(1) + ms(1), "ahead of every right clock: {shown:?} {right:?}");
                    (before, read_at) = (shown, now);
                }
            }
        }
    }

    /// Whatever a quorum agrees on: log time goes on, and between two steps at no more than twice the pace.
    #[test]
    fn log_time_goes_on_whatever_is_agreed(
        reads in prop::collection::vec((0u64..30_000, prop::option::of(0u64..4_000_000_000_000)), 1..80),
        start in 1u64..4_000_000_000_000,
    ) {
        let mut stage = Stage::new(ms(start));
        let (mut after, mut before) = (Duration::ZERO, ms(start));
        let mut reckoned = false;
        for (pause, agreed) in reads {
            after += ms(pause);
            let agreed = agreed.map(|time| Agreed { time: ms(time), alone: false });
            let (shown, step) = stage.read_with(after, agreed);
            prop_assert!(shown + ms(1) >= before + ms(pause) / 2, "{before:?} {shown:?}");
            if step.is_none() && reckoned {
                prop_assert!(shown <= before + ms(pause) * 2 + ms(1), "{before:?} {shown:?}");
            }
            if let (Some(_), Some(agreed)) = (step, agreed) {
                prop_assert!(shown <= agreed.time, "a step goes to what is agreed on");
            }
            reckoned |= agreed.is_some();
            before = shown;
        }
    }
}
