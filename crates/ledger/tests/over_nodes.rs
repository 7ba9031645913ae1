//! Jobs whose programs have a card over several nodes each: only its first worker has the program, the others serve
//! slices.

use std::collections::BTreeSet;

use tessera_ledger::{
    Access, CardKind, CheckpointKey, Command, DEVICE_LABEL, Eligibility, Event, FAULTS_UNTIL_CORDON, Job, JobId,
    JobSpec, JobState, Mebibytes, NodeDescription, NodeId, Observation, Outcome, PlanPart, PlannedWorker, PoolConfig,
    Rank, Reason, Revision, Slice, Span, StopCause, VirtualCardRequest,
};

use crate::pool::{Pool, card, exited, numbered, saved, slice, stopped};

/// Two nodes that serve devices, and a job that waits for a card over both.
fn waiting() -> (Pool, JobId) {
    waiting_for(1)
}

/// The same with so many cards, each of which may lie on both.
fn waiting_for(gang: u32) -> (Pool, JobId) {
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
        spec.gang = gang;
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

/// Grants a gang of two cards, the first on nodes 0 and 1, the second where it says; and it runs.
fn grant_gang(pool: &mut Pool, job: JobId, second: &[u32]) {
    let worker = |virtual_card: u32, node: u32| {
        let slices = vec![Slice { memory: Mebibytes(2), ..slice(node, 0, 2 * virtual_card, 2) }];
        PlannedWorker { virtual_card, node: NodeId(node), slices }
    };
    let of_second = second.iter().map(|node| worker(1, *node));
    let workers = [worker(0, 0), worker(0, 1)].into_iter().chain(of_second).collect();
    pool.accept(PlanPart::Grant { job, workers, victims: vec![] });
    pool.report_all(job, &Observation::Running);
    assert_eq!(of(pool, job).state, JobState::Running);
}

fn gang(second: &[u32]) -> (Pool, JobId) {
    let (mut pool, job) = waiting_for(2);
    grant_gang(&mut pool, job, second);
    (pool, job)
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

#[test]
fn its_program_saves_for_all_of_it() {
    let (mut pool, job) = running();
    pool.report(job, 0, saved(1, 10));
    pool.run(Command::SuspendJob { job });
    pool.report(job, 0, saved(CheckpointKey::LAST, 20));
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
    pool.report(job, 0, exited(0));
    assert_eq!(of(&pool, job).state, JobState::Completing, "what still serves it has nothing to serve");
    pool.run(Command::SuspendJob { job });
    pool.report(job, 1, stopped(StopCause::Ordered, None));
    let ended = of(&pool, job);
    assert_eq!((ended.state, ended.history[0].exit_code), (JobState::Completed, Some(0)));
}

#[test]
fn it_has_ended_by_itself_although_it_was_to_be_suspended_just_then() {
    let (mut pool, job) = running();
    pool.run(Command::SuspendJob { job });
    pool.report(job, 0, exited(0));
    pool.report(job, 1, stopped(StopCause::Ordered, Some(0)));
    assert_eq!(of(&pool, job).state, JobState::Completed);
}

#[test]
fn a_server_that_ends_well_before_its_program_ends_nothing() {
    let (mut pool, job) = running();
    pool.report(job, 1, exited(0));
    assert_eq!(of(&pool, job).state, JobState::Running);
    pool.report(job, 0, exited(3));
    assert_eq!((of(&pool, job).state, of(&pool, job).history[0].exit_code), (JobState::Failed, Some(3)));
}

/// The end of its first attempt, as it is told: the worker that decided, its code and the reason.
fn told(pool: &Pool, job: JobId) -> (Option<Rank>, Option<i32>, Option<Reason>) {
    let ended = &of(pool, job).history[0];
    (ended.decisive, ended.exit_code, ended.reason.clone())
}

#[test]
fn a_program_that_failed_decides_also_when_its_server_was_heard_of_before() {
    let (mut pool, job) = running();
    pool.report(job, 1, exited(1));
    pool.report(job, 0, exited(3));
    assert_eq!(told(&pool, job), (Some(Rank(0)), Some(3), Some(Reason::NonZeroExit { code: 3 })));
    assert_eq!(of(&pool, job).reason, Reason::NonZeroExit { code: 3 });
}

#[test]
fn a_server_that_could_not_be_started_decides_whatever_its_program_says_of_that() {
    for program in [exited(3), stopped(StopCause::LeaseExpired, None)] {
        let (mut pool, job) = running();
        pool.report(job, 1, stopped(StopCause::StartFailed, None));
        pool.report(job, 0, program);
        let (decisive, code, reason) = told(&pool, job);
        assert_eq!((decisive, code), (Some(Rank(1)), None));
        assert!(matches!(reason, Some(Reason::StartFailed { .. })), "{reason:?}");
    }
}

#[test]
fn servers_that_do_not_find_each_other_are_the_fault_of_no_node_and_in_the_end_of_the_job() {
    let (mut pool, job) = waiting();
    let mut tries = 0;
    while of(&pool, job).state == JobState::Pending {
        grant(&mut pool, job);
        // What a worker with a device begins as runs before it has one.
        pool.report_all(job, &Observation::Running);
        pool.report(job, tries % 2, stopped(StopCause::NodeFault, None));
        pool.report(job, 1 - tries % 2, stopped(StopCause::Ordered, None));
        pool.time += 3_600_000;
        pool.run(Command::Tick);
        tries += 1;
        assert!(tries <= 2 * FAULTS_UNTIL_CORDON, "it is tried for ever");
    }
    assert!(tries >= FAULTS_UNTIL_CORDON, "{tries}");
    assert!(pool.state.nodes().all(|node| node.eligibility == Eligibility::Eligible && node.faults == 0));
}

/// Whatever listens there, a job of somebody's too, would have the job blamed in the end.
#[test]
fn a_port_that_another_has_is_nobodys_fault_and_the_next_attempt_gets_another() {
    let (mut pool, job) = waiting();
    let mut ports = BTreeSet::new();
    for attempt in 1..=3 * FAULTS_UNTIL_CORDON {
        grant(&mut pool, job);
        let allocation = of(&pool, job).allocation.expect("it is granted");
        ports.insert(pool.state.allocation(allocation).expect("it is granted").master_port);
        pool.report_all(job, &Observation::Running);
        pool.report(job, 0, stopped(StopCause::PortTaken, None));
        pool.report(job, 1, stopped(StopCause::Ordered, None));
        let waiting = of(&pool, job);
        assert_eq!((waiting.state, waiting.retries), (JobState::Pending, 0), "attempt {attempt}");
        assert!(matches!(waiting.reason, Reason::PortTaken { .. }), "{:?}", waiting.reason);
        let wait = waiting.not_before.0 - pool.state.time().0;
        assert_eq!(wait, (1_000 << (attempt - 1)).min(60_000), "longer each time");
        pool.time += 3_600_000;
        pool.run(Command::Tick);
    }
    assert_eq!(ports.len(), 3 * FAULTS_UNTIL_CORDON as usize, "{ports:?}");
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

#[test]
fn the_programs_of_a_gang_and_the_servers_of_each_of_its_cards_meet_at_ports_of_their_own() {
    let (pool, job) = gang(&[0, 1]);
    let allocation = pool.allocation_of(job);
    let meetings: Vec<_> = allocation.meetings().collect();
    assert_eq!(meetings.iter().map(|(node, _)| node.0).collect::<Vec<_>>(), [0, 0, 0]);
    let ports: BTreeSet<u16> = meetings.iter().map(|(_, port)| *port).collect();
    assert_eq!(ports.len(), 3, "{meetings:?}");
    let met: Vec<bool> = allocation.workers.iter().map(|worker| worker.card_port > 0).collect();
    assert_eq!(met, [true, false, true, false]);
    let card = &of(&pool, job).spec.virtual_card;
    let programs = [0, 1, 2, 3].map(|rank| allocation.program(card, Rank(rank)).map(|program| program.0));
    assert_eq!(programs, [Some(0), None, Some(1), None]);
    let (alone, job) = gang(&[1]);
    let met: Vec<bool> = alone.allocation_of(job).workers.iter().map(|worker| worker.card_port > 0).collect();
    assert_eq!(met, [true, false, false], "a card on one node has nobody to meet");
}

#[test]
fn ports_are_given_back_with_the_allocation() {
    let (mut pool, job) = gang(&[0, 1]);
    for _ in 0..3 {
        pool.run(Command::SuspendJob { job });
        pool.report_all(job, &stopped(StopCause::Ordered, Some(0)));
        assert_eq!(of(&pool, job).state, JobState::Suspended);
        let config = PoolConfig { master_ports: 3, ..pool.state.config().clone() };
        assert_eq!(pool.run(Command::SetConfig { config, expected: None }), Outcome::Done);
        pool.run(Command::ResumeJob { job });
        grant_gang(&mut pool, job, &[0, 1]);
    }
}

#[test]
fn a_gang_is_over_when_each_of_its_programs_has_ended() {
    let (mut pool, job) = gang(&[0, 1]);
    pool.report(job, 2, exited(0));
    pool.report(job, 3, exited(0));
    assert_eq!(of(&pool, job).state, JobState::Running, "one program is left");
    pool.report(job, 0, exited(0));
    assert_eq!(of(&pool, job).state, JobState::Completing);
    pool.report(job, 1, stopped(StopCause::Ordered, None));
    assert_eq!(of(&pool, job).state, JobState::Completed);
}

#[test]
fn the_exit_code_of_a_gang_is_that_of_the_program_that_failed() {
    let (mut pool, job) = gang(&[0, 1]);
    pool.report(job, 0, exited(0));
    pool.report(job, 2, exited(5));
    for served in [1, 3] {
        pool.report(job, served, stopped(StopCause::Ordered, None));
    }
    assert_eq!((of(&pool, job).state, of(&pool, job).history[0].exit_code), (JobState::Failed, Some(5)));
}

#[test]
fn each_program_of_a_gang_saves_its_part_and_finds_it_on_however_many_nodes_its_card_lies_then() {
    let (mut pool, job) = gang(&[0, 1]);
    pool.run(Command::SuspendJob { job });
    for program in [0, 2] {
        pool.report(job, program, saved(CheckpointKey::LAST, 20));
    }
    pool.report_all(job, &stopped(StopCause::Ordered, Some(0)));
    let kept: Vec<_> = of(&pool, job).checkpoints.that_count().cloned().collect();
    assert_eq!(kept[0].parts.iter().map(|part| part.rank.0).collect::<Vec<_>>(), [0, 1]);
    pool.run(Command::ResumeJob { job });
    grant_gang(&mut pool, job, &[1]);
    assert_eq!(pool.allocation_of(job).from, Some(kept[0].key));
}

#[test]
fn a_program_that_fails_because_a_part_of_another_card_was_lost_is_not_blamed() {
    for (lost, state) in [(StopCause::NodeFault, JobState::Pending), (StopCause::Ordered, JobState::Failed)] {
        let (mut pool, job) = gang(&[0, 1]);
        pool.report(job, 2, exited(1));
        assert_eq!(of(&pool, job).state, JobState::Completing);
        pool.report(job, 0, stopped(lost, None));
        for served in [1, 3] {
            pool.report(job, served, stopped(StopCause::Ordered, None));
        }
        assert_eq!(of(&pool, job).state, state, "{lost:?}");
    }
}

#[test]
fn a_gang_that_loses_parts_time_and_again_is_blamed_in_the_end() {
    let (mut pool, job) = waiting_for(2);
    let mut tries = 0;
    while of(&pool, job).state == JobState::Pending {
        grant_gang(&mut pool, job, &[0, 1]);
        pool.report(job, 2, exited(1));
        pool.report(job, 0, stopped(StopCause::NodeFault, None));
        for served in [1, 3] {
            pool.report(job, served, stopped(StopCause::Ordered, None));
        }
        pool.time += 3_600_000;
        pool.run(Command::Tick);
        tries += 1;
        assert!(tries <= 10, "it is tried for ever");
    }
    assert_eq!(of(&pool, job).state, JobState::Failed);
}
