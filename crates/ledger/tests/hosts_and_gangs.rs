//! Hosts, whole cards and elastic gangs in the ledger: cases that a review found.

use tessera_ledger::{
    AllocationPhase, CardDescription, CardKind, Command, HostCapacity, HostRequest, JobState, Mebibytes, MilliCpus,
    MilliTflops, NodeDescription, NodeId, Observation, Outcome, PlanPart, PlannedWorker, Precision,
};

use crate::pool::{self, Pool, card, node, numbered, slice};

fn grow(pool: &mut Pool, tflops: u64) {
    let grown = CardDescription {
        index: 0,
        uuid: "card-0".to_owned(),
        measured: [(Precision::Fp16, MilliTflops::from_tflops(tflops))].into(),
        ..card(CardKind::Gpu, 10)
    };
    pool.run(Command::UpdateCards { node: NodeId(0), cards: vec![grown] });
}

/// A whole-card job is preempted on a card that has grown since.
#[test]
fn whole_card_victim_on_a_grown_card() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let whole = pool.submit(|spec| {
        spec.virtual_card.whole_cards = true;
        spec.priority = 10;
    });
    pool.grant(whole, vec![slice(0, 0, 0, 10)]);
    pool.report_all(whole, &Observation::Running);
    grow(&mut pool, 14);
    let urgent = pool.submit(|spec| spec.priority = 90);
    pool.grant_over(urgent, vec![slice(0, 0, 9, 4)], vec![whole]);
}

/// An elastic gang is taken when the least it starts with fits the pool.
#[test]
fn elastic_gang_larger_than_the_pool() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let job = pool.submit(|spec| {
        spec.virtual_card.compute = MilliTflops::from_tflops(4);
        spec.gang = 4;
        spec.gang_min = Some(1);
    });
    pool.grant(job, vec![slice(0, 0, 0, 4)]);
}

fn host(cpu: u64) -> HostRequest {
    HostRequest { cpu: MilliCpus(cpu), memory: Mebibytes(0) }
}

/// Only the host is short: the victim sits on another card of the node.
#[test]
fn preemption_for_the_host_alone() {
    let mut pool = Pool::with_nodes(&[]);
    let described =
        NodeDescription { host: Some(HostCapacity { cpu: MilliCpus(4000), memory: Mebibytes(9000) }), ..node("n0") };
    pool.run(Command::RegisterNode {
        node: described,
        cards: numbered(&[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)]),
    });
    let victim = pool.submit(|spec| {
        spec.priority = 10;
        spec.host = host(4000);
    });
    pool.grant(victim, vec![slice(0, 0, 0, 1)]);
    pool.report_all(victim, &Observation::Running);
    let urgent = pool.submit(|spec| {
        spec.priority = 90;
        spec.host = host(4000);
        spec.virtual_card.compute = MilliTflops::from_tflops(10);
    });
    pool.grant_over(urgent, vec![slice(0, 1, 0, 10)], vec![victim]);
}

/// The agent is upgraded and names its host for the first time while an allocation waits: it has room enough.
#[test]
fn a_host_that_becomes_known_does_not_throw_away_what_was_preempted_for() {
    let mut pool = Pool::with_nodes(&[]);
    let cards = numbered(&[card(CardKind::Gpu, 10)]);
    pool.run(Command::RegisterNode { node: node("n0"), cards: cards.clone() });
    let victim = pool.submit(|spec| spec.host = host(1000));
    pool.grant(victim, vec![slice(0, 0, 0, 10)]);
    pool.report_all(victim, &Observation::Running);
    let urgent = pool.submit(|spec| {
        spec.priority = 90;
        spec.host = host(1000);
    });
    pool.grant_over(urgent, vec![slice(0, 0, 0, 10)], vec![victim]);
    let described = NodeDescription {
        host: Some(HostCapacity { cpu: MilliCpus(64_000), memory: Mebibytes(9000) }),
        incarnation: 2,
        ..node("n0")
    };
    pool.run(Command::RegisterNode { node: described, cards });
    assert_eq!(pool.state.job(urgent).unwrap().state, JobState::Starting);
    assert_eq!(pool.allocation_of(urgent).phase, AllocationPhase::Waiting);
}

/// A move of an elastic gang that makes more virtual cards of the same number of workers.
#[test]
fn a_move_keeps_the_size_of_an_elastic_gang() {
    let gpu = || card(CardKind::Gpu, 10);
    let mut pool = Pool::with_nodes(&[&[gpu()], &[gpu()]]);
    let job = pool.submit(|spec| {
        spec.gang = 4;
        spec.gang_min = Some(2);
        spec.virtual_card.span = tessera_ledger::Span::Pool;
    });
    let w = |virtual_card, node, start| PlannedWorker {
        virtual_card,
        node: NodeId(node),
        slices: vec![slice(node, 0, start, 1)],
    };
    pool.accept(PlanPart::Grant {
        job,
        workers: vec![w(0, 0, 0), w(0, 1, 0), w(1, 0, 1), w(1, 1, 1)],
        victims: vec![],
    });
    pool.report_all(job, &Observation::Running);
    let outcome =
        pool.plan(vec![PlanPart::Move { job, workers: vec![w(0, 0, 4), w(1, 0, 5), w(2, 1, 4), w(3, 1, 5)] }]);
    assert!(matches!(&outcome, Outcome::Planned(parts) if parts[0].is_err()), "{outcome:?}");
}

/// `min_runtime` is a promise to the job.
#[test]
fn a_job_is_not_preempted_before_its_min_runtime() {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let victim = pool.submit(|spec| spec.min_runtime = std::time::Duration::from_secs(3600));
    pool.grant(victim, vec![slice(0, 0, 0, 10)]);
    pool.report_all(victim, &Observation::Running);
    let urgent = pool.submit(|spec| spec.priority = 90);
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 0, 0, 10)] };
    let outcome = pool.plan(vec![PlanPart::Grant { job: urgent, workers: vec![worker], victims: vec![victim] }]);
    assert!(matches!(&outcome, Outcome::Planned(parts) if parts[0].is_err()), "{outcome:?}");
}

/// The host that another job gives back starts an allocation beside a whole-card job that has not stopped yet.
#[test]
fn nobody_starts_beside_a_whole_card_job_that_still_stops() {
    let mut state = tessera_ledger::State::new();
    let mut at = 0;
    let mut run = |state: &mut tessera_ledger::State, command| {
        at += 1;
        let time = tessera_ledger::LogTime(at * 1000);
        // A broken law panics after the entry is applied.
        let applying = || tessera_testkit::apply(state, time, command);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(applying)).ok()
    };
    let described =
        NodeDescription { host: Some(HostCapacity { cpu: MilliCpus(4000), memory: Mebibytes(9000) }), ..node("n0") };
    run(
        &mut state,
        Command::RegisterNode { node: described, cards: numbered(&[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)]) },
    );
    let submit = |state: &mut tessera_ledger::State,
                  run: &mut dyn FnMut(&mut tessera_ledger::State, Command) -> Option<Outcome>,
                  spec| {
        match run(state, tessera_testkit::submission(spec)) {
            Some(Outcome::Submitted(id)) => id,
            other => panic!("{other:?}"),
        }
    };
    let mut whole = pool::spec();
    whole.virtual_card.whole_cards = true;
    whole.priority = 10;
    let whole = submit(&mut state, &mut run, whole);
    let mut other = pool::spec();
    other.host = host(1000);
    let other = submit(&mut state, &mut run, other);
    let mut urgent = pool::spec();
    urgent.host = host(1000);
    urgent.priority = 90;
    let urgent = submit(&mut state, &mut run, urgent);
    let grant = |state: &mut tessera_ledger::State,
                 run: &mut dyn FnMut(&mut tessera_ledger::State, Command) -> Option<Outcome>,
                 job,
                 slice,
                 victims| {
        let parts = vec![PlanPart::Grant {
            job,
            workers: vec![PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice] }],
            victims,
        }];
        run(state, Command::CommitPlan { plan: tessera_ledger::Plan { revision: state.revision(), parts } });
    };
    grant(&mut state, &mut run, whole, slice(0, 0, 0, 10), vec![]);
    grant(&mut state, &mut run, other, slice(0, 1, 0, 1), vec![]);
    let allocation = |state: &tessera_ledger::State, job| {
        state.allocation(state.job(job).unwrap().allocation.unwrap()).unwrap().clone()
    };
    for job in [whole, other] {
        let worker = allocation(&state, job).owner(tessera_ledger::Rank(0));
        let reports = vec![tessera_ledger::WorkerReport { worker, observation: Observation::Running }];
        run(&mut state, Command::ReportWorkers { node: NodeId(0), reports });
    }
    let grown = CardDescription {
        index: 0,
        uuid: "card-0".to_owned(),
        measured: [(Precision::Fp16, MilliTflops::from_tflops(14))].into(),
        ..card(CardKind::Gpu, 10)
    };
    run(&mut state, Command::UpdateCards { node: NodeId(0), cards: vec![grown] });
    grant(&mut state, &mut run, urgent, slice(0, 0, 11, 1), vec![whole]);
    assert_eq!(allocation(&state, urgent).phase, AllocationPhase::Waiting);
    let worker = allocation(&state, other).owner(tessera_ledger::Rank(0));
    let reports = vec![tessera_ledger::WorkerReport { worker, observation: pool::exited(0) }];
    run(&mut state, Command::ReportWorkers { node: NodeId(0), reports });
    assert_eq!(state.job(whole).unwrap().state, JobState::Suspending, "it has not stopped");
    assert_eq!(allocation(&state, urgent).phase, AllocationPhase::Waiting);
}
