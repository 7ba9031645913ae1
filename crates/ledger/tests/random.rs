//! The laws under random command sequences: valid, stale, duplicated, reordered and hostile. [`Pool::apply`] checks
//! every law after each entry; here the sequences are made, replayed on a second instance, and refusals are shown to
//! change nothing.

mod pool;

use pool::{Pool, card, exited, node, numbered, saved, spec, stopped};
use proptest::prelude::*;
use tessera_ledger::{
    Access, AllocationPhase, BlockCount, BlockIndex, BlockState, CardHealth, CardId, CardKind, CheckpointKey, Command,
    DEVICE_LABEL, Eligibility, EntryPosition, Epoch, HostCapacity, HostRequest, IdlePolicy, IdleStep, Isolation, JobId,
    JobState, LeaseTimings, LogTime, Mebibytes, MilliCpus, MilliTflops, MoveId, MovePhase, NodeId, NodeState,
    Observation, OnDisconnect, Outcome, Owner, Percent, Plan, PlanPart, PlannedWorker, QueueAmount, QueueSettings,
    Rank, Request, RequestId, RequestKey, Revision, Slice, Span, State, StopCause, WindowOf, WorkerReport,
};

/// What to do next; the numbers choose among what there is.
#[derive(Clone, Debug)]
enum Step {
    Submit { tflops: u8, priority: u8, gang: u8, span: u8, flags: u8 },
    Place { job: u8, preempt: bool },
    Wish { job: u8, what: u8 },
    Report { allocation: u8, rank: u8, what: u8 },
    StaleReport { allocation: u64, epoch: u64, rank: u32 },
    Node { node: u8, what: u8 },
    Rerate { node: u8, card: u8, tflops: u8, healthy: bool },
    Register { node: u8, incarnation: u8, cards: u8 },
    Renumber { node: u8, card: u8 },
    Move { job: u8 },
    Advance { id: u8, from: u8, proceed: bool },
    HostileGrant { job: u8, node: u32, card: u32, start: u32, blocks: u32 },
    Queue { maximum: u8 },
    Oversubscribe { kind: u8, percent: u32 },
    Leases { times: u8 },
    Settle { back: u8 },
    Replay { back: u8 },
    Wait { seconds: u16 },
}

fn step() -> impl Strategy<Value = Step> {
    use Step::{
        Advance, HostileGrant, Leases, Move, Node, Oversubscribe, Place, Queue, Register, Renumber, Replay, Report,
        Rerate, Settle, StaleReport, Submit, Wait, Wish,
    };
    prop_oneof![
        6 => (1u8..24, 0u8..4, 1u8..4, 0u8..3, any::<u8>())
            .prop_map(|(tflops, priority, gang, span, flags)| Submit { tflops, priority, gang, span, flags }),
        8 => (any::<u8>(), any::<bool>()).prop_map(|(job, preempt)| Place { job, preempt }),
        3 => (any::<u8>(), 0u8..14).prop_map(|(job, what)| Wish { job, what }),
        12 => (any::<u8>(), any::<u8>(), 0u8..15).prop_map(|(allocation, rank, what)| Report { allocation, rank, what }),
        1 => (0u64..20, 0u64..200, 0u32..4).prop_map(|(allocation, epoch, rank)| StaleReport { allocation, epoch, rank }),
        3 => (0u8..5, 0u8..8).prop_map(|(node, what)| Node { node, what }),
        1 => (0u8..4, 0u8..4, 0u8..30, any::<bool>())
            .prop_map(|(node, card, tflops, healthy)| Rerate { node, card, tflops, healthy }),
        1 => (0u8..5, 0u8..3, 0u8..5).prop_map(|(node, incarnation, cards)| Register { node, incarnation, cards }),
        2 => (0u8..4, 0u8..4).prop_map(|(node, card)| Renumber { node, card }),
        2 => any::<u8>().prop_map(|job| Move { job }),
        3 => (any::<u8>(), 0u8..4, any::<bool>()).prop_map(|(id, from, proceed)| Advance { id, from, proceed }),
        1 => (any::<u8>(), 0u32..5, 0u32..5, 0u32..40, 0u32..40)
            .prop_map(|(job, node, card, start, blocks)| HostileGrant { job, node, card, start, blocks }),
        1 => (0u8..60).prop_map(|maximum| Queue { maximum }),
        1 => (0u8..4, 80u32..300).prop_map(|(kind, percent)| Oversubscribe { kind, percent }),
        1 => (0u8..5).prop_map(|times| Leases { times }),
        1 => (0u8..3).prop_map(|back| Settle { back }),
        2 => any::<u8>().prop_map(|back| Replay { back }),
        1 => (0u16..5000).prop_map(|seconds| Wait { seconds }),
    ]
}

/// A job has been idle since it began, or is busy again.
fn note_idle(state: &State, job: JobId, step: Option<IdleStep>) -> Command {
    let of = state.job(job);
    let allocation = of.and_then(|job| job.allocation).and_then(|id| state.allocation(id));
    let since = allocation.and_then(|allocation| allocation.started_at).unwrap_or_default();
    Command::NoteIdle { job, attempt: of.map_or(0, |job| job.attempts), since, step }
}

/// What follows soon for jobs that are idle.
fn idle() -> IdlePolicy {
    let after = |seconds| Some(std::time::Duration::from_secs(seconds));
    IdlePolicy {
        below: Percent(10),
        notify_after: after(1),
        preemptible_after: after(2),
        suspend_after: after(3),
        release_after: after(4),
    }
}

/// The windows of a job are closed for so long.
fn close(state: &State, whose: WindowOf, millis: u64) -> Command {
    let windows = vec!["0 20 * * * for 10h".to_owned()];
    Command::CloseUntil { whose, windows, time: LogTime(state.time().0 + millis) }
}

fn pick<T: Clone>(items: &[T], choice: u8) -> Option<T> {
    (!items.is_empty()).then(|| items[usize::from(choice) % items.len()].clone())
}

fn job_ids(state: &State) -> Vec<JobId> {
    state.jobs_from(JobId(0)).map(|job| job.id).collect()
}

/// First fit on blocks that are free, or, with `preempt`, held by jobs of lower priority, which become victims.
fn first_fit(state: &State, id: JobId, preempt: bool) -> Option<(Vec<PlannedWorker>, Vec<JobId>)> {
    let job = state.job(id)?;
    let request = &job.spec.virtual_card;
    let (mut workers, mut victims): (Vec<PlannedWorker>, Vec<JobId>) = (vec![], vec![]);
    let mut taken: Vec<(CardId, u32, u32)> = vec![];
    'virtual_card: for virtual_card in 0..job.spec.gang {
        for (card_id, card) in state.cards() {
            let Some(blocks) = card.blocks_for(request.compute, tessera_ledger::Precision::Fp16) else { continue };
            let blocks = if request.whole_cards { blocks.max(card.blocks) } else { blocks };
            for start in 0..card.blocks.0.saturating_sub(blocks.0 - 1) {
                let mut here = vec![];
                let usable = |block: BlockState| match block {
                    BlockState::Free => true,
                    BlockState::Running(owner) | BlockState::Held(owner) => {
                        preempt
                            && state.allocation(owner.allocation).is_some_and(|allocation| {
                                allocation.phase == AllocationPhase::Active
                                    && state
                                        .job(allocation.job)
                                        .is_some_and(|victim| victim.spec.priority < job.spec.priority)
                            })
                    }
                    _ => false,
                };
                let overlaps =
                    taken.iter().any(|(other, from, to)| *other == card_id && start < *to && *from < start + blocks.0);
                if overlaps || !card.extents.all(BlockIndex(start), blocks, usable) {
                    continue;
                }
                for extent in card.extents.as_slice() {
                    if extent.start.0 < start + blocks.0
                        && start < extent.end()
                        && let Some(owner) = extent.state.owner()
                    {
                        here.push(state.allocation(owner.allocation)?.job);
                    }
                }
                taken.push((card_id, start, start + blocks.0));
                victims.extend(here);
                let slice = Slice {
                    card: card_id,
                    start: BlockIndex(start),
                    length: blocks,
                    memory: request.memory,
                    isolation: request.isolation,
                };
                if id.0.is_multiple_of(2) && request.serves_across_nodes() {
                    let beside = state.nodes().map(|node| node.id).find(|node| *node != card_id.node)?;
                    workers.push(PlannedWorker { virtual_card, node: beside, slices: vec![] });
                }
                workers.push(PlannedWorker { virtual_card, node: card_id.node, slices: vec![slice] });
                continue 'virtual_card;
            }
        }
        if job.spec.gang_sizes().contains(&virtual_card) {
            break;
        }
        return None;
    }
    victims.sort_unstable();
    victims.dedup();
    Some((workers, victims))
}

fn observation(what: u8) -> Observation {
    match what {
        0..=2 => Observation::Running,
        3 | 4 => exited(0),
        5 => exited(1),
        6 => stopped(StopCause::Ordered, None),
        7 => stopped(StopCause::TimeLimit, None),
        8 => saved(CheckpointKey::LAST, 0),
        9..=11 => saved(u64::from(what), u64::from(what % 2)),
        12 => Observation::Unusable { lost: true, message: "damaged".to_owned() },
        13 => stopped(StopCause::NotRestored, None),
        _ => Observation::Unconfirmed { message: "still there".to_owned() },
    }
}

/// The command for a step, as far as there is something to do it with.
fn command(state: &State, step: &Step) -> Option<Command> {
    Some(match *step {
        Step::Submit { tflops, priority, gang, span, flags } => {
            let mut spec = spec();
            spec.virtual_card.compute = MilliTflops::from_tflops(u64::from(tflops));
            spec.virtual_card.span = [Span::Card, Span::Node, Span::Pool][usize::from(span)];
            spec.priority = u32::from(priority) * 20;
            spec.gang = u32::from(gang);
            spec.preemptible = flags & 1 == 0;
            spec.held = flags & 14 == 14;
            if flags & 48 == 48 {
                spec.on_disconnect = OnDisconnect::Keep;
            }
            if flags & 3 == 3 {
                // Hosts have 4 CPUs and 4 GiB (see `hosts`): some allocations must be refused.
                spec.host = HostRequest {
                    cpu: MilliCpus(u64::from(tflops % 4) * 700),
                    memory: Mebibytes(u64::from(priority) * 900),
                };
            }
            if flags & 5 == 4 {
                spec.gang_min = Some(1);
            }
            spec.virtual_card.whole_cards = flags & 160 == 160;
            if span == 2 && flags & 18 == 18 {
                // Its program may be beside its card.
                spec.virtual_card.access = Access::Device;
                spec = spec.with_needs_of_its_access();
                spec.affinity.together.clear();
            }
            spec.virtual_card.isolation = if flags & 8 == 8 { Isolation::Soft } else { Isolation::Shared };
            if flags & 64 == 64 {
                spec.queue = "team".to_owned();
            }
            if flags & 32 == 32 {
                spec.windows = vec!["0 20 * * * for 10h".to_owned()];
                spec.grow_after = spec.gang_min.map(|_| std::time::Duration::ZERO);
            }
            tessera_testkit::submission(spec)
        }
        Step::Place { job, preempt } => {
            let waiting: Vec<JobId> = state.waiting().map(|job| job.id).collect();
            let job = pick(&waiting, job)?;
            let (workers, victims) = first_fit(state, job, preempt)?;
            plan(state, PlanPart::Grant { job, workers, victims })
        }
        Step::Wish { job, what } => {
            let job = pick(&job_ids(state), job).unwrap_or(JobId(99));
            match what {
                0 => Command::CancelJob { job },
                1 => Command::HoldJob { job },
                2 => Command::ReleaseJob { job },
                3 => Command::SuspendJob { job },
                4 => Command::ExpireJob {
                    job,
                    allocation: state.job(job).and_then(|job| job.allocation).unwrap_or_default(),
                },
                5 => Command::GrowJob {
                    job,
                    allocation: state.job(job).and_then(|job| job.allocation).unwrap_or_default(),
                },
                6 => close(state, WindowOf::Job(job), 0),
                7 => close(state, WindowOf::Job(job), 60_000),
                8 => Command::ResumeJob { job },
                step => note_idle(state, job, IdleStep::ALL.get(usize::from(step - 9)).copied()),
            }
        }
        Step::Report { allocation: index, rank, what } => {
            let allocations: Vec<_> = state.allocations().cloned().collect();
            let allocation = pick(&allocations, index)?;
            let worker = pick(&allocation.workers, rank)?;
            let report = WorkerReport { worker: allocation.owner(worker.rank), observation: observation(what) };
            Command::ReportWorkers { node: worker.node, reports: vec![report] }
        }
        Step::StaleReport { allocation, epoch, rank } => {
            let worker =
                Owner { allocation: tessera_ledger::AllocationId(allocation), epoch: Epoch(epoch), rank: Rank(rank) };
            let report = WorkerReport { worker, observation: exited(0) };
            Command::ReportWorkers { node: NodeId(rank), reports: vec![report] }
        }
        Step::Node { node, what } => {
            let id = NodeId(u32::from(node));
            let eligibility =
                |eligibility| Command::SetEligibility { node: id, eligibility, reason: "why not".to_owned() };
            match what {
                0 | 1 => Command::NodeLost { node: id, epoch: state.node(id).map_or(Epoch(0), |node| node.epoch) },
                2 | 3 => {
                    let incarnation = state.node(id).map_or(0, |node| node.description.incarnation);
                    Command::NodeReturned { node: id, incarnation }
                }
                4 => eligibility(Eligibility::Draining),
                5 => eligibility(Eligibility::Cordoned),
                6 => eligibility(Eligibility::Eligible),
                _ if node % 2 == 0 => Command::ConfirmStopped { node: id },
                _ => Command::ForgetNode { node: id },
            }
        }
        Step::Rerate { node, card, tflops, healthy } => {
            let id = CardId { node: NodeId(u32::from(node)), index: u32::from(card) };
            let mut description = state.card(id)?.description.clone();
            description.measured =
                [(tessera_ledger::Precision::Fp16, MilliTflops::from_tflops(u64::from(tflops)))].into();
            description.health = if healthy { CardHealth::Healthy } else { CardHealth::Unhealthy };
            Command::UpdateCards { node: id.node, cards: vec![description] }
        }
        Step::Register { node: number, incarnation, cards } => {
            let mut description = node(&format!("n{number}"));
            description.incarnation = u64::from(incarnation);
            description.host = hosts(incarnation);
            description.labels.insert(DEVICE_LABEL.0.to_owned(), DEVICE_LABEL.1.to_owned());
            let cards = vec![card(CardKind::Gpu, 7); usize::from(cards)];
            Command::RegisterNode { node: description, cards: numbered(&cards) }
        }
        Step::Renumber { node, card } => {
            plan(state, PlanPart::Renumber { card: CardId { node: NodeId(u32::from(node)), index: u32::from(card) } })
        }
        Step::Move { job } => {
            let running: Vec<JobId> =
                state.jobs_from(JobId(0)).filter(|job| job.state == JobState::Running).map(|job| job.id).collect();
            let job = pick(&running, job)?;
            plan(state, PlanPart::Move { job, workers: first_fit(state, job, false)?.0 })
        }
        Step::Advance { id, from, proceed } => {
            let moves: Vec<MoveId> = state.moves().map(|movement| movement.id).collect();
            let phases = [MovePhase::Reserved, MovePhase::Suspending, MovePhase::Transferring, MovePhase::Resuming];
            let id = pick(&moves, id).unwrap_or(MoveId(77));
            Command::AdvanceMove { id, from: phases[usize::from(from)], proceed }
        }
        Step::HostileGrant { job, node, card, start, blocks } => {
            let job = pick(&job_ids(state), job).unwrap_or(JobId(99));
            let slice = Slice {
                card: CardId { node: NodeId(node), index: card },
                start: BlockIndex(start),
                length: BlockCount(blocks),
                memory: Mebibytes(u64::from(start) << 40),
                isolation: Isolation::Hard,
            };
            let workers = vec![PlannedWorker { virtual_card: 0, node: NodeId(node), slices: vec![slice, slice] }];
            plan(state, PlanPart::Grant { job, workers, victims: vec![JobId(1), JobId(1)] })
        }
        Step::Queue { maximum } => {
            let amount = |tflops: u8| QueueAmount {
                compute: MilliTflops::from_tflops(u64::from(tflops)),
                memory: Mebibytes(u64::from(tflops) * 1024),
            };
            let settings = QueueSettings {
                parent: "default".to_owned(),
                guaranteed: amount(maximum / 2),
                maximum: Some(amount(maximum)),
                idle: (maximum % 2 == 0).then(idle),
                checkpoints: (maximum % 3 == 0).then_some(Mebibytes(0)),
                ..QueueSettings::new("team")
            };
            Command::SetQueue { queue: settings }
        }
        Step::Oversubscribe { kind, percent } => {
            let mut config = state.config().clone();
            config.oversubscription.insert(CardKind::ALL[usize::from(kind)], Percent(percent));
            Command::SetConfig { config, expected: None }
        }
        Step::Leases { times } => {
            let mut config = state.config().clone();
            config.leases.regrant_after = LeaseTimings::default().kill_after * u32::from(times);
            Command::SetConfig { config, expected: None }
        }
        Step::Settle { back } => {
            let changed_at = Revision(state.lease_ceiling().changed_at.0.saturating_sub(u64::from(back)));
            Command::SettleLeases { changed_at }
        }
        Step::Replay { .. } | Step::Wait { .. } => return None,
    })
}

/// What a host offers at a start of its agent: hosts change while work waits for them.
fn hosts(incarnation: u8) -> Option<HostCapacity> {
    let host = HostCapacity { cpu: MilliCpus(4000), memory: Mebibytes(4096) };
    [Some(host), None, Some(HostCapacity { cpu: MilliCpus(1000), ..host })][usize::from(incarnation) % 3]
}

/// Three nodes of two cards; the hosts of the first two are known.
fn small_pool() -> Pool {
    let cards: [&[_]; 3] = [
        &[card(CardKind::Gpu, 9), card(CardKind::Npu, 20)],
        &[card(CardKind::Gpu, 10), card(CardKind::Gpu, 10)],
        &[card(CardKind::Fpga, 8), card(CardKind::Cpu, 3)],
    ];
    let mut pool = Pool::with_nodes(&cards);
    for (number, cards) in cards.iter().enumerate().take(2) {
        let node = tessera_ledger::NodeDescription { host: hosts(0), ..node(&format!("n{number}")) };
        pool.run(Command::RegisterNode { node, cards: numbered(cards) });
    }
    pool
}

fn plan(state: &State, part: PlanPart) -> Command {
    Command::CommitPlan { plan: Plan { revision: state.revision(), parts: vec![part] } }
}

/// Everything that a refused command must leave as it was.
fn picture(state: &State) -> String {
    let jobs: Vec<_> = state.jobs_from(JobId(0)).collect();
    let (cards, nodes): (Vec<_>, Vec<_>) = (state.cards().collect(), state.nodes().collect());
    let (allocations, moves): (Vec<_>, Vec<_>) = (state.allocations().collect(), state.moves().collect());
    let queues: Vec<_> = state.queues().collect();
    let (config, ceiling) = (state.config(), state.lease_ceiling());
    format!("{jobs:?}{cards:?}{nodes:?}{allocations:?}{moves:?}{queues:?}{config:?}{ceiling:?}")
}

/// Who holds what.
fn allocations(state: &State) -> String {
    format!("{:?}", state.allocations().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_commands_breaks_a_law(steps in prop::collection::vec(step(), 1..120)) {
        let mut pool = small_pool();
        let mut log: Vec<(EntryPosition, Vec<Request>)> = vec![];
        for (number, step) in (0u128..).zip(&steps) {
            let requests = match step {
                Step::Wait { seconds } => {
                    pool.time += u64::from(*seconds) * 1000;
                    vec![Request { key: None, actor: "clock".to_owned(), command: Command::Tick }]
                }
                Step::Replay { back } => match pick(&log, *back) {
                    Some((_, requests)) => requests,
                    None => continue,
                },
                step => {
                    let Some(command) = command(&pool.state, step) else { continue };
                    let key = Some(RequestKey { id: RequestId(number), fingerprint: 1 });
                    vec![Request { key, actor: "tester".to_owned(), command }]
                }
            };
            let before = picture(&pool.state);
            let held = allocations(&pool.state);
            let outcomes = pool.apply(&requests);
            if matches!(step, Step::Oversubscribe { .. }) {
                prop_assert_eq!(held, allocations(&pool.state), "a policy took something from somebody (L6)");
            }
            log.push((EntryPosition { revision: pool.state.revision(), time: LogTime(pool.time) }, requests));
            if matches!(outcomes[..], [Outcome::Rejected(_)]) {
                prop_assert_eq!(before, picture(&pool.state), "a refusal changed something");
            }
            for node in pool.state.nodes().filter(|node| node.state == NodeState::Forgotten) {
                prop_assert_eq!(pool.state.cards_of(node.id).count(), 0);
            }
        }
        // L8: the same log on another instance gives the same state.
        let mut second = small_pool();
        for (at, requests) in &log {
            second.state.apply(*at, requests);
        }
        prop_assert_eq!(pool.state.digest(), second.state.digest());
        prop_assert_eq!(picture(&pool.state), picture(&second.state));
    }
}

/// Log time never goes back, whatever a new leader's clock says (L8).
#[test]
fn log_time_never_goes_back() {
    let mut state = State::new();
    state.observe(EntryPosition { revision: Revision(1), time: LogTime(500) });
    state.observe(EntryPosition { revision: Revision(2), time: LogTime(400) });
    assert_eq!(state.time(), LogTime(500));
}
