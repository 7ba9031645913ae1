//! Small traces whose course can be followed by hand.

use tessera_simulate::placer::Choice;
use tessera_simulate::policy::Named;
use tessera_simulate::timeline::{Compaction, RunSummary, TimelineError, TimelineOptions, play};
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
    play(&made_up(1, 2, None), jobs, TimelineOptions { policy, seed: 0, compaction: None }).expect("it goes well")
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
    assert_eq!(run.waits_s, [0.0, 0.0], "both started at once");
    assert_eq!(run.duration_s, 130.0, "100 s and 30 s after one another, nothing lost");
}

/// A job that the cluster could never hold is refused, and a job without times cannot be played.
#[test]
fn what_can_never_run_is_said_so() {
    let run = run(Choice::Tessera, &[job("huge", 0, 1, 3, 1000), job("small", 0, 1, 1, 1)]);
    assert_eq!((run.completed, run.refused), (1, 1));
    let untimed = TraceJob { runtime_ms: None, ..job("untimed", 0, 1, 1, 1) };
    let options = TimelineOptions { policy: Choice::Tessera, seed: 0, compaction: None };
    let refused = play(&made_up(1, 2, None), &[untimed], options);
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
    let with = |compaction| {
        let options = TimelineOptions { policy: Choice::Tessera, seed: 0, compaction };
        play(&nodes, &jobs, options).expect("it goes well")
    };
    let (left_alone, compacted) = (with(None), with(Some(Compaction::default())));
    assert_eq!((left_alone.completed, compacted.completed), (17, 17));
    assert_eq!((left_alone.duration_s, compacted.duration_s), (100_000.0, 100_000.0));
    assert_eq!(left_alone.moves, 0);
    assert!(compacted.moves > 0);
    assert!(compacted.cards_needed_mean < left_alone.cards_needed_mean);
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
