//! A pool in which much has happened, for whoever needs something of every kind that is kept.

use std::sync::Arc;

use tessera_ledger::{
    CardKind, Command, Eligibility, JobId, JobSpec, NodeId, Observation, Outcome, PlanPart, PlannedWorker, Request,
    RequestId, RequestKey, State,
};

use crate::pool::{self, Pool, card, slice};
use crate::samples;

/// Three nodes in a state that is otherwise as it begins.
pub fn begin(state: State) -> Pool {
    Pool::begin(state, &[&[card(CardKind::Gpu, 10), card(CardKind::Npu, 20)], &[card(CardKind::Gpu, 10)], &[]])
}

/// Some of its jobs.
pub struct Jobs {
    pub running: JobId,
    pub moving: JobId,
    pub held: JobId,
}

/// Brings the pool that [`begin`] makes to where it has a job in nearly every state, a move, a preemption and a node
/// without new work.
pub fn happen(pool: &mut Pool) -> Jobs {
    pool.run(Command::SetQueue { queue: samples::queue() });
    let running = pool.submit(|spec| spec.name = "running".to_owned());
    let failing = pool.submit(|spec| spec.name = "failing".to_owned());
    let moving = pool.submit(|spec| spec.name = "moving".to_owned());
    let victim = pool.submit(|spec| spec.priority = 10);
    pool.grant(running, vec![slice(0, 0, 0, 4)]);
    pool.grant(failing, vec![slice(0, 0, 4, 2)]);
    pool.grant(moving, vec![slice(0, 1, 0, 5)]);
    pool.grant(victim, vec![slice(1, 0, 0, 8)]);
    for job in [running, failing, moving, victim] {
        pool.report_all(job, &Observation::Running);
    }
    pool.report_all(failing, &pool::exited(3));
    let urgent = pool.submit(|spec| spec.priority = 90);
    pool.grant_over(urgent, vec![slice(1, 0, 2, 3)], vec![victim]);
    let worker = PlannedWorker { virtual_card: 0, node: NodeId(0), slices: vec![slice(0, 1, 10, 5)] };
    pool.accept(PlanPart::Move { job: moving, workers: vec![worker] });
    let held = pool.submit(|spec| *spec = held_spec());
    let key = Some(RequestKey { id: RequestId(0xfeed), fingerprint: 7 });
    let command =
        Command::SubmitJob { spec: Arc::new(pool::spec()), traceparent: "00-aa-bb-01".to_owned(), secret: None };
    let outcomes = pool.apply(&[Request { key, actor: "ada".to_owned(), command }]);
    let Outcome::Submitted(cancelled) = outcomes[0] else { panic!("{outcomes:?}") };
    pool.run(Command::CancelJob { job: cancelled });
    let eligibility = Eligibility::Cordoned;
    pool.run(Command::SetEligibility { node: NodeId(2), eligibility, reason: "new disk".to_owned() });
    Jobs { running, moving, held }
}

/// The sample job, changed so that this pool could run it.
pub fn held_spec() -> JobSpec {
    JobSpec { gang: 1, virtual_card: pool::spec().virtual_card, ..samples::spec() }
}
