//! The orders to workers as they follow from a ledger.

use tessera_ledger::{
    Access, AllocationId, Command, Epoch, JobSpec, Observation, Outcome, PlanPart, Span, VirtualCardRequest,
};

use super::*;
use crate::fixture::{Ledger, job, owner};

/// Returns the desires for all workers of a node, after a check that those for each allocation alone add up to them.
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
        assert_eq!((order.card_address.as_str(), order.card_port, order.only_serves), ("a.workers", 20_007, serves));
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
