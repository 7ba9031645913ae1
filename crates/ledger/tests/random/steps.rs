//! The steps of a random sequence, and the command that each of them is.

use proptest::prelude::*;
use tessera_ledger::{
    Access, AttainedOrder, BlockCount, BlockIndex, CardHealth, CardId, CardKind, CheckpointKey, Command, DEVICE_LABEL,
    Eligibility, Epoch, HostRequest, IdlePolicy, IdleStep, Isolation, JobId, JobState, LeaseTimings, LogTime,
    Mebibytes, MilliCpus, MilliTflops, MoveId, MovePhase, NodeId, Observation, OnDisconnect, Owner, Percent, PlanPart,
    PlannedWorker, QueueAmount, QueueSettings, Rank, Revision, Slice, Span, State, StopCause, WindowOf, WorkerReport,
};

use super::{first_fit, hosts, pick, plan};
use crate::pool::{card, exited, node, numbered, saved, spec, stopped};

/// The next step; the numbers choose among what there is.
#[derive(Clone, Debug)]
pub(super) enum Step {
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

pub(super) fn step() -> impl Strategy<Value = Step> {
    use Step::{
        Advance, HostileGrant, Leases, Move, Node, Oversubscribe, Place, Queue, Register, Renumber, Replay, Report,
        Rerate, Settle, StaleReport, Submit, Wait, Wish,
    };
    prop_oneof![
        6 => (1u8..24, 0u8..4, 1u8..4, 0u8..3, any::<u8>())
            .prop_map(|(tflops, priority, gang, span, flags)| Submit { tflops, priority, gang, span, flags }),
        8 => (any::<u8>(), any::<bool>()).prop_map(|(job, preempt)| Place { job, preempt }),
        3 => (any::<u8>(), 0u8..14).prop_map(|(job, what)| Wish { job, what }),
        12 => (any::<u8>(), any::<u8>(), 0u8..15)
            .prop_map(|(allocation, rank, what)| Report { allocation, rank, what }),
        1 => (0u64..20, 0u64..200, 0u32..4)
            .prop_map(|(allocation, epoch, rank)| StaleReport { allocation, epoch, rank }),
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

/// A ladder whose steps follow soon for jobs that are idle.
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

fn job_ids(state: &State) -> Vec<JobId> {
    state.jobs_from(JobId(0)).map(|job| job.id).collect()
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
pub(super) fn command(state: &State, step: &Step) -> Option<Command> {
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
                attained: (maximum % 5 == 0).then(|| AttainedOrder { guard: Percent(50), ..AttainedOrder::default() }),
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
