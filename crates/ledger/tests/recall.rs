//! Law L4 as the ledger judges it, whatever a plan says: who may be made to give way, and what queues are counted
//! with meanwhile.

use std::time::Duration;

use tessera_ledger::wire::{decode_snapshot, encode_snapshot};
use tessera_ledger::{
    CardKind, Command, JobId, JobSpec, Mebibytes, MilliTflops, Observation, Outcome, PlanPart, PlannedWorker, Queue,
    QueueAmount, QueueSettings, Rejection, Slice, StopCause,
};

use crate::pool::{self, Pool, card, slice, stopped};

/// One card of 20 blocks; `owner` and `borrower` are guaranteed 10 TFLOPS each.
fn pool() -> Pool {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 20)]]);
    for name in ["owner", "borrower"] {
        set_queue(&mut pool, name, "", 10);
    }
    pool
}

fn set_queue(pool: &mut Pool, name: &str, parent: &str, tflops: u64) {
    // Enough for any job of that compute.
    let guaranteed = QueueAmount { compute: MilliTflops::from_tflops(tflops), memory: Mebibytes(tflops << 20) };
    let queue = QueueSettings { parent: parent.to_owned(), guaranteed, ..QueueSettings::new(name) };
    assert_eq!(pool.run(Command::SetQueue { queue }), Outcome::Done);
}

/// A running job of a queue on blocks of the one card.
fn running(pool: &mut Pool, queue: &str, start: u32, blocks: u32, change: impl FnOnce(&mut JobSpec)) -> JobId {
    let job = pool.submit(|spec| {
        spec.queue = queue.to_owned();
        change(spec);
    });
    pool.grant(job, vec![slice(0, 0, start, blocks)]);
    pool.report_all(job, &Observation::Running);
    job
}

fn waiting(pool: &mut Pool, queue: &str, priority: u32) -> JobId {
    pool.submit(|spec| {
        spec.queue = queue.to_owned();
        spec.priority = priority;
    })
}

/// The reason for which a grant over victims is refused; `None`: it is accepted.
fn refusal(pool: &mut Pool, job: JobId, slices: Vec<Slice>, victims: Vec<JobId>) -> Option<String> {
    let worker = PlannedWorker { virtual_card: 0, node: slices[0].card.node, slices };
    match pool.plan(vec![PlanPart::Grant { job, workers: vec![worker], victims }]) {
        Outcome::Planned(parts) => parts.into_iter().find_map(Result::err).map(|rejection| match rejection {
            Rejection::NotPreemptible { problem, .. } => problem.to_owned(),
            other => other.to_string(),
        }),
        other => panic!("{other:?}"),
    }
}

fn queue(pool: &Pool, name: &str) -> Queue {
    Queue::clone(pool.state.queue(name).expect("the queue is known"))
}

#[test]
fn a_loan_is_recalled_whatever_the_priorities_and_a_guarantee_is_not() {
    let mut pool = pool();
    let first = running(&mut pool, "borrower", 0, 10, |spec| spec.priority = 100);
    let owner = waiting(&mut pool, "owner", 0);
    let blocks = || vec![slice(0, 0, 0, 2)];
    let within = "its queue holds no more than it is guaranteed";
    assert_eq!(refusal(&mut pool, owner, blocks(), vec![first]).as_deref(), Some(within));
    let second = running(&mut pool, "borrower", 10, 10, |spec| spec.priority = 100);
    let both = refusal(&mut pool, owner, vec![slice(0, 0, 0, 2), slice(0, 0, 10, 2)], vec![second, first]);
    assert_eq!(both.as_deref(), Some(within), "without the one, the other is guaranteed");
    set_queue(&mut pool, "owner", "", 1);
    let beyond = refusal(&mut pool, owner, blocks(), vec![first]);
    assert!(beyond.is_some_and(|problem| problem.starts_with("it is of another queue")));
    set_queue(&mut pool, "owner", "", 10);
    assert_eq!(refusal(&mut pool, owner, blocks(), vec![first]), None);
    let borrower = queue(&pool, "borrower");
    assert_eq!((borrower.used.compute, borrower.standing().compute), (MilliTflops(20_000), MilliTflops(10_000)));
    let next = waiting(&mut pool, "owner", 0);
    let again = refusal(&mut pool, next, vec![slice(0, 0, 10, 2)], vec![second]);
    assert_eq!(again.as_deref(), Some(within), "what is leaving is not counted as held");
    pool.report_all(first, &stopped(StopCause::Ordered, None));
    assert_eq!(queue(&pool, "borrower").leaving, QueueAmount::default());
}

#[test]
fn a_job_that_is_not_preemptible_gives_way_only_where_such_jobs_are_on_loan() {
    let mut pool = pool();
    let firm = running(&mut pool, "borrower", 0, 8, |spec| spec.preemptible = false);
    let loose = running(&mut pool, "borrower", 8, 12, |_| {});
    let owner = waiting(&mut pool, "owner", 0);
    let guaranteed = "it is not preemptible, and its queue is guaranteed what such jobs hold";
    assert_eq!(refusal(&mut pool, owner, vec![slice(0, 0, 0, 2)], vec![firm]).as_deref(), Some(guaranteed));
    assert_eq!(refusal(&mut pool, owner, vec![slice(0, 0, 8, 2)], vec![loose]), None);

    let mut pool = self::pool();
    let firm = running(&mut pool, "borrower", 0, 12, |spec| spec.preemptible = false);
    let owner = waiting(&mut pool, "owner", 0);
    assert_eq!(refusal(&mut pool, owner, vec![slice(0, 0, 0, 2)], vec![firm]), None, "a loan can be recalled");
    assert_eq!(queue(&pool, "borrower").firm, QueueAmount::default());
}

/// `parent` is guaranteed 12 TFLOPS of 20, and `child` below it 8 of them: 4 are for the jobs of `parent` itself.
fn parent_and_child() -> Pool {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 20)]]);
    set_queue(&mut pool, "parent", "", 12);
    set_queue(&mut pool, "child", "parent", 8);
    set_queue(&mut pool, "other", "", 8);
    pool
}

#[test]
fn a_queue_recalls_from_the_one_above_it_only_what_it_has_lent() {
    let within = "its queue holds no more than it is guaranteed";
    let guaranteed = "it is not preemptible, and its queue is guaranteed what such jobs hold";
    for firm in [false, true] {
        let mut pool = parent_and_child();
        let covered = running(&mut pool, "parent", 0, 4, |spec| spec.preemptible = !firm);
        let job = waiting(&mut pool, "child", 0);
        assert_eq!(refusal(&mut pool, job, vec![slice(0, 0, 0, 2)], vec![covered]).as_deref(), Some(within));
        let lent = running(&mut pool, "parent", 4, 8, |_| {});
        if firm {
            let refused = refusal(&mut pool, job, vec![slice(0, 0, 0, 2)], vec![covered]);
            assert_eq!(refused.as_deref(), Some(guaranteed), "the other one is on loan");
        }
        let both = refusal(&mut pool, job, vec![slice(0, 0, 0, 2), slice(0, 0, 4, 2)], vec![lent, covered]);
        assert_eq!(both.as_deref(), Some(within), "without the one, the other is covered");
        assert_eq!(refusal(&mut pool, job, vec![slice(0, 0, 4, 2)], vec![lent]), None);
    }
}

#[test]
fn what_firm_jobs_of_the_queue_above_have_borrowed_is_recalled_too() {
    let mut pool = parent_and_child();
    let firm = running(&mut pool, "parent", 0, 12, |spec| spec.preemptible = false);
    let job = waiting(&mut pool, "child", 0);
    assert_eq!(refusal(&mut pool, job, vec![slice(0, 0, 0, 2)], vec![firm]), None, "8 of the 12 are lent by the child");
}

#[test]
fn others_recall_from_those_of_a_tenant_who_borrow() {
    let mut pool = parent_and_child();
    let covered = running(&mut pool, "parent", 0, 4, |_| {});
    let lent = running(&mut pool, "child", 4, 16, |_| {});
    let job = waiting(&mut pool, "other", 0);
    let refused = refusal(&mut pool, job, vec![slice(0, 0, 0, 2)], vec![covered]);
    assert_eq!(refused.as_deref(), Some("its queue holds no more than it is guaranteed"));
    assert_eq!(refusal(&mut pool, job, vec![slice(0, 0, 4, 2)], vec![lent]), None);
}

#[test]
fn a_team_claims_what_its_department_is_guaranteed_against_others_and_nothing_against_its_sisters() {
    let beyond = "it is of another queue, and the job's own would hold more than it is guaranteed";
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 20)]]);
    set_queue(&mut pool, "department", "", 10);
    set_queue(&mut pool, "team", "department", 0);
    set_queue(&mut pool, "sister", "department", 0);
    set_queue(&mut pool, "other", "", 0);
    let sisters = running(&mut pool, "sister", 0, 9, |_| {});
    let lent = running(&mut pool, "other", 9, 11, |_| {});
    let job = waiting(&mut pool, "team", 0);
    let refused = refusal(&mut pool, job, vec![slice(0, 0, 9, 2)], vec![lent]);
    assert_eq!(refused.as_deref(), Some(beyond), "9 and 2 are more than 10");
    let refused = refusal(&mut pool, job, vec![slice(0, 0, 0, 1)], vec![sisters]);
    assert_eq!(refused.as_deref(), Some(beyond), "between teams the department's guarantee does not count");
    assert_eq!(refusal(&mut pool, job, vec![slice(0, 0, 9, 1)], vec![lent]), None, "the department is guaranteed 10");
}

#[test]
fn a_queue_is_safe_within_its_own_guarantee_whoever_claims_for_a_department() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 20)]]);
    set_queue(&mut pool, "department", "", 10);
    set_queue(&mut pool, "team", "department", 0);
    set_queue(&mut pool, "other", "", 0);
    set_queue(&mut pool, "safe", "other", 20);
    let safe = running(&mut pool, "safe", 0, 20, |_| {});
    let job = waiting(&mut pool, "team", 0);
    let refused = refusal(&mut pool, job, vec![slice(0, 0, 0, 2)], vec![safe]);
    assert_eq!(refused.as_deref(), Some("its queue holds no more than it is guaranteed"));
}

#[test]
fn who_holds_nothing_of_what_is_on_loan_does_not_give_way_for_it() {
    let mut pool = pool();
    let amount = |tflops, memory| QueueAmount { compute: MilliTflops::from_tflops(tflops), memory: Mebibytes(memory) };
    let queue = QueueSettings { guaranteed: amount(15, 1024), ..QueueSettings::new("borrower") };
    assert_eq!(pool.run(Command::SetQueue { queue }), Outcome::Done);
    let held = |pool: &mut Pool, start, blocks, memory| {
        let job = pool.submit(|spec| {
            spec.queue = "borrower".to_owned();
            spec.virtual_card.memory = Mebibytes(memory);
        });
        pool.grant(job, vec![Slice { memory: Mebibytes(memory), ..slice(0, 0, start, blocks) }]);
        pool.report_all(job, &Observation::Running);
        job
    };
    let (computes, remembers) = (held(&mut pool, 0, 8, 0), held(&mut pool, 8, 4, 4096));
    let owner = waiting(&mut pool, "owner", 0);
    let refused = refusal(&mut pool, owner, vec![slice(0, 0, 0, 2)], vec![computes]);
    assert_eq!(refused.as_deref(), Some("its queue is guaranteed what it holds"), "memory is on loan, and it has none");
    assert_eq!(refusal(&mut pool, owner, vec![slice(0, 0, 8, 2)], vec![remembers]), None);
}

#[test]
fn what_a_worker_held_that_is_over_is_not_there_to_be_taken() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)]]);
    let gang = pool.submit(|spec| (spec.gang, spec.priority) = (2, 0));
    let worker = |virtual_card, slices: Vec<Slice>| PlannedWorker { virtual_card, node: slices[0].card.node, slices };
    let workers = vec![worker(0, vec![slice(0, 0, 0, 4)]), worker(1, vec![slice(0, 1, 0, 4)])];
    pool.accept(PlanPart::Grant { job: gang, workers, victims: vec![] });
    pool.report_all(gang, &Observation::Running);
    let allocation = pool.allocation_of(gang);
    let report = tessera_ledger::WorkerReport {
        worker: allocation.owner(allocation.workers[0].rank),
        observation: pool::exited(0),
    };
    pool.run(Command::ReportWorkers { node: allocation.workers[0].node, reports: vec![report] });
    let urgent = waiting(&mut pool, "default", 90);
    let refused = refusal(&mut pool, urgent, vec![slice(0, 0, 0, 2)], vec![gang]);
    assert_eq!(
        refused.as_deref(),
        Some("it holds nothing on the cards and hosts granted"),
        "its worker there has ended"
    );
    assert_eq!(refusal(&mut pool, urgent, vec![slice(0, 1, 0, 2)], vec![gang]), None);
}

#[test]
fn priorities_of_other_queues_are_not_compared() {
    let mut pool = pool();
    let victim = running(&mut pool, "borrower", 0, 5, |spec| spec.priority = 0);
    let other = waiting(&mut pool, "default", 100);
    assert!(refusal(&mut pool, other, vec![slice(0, 0, 0, 2)], vec![victim]).is_some());
    let same = waiting(&mut pool, "borrower", 1);
    assert_eq!(refusal(&mut pool, same, vec![slice(0, 0, 0, 2)], vec![victim]), None);
}

#[test]
fn what_a_job_has_waited_protects_it() {
    let mut pool = pool();
    let patient = waiting(&mut pool, "default", 10);
    pool.time += 10 * 15 * 60 * 1000;
    pool.grant(patient, vec![slice(0, 0, 0, 5)]);
    assert_eq!(pool.state.job(patient).unwrap().effective_priority(), 20);
    let higher = waiting(&mut pool, "default", 20);
    let lower = refusal(&mut pool, higher, vec![slice(0, 0, 0, 2)], vec![patient]);
    assert_eq!(lower.as_deref(), Some("its priority is not lower"));
    let highest = waiting(&mut pool, "default", 21);
    assert_eq!(refusal(&mut pool, highest, vec![slice(0, 0, 0, 2)], vec![patient]), None);
}

#[test]
fn a_minimum_run_time_holds_against_priorities_and_for_an_hour_against_a_recall() {
    let mut pool = pool();
    let day = Duration::from_secs(24 * 3600);
    let victim = running(&mut pool, "default", 0, 15, |spec| {
        spec.priority = 0;
        spec.min_runtime = day;
    });
    let urgent = waiting(&mut pool, "default", 100);
    let owner = waiting(&mut pool, "owner", 0);
    let (few, other) = (vec![slice(0, 0, 0, 2)], vec![slice(0, 0, 2, 2)]);
    assert!(refusal(&mut pool, owner, few.clone(), vec![victim]).is_some());
    pool.time += 3600 * 1000;
    assert!(refusal(&mut pool, urgent, other, vec![victim]).is_some());
    assert_eq!(refusal(&mut pool, owner, few, vec![victim]), None);
}

#[test]
fn what_queues_held_survives_a_snapshot_and_goes_on_alike() {
    let mut pool = pool();
    let job = running(&mut pool, "borrower", 0, 8, |_| {});
    pool.time += 30 * 24 * 3600 * 1000;
    pool.run(Command::Tick);
    let mut copy = Pool { state: decode_snapshot(encode_snapshot(&pool.state)).unwrap(), time: pool.time, log: vec![] };
    for pool in [&mut pool, &mut copy] {
        pool.report_all(job, &pool::exited(0));
    }
    let (now, config) = (pool.state.time(), pool.state.config());
    let mean = queue(&pool, "borrower").mean_use(now, config);
    assert!((7_000..8_000).contains(&mean.compute.0), "a month of 8 TFLOPS: {mean:?}");
    assert_eq!(queue(&copy, "borrower"), queue(&pool, "borrower"));
    assert!(pool.state.share_of(&queue(&pool, "borrower")) == 0, "it never held more than its guarantee");
}
