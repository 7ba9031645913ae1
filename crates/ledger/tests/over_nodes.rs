//! Jobs whose one program has a card over several nodes: only the first worker has it, the others serve slices.

mod pool;

use pool::{Pool, card, exited, numbered, saved, slice, stopped};
use tessera_ledger::{
    Access, CardKind, CheckpointKey, Command, DEVICE_LABEL, Eligibility, Event, FAULTS_UNTIL_CORDON, Job, JobId,
    JobSpec, JobState, Mebibytes, NodeDescription, NodeId, Observation, PlanPart, PlannedWorker, Rank, Revision, Slice,
    Span, StopCause, VirtualCardRequest, WorkerReport,
};

/// Two nodes that serve devices, and a job that waits for a card over both.
fn waiting() -> (Pool, JobId) {
    let mut pool = Pool::with_nodes(&[]);
    for name in ["a", "b"] {
        let labels = [(DEVICE_LABEL.0.to_owned(), DEVICE_LABEL.1.to_owned())].into();
        let node = NodeDescription { labels, ..tessera_testkit::node(name) };
        pool.run(Command::RegisterNode { node, cards: numbered(&[card(CardKind::Gpu, 10)]) });
    }
    let job = pool.submit(|spec| {
        let card = &mut spec.virtual_card;
        (card.access, card.span, card.memory) = (Access::Device, Span::Pool, Mebibytes(2));
        spec.retry.max_retries = 0;
        *spec = spec.clone().with_needs_of_its_access();
        // Any PyTorch: these nodes do not say which one they have.
        spec.affinity.together.clear();
    });
    (pool, job)
}

fn grant(pool: &mut Pool, job: JobId) {
    let part = |node: u32| Slice { memory: Mebibytes(1), ..slice(node, 0, 0, 1) };
    let worker = |node: u32| PlannedWorker { virtual_card: 0, node: NodeId(node), slices: vec![part(node)] };
    pool.accept(PlanPart::Grant { job, workers: vec![worker(0), worker(1)], victims: vec![] });
}

/// The same, and it runs.
fn running() -> (Pool, JobId) {
    let (mut pool, job) = waiting();
    grant(&mut pool, job);
    pool.report_all(job, &Observation::Running);
    assert_eq!(of(&pool, job).state, JobState::Running);
    (pool, job)
}

fn of(pool: &Pool, job: JobId) -> &Job {
    pool.state.job(job).expect("it is in the ledger")
}

fn report(pool: &mut Pool, job: JobId, rank: u32, observation: Observation) {
    let allocation = pool.allocation_of(job);
    let worker = allocation.worker(Rank(rank)).expect("it has so many");
    let reports = vec![WorkerReport { worker: allocation.owner(Rank(rank)), observation }];
    pool.run(Command::ReportWorkers { node: worker.node, reports });
}

#[test]
fn its_program_saves_for_all_of_it() {
    let (mut pool, job) = running();
    report(&mut pool, job, 0, saved(1, 10));
    pool.run(Command::SuspendJob { job });
    report(&mut pool, job, 0, saved(CheckpointKey::LAST, 20));
    pool.report_all(job, &stopped(StopCause::Ordered, Some(0)));
    let kept: Vec<_> = of(&pool, job).checkpoints.that_count().map(|one| (one.progress(), one.workers)).collect();
    assert_eq!(kept, [(20, 1), (10, 1)]);
    let entries = pool.state.events_after(Revision(0)).expect("all are kept");
    let events: Vec<Event> = entries.flat_map(|entry| entry.events.to_vec()).collect();
    assert!(!events.iter().any(|event| matches!(event, Event::CheckpointSkipped { .. })));
    pool.run(Command::ResumeJob { job });
    grant(&mut pool, job);
    assert_eq!(pool.allocation_of(job).from.map(|key| key.sequence), Some(CheckpointKey::LAST));
}

#[test]
fn the_end_of_its_program_is_the_end_of_the_job() {
    let (mut pool, job) = running();
    report(&mut pool, job, 0, exited(0));
    assert_eq!(of(&pool, job).state, JobState::Completing, "what still serves it has nothing to serve");
    pool.run(Command::SuspendJob { job });
    report(&mut pool, job, 1, stopped(StopCause::Ordered, None));
    let ended = of(&pool, job);
    assert_eq!((ended.state, ended.history[0].exit_code), (JobState::Completed, Some(0)));
}

#[test]
fn it_has_ended_by_itself_although_it_was_to_be_suspended_just_then() {
    let (mut pool, job) = running();
    pool.run(Command::SuspendJob { job });
    report(&mut pool, job, 0, exited(0));
    report(&mut pool, job, 1, stopped(StopCause::Ordered, Some(0)));
    assert_eq!(of(&pool, job).state, JobState::Completed);
}

#[test]
fn a_server_that_ends_well_before_its_program_ends_nothing() {
    let (mut pool, job) = running();
    report(&mut pool, job, 1, exited(0));
    assert_eq!(of(&pool, job).state, JobState::Running);
    report(&mut pool, job, 0, exited(3));
    assert_eq!((of(&pool, job).state, of(&pool, job).history[0].exit_code), (JobState::Failed, Some(3)));
}

#[test]
fn servers_that_do_not_find_each_other_are_the_fault_of_no_node_and_in_the_end_of_the_job() {
    let (mut pool, job) = waiting();
    let mut tries = 0;
    while of(&pool, job).state == JobState::Pending {
        grant(&mut pool, job);
        // What a worker with a device begins as runs before it has one.
        pool.report_all(job, &Observation::Running);
        report(&mut pool, job, tries % 2, stopped(StopCause::NodeFault, None));
        report(&mut pool, job, 1 - tries % 2, stopped(StopCause::Ordered, None));
        pool.time += 3_600_000;
        pool.run(Command::Tick);
        tries += 1;
        assert!(tries <= 2 * FAULTS_UNTIL_CORDON, "it is tried for ever");
    }
    assert!(tries >= FAULTS_UNTIL_CORDON, "{tries}");
    assert!(pool.state.nodes().all(|node| node.eligibility == Eligibility::Eligible && node.faults == 0));
}

#[test]
fn a_node_whose_server_never_comes_up_is_found_out_although_its_worker_runs() {
    let (mut pool, job) = waiting();
    let spec = JobSpec::clone(&of(&pool, job).spec);
    let virtual_card = VirtualCardRequest { span: Span::Card, ..spec.virtual_card.clone() };
    let alone = pool.submit(|alone| *alone = JobSpec { virtual_card, ..spec });
    for fault in 1..=FAULTS_UNTIL_CORDON {
        pool.grant(alone, vec![Slice { memory: Mebibytes(2), ..slice(1, 0, 0, 1) }]);
        pool.report_all(alone, &Observation::Running);
        pool.report_all(alone, &stopped(StopCause::NodeFault, None));
        assert_eq!(pool.state.node(NodeId(1)).expect("it is registered").faults, fault);
        pool.time += 3_600_000;
        pool.run(Command::Tick);
    }
    assert_eq!(pool.state.node(NodeId(1)).expect("it is registered").eligibility, Eligibility::Cordoned);
}
