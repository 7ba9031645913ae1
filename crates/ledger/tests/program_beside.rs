//! Jobs whose program is on a host beside its virtual card: a worker without slices runs it, and the others serve.

use tessera_ledger::{
    Access, AllocationPhase, CardDescription, CardKind, CheckpointMode, Command, DEVICE_LABEL, HostCapacity,
    HostRequest, Job, JobId, JobSpec, JobState, Mebibytes, MilliCpus, NodeDescription, NodeId, Observation, Outcome,
    PlanPart, PlannedWorker, Rank, Rejection, Span, StopCause, WorkerState,
};

use crate::pool::{self, Pool, card, exited, numbered, slice, stopped};

/// The host request of each program.
const ASKED: HostRequest = HostRequest { cpu: MilliCpus(2_000), memory: Mebibytes(1_024) };
/// The node without cards.
const HOST: NodeId = NodeId(2);

fn register(pool: &mut Pool, name: &str, cpu: u64, cards: &[CardDescription]) {
    let labels = [(DEVICE_LABEL.0.to_owned(), DEVICE_LABEL.1.to_owned())].into();
    let host = Some(HostCapacity { cpu: MilliCpus(cpu), memory: Mebibytes(8_192) });
    let node = NodeDescription { labels, host, ..tessera_testkit::node(name) };
    pool.run(Command::RegisterNode { node, cards: numbered(cards) });
}

/// Two nodes with a card each, whose hosts have no room for a program, and a host without cards that has room for two.
fn pool() -> Pool {
    let mut pool = Pool::with_nodes(&[]);
    for name in ["a", "b"] {
        register(&mut pool, name, 1_000, &[card(CardKind::Gpu, 10)]);
    }
    register(&mut pool, "host", 4_000, &[]);
    pool
}

fn of_device(spec: &mut JobSpec) {
    let card = &mut spec.virtual_card;
    (card.access, card.span, card.memory) = (Access::Device, Span::Pool, Mebibytes(2));
    spec.host = ASKED;
    spec.retry.max_retries = 0;
    *spec = spec.clone().with_needs_of_its_access();
    spec.affinity.together.clear();
}

fn submit(pool: &mut Pool, change: impl FnOnce(&mut JobSpec)) -> JobId {
    pool.submit(|spec| {
        of_device(spec);
        change(spec);
    })
}

fn program(virtual_card: u32, node: NodeId) -> PlannedWorker {
    PlannedWorker { virtual_card, node, slices: vec![] }
}

/// A block of the card of a node, the one of this number.
fn server(virtual_card: u32, node: u32, block: u32) -> PlannedWorker {
    let part = tessera_ledger::Slice { memory: Mebibytes(2), ..slice(node, 0, block, 1) };
    PlannedWorker { virtual_card, node: NodeId(node), slices: vec![part] }
}

fn grant(job: JobId, workers: Vec<PlannedWorker>) -> PlanPart {
    PlanPart::Grant { job, workers, victims: vec![] }
}

fn refusal(pool: &mut Pool, part: PlanPart) -> Rejection {
    match pool.plan(vec![part]) {
        Outcome::Planned(mut parts) => parts.remove(0).expect_err("it was accepted"),
        other => panic!("{other:?}"),
    }
}

/// A job that runs: its program on the host without cards, its slices on both others.
fn running() -> (Pool, JobId) {
    let mut pool = pool();
    let job = submit(&mut pool, |_| ());
    pool.accept(grant(job, vec![program(0, HOST), server(0, 0, 0), server(0, 1, 0)]));
    pool.report_all(job, &Observation::Running);
    assert_eq!(of(&pool, job).state, JobState::Running);
    (pool, job)
}

fn of(pool: &Pool, job: JobId) -> &Job {
    pool.state.job(job).expect("it is in the ledger")
}

fn used(pool: &Pool) -> [HostRequest; 3] {
    [NodeId(0), NodeId(1), HOST].map(|node| pool.state.host_use(node).used)
}

#[test]
fn only_the_host_of_the_program_is_asked_for_anything() {
    let (mut pool, job) = running();
    assert_eq!(used(&pool), [HostRequest::ZERO, HostRequest::ZERO, ASKED]);
    pool.report(job, 0, exited(0));
    assert_eq!(used(&pool), [HostRequest::ZERO; 3]);
    for served in [1, 2] {
        pool.report(job, served, stopped(StopCause::Ordered, Some(0)));
    }
    assert_eq!(of(&pool, job).state, JobState::Completed);
}

#[test]
fn a_program_beside_its_card_is_in_front_of_it_and_nowhere_else() {
    let mut pool = pool();
    let job = submit(&mut pool, |_| ());
    let behind = refusal(&mut pool, grant(job, vec![server(0, 0, 0), program(0, HOST)]));
    assert!(matches!(behind, Rejection::GrantMismatch { .. } | Rejection::HostNotFree { .. }), "{behind}");
    let twice = refusal(&mut pool, grant(job, vec![program(0, HOST), program(0, NodeId(1)), server(0, 0, 0)]));
    assert!(matches!(twice, Rejection::GrantMismatch { .. }), "{twice}");
    let without_card = refusal(&mut pool, grant(job, vec![program(0, HOST)]));
    assert!(matches!(without_card, Rejection::GrantMismatch { .. }), "{without_card}");
    let with_its_card = refusal(&mut pool, grant(job, vec![server(0, 0, 0), server(0, 1, 0)]));
    assert!(matches!(with_its_card, Rejection::HostNotFree { .. }), "{with_its_card}");
    let on_one_node = submit(&mut pool, |spec| {
        spec.virtual_card.span = Span::Node;
        spec.host = HostRequest::ZERO;
    });
    let apart = refusal(&mut pool, grant(on_one_node, vec![program(0, HOST), server(0, 0, 0)]));
    assert!(matches!(apart, Rejection::GrantMismatch { .. }), "{apart}");
    let dumped = submit(&mut pool, |spec| {
        spec.checkpoint.mode = CheckpointMode::Transparent;
        spec.host = HostRequest::ZERO;
    });
    let apart = refusal(&mut pool, grant(dumped, vec![program(0, HOST), server(0, 0, 0)]));
    assert!(matches!(apart, Rejection::GrantMismatch { .. }), "its image and its card are saved together: {apart}");
}

#[test]
fn its_host_must_take_new_work_and_carry_the_labels() {
    let mut pool = pool();
    let job = submit(&mut pool, |_| ());
    register(&mut pool, "other", 4_000, &[]);
    pool.run(Command::DrainNode { node: HOST, reason: String::new(), within: std::time::Duration::ZERO });
    let drained = refusal(&mut pool, grant(job, vec![program(0, HOST), server(0, 0, 0)]));
    assert_eq!(drained, Rejection::NodeNotGrantable(HOST));
    let host = Some(HostCapacity { cpu: MilliCpus(8_000), memory: Mebibytes(8_192) });
    let node = NodeDescription { host, ..tessera_testkit::node("bare") };
    pool.run(Command::RegisterNode { node, cards: vec![] });
    let bare = refusal(&mut pool, grant(job, vec![program(0, NodeId(4)), server(0, 0, 0)]));
    assert!(matches!(bare, Rejection::GrantMismatch { .. }), "{bare}");
    pool.accept(grant(job, vec![program(0, NodeId(3)), server(0, 0, 0)]));
}

#[test]
fn servers_meet_at_one_port_and_the_program_comes_to_another() {
    let (pool, job) = running();
    let ports: Vec<_> = pool.allocation_of(job).workers.iter().map(|one| (one.card_port, one.program_port)).collect();
    assert!(ports[0] == (0, 0) && ports[2] == (0, 0), "{ports:?}");
    assert!(ports[1].0 > 0 && ports[1].1 > 0 && ports[1].0 != ports[1].1, "{ports:?}");
    let mut pool = self::pool();
    let job = submit(&mut pool, |_| ());
    pool.accept(grant(job, vec![program(0, HOST), server(0, 0, 0)]));
    let allocation = pool.allocation_of(job);
    let first = &allocation.workers[1];
    assert!(first.card_port == 0 && first.program_port > 0, "one server has nobody to meet but the program");
    assert!(allocation.meetings().any(|meeting| meeting == (NodeId(0), first.program_port)));
}

#[test]
fn each_program_of_a_gang_has_a_host_of_its_own() {
    let mut pool = pool();
    let job = submit(&mut pool, |spec| spec.gang = 2);
    pool.accept(grant(
        job,
        vec![program(0, HOST), server(0, 0, 0), program(1, HOST), server(1, 0, 1), server(1, 1, 0)],
    ));
    let allocation = pool.allocation_of(job);
    let card = &of(&pool, job).spec.virtual_card;
    let programs = [0, 1, 2, 3, 4].map(|rank| allocation.program(card, Rank(rank)).map(|program| program.0));
    assert_eq!(programs, [Some(0), None, Some(1), None, None]);
    assert_eq!(used(&pool)[2], ASKED.plus(ASKED));
    let third = submit(&mut pool, |_| ());
    let full = refusal(&mut pool, grant(third, vec![program(0, HOST), server(0, 1, 5)]));
    assert!(matches!(full, Rejection::HostNotFree { node: HOST, .. }), "{full}");
}

#[test]
fn its_host_is_left_when_it_is_drained() {
    let (mut pool, job) = running();
    pool.run(Command::DrainNode { node: HOST, reason: String::new(), within: std::time::Duration::ZERO });
    pool.accept(PlanPart::Evict { job, node: HOST });
    pool.report_all(job, &stopped(StopCause::Ordered, Some(0)));
    assert_eq!((of(&pool, job).state, used(&pool)), (JobState::Suspended, [HostRequest::ZERO; 3]));
    register(&mut pool, "other", 4_000, &[]);
    pool.accept(grant(job, vec![program(0, NodeId(3)), server(0, 1, 0)]));
}

#[test]
fn the_loss_of_its_host_ends_the_attempt_once_its_lease_is_over() {
    let (mut pool, job) = running();
    let epoch = pool.state.node(HOST).expect("it is registered").epoch;
    pool.run(Command::NodeLost { node: HOST, epoch });
    assert_eq!(pool.allocation_of(job).workers[0].state, WorkerState::Stopped, "its lease is over");
    assert_eq!(pool.allocation_of(job).phase, AllocationPhase::Ending);
    for served in [1, 2] {
        pool.report(job, served, stopped(StopCause::Ordered, Some(0)));
    }
    assert_eq!((of(&pool, job).state, used(&pool)), (JobState::Pending, [HostRequest::ZERO; 3]));
}

#[test]
fn what_a_program_waits_for_may_be_held_by_a_program() {
    let mut pool = pool();
    let victims = [0, 1].map(|block| {
        let victim = submit(&mut pool, |spec| spec.priority = 10);
        pool.accept(grant(victim, vec![program(0, HOST), server(0, 0, block)]));
        pool.report_all(victim, &Observation::Running);
        victim
    });
    let urgent = submit(&mut pool, |spec| spec.priority = 90);
    let on_other_card = vec![program(0, HOST), server(0, 1, 0)];
    let part = |victims| PlanPart::Grant { job: urgent, workers: on_other_card.clone(), victims };
    let both = refusal(&mut pool, part(vec![]));
    assert!(matches!(both, Rejection::HostNotFree { .. }), "{both}");
    pool.accept(part(vec![victims[0]]));
    assert_eq!(pool.allocation_of(urgent).phase, AllocationPhase::Waiting);
    // Its server gives back nothing that is waited for.
    pool.report(victims[0], 1, stopped(StopCause::Ordered, Some(0)));
    assert_eq!(pool.allocation_of(urgent).phase, AllocationPhase::Waiting);
    pool.report(victims[0], 0, stopped(StopCause::Ordered, Some(0)));
    assert_eq!(pool.allocation_of(urgent).phase, AllocationPhase::Active);
    // A victim whose program is elsewhere would be preempted in vain.
    let third = submit(&mut pool, |spec| spec.priority = 95);
    let workers = vec![program(0, HOST), server(0, 1, 5)];
    pool.accept(PlanPart::Grant { job: third, workers, victims: vec![victims[1]] });
}

/// While a gang that waits is given up, what its first program was promised does not bring the rest of it into force.
#[test]
fn a_gang_that_waits_for_a_host_is_given_up_as_a_whole() {
    for (order, ends_as) in [
        (Command::SuspendJob { job: JobId(2) }, JobState::Suspended),
        (Command::CancelJob { job: JobId(2) }, JobState::Cancelled),
    ] {
        let mut pool = pool();
        let victim = submit(&mut pool, |spec| spec.priority = 10);
        pool.accept(grant(victim, vec![program(0, HOST), server(0, 0, 0)]));
        pool.report_all(victim, &Observation::Running);
        let gang = submit(&mut pool, |spec| (spec.priority, spec.gang) = (90, 2));
        assert_eq!(gang, JobId(2));
        let workers = vec![program(0, HOST), server(0, 1, 0), program(1, HOST), server(1, 1, 1)];
        pool.accept(PlanPart::Grant { job: gang, workers, victims: vec![victim] });
        assert_eq!(pool.allocation_of(gang).phase, AllocationPhase::Waiting);
        pool.run(order);
        assert_eq!((of(&pool, gang).state, of(&pool, gang).allocation), (ends_as, None));
    }
}

/// Servers end in order also when what they served did not: that says nothing for their node.
#[test]
fn only_a_program_that_ended_by_itself_speaks_for_the_device() {
    let (mut pool, job) = running();
    pool.report(job, 0, stopped(StopCause::NodeFault, None));
    let faults = of(&pool, job).node_faults;
    pool.report(job, 1, exited(0));
    assert_eq!((of(&pool, job).node_faults, faults), (1, 1));
}

/// A host that may not have the program does not make a job possible.
#[test]
fn a_host_without_the_labels_of_the_job_does_not_count() {
    let mut pool = pool();
    let host = Some(HostCapacity { cpu: MilliCpus(64_000), memory: Mebibytes(65_536) });
    let node = NodeDescription { host, ..tessera_testkit::node("other") };
    pool.run(Command::RegisterNode { node, cards: numbered(&[]) });
    let job = submit(&mut pool, |_| ());
    let mut spec = JobSpec::clone(&of(&pool, job).spec);
    spec.host.cpu = MilliCpus(32_000);
    assert_eq!(pool.state.admit(&spec), Ok(()), "it may turn out to serve devices");
    spec.node_labels.insert("zone".to_owned(), "a".to_owned());
    assert!(matches!(pool.state.admit(&spec), Err(Rejection::ExceedsHost { .. })), "{:?}", pool.state.admit(&spec));
}

#[test]
fn a_move_may_take_the_program_to_a_host_beside_its_card() {
    let mut pool = pool();
    register(&mut pool, "large", 4_000, &[card(CardKind::Gpu, 10)]);
    let job = submit(&mut pool, |_| ());
    pool.accept(grant(job, vec![server(0, 3, 0)]));
    pool.report_all(job, &Observation::Running);
    pool.accept(PlanPart::Move { job, workers: vec![program(0, HOST), server(0, 0, 0), server(0, 1, 0)] });
    assert_eq!(of(&pool, job).state, JobState::Moving);
    assert_eq!(pool.state.host_use(NodeId(3)).used, ASKED);
    assert_eq!(used(&pool)[2], ASKED, "it has both until it has moved");
}

#[test]
fn a_job_is_refused_whose_program_fits_no_host_of_the_pool() {
    let mut pool = pool();
    // Only the host without cards is large enough.
    submit(&mut pool, |spec| spec.host.cpu = MilliCpus(4_000));
    let mut spec = tessera_testkit::job(1, 2);
    of_device(&mut spec);
    spec.host.cpu = MilliCpus(4_001);
    let spec = spec.into();
    let refused = pool.run(Command::SubmitJob { spec, traceparent: String::new(), secret: Some(7) });
    let refused = pool::rejected(refused);
    assert!(matches!(refused, Rejection::ExceedsHost { most, .. } if most.cpu == MilliCpus(4_000)), "{refused}");
}
