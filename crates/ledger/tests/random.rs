//! The laws under random command sequences: valid, stale, duplicated, reordered and hostile. [`Pool::apply`] checks
//! every law after each entry; here the sequences are made, replayed on a second instance, and refusals are shown to
//! change nothing.

mod steps;

use proptest::prelude::*;
use steps::{Step, command, step};
use tessera_ledger::{
    AllocationPhase, BlockIndex, BlockState, CardId, CardKind, Command, EntryPosition, HostCapacity, JobId, LogTime,
    Mebibytes, MilliCpus, NodeState, Outcome, Plan, PlanPart, PlannedWorker, Request, RequestId, RequestKey, Revision,
    Slice, State,
};

use crate::pool::{Pool, card, node, numbered};

fn pick<T: Clone>(items: &[T], choice: u8) -> Option<T> {
    (!items.is_empty()).then(|| items[usize::from(choice) % items.len()].clone())
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

/// The capacity that a host offers at a start of its agent: hosts change while work waits for them.
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

/// The holdings of all allocations, as text.
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
