//! Limits on the size of the ledger: bytes of jobs, queues, nodes, cards, events. Whatever happens, nothing that is
//! accepted exceeds a limit, and the sums kept along the way equal what is there.

use proptest::prelude::*;
use tessera_ledger::{
    CardKind, Command, JobId, JobSpec, Outcome, PoolConfig, PoolLimits, QueueSettings, Rejection, Revision, State,
};

use crate::pool::{Pool, card, exited, node, numbered, slice, spec};

fn with_limits(limits: PoolLimits) -> Pool {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    set_limits(&mut pool, limits);
    pool
}

fn set_limits(pool: &mut Pool, limits: PoolLimits) {
    let config = PoolConfig { limits, ..pool.state.config().clone() };
    assert_eq!(pool.run(Command::SetConfig { config, expected: None }), Outcome::Done);
}

fn script(bytes: usize) -> JobSpec {
    JobSpec { script: "#".repeat(bytes), ..spec() }
}

fn submit(pool: &mut Pool, spec: &JobSpec) -> Outcome {
    pool.run(tessera_testkit::submission(spec.clone()))
}

fn jobs(state: &State) -> Vec<u64> {
    state.jobs_from(JobId(0)).map(|job| job.id.0).collect()
}

#[test]
fn what_a_job_costs_is_its_text_and_something_for_being_there() {
    let plain = spec().bytes();
    assert_eq!(script(1000).bytes(), plain + 1000);
    let mut more = spec();
    more.environment.insert("NAME".to_owned(), "value".to_owned());
    more.command.push("word".to_owned());
    more.labels.insert("a".to_owned(), "b".to_owned());
    assert_eq!(more.bytes(), plain + 3 * 48 + 9 + 4 + 2);
}

#[test]
fn a_job_beyond_the_budget_is_refused_and_the_oldest_ended_ones_go_first() {
    let each = script(1000).bytes();
    let mut pool = with_limits(PoolLimits { spec_bytes: 3 * each + 10, ..PoolLimits::default() });
    for job in 1..=3 {
        assert_eq!(submit(&mut pool, &script(1000)), Outcome::Submitted(JobId(job)));
    }
    let refused = Rejection::SpecBudgetExhausted { bytes: each, used: 3 * each, limit: 3 * each + 10 };
    assert_eq!(submit(&mut pool, &script(1000)), Outcome::Rejected(refused.clone()));
    assert_eq!(refused.code(), "SPEC_BUDGET_EXHAUSTED");
    for job in [2, 1] {
        pool.run(Command::CancelJob { job: JobId(job) });
    }
    assert_eq!(pool.state.spec_bytes(), 3 * each, "ended jobs count as long as they are kept");
    assert_eq!(submit(&mut pool, &script(1000)), Outcome::Submitted(JobId(4)));
    assert_eq!(jobs(&pool.state), [1, 3, 4], "the one that ended first went");
    let too_long = script(3000);
    assert!(matches!(submit(&mut pool, &too_long), Outcome::Rejected(Rejection::SpecBudgetExhausted { .. })));
    assert_eq!(jobs(&pool.state), [1, 3, 4], "nobody goes for a job that is refused all the same");
}

#[test]
fn a_lower_budget_ends_no_job_and_drops_ended_ones() {
    let each = script(1000).bytes();
    let mut pool = with_limits(PoolLimits::default());
    (0..4).for_each(|_| drop(submit(&mut pool, &script(1000))));
    pool.run(Command::CancelJob { job: JobId(1) });
    set_limits(&mut pool, PoolLimits { spec_bytes: each, ..PoolLimits::default() });
    assert_eq!(jobs(&pool.state), [2, 3, 4]);
    assert!(matches!(submit(&mut pool, &spec()), Outcome::Rejected(Rejection::SpecBudgetExhausted { .. })));
    assert_eq!(pool.state.spec_bytes(), 3 * each);
}

#[test]
fn queues_nodes_and_cards_are_limited_in_number() {
    let mut pool = with_limits(PoolLimits { queues: 2, nodes: 2, cards: 3, ..PoolLimits::default() });
    let queue = |name: &str| Command::SetQueue { queue: QueueSettings::new(name) };
    assert_eq!(pool.run(queue("one")), Outcome::Done);
    let refused = pool.run(queue("two"));
    assert_eq!(refused, Outcome::Rejected(Rejection::TooManyQueues { limit: 2 }));
    assert_eq!(pool.run(queue("one")), Outcome::Done, "it is there already");

    let register = |pool: &mut Pool, name: &str, cards: usize| {
        let cards = numbered(&vec![card(CardKind::Gpu, 1); cards]);
        pool.run(Command::RegisterNode { node: node(name), cards })
    };
    let refused = register(&mut pool, "second", 3);
    assert_eq!(refused, Outcome::Rejected(Rejection::TooManyCards { added: 3, present: 1, limit: 3 }));
    assert!(matches!(register(&mut pool, "second", 1), Outcome::Registered { .. }));
    assert!(matches!(register(&mut pool, "second", 2), Outcome::Registered { .. }), "one more fits");
    let refused = register(&mut pool, "second", 3);
    assert_eq!(refused, Outcome::Rejected(Rejection::TooManyCards { added: 1, present: 3, limit: 3 }));
    assert!(matches!(register(&mut pool, "second", 2), Outcome::Registered { .. }), "what is there stays there");
    assert_eq!(register(&mut pool, "third", 0), Outcome::Rejected(Rejection::TooManyNodes { limit: 2 }));
}

#[test]
fn the_oldest_events_go_when_there_are_too_many() {
    let mut pool = with_limits(PoolLimits { events: 5, ..PoolLimits::default() });
    (0..20).for_each(|_| drop(submit(&mut pool, &spec())));
    assert_eq!(pool.state.events_held(), 5);
    let compacted = pool.state.compacted();
    assert!(compacted > Revision(0), "watches that are further back are told");
    assert_eq!(pool.state.events_after(compacted).expect("the rest is there").count(), 5);
    let command = tessera_testkit::submission(spec());
    pool.apply(&vec![tessera_testkit::request(command); 9]);
    assert_eq!(pool.state.events_held(), 9, "those of the newest entry stay, however many they are");
}

#[derive(Clone, Debug)]
enum Step {
    Submit { bytes: usize },
    Cancel { job: u8 },
    Run { job: u8 },
    Finish { job: u8 },
    Limit { jobs: u64 },
    Restore,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..6000).prop_map(|bytes| Step::Submit { bytes }),
        2 => any::<u8>().prop_map(|job| Step::Cancel { job }),
        2 => any::<u8>().prop_map(|job| Step::Run { job }),
        2 => any::<u8>().prop_map(|job| Step::Finish { job }),
        1 => (2u64..12).prop_map(|jobs| Step::Limit { jobs }),
        1 => Just(Step::Restore),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    /// The sum that is kept is that over the jobs (the laws are checked after each entry); jobs that are taken never
    /// exceed the budget, and those that are refused would have.
    #[test]
    fn the_budget_is_kept(steps in prop::collection::vec(step(), 1..60)) {
        let mut pool = with_limits(PoolLimits { spec_bytes: 20_000, ..PoolLimits::default() });
        for step in steps {
            let known = jobs(&pool.state);
            let pick = |choice: u8| known.get(usize::from(choice) % known.len().max(1)).map(|job| JobId(*job));
            match step {
                Step::Submit { bytes } => {
                    let (spec, limit) = (script(bytes), pool.state.config().limits.spec_bytes);
                    let live: u64 = pool
                        .state
                        .jobs_from(JobId(0))
                        .filter(|job| !job.state.is_terminal())
                        .map(|job| job.spec.bytes())
                        .sum();
                    let fits = live + spec.bytes() <= limit;
                    let outcome = submit(&mut pool, &spec);
                    prop_assert_eq!(matches!(outcome, Outcome::Submitted(_)), fits, "{:?}", outcome);
                    prop_assert!(!fits || pool.state.spec_bytes() <= limit);
                }
                Step::Cancel { job } => drop(pick(job).map(|job| pool.run(Command::CancelJob { job }))),
                Step::Run { job } => {
                    let waits = pick(job).filter(|job| pool.state.job(*job).is_some_and(|job| job.is_waiting()));
                    if let Some(job) = waits && pool.state.block_counts().free == 10 {
                        pool.grant(job, vec![slice(0, 0, 0, 1)]);
                    }
                }
                Step::Finish { job } => {
                    if let Some(job) = pick(job).filter(|job| pool.state.job(*job).is_some_and(|job| job.allocation.is_some())) {
                        pool.report_all(job, &exited(0));
                    }
                }
                Step::Limit { jobs } => {
                    let spec_bytes = jobs * spec().bytes();
                    set_limits(&mut pool, PoolLimits { spec_bytes, ..PoolLimits::default() });
                }
                Step::Restore => {
                    let chunks = tessera_ledger::wire::encode_snapshot(&pool.state);
                    let restored = tessera_ledger::wire::decode_snapshot(chunks).expect("it was just written");
                    prop_assert_eq!(restored.spec_bytes(), pool.state.spec_bytes());
                    pool.state = restored;
                }
            }
            let sum: u64 = pool.state.jobs_from(JobId(0)).map(|job| job.spec.bytes()).sum();
            prop_assert_eq!(pool.state.spec_bytes(), sum);
        }
    }
}
