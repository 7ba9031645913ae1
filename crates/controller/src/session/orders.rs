//! What should run on a node, read from the ledger alone, so that every leader says the same.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash as _, Hasher as _};

use planted::Bug;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tessera_api::agent::{checkpoint_source, part_name, placed_slices, stop_policy, worker_ref};
use tessera_api::v1::{self, WorkerDesire};
use tessera_ledger::wire::{WireEnum, duration_to_wire, spec_to_wire};
use tessera_ledger::{
    Allocation, AllocationPhase, Job, JobState, NodeId, OnDisconnect, Owner, PartKey, REVISIONS_AHEAD, Rank, State,
    Worker, WorkerState,
};
use xxhash_rust::xxh3::Xxh3;

use super::concern::Concern;

/// What a worker should be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Desire {
    /// Run, with the slices of this fingerprint: when blocks are renumbered, the order is sent again.
    Run(u64),
    /// Stop and report.
    Stop,
    /// It is settled: its output is kept, the rest forgotten.
    Forget,
}

/// What each worker that the ledger knows on a node, and that is of concern, should be doing. `present`: the workers
/// that its agent says are there. A worker is not forgotten as long as it may be there: it is told to stop.
pub(crate) fn desired(
    state: &State,
    node: NodeId,
    concern: &Concern,
    present: &BTreeSet<Owner>,
) -> BTreeMap<Owner, Desire> {
    let allocations: Vec<&std::sync::Arc<Allocation>> = match concern {
        Concern::Everything => state.allocations_on(node).collect(),
        Concern::Allocations(ids) => ids.iter().filter_map(|id| state.allocation(*id)).collect(),
    };
    let mut desires = BTreeMap::new();
    for allocation in allocations {
        for worker in allocation.workers.iter().filter(|worker| worker.node == node) {
            let owner = allocation.owner(worker.rank);
            if let Some(desire) = desire(state, allocation, worker, present.contains(&owner)) {
                desires.insert(owner, desire);
            }
        }
    }
    desires
}

fn desire(state: &State, allocation: &Allocation, worker: &Worker, present: bool) -> Option<Desire> {
    match (allocation.phase, worker.state) {
        // Nothing was ordered yet.
        (AllocationPhase::Waiting | AllocationPhase::Reserved, _) => None,
        (_, WorkerState::Stopped) => Some(if present { Desire::Stop } else { Desire::Forget }),
        (_, WorkerState::Draining) | (AllocationPhase::Ending, _) => Some(Desire::Stop),
        // The pool began anew from a state in which it ran, and nobody has it. Started again under its old allocation,
        // it could meet what took its place; its agent notes that it is not to be, and the job is tried again.
        (AllocationPhase::Active, WorkerState::Lost) if !present && is_of_before(state, allocation) => {
            Some(Desire::Stop)
        }
        // `Lost` here is work that went on without a lease, as its job allows: it is still wanted.
        (AllocationPhase::Active, WorkerState::Held | WorkerState::Running | WorkerState::Lost) => {
            Some(Desire::Run(fingerprint(state, allocation, worker)))
        }
    }
}

/// Whether an allocation is of the time before the pool began anew.
fn is_of_before(state: &State, allocation: &Allocation) -> bool {
    state.revision().0.saturating_sub(allocation.epoch.0) >= REVISIONS_AHEAD
}

/// A hash over all that the worker is told of the slices of its virtual card: what is told differently is told anew.
fn fingerprint(state: &State, allocation: &Allocation, worker: &Worker) -> u64 {
    let mut hasher = Xxh3::new();
    for placed in placed_slices(state, allocation, worker) {
        placed.encode_to_vec().hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether the ledger grants this worker on this node.
pub(crate) fn is_granted(state: &State, node: NodeId, owner: Owner) -> bool {
    worker_on(state, node, owner).is_some_and(|(_, worker)| worker.state != WorkerState::Stopped)
}

/// The worker of that very allocation, if it belongs on this node.
pub(crate) fn worker_on(state: &State, node: NodeId, owner: Owner) -> Option<(&Allocation, &Worker)> {
    let allocation = state.allocation(owner.allocation)?;
    let worker = allocation.worker(owner.rank)?;
    (allocation.epoch == owner.epoch && worker.node == node).then_some((allocation, worker))
}

/// The order to a worker. What the ledger no longer knows is named by its number alone.
pub(crate) fn order(state: &State, node: NodeId, owner: Owner, desire: Desire) -> v1::WorkerOrder {
    let mut order = v1::WorkerOrder { worker: Some(worker_ref(owner)), ..v1::WorkerOrder::default() };
    let known = worker_on(state, node, owner);
    let job = known.and_then(|(allocation, _)| state.job(allocation.job));
    order.desire = match desire {
        Desire::Run(_) => WorkerDesire::Run,
        Desire::Stop => WorkerDesire::Stop,
        Desire::Forget => WorkerDesire::Forget,
    }
    .into();
    tracing::debug!(
        %node, job = job.map(|job| job.id.0), allocation = owner.allocation.0, epoch = owner.epoch.0, rank = owner.rank.0,
        ?desire, traceparent = job.map(|job| job.traceparent.as_str()), "a worker is ordered"
    );
    let (Some((allocation, worker)), Some(job)) = (known, job) else {
        if desire == Desire::Stop {
            // Nobody grants it: it is killed at once.
            order.stop = Some(v1::StopPolicy { signal: "SIGKILL".to_owned(), grace: None, save: false });
        }
        return order;
    };
    order.job_id = job.id.0;
    order.attempt = allocation.attempt;
    order.stop = Some(how_to_stop(state, job, allocation, worker.rank));
    if matches!(desire, Desire::Run(_)) {
        describe(&mut order, state, allocation, worker);
        describe_program(&mut order, state, job, allocation, worker);
        order.spec = Some(spec_to_wire(&job.spec));
        order.traceparent.clone_from(&job.traceparent);
        order.submitter.clone_from(&job.submitter);
        order.from = source(state, job, allocation, worker.rank);
        order.keep_on_disconnect = job.spec.on_disconnect == OnDisconnect::Keep;
    }
    order
}

/// A job that is to go on later is asked to write its checkpoint in its own way; one that is over is told to end.
/// Workers that only serve its program end as that does: they have longer, because its node may hear of it later than
/// theirs.
fn how_to_stop(state: &State, job: &Job, allocation: &Allocation, rank: Rank) -> v1::StopPolicy {
    let mut policy = stop_policy(&job.spec);
    if allocation.program(&job.spec.virtual_card, rank).is_none() {
        let longer = job.spec.checkpoint.grace.saturating_add(state.config().leases.regrant_after);
        policy.grace = Some(duration_to_wire(longer));
    }
    match job.state {
        JobState::Suspending | JobState::Moving => v1::StopPolicy { save: true, ..policy },
        _ => v1::StopPolicy { signal: "SIGTERM".to_owned(), ..policy },
    }
}

/// Where all can be had now that workers of a node go on from which do not run yet. What their orders said of it may be
/// so no more.
pub(super) fn sources(state: &State, node: NodeId) -> impl Iterator<Item = v1::CheckpointSource> {
    let going_on = state.allocations_on(node).filter(|allocation| allocation.from.is_some());
    let held = move |worker: &&Worker| worker.node == node && worker.state == WorkerState::Held;
    let workers = going_on.flat_map(move |allocation| {
        allocation.workers.iter().filter(held).map(move |worker| (allocation, worker.rank))
    });
    workers.filter_map(|(allocation, rank)| source(state, state.job(allocation.job)?, allocation, rank))
}

/// The worker's part of the checkpoint that its attempt goes on from. One that has left the ledger since is named all
/// the same: the worker must not begin from the beginning, and its agent says that it cannot be had.
fn source(state: &State, job: &Job, allocation: &Allocation, rank: Rank) -> Option<v1::CheckpointSource> {
    let from = allocation.from?;
    // What only serves slices begins with an empty folder.
    let rank = allocation.program(&job.spec.virtual_card, rank)?;
    let Some(checkpoint) = job.checkpoints.get(from) else {
        let gone = PartKey { job: job.id, checkpoint: from, epoch: allocation.epoch, rank };
        let (name, mode) = (Some(part_name(&gone)), job.spec.checkpoint.mode.to_wire());
        return Some(v1::CheckpointSource { name, mode, ..v1::CheckpointSource::default() });
    };
    // And so does a program beyond those that saved.
    let part = checkpoint.part(rank)?;
    Some(checkpoint_source(state, &checkpoint.part_key(job.id, rank), part))
}

/// Says where a worker stands among the others and what it computes on.
fn describe(order: &mut v1::WorkerOrder, state: &State, allocation: &Allocation, worker: &Worker) {
    let here = || allocation.workers.iter().filter(|other| other.node == worker.node);
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    order.member = worker.virtual_card;
    order.world_size = count(allocation.workers.len());
    order.local_rank = count(here().take_while(|other| other.rank < worker.rank).count());
    order.local_world_size = count(here().count());
    order.master_address = master_address(state, allocation);
    order.master_port = u32::from(allocation.master_port);
    order.slices = placed_slices(state, allocation, worker);
    if planted::is(Bug::BlocksOfNeighbour) {
        let slices = order.slices.iter_mut().filter_map(|placed| placed.slice.as_mut());
        slices.for_each(|slice| slice.start = slice.start.saturating_sub(1));
    }
}

/// Says where the program of a worker's virtual card stands among the others, when some workers only serve slices, and
/// where the slice servers of that card find one another, and a program that is with none of them the first of them.
fn describe_program(order: &mut v1::WorkerOrder, state: &State, job: &Job, allocation: &Allocation, worker: &Worker) {
    let card = &job.spec.virtual_card;
    if !card.serves_across_nodes() {
        return;
    }
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let here = || allocation.programs(card).filter(|other| other.node == worker.node);
    order.standing = Some(v1::ProgramStanding {
        rank: count(allocation.programs(card).take_while(|other| other.virtual_card < worker.virtual_card).count()),
        world_size: count(allocation.programs(card).count()),
        local_rank: count(here().take_while(|other| other.rank < worker.rank).count()),
        local_world_size: count(here().count()),
    });
    order.only_serves = allocation.program(card, worker.rank).is_none();
    let mut of_card = allocation.workers.iter().filter(|other| other.virtual_card == worker.virtual_card);
    if let Some(first) = of_card.clone().find(|other| other.card_port > 0) {
        order.card_address = worker_host(state, first.node);
        order.card_port = u32::from(first.card_port);
    }
    if let Some(first) = of_card.find(|other| other.program_port > 0) {
        order.server_address = worker_host(state, first.node);
        order.server_port = u32::from(first.program_port);
    }
    order.device_token = device_token(job, allocation, worker.virtual_card).unwrap_or_default();
}

/// What the slice servers of a virtual card know one another by: another thing for each card and allocation, and the
/// same whoever leads.
fn device_token(job: &Job, allocation: &Allocation, virtual_card: u32) -> Option<String> {
    let secret = job.secret.filter(|_| job.spec.virtual_card.serves_across_nodes())?;
    let mut digest = Sha256::new_with_prefix(secret.to_be_bytes());
    digest.update(allocation.epoch.0.to_be_bytes());
    digest.update(allocation.id.0.to_be_bytes());
    digest.update(virtual_card.to_be_bytes());
    Some(format!("{:x}", digest.finalize()))
}

/// Where rank 0 is reached by the other workers.
fn master_address(state: &State, allocation: &Allocation) -> String {
    allocation.worker(Rank(0)).map(|worker| worker_host(state, worker.node)).unwrap_or_default()
}

fn worker_host(state: &State, node: NodeId) -> String {
    state.node(node).map(|node| node.description.worker_host.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tessera_ledger::{
        Access, AllocationId, Command, Epoch, JobSpec, Observation, Outcome, PlanPart, Span, VirtualCardRequest,
    };

    use super::*;
    use crate::fixture::{Ledger, job, owner};

    /// What is desired when everything is looked at, which is what is desired of each allocation when it alone is.
    fn wanted(state: &State, node: NodeId) -> BTreeMap<Owner, Desire> {
        let all = desired(state, node, &Concern::Everything, &BTreeSet::new());
        let each = state.allocations_on(node).flat_map(|allocation| {
            let concern: Concern = [allocation.id].into_iter().collect();
            desired(state, node, &concern, &BTreeSet::new())
        });
        assert_eq!(each.collect::<BTreeMap<_, _>>(), all);
        all
    }

    #[test]
    fn an_order_says_everything_that_a_worker_needs() {
        let mut ledger = Ledger::default();
        let (a, b) = (ledger.node("a", &[10]), ledger.node("b", &[20]));
        let request = VirtualCardRequest { span: Span::Pool, ..job(12).virtual_card };
        let id = ledger.submit(JobSpec { virtual_card: request, ..job(12) });
        let allocation = ledger.grant(id, &[(a, 2, 3), (b, 0, 9)]);
        let second = owner(&allocation, 1);
        let desires = wanted(&ledger.state, b);
        let desire = desires[&second];
        let order = order(&ledger.state, b, second, desire);
        assert_eq!(order.desire(), WorkerDesire::Run);
        assert_eq!((order.world_size, order.local_rank, order.local_world_size), (2, 0, 1));
        assert_eq!(order.master_address, "a.workers");
        assert_eq!(order.master_port, u32::from(allocation.master_port));
        assert_eq!(order.traceparent, "00-trace");
        let numbers: Vec<u64> = order.slices.iter().map(|slice| slice.first_block_number).collect();
        assert_eq!(numbers, [3, 11], "node a has blocks 1 to 10, node b 11 to 30");
        let weights: Vec<f64> = order.slices.iter().map(|slice| slice.weight).collect();
        assert_eq!(weights, [0.25, 0.75]);
    }

    #[test]
    fn slice_servers_on_several_nodes_are_told_the_same_secret_of_their_allocation_alone() {
        let mut ledger = Ledger::default();
        let (a, b) = (ledger.node("a", &[10]), ledger.node("b", &[20]));
        let request = VirtualCardRequest { span: Span::Pool, ..job(12).virtual_card };
        let spec = JobSpec { virtual_card: request, ..job(12) };
        let [first, second] = [(2, 3, 0), (5, 3, 9)].map(|(start, length, other)| {
            let id = ledger.submit(spec.clone());
            ledger.grant(id, &[(a, start, length), (b, other, 9)])
        });
        let plain = ledger.state.job(first.job).expect("it is in the ledger");
        let mut known = Job::clone(plain);
        known.secret = Some(7);
        let token = |job: &Job, allocation: &Allocation| device_token(job, allocation, 0);
        assert_eq!(token(&known, &first), None, "it has no slice servers");
        let card = VirtualCardRequest { access: Access::Device, ..spec.virtual_card.clone() };
        known.spec = JobSpec { virtual_card: card, ..spec.clone() }.into();
        assert!(token(&known, &first).is_some_and(|token| token.len() >= 32));
        let told = token(&known, &first);
        assert_ne!(told, token(&known, &second), "another allocation has another");
        let (again, other) = (Epoch(first.epoch.0 + 1), AllocationId(first.id.0 + 1));
        assert_ne!(told, token(&known, &Allocation { epoch: again, ..Allocation::clone(&first) }));
        assert_ne!(told, token(&known, &Allocation { id: other, ..Allocation::clone(&first) }));
        assert_ne!(told, device_token(&known, &first, 1), "and so has another virtual card");
        known.secret = Some(8);
        assert_ne!(told, token(&known, &first), "and so has another job");
        known.secret = None;
        assert_eq!(token(&known, &first), None);
    }

    #[test]
    fn programs_with_cards_over_several_nodes_are_told_where_they_stand_and_where_their_servers_meet() {
        let mut ledger = Ledger::default();
        let (a, b) = (ledger.node("a", &[10]), ledger.node("b", &[20]));
        let request = VirtualCardRequest { span: Span::Pool, ..job(12).virtual_card };
        let id = ledger.submit(JobSpec { virtual_card: request, ..job(12) });
        let plain = ledger.grant(id, &[(a, 2, 3), (b, 0, 9)]);
        // Two cards: one on both nodes, one on the second.
        let mut allocation = Allocation::clone(&plain);
        let mut workers = allocation.workers.to_vec();
        workers[0].card_port = 20_007;
        workers.push(Worker { rank: Rank(2), virtual_card: 1, ..workers[1].clone() });
        allocation.workers = workers.into();
        let mut known = Job::clone(ledger.state.job(id).expect("it is in the ledger"));
        let card = VirtualCardRequest { access: Access::Device, ..known.spec.virtual_card.clone() };
        known.spec = JobSpec { virtual_card: card, ..JobSpec::clone(&known.spec) }.into();
        known.secret = Some(7);
        let told = [0, 1, 2].map(|rank| {
            let mut order = v1::WorkerOrder::default();
            let worker = allocation.worker(Rank(rank)).expect("it has so many");
            describe_program(&mut order, &ledger.state, &known, &allocation, worker);
            order
        });
        let standing = |order: &v1::WorkerOrder| order.standing.map(|one| (one.rank, one.world_size, one.local_rank));
        assert_eq!(told.each_ref().map(standing), [Some((0, 2, 0)), Some((0, 2, 0)), Some((1, 2, 0))]);
        let meets = told.each_ref().map(|order| (order.card_address.as_str(), order.card_port));
        assert_eq!(meets, [("a.workers", 20_007), ("a.workers", 20_007), ("", 0)]);
        assert_eq!(told.each_ref().map(|order| order.only_serves), [false, true, false]);
        assert_eq!(told.each_ref().map(|order| order.server_port), [0; 3], "each program is with a server");
        assert_eq!(told[0].device_token, told[1].device_token);
        assert_ne!(told[0].device_token, told[2].device_token);
        let grace = |rank| how_to_stop(&ledger.state, &known, &allocation, Rank(rank)).grace.map(|grace| grace.seconds);
        assert!(grace(0) == grace(2) && grace(0) < grace(1), "who only serves slices has longer");
    }

    #[test]
    fn a_program_on_a_host_beside_its_card_is_told_where_that_is() {
        let mut ledger = Ledger::default();
        let [host, a, b] = ["host", "a", "b"].map(|name| ledger.node(name, &[10]));
        let request = VirtualCardRequest { span: Span::Pool, ..job(12).virtual_card };
        let id = ledger.submit(JobSpec { virtual_card: request, ..job(12) });
        let plain = ledger.grant(id, &[(host, 0, 1), (a, 2, 3), (b, 0, 9)]);
        let mut allocation = Allocation::clone(&plain);
        let mut workers = allocation.workers.to_vec();
        workers[0].slices.clear();
        (workers[1].card_port, workers[1].program_port) = (20_007, 20_008);
        allocation.workers = workers.into();
        let mut known = Job::clone(ledger.state.job(id).expect("it is in the ledger"));
        let card = VirtualCardRequest { access: Access::Device, ..known.spec.virtual_card.clone() };
        known.spec = JobSpec { virtual_card: card, ..JobSpec::clone(&known.spec) }.into();
        for (rank, serves) in [(0, false), (1, true), (2, true)] {
            let mut order = v1::WorkerOrder::default();
            let worker = allocation.worker(Rank(rank)).expect("it has so many");
            describe_program(&mut order, &ledger.state, &known, &allocation, worker);
            assert_eq!((order.server_address.as_str(), order.server_port), ("a.workers", 20_008));
            assert_eq!(
                (order.card_address.as_str(), order.card_port, order.only_serves),
                ("a.workers", 20_007, serves)
            );
        }
    }

    #[test]
    fn a_worker_runs_stops_and_is_forgotten_as_the_ledger_says() {
        let mut ledger = Ledger::default();
        let node = ledger.node("a", &[10]);
        let id = ledger.submit(job(4));
        let allocation = ledger.grant(id, &[(node, 0, 4)]);
        let worker = owner(&allocation, 0);
        assert!(matches!(wanted(&ledger.state, node)[&worker], Desire::Run(_)));
        ledger.report(node, worker, Observation::Running);
        ledger.apply(Command::SuspendJob { job: id });
        assert_eq!(wanted(&ledger.state, node)[&worker], Desire::Stop);
        let order = order(&ledger.state, node, worker, Desire::Stop);
        let policy = order.stop.expect("a stop says how");
        assert_eq!(policy.signal, "SIGTERM");
        assert_eq!(policy.grace.map(|grace| grace.seconds), Some(10));
    }

    #[test]
    fn in_a_pool_that_began_anew_work_goes_on_where_it_is_and_is_not_started_where_it_is_not() {
        let mut ledger = Ledger::default();
        let node = ledger.node("a", &[10]);
        let id = ledger.submit(job(4));
        let allocation = ledger.grant(id, &[(node, 0, 4)]);
        let worker = owner(&allocation, 0);
        ledger.report(node, worker, Observation::Running);
        ledger.state.begin_anew();
        assert_eq!(wanted(&ledger.state, node)[&worker], Desire::Stop, "its agent does not have it");
        let there = BTreeSet::from([worker]);
        let desires = desired(&ledger.state, node, &Concern::Everything, &there);
        assert!(matches!(desires[&worker], Desire::Run(_)));
    }

    #[test]
    fn renumbered_blocks_change_the_order() {
        let mut ledger = Ledger::default();
        let node = ledger.node("a", &[10]);
        let id = ledger.submit(job(4));
        let allocation = ledger.grant(id, &[(node, 5, 4)]);
        let worker = owner(&allocation, 0);
        let before = wanted(&ledger.state, node)[&worker];
        let card = tessera_ledger::CardId { node, index: 0 };
        let plan = tessera_ledger::Plan { revision: ledger.state.revision(), parts: vec![PlanPart::Renumber { card }] };
        assert_eq!(ledger.apply(Command::CommitPlan { plan }), Outcome::Planned(vec![Ok(None)]));
        assert_ne!(wanted(&ledger.state, node)[&worker], before);
    }

    #[test]
    fn what_nobody_grants_is_killed_at_once() {
        let mut ledger = Ledger::default();
        let node = ledger.node("a", &[10]);
        let stranger =
            Owner { allocation: tessera_ledger::AllocationId(77), epoch: tessera_ledger::Epoch(5), rank: Rank(0) };
        let order = order(&ledger.state, node, stranger, Desire::Stop);
        assert_eq!(order.stop.map(|stop| (stop.signal, stop.grace)), Some(("SIGKILL".to_owned(), None)));
        assert!(!is_granted(&ledger.state, node, stranger));
    }
}
