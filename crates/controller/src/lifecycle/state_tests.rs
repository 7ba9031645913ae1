//! The reactions of the lifecycle actor, event by event.

use tessera_ledger::{
    Allocation, BlockCount, BlockIndex, CardId, CheckpointKey, CheckpointMode, Isolation, JobSpec, LeaseTimings,
    Mebibytes, Observation, Outcome, PartKey, PlanPart, PlannedWorker, PoolConfig, Rank, Slice,
};

use super::*;
use crate::fixture::{Ledger, exit, job, owner};

struct Stage {
    ledger: Ledger,
    leases: Leases,
    actor: Lifecycle,
    began: Instant,
}

impl Stage {
    fn new(ledger: Ledger) -> Self {
        let (timings, began) = (Timings::default(), Instant::now());
        Self {
            leases: Leases::new(began, &ledger.state),
            ledger,
            actor: Lifecycle::new(timings, MassLoss::default()),
            began,
        }
    }

    fn on(&mut self, event: Event) -> Vec<Effect> {
        self.actor.on(event, &self.ledger.state, &mut self.leases)
    }

    fn look(&mut self, seconds: u64) -> Vec<Effect> {
        let log_now = self.ledger.now();
        self.on(Event::Look { now: self.began + Duration::from_secs(seconds), log_now })
    }

    /// Commits what is proposed and tells the actor, until nothing more is.
    fn commit(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut all = Vec::new();
        let mut next = effects;
        loop {
            let due = proposals(&next);
            all.append(&mut next);
            if due.is_empty() {
                return all;
            }
            for (duty, request) in due {
                let outcome = self.ledger.apply(request.command);
                let committed = Committed { revision: self.ledger.state.revision(), outcome };
                next.extend(self.on(Event::Answered(duty, Ok(committed))));
            }
        }
    }
}

fn proposals(effects: &[Effect]) -> Vec<(Duty, Request)> {
    let proposals = effects.iter().filter_map(|effect| match effect {
        Effect::Propose(duty, request) => Some((duty.clone(), Request::clone(request))),
        _ => None,
    });
    proposals.collect()
}

fn duties(effects: &[Effect]) -> Vec<Duty> {
    proposals(effects).into_iter().map(|(duty, _)| duty).collect()
}

fn unknown() -> Result<Committed, ProposeError> {
    Err(ProposeError::Consensus(Cause::OutcomeUnknown))
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_is_declared_lost_in_the_epoch_that_was_judged() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let epoch = ledger.state.node(node).expect("it is registered").epoch;
    let mut stage = Stage::new(ledger);
    assert_eq!(duties(&stage.look(19)), [], "a new leader waits the full time");
    let effects = stage.look(20);
    assert_eq!(duties(&effects), [Duty::Lose(node, epoch)]);
    assert_eq!(duties(&stage.look(21)), [], "it is proposed once");
    let effects = stage.commit(effects);
    assert!(effects.contains(&Effect::CountLost));
    assert!(!stage.ledger.state.is_ready(node));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_registered_meanwhile_is_not_lost() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    let stale = stage.look(20);
    stage.ledger.node("a", &[10]);
    stage.leases.heard(node, stage.began + Duration::from_secs(20));
    let effects = stage.commit(stale);
    assert!(!effects.contains(&Effect::CountLost), "the ledger refused the stale epoch");
    assert!(stage.ledger.state.is_ready(node));
    let state = stage.ledger.shared();
    assert_eq!(stage.leases.grant(node, stage.began + Duration::from_secs(21), &state), Ok(LeaseTimings::default()));
}

#[tokio::test(start_paused = true)]
async fn a_loss_of_unknown_fate_keeps_the_node_condemned_and_is_proposed_again() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    let duty = duties(&stage.look(20)).pop().expect("it is lost");
    assert_eq!(stage.on(Event::Answered(duty.clone(), unknown())), []);
    stage.leases.heard(node, stage.began + Duration::from_secs(20));
    let state = stage.ledger.shared();
    let now = stage.began + Duration::from_secs(20);
    assert!(stage.leases.grant(node, now, &state).is_err(), "its blocks may be granted to others already");
    assert_eq!(duties(&stage.look(21)), std::slice::from_ref(&duty));
    let refused = Err(ProposeError::Consensus(Cause::Unavailable));
    stage.on(Event::Answered(duty, refused));
    assert!(
        stage.leases.grant(node, now, &state).is_err(),
        "this try was not proposed, but the first one may be in the log"
    );
}

#[tokio::test(start_paused = true)]
async fn a_loss_that_was_never_proposed_spares_the_node() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    let duty = duties(&stage.look(20)).pop().expect("it is lost");
    stage.leases.heard(node, stage.began + Duration::from_secs(20));
    stage.on(Event::Answered(duty, Err(ProposeError::Consensus(Cause::Unavailable))));
    let state = stage.ledger.shared();
    assert_eq!(stage.leases.grant(node, stage.began + Duration::from_secs(20), &state), Ok(LeaseTimings::default()));
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_suspects_itself_believes_an_operator() {
    let mut ledger = Ledger::default();
    let nodes: Vec<NodeId> = ["a", "b", "c", "d"].into_iter().map(|name| ledger.node(name, &[10])).collect();
    let (node, reason) = (nodes[1], "it burnt".to_owned());
    ledger.apply(Command::SetEligibility { node, eligibility: tessera_ledger::Eligibility::Draining, reason });
    let mut stage = Stage::new(ledger);
    let lost = duties(&stage.look(20));
    assert!(matches!(lost[..], [Duty::Lose(lost, _)] if lost == node), "only the node that was drained: {lost:?}");
}

#[tokio::test(start_paused = true)]
async fn mass_silence_is_shown_and_nobody_declared_lost() {
    let mut ledger = Ledger::default();
    for name in ["a", "b", "c", "d"] {
        ledger.node(name, &[10]);
    }
    let mut stage = Stage::new(ledger);
    let effects = stage.look(60);
    assert_eq!(effects, [Effect::Silent { nodes: 4, suspected: true }]);
}

fn plan(node: NodeId) -> Vec<PlannedWorker> {
    let slice = Slice {
        card: CardId { node, index: 0 },
        start: BlockIndex(0),
        length: BlockCount(4),
        memory: Mebibytes(0),
        isolation: Isolation::Shared,
    };
    vec![PlannedWorker { virtual_card: 0, node, slices: vec![slice] }]
}

/// A job that runs on node `a` and is about to move to node `b`.
fn moving() -> (Ledger, JobId, NodeId, NodeId, std::sync::Arc<Allocation>) {
    let mut ledger = Ledger::default();
    let (a, b) = (ledger.node("a", &[10]), ledger.node("b", &[10]));
    let mut saving = job(4);
    saving.checkpoint.mode = CheckpointMode::Cooperative;
    saving.checkpoint.every = Some(Duration::from_secs(60));
    let id = ledger.submit(saving);
    let source = ledger.grant(id, &[(a, 0, 4)]);
    ledger.report(a, owner(&source, 0), Observation::Running);
    ledger.commit(PlanPart::Move { job: id, workers: plan(b) });
    (ledger, id, a, b, source)
}

#[tokio::test(start_paused = true)]
async fn a_move_is_driven_to_its_end() {
    let (ledger, id, a, b, source) = moving();
    let mut stage = Stage::new(ledger);
    let effects = stage.on(Event::Changed);
    assert!(matches!(duties(&effects)[..], [Duty::Advance(_, MovePhase::Reserved)]));
    assert_eq!(duties(&stage.on(Event::Changed)), [], "once");
    stage.commit(effects);
    let exit = exit(tessera_ledger::StopCause::Ordered, None, true);
    stage.ledger.report(a, owner(&source, 0), Observation::Stopped(exit));
    let effects = stage.on(Event::Changed);
    assert!(matches!(duties(&effects)[..], [Duty::Advance(_, MovePhase::Transferring)]));
    stage.commit(effects);
    let target = stage.ledger.state.job(id).and_then(|job| job.allocation).expect("it has its new allocation");
    let target = stage.ledger.allocation(target);
    assert_eq!(target.workers[0].node, b);
    stage.ledger.report(b, owner(&target, 0), Observation::Running);
    assert_eq!(stage.ledger.state.job(id).map(|job| job.state), Some(JobState::Running));
    assert_eq!(duties(&stage.on(Event::Changed)), []);
}

/// The step that is proposed, and whether the move goes on.
fn proposed(effects: &[Effect]) -> Vec<(MovePhase, bool)> {
    let advances = effects.iter().filter_map(|effect| match effect {
        Effect::Propose(_, request) => match request.command {
            Command::AdvanceMove { from, proceed, .. } => Some((from, proceed)),
            _ => None,
        },
        _ => None,
    });
    advances.collect()
}

#[tokio::test(start_paused = true)]
async fn nothing_is_suspended_for_a_target_that_is_silent_or_takes_no_work() {
    let (mut ledger, _, _, b, _) = moving();
    let reason = String::new();
    ledger.apply(Command::SetEligibility { node: b, eligibility: tessera_ledger::Eligibility::Cordoned, reason });
    let mut stage = Stage::new(ledger);
    assert_eq!(proposed(&stage.on(Event::Changed)), [(MovePhase::Reserved, false)]);

    let (ledger, _, a, ..) = moving();
    let mut stage = Stage::new(ledger);
    stage.leases.heard(a, stage.began + Duration::from_secs(12));
    assert_eq!(proposed(&stage.look(12)), [(MovePhase::Reserved, false)], "b was not heard for 12 s");
}

/// A stage where the job of [`moving`] has saved while it ran, and what it saved lies on its node.
fn saved_while_moving() -> (Stage, NodeId, PartKey) {
    let (mut ledger, id, a, b, source) = moving();
    ledger.report(a, owner(&source, 0), Observation::Saved(tessera_testkit::saved(1, 10)));
    let checkpoint = CheckpointKey { attempt: 1, sequence: 1 };
    let key = PartKey { job: id, checkpoint, epoch: source.epoch, rank: Rank(0) };
    (Stage::new(ledger), b, key)
}

/// Looks at everything; both nodes were just heard.
fn look_at_both(stage: &mut Stage, seconds: u64) -> Vec<(MovePhase, bool)> {
    for node in stage.ledger.state.nodes().map(|node| node.id).collect::<Vec<_>>() {
        stage.leases.heard(node, stage.began + Duration::from_secs(seconds));
    }
    proposed(&stage.look(seconds))
}

#[tokio::test(start_paused = true)]
async fn a_source_runs_on_while_what_it_saved_is_copied_to_the_target() {
    let (mut stage, target, key) = saved_while_moving();
    assert_eq!(proposed(&stage.on(Event::Changed)), [], "a leader that has just begun waits too");
    assert_eq!(look_at_both(&mut stage, 1), []);
    assert_eq!(proposed(&stage.on(Event::Changed)), [], "it is not there yet");
    stage.ledger.apply(Command::NoteKept { node: target, kept: vec![key], gone: vec![] });
    assert_eq!(proposed(&stage.on(Event::Changed)), [(MovePhase::Reserved, true)]);
}

#[tokio::test(start_paused = true)]
async fn copies_that_do_not_come_are_not_waited_for_for_ever() {
    let (mut stage, ..) = saved_while_moving();
    assert_eq!(look_at_both(&mut stage, 1), []);
    assert_eq!(look_at_both(&mut stage, 60), [], "59 s");
    assert_eq!(look_at_both(&mut stage, 62), [(MovePhase::Reserved, true)]);

    let (mut stage, ..) = saved_while_moving();
    stage.ledger.submit(job(10));
    assert_eq!(look_at_both(&mut stage, 1), []);
    assert_eq!(look_at_both(&mut stage, 5), [], "4 s");
    assert_eq!(look_at_both(&mut stage, 7), [(MovePhase::Reserved, true)], "somebody waits for its blocks");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_stopped_gives_its_target_up() {
    let (ledger, _, a, _, source) = moving();
    let mut stage = Stage::new(ledger);
    let effects = stage.on(Event::Changed);
    stage.commit(effects);
    assert_eq!(proposed(&stage.on(Event::Changed)), [], "it is stopping");
    stage.ledger.report(a, owner(&source, 0), Observation::Unconfirmed { message: "stuck".to_owned() });
    assert_eq!(proposed(&stage.on(Event::Changed)), [(MovePhase::Suspending, false)]);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_could_not_be_proposed_is_not_hammered() {
    let (ledger, ..) = moving();
    let mut stage = Stage::new(ledger);
    let duty = duties(&stage.on(Event::Changed)).pop().expect("it moves");
    assert_eq!(stage.on(Event::Answered(duty.clone(), unknown())), []);
    assert_eq!(duties(&stage.on(Event::Changed)), [duty]);
}

#[tokio::test(start_paused = true)]
async fn a_job_past_its_limit_is_stopped_when_its_agent_fails_to() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let limit = Some(Duration::from_secs(5));
    let id = ledger.submit(JobSpec { time_limit: limit, ..job(4) });
    let allocation = ledger.grant(id, &[(node, 0, 4)]);
    ledger.report(node, owner(&allocation, 0), Observation::Running);
    let mut stage = Stage::new(ledger);
    assert_eq!(duties(&stage.look(0)), [], "it was just seen to run");
    // A step of the wall clock, which log time follows, ends no job.
    for _ in 0..100 {
        assert_eq!(stage.ledger.apply(Command::Tick), Outcome::Done);
    }
    let look = |stage: &mut Stage, seconds| {
        stage.leases.heard(node, stage.began + Duration::from_secs(seconds));
        stage.look(seconds)
    };
    assert!(!duties(&look(&mut stage, 20)).contains(&Duty::Expire(id)), "log time is not this process' time");
    // Limit, grace and slack are 45 s.
    assert!(!duties(&look(&mut stage, 44)).contains(&Duty::Expire(id)), "its agent still has time");
    let effects = look(&mut stage, 56);
    assert!(duties(&effects).contains(&Duty::Expire(id)));
    stage.commit(effects);
    let job = stage.ledger.state.job(id).expect("it is known");
    assert_eq!((job.state, &job.reason), (JobState::Completing, &tessera_ledger::Reason::TimeLimit));
    let exit = exit(tessera_ledger::StopCause::Ordered, None, false);
    stage.ledger.report(node, owner(&allocation, 0), Observation::Stopped(exit));
    assert_eq!(stage.ledger.state.job(id).expect("it is known").state, JobState::Timeout);
}

#[tokio::test(start_paused = true)]
async fn time_passes_in_a_quiet_ledger_only_while_something_can_be_forgotten() {
    let mut ledger = Ledger::default();
    let id = {
        let node = ledger.node("a", &[10]);
        let id = ledger.submit(JobSpec { held: true, ..job(4) });
        assert!(ledger.state.is_ready(node));
        id
    };
    let mut stage = Stage::new(ledger);
    let heard = |stage: &mut Stage, seconds| {
        stage.leases.heard(NodeId(0), stage.began + Duration::from_secs(seconds));
        let effects = stage.look(seconds);
        duties(&effects)
    };
    assert_eq!(heard(&mut stage, 0), []);
    assert_eq!(heard(&mut stage, 40), [], "nothing is over, nothing can be forgotten");
    stage.ledger.apply(Command::CancelJob { job: id });
    assert_eq!(heard(&mut stage, 41), [], "something has just happened");
    assert_eq!(heard(&mut stage, 60), []);
    assert_eq!(heard(&mut stage, 71), [Duty::Tick]);
}

#[tokio::test(start_paused = true)]
async fn the_ceiling_is_lowered_once_when_every_lease_of_before_a_change_is_over() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let shorter = LeaseTimings { regrant_after: Duration::from_secs(15), ..LeaseTimings::default() };
    let config = PoolConfig { leases: shorter, ..ledger.state.config().clone() };
    ledger.apply(Command::SetConfig { config, expected: None });
    let mut stage = Stage::new(ledger);
    let duties = |effects: &[Effect]| proposals(effects).into_iter().map(|(duty, _)| duty).collect::<Vec<_>>();
    for seconds in [0, 10, 19] {
        stage.leases.heard(node, stage.began + Duration::from_secs(seconds));
        assert_eq!(duties(&stage.look(seconds)), []);
    }
    let effects = stage.look(20);
    let changed_at = stage.ledger.state.lease_ceiling().changed_at;
    assert_eq!(duties(&effects), [Duty::Settle(changed_at)]);
    assert_eq!(duties(&stage.look(21)), [], "it is under way");
    stage.commit(effects);
    assert_eq!(stage.ledger.state.lease_ceiling().regrant_after, shorter.regrant_after);
    assert_eq!(duties(&stage.look(22)), []);
}
