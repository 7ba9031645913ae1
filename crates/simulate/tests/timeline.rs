//! Small traces whose course can be followed by hand.

use tessera_ledger::{AttainedOrder, Percent};
use tessera_simulate::placer::Choice;
use tessera_simulate::policy::Named;
use tessera_simulate::timeline::{
    Compaction, RunSummary, SuspendCost, TimelineError, TimelineOptions, play, write_events,
};
use tessera_simulate::trace::{Ask, TraceJob, made_up};

fn job(name: &str, submitted_s: u64, runtime_s: u64, cards: u32, card_milli: u32) -> TraceJob {
    let ask = Ask { cards, card_milli, ..Ask::default() };
    TraceJob {
        submitted_ms: submitted_s * 1000,
        runtime_ms: Some(runtime_s * 1000),
        ..TraceJob::of(name.to_owned(), ask)
    }
}

fn run(policy: Choice, jobs: &[TraceJob]) -> RunSummary {
    play(&made_up(1, 2, None), jobs, TimelineOptions::new(policy)).expect("it goes well")
}

/// Two cards: both taken for 100 s by one job, then one each by two, the third of which waits for the first to end.
#[test]
fn jobs_wait_for_room_and_no_longer() {
    let jobs = [
        job("both", 0, 100, 2, 1000),
        job("one", 10, 50, 1, 1000),
        job("two", 20, 60, 1, 1000),
        job("three", 30, 10, 1, 1000),
    ];
    for policy in [Choice::Tessera, Choice::Other(Named::BestFit)] {
        let run = run(policy, &jobs);
        assert_eq!((run.completed, run.refused, run.never_started), (4, 0, 0));
        // `one` ends at 150, then `three` runs until 160, as `two` does.
        assert_eq!(run.waits_s, [0.0, 80.0, 90.0, 120.0], "{}", policy.name());
        assert_eq!((run.duration_s, run.waiting.max), (160.0, 120.0));
        assert_eq!((run.cards_needed_peak, run.allocated_mean_percent), (2, 100.0));
        assert_eq!((run.preemptions, run.moves, run.plan_refusals), (0, 0, 0));
    }
}

/// A job of higher priority takes the card at once; who had it goes on later where it stopped.
#[test]
fn a_preempted_job_goes_on_where_it_stopped() {
    let urgent = TraceJob { priority: 90, ..job("urgent", 40, 30, 2, 1000) };
    let run = run(Choice::Tessera, &[job("long", 0, 100, 2, 1000), urgent]);
    assert_eq!((run.completed, run.preemptions), (2, 1));
    assert_eq!(run.first_waiting.max, 0.0, "both started at once");
    assert_eq!(run.waits_s, [0.0, 30.0], "and one waited for the other to end");
    assert_eq!(run.duration_s, 130.0, "100 s and 30 s after one another, nothing lost");
}

/// The time in which a suspended job waits, and in which it goes on without progress, is time that it waits.
#[test]
fn all_time_without_progress_is_waited() {
    let urgent = TraceJob { priority: 90, ..job("urgent", 40, 30, 2, 1000) };
    let (nodes, jobs) = (made_up(1, 2, None), [job("long", 0, 100, 2, 1000), urgent]);
    let cost = "7/30/60".parse().expect("it is one");
    let options = TimelineOptions { cost, ..TimelineOptions::new(Choice::Tessera) };
    let run = play(&nodes, &jobs, options).expect("it goes well");
    // Suspended from 40 to 70, and 30 for going on.
    assert_eq!((run.waits_s.as_slice(), run.first_waiting.max), ([0.0, 60.0].as_slice(), 0.0));
    assert_eq!((run.completion.max, run.stretch.max, run.duration_s), (160.0, 1.6, 160.0));
    assert_eq!((run.suspensions_mean, run.suspensions_max), (0.5, 1.0));
    assert_eq!(run.suspension_cost_percent, 18.75, "30 of 160 s");

    let mut lines = Vec::new();
    write_events(&mut lines, &nodes, &jobs, &run.events).expect("memory takes them");
    let expected = "time_s,job,event,places\n0.000,long,start,node-0:0-1\n40.000,long,suspend,\n\
                    40.000,urgent,start,node-0:0-1\n70.000,urgent,end,\n70.000,long,resume,node-0:0-1\n\
                    160.000,long,end,\n";
    assert_eq!(String::from_utf8_lossy(&lines), expected);
}

/// Cards that are kept empty for a job that does not fit yet are seen, and only while somebody else would fit on them.
#[test]
fn cards_that_somebody_waits_for_and_would_fit_on_are_counted() {
    let jobs = [job("one", 0, 1000, 1, 1000), job("both", 100, 1000, 2, 1000), job("small", 200, 800, 1, 1000)];
    let passing = run(Choice::Other(Named::BestFit), &jobs);
    assert_eq!((passing.fitting_idle_percent, passing.duration_s), (0.0, 2000.0));
    let in_order = run(Choice::Tessera, &jobs);
    // One of two cards from 200 to 1000, of 2800 s in all.
    assert_eq!(in_order.duration_s, 2800.0);
    assert!((in_order.fitting_idle_percent - 800.0 * 100.0 / 5600.0).abs() < 1e-9, "{in_order}");
}

/// Short jobs wait for a long one in order of submission, and take its place where what all have had decides.
#[test]
fn short_jobs_do_not_wait_for_a_long_one_by_attained_service() {
    let jobs = [job("long", 0, 10_000, 2, 1000), job("short", 400, 60, 1, 1000), job("early", 40, 30, 2, 1000)];
    let (nodes, attained) = (made_up(1, 2, None), TimelineOptions::new(Choice::Tessera));
    let attained =
        TimelineOptions { order: Some(AttainedOrder { guard: Percent(0), ..Default::default() }), ..attained };
    let in_order = run(Choice::Tessera, &jobs);
    assert_eq!(in_order.waits_s, [0.0, 9_630.0, 9_960.0]);
    let by_service = play(&nodes, &jobs, attained).expect("it goes well");
    // Two cards for 300 s are the first band: then `early` comes in. `long` gives way again an hour after that.
    assert_eq!(by_service.waits_s, [90.0, 260.0, 3_500.0]);
    assert_eq!((by_service.completed, by_service.preemptions, by_service.duration_s), (3, 2, 10_090.0));
}

/// A text that is no cost is refused with an example of one.
#[test]
fn costs_are_three_numbers_of_seconds() {
    let read = |text: &str| text.parse::<SuspendCost>();
    assert_eq!(read("1/2/3"), Ok(SuspendCost { one_ms: 1000, few_ms: 2000, many_ms: 3000 }));
    for wrong in ["", "7", "7/30", "7/30/60/90", "7/x/60", "-1/2/3"] {
        assert!(read(wrong).is_err_and(|error| error.to_string().contains("such as 7/30/60")), "{wrong}");
    }
}

/// A job that the cluster could never hold is refused, and a job without times cannot be played.
#[test]
fn what_can_never_run_is_said_so() {
    let run = run(Choice::Tessera, &[job("huge", 0, 1, 3, 1000), job("small", 0, 1, 1, 1)]);
    assert_eq!((run.completed, run.refused), (1, 1));
    let untimed = TraceJob { runtime_ms: None, ..job("untimed", 0, 1, 1, 1) };
    let refused = play(&made_up(1, 2, None), &[untimed], TimelineOptions::new(Choice::Tessera));
    assert!(matches!(refused, Err(TimelineError::NoTimes { job }) if job == "untimed"));
}

/// Shares that were left alone on several cards come together on one, and nothing is lost by it.
#[test]
fn compaction_needs_fewer_cards() {
    let mut jobs = Vec::new();
    for card in 0..8 {
        // Two halves fill a card; one of them leaves early.
        jobs.push(job(&format!("stays-{card}"), 0, 100_000, 1, 500));
        jobs.push(job(&format!("leaves-{card}"), 0, 1000, 1, 500));
    }
    jobs.push(job("late", 90_000, 1, 1, 1));
    let nodes = made_up(1, 8, None);
    let with = |compaction, cost: &str| {
        let cost = cost.parse().expect("it is one");
        let options = TimelineOptions { compaction, cost, ..TimelineOptions::new(Choice::Tessera) };
        play(&nodes, &jobs, options).expect("it goes well")
    };
    let (left_alone, compacted) = (with(None, "0/0/0"), with(Some(Compaction::default()), "0/0/0"));
    assert_eq!((left_alone.completed, compacted.completed), (17, 17));
    assert_eq!((left_alone.duration_s, compacted.duration_s), (100_000.0, 100_000.0));
    assert_eq!(left_alone.moves, 0);
    assert!(compacted.moves > 0);
    assert!(compacted.cards_needed_mean < left_alone.cards_needed_mean);

    let paid = with(Some(Compaction::default()), "7/30/60");
    assert!(paid.moves > 0);
    let waited: f64 = paid.waits_s.iter().sum();
    assert_eq!(waited, 7.0 * paid.moves as f64, "each move costs a job seven seconds, and nobody waits for room");
}

/// Only so many searches for victims are made in one decision. The next ones make those that are left, and come to an
/// end, though what is kept for the first of one queue is a reason to try jobs of the other again.
#[test]
fn decisions_that_are_cut_short_come_to_an_end() {
    let of_many = |number: u32| {
        let pick = |from: &[u32], number: u32| from[number as usize % from.len()];
        let runtime_s = 200 + number * 7919 % 6000;
        let limit_s = runtime_s + 1 + number * 104_729 % 9000;
        let cards = pick(&[1, 2, 3, 4, 8], number * 7 % 11);
        TraceJob {
            limit_ms: (!number.is_multiple_of(3)).then_some(u64::from(limit_s) * 1000),
            workers: pick(&[1, 1, 2, 3], number * 5 % 7),
            queue: pick(&[0, 1], number * 3 % 5).to_string(),
            priority: pick(&[50, 70], number * 13 % 17),
            ..job(&format!("job-{number}"), u64::from(number) * 25, u64::from(runtime_s), cards, 1000)
        }
    };
    let jobs: Vec<TraceJob> = (0..600).map(of_many).collect();
    let run = play(&made_up(3, 8, None), &jobs, TimelineOptions::new(Choice::Tessera)).expect("it goes well");
    assert_eq!(run.completed, 600);
    // A few for each that comes or ends, not one every 50 ms.
    assert!(run.decisions < 3 * 600, "{run}");
}

/// The same trace is played the same way twice.
#[test]
fn a_run_can_be_repeated() {
    let jobs: Vec<TraceJob> = (0..200u32)
        .map(|number| {
            job(&format!("job-{number}"), u64::from(number % 37), u64::from(number % 53 + 1), 1, number % 999 + 1)
        })
        .collect();
    let mut runs = [run(Choice::Tessera, &jobs), run(Choice::Tessera, &jobs)];
    for run in &mut runs {
        // How long the machine took is no part of what happened.
        (run.decision_p50_us, run.decision_p99_us) = (0.0, 0.0);
    }
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0].completed, 200);
}
