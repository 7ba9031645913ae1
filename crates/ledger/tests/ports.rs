//! The ports that the workers of a job meet at: no two allocations of a node have the same, and one that something else
//! on the host has is not given to the same job again and again.

use std::collections::BTreeSet;

use tessera_ledger::{
    CardKind, Command, JobId, NodeId, Observation, Outcome, PlanPart, PlannedWorker, PoolConfig, Rejection, StopCause,
};

use crate::pool::{Pool, card, slice, stopped};

const FIRST: u16 = 30_000;

fn pool(ports: u16) -> Pool {
    let mut pool = Pool::with_nodes(&[&[card(CardKind::Gpu, 10)]]);
    let config = PoolConfig { first_master_port: FIRST, master_ports: ports, ..pool.state.config().clone() };
    assert_eq!(pool.run(Command::SetConfig { config, expected: None }), Outcome::Done);
    pool
}

fn grant(pool: &mut Pool, job: JobId, block: u32) -> u16 {
    pool.grant(job, vec![slice(0, 0, block, 1)]);
    pool.allocation_of(job).master_port
}

#[test]
fn each_allocation_meets_at_another_port_until_all_had_their_turn() {
    let mut pool = pool(4);
    let job = pool.submit(|_| {});
    let mut ports = Vec::new();
    for _ in 0..9 {
        ports.push(grant(&mut pool, job, 0));
        pool.report_all(job, &Observation::Running);
        pool.run(Command::SuspendJob { job });
        pool.report_all(job, &stopped(StopCause::Ordered, Some(15)));
        pool.run(Command::ResumeJob { job });
    }
    assert!(ports.windows(4).all(|four| four.iter().collect::<BTreeSet<_>>().len() == 4), "{ports:?}");
    assert!(ports.iter().all(|port| (FIRST..FIRST + 4).contains(port)), "{ports:?}");
}

#[test]
fn no_two_allocations_of_a_node_meet_at_the_same_port_and_none_beyond_the_last() {
    let mut pool = pool(4);
    let jobs: Vec<JobId> = (0..5).map(|_| pool.submit(|_| {})).collect();
    let taken: BTreeSet<u16> = (0..).zip(&jobs[..4]).map(|(block, job)| grant(&mut pool, *job, block)).collect();
    assert_eq!(taken, (FIRST..FIRST + 4).collect());
    let node = NodeId(0);
    let workers = vec![PlannedWorker { virtual_card: 0, node, slices: vec![slice(0, 0, 9, 1)] }];
    let part = PlanPart::Grant { job: jobs[4], workers, victims: vec![] };
    let Outcome::Planned(parts) = pool.plan(vec![part]) else { panic!("a plan is answered part by part") };
    assert_eq!(parts, [Err(Rejection::NoMasterPort(node))]);
}
