//! A run of compaction, event by event: what is planned, proposed, counted, and when it ends.

use std::time::Duration;

use tessera_ledger::{
    AttainedOrder, CheckpointMode, CheckpointPolicy, Command, CompactionPolicy, JobId, JobSpec, MovePhase, Observation,
    PlanPart, PoolConfig, QueueSettings, Request, StopCause,
};
use tessera_placement::CompactionOrder;

use super::compaction::{CompactionPhase, CompactionProgress};
use super::state::{Effect, Event, Placement};
use super::{Errand, Question};
use crate::feed::{Change, Scope};
use crate::fixture::{Ledger, exit, job, owner};
use crate::pool::Committed;

struct Stage {
    ledger: Ledger,
    actor: Placement,
    jobs: Vec<JobId>,
}

impl Stage {
    /// Four nodes of ten, on each of which a job of four runs that saves itself.
    fn new() -> Self {
        let (mut ledger, mut jobs) = (Ledger::default(), Vec::new());
        for name in ["a", "b", "c", "d"] {
            let node = ledger.node(name, &[10]);
            let checkpoint = CheckpointPolicy { mode: CheckpointMode::Cooperative, ..CheckpointPolicy::default() };
            let id = ledger.submit(JobSpec { checkpoint, ..job(4) });
            let allocation = ledger.grant(id, &[(node, 0, 4)]);
            ledger.report(node, owner(&allocation, 0), Observation::Running);
            jobs.push(id);
        }
        Self { ledger, actor: Placement::new(Duration::from_secs(5)), jobs }
    }

    /// The same, with a queue that goes by attained service.
    fn by_attained_service() -> Self {
        let mut stage = Self::new();
        let queue = QueueSettings { attained: Some(AttainedOrder::default()), ..QueueSettings::new("default") };
        stage.ledger.apply(Command::SetQueue { queue });
        stage
    }

    fn on(&mut self, event: Event) -> Vec<Effect> {
        self.actor.on(event, self.ledger.now())
    }

    fn changed(&mut self) -> Vec<Effect> {
        let change = Change { state: self.ledger.shared(), scope: Scope::Everything };
        self.on(Event::Changed(change))
    }

    fn start(&mut self, moves: u32, at_once: u32) -> Vec<Effect> {
        let (reply, _answer) = tessera_actor::Reply::channel();
        let order = CompactionOrder { moves, ..CompactionOrder::default() };
        self.on(Event::Asked(Question::StartCompaction { order, at_once, reply }))
    }

    fn stop(&mut self) {
        let (reply, _answer) = tessera_actor::Reply::channel();
        self.on(Event::Asked(Question::StopCompaction(reply)));
    }

    async fn progress(&mut self) -> CompactionProgress {
        let (reply, answer) = tessera_actor::Reply::channel();
        self.on(Event::Asked(Question::Compaction(reply)));
        answer.await.expect("it answers at once")
    }

    /// Makes the plan that is asked for.
    fn plan(&mut self, effects: &[Effect]) -> Vec<Effect> {
        let plan = errand(effects).expect("a plan is asked for").run();
        self.on(Event::Compacted(Box::new(plan)))
    }

    /// Commits what is proposed.
    fn commit(&mut self, effects: &[Effect]) -> Vec<Effect> {
        let request = proposal(effects).expect("something is proposed");
        let outcome = self.ledger.apply(request.command);
        let committed = Committed { revision: self.ledger.state.revision(), outcome };
        self.on(Event::Answered(Ok(committed)));
        self.changed()
    }

    /// Takes every move in progress to its end.
    fn finish_moves(&mut self) -> Vec<Effect> {
        let moves: Vec<_> = self.ledger.state.moves().cloned().collect();
        for movement in moves {
            let id = movement.id;
            self.ledger.apply(Command::AdvanceMove { id, from: MovePhase::Reserved, proceed: true });
            let source = self.ledger.allocation(movement.source);
            let exit = exit(StopCause::Ordered, Some(0), true);
            self.ledger.report(source.workers[0].node, owner(&source, 0), Observation::Stopped(exit));
            self.ledger.apply(Command::AdvanceMove { id, from: MovePhase::Transferring, proceed: true });
            let target = self.ledger.allocation(movement.target);
            self.ledger.report(target.workers[0].node, owner(&target, 0), Observation::Running);
        }
        self.changed()
    }
}

fn errand(effects: &[Effect]) -> Option<Errand> {
    effects.iter().find_map(|effect| match effect {
        Effect::Compact(errand) => Some(Errand::clone(errand)),
        _ => None,
    })
}

fn proposal(effects: &[Effect]) -> Option<Request> {
    effects.iter().find_map(|effect| match effect {
        Effect::Propose { request, .. } => Some(Request::clone(request)),
        _ => None,
    })
}

fn moves(request: &Request) -> usize {
    let Command::CommitPlan { plan } = &request.command else { return 0 };
    plan.parts.iter().filter(|part| matches!(part, PlanPart::Move { .. })).count()
}

#[tokio::test]
async fn moves_are_made_one_after_the_other_until_nothing_gains() {
    let mut stage = Stage::new();
    assert_eq!(errand(&stage.changed()), None, "nobody asked");
    assert_eq!(stage.progress().await.phase, CompactionPhase::Idle);
    let mut effects = stage.start(16, 1);
    for number in 1..=2 {
        effects = stage.plan(&effects);
        assert_eq!(proposal(&effects).map(|request| moves(&request)), Some(1), "one at a time");
        let waits = stage.commit(&effects);
        assert_eq!(errand(&waits), None, "a move is in progress");
        assert_eq!(stage.progress().await.begun, number);
        effects = stage.finish_moves();
        assert_eq!(stage.progress().await.done, number);
    }
    effects = stage.plan(&effects);
    assert_eq!(proposal(&effects), None);
    let progress = stage.progress().await;
    assert_eq!((progress.phase, progress.begun, progress.done, progress.failed), (CompactionPhase::Done, 2, 2, 0));
}

#[tokio::test]
async fn moves_that_need_nothing_of_each_other_are_made_at_once_within_the_budget() {
    let mut stage = Stage::new();
    stage.changed();
    let effects = stage.start(16, 4);
    let effects = stage.plan(&effects);
    assert_eq!(proposal(&effects).map(|request| moves(&request)), Some(2));

    let mut stage = Stage::new();
    stage.changed();
    let effects = stage.start(1, 4);
    let effects = stage.plan(&effects);
    assert_eq!(proposal(&effects).map(|request| moves(&request)), Some(1));
    let effects = stage.commit(&effects);
    assert_eq!(errand(&effects).map(|errand| errand.order.moves), Some(0), "the budget is used up");
    stage.plan(&effects);
    assert_eq!(stage.progress().await.phase, CompactionPhase::Running, "its move is in progress");
    let effects = stage.finish_moves();
    stage.plan(&effects);
    assert_eq!(stage.progress().await.phase, CompactionPhase::Done);
}

#[tokio::test]
async fn a_stopped_run_begins_nothing_more_and_counts_what_it_began() {
    let mut stage = Stage::new();
    stage.changed();
    let effects = stage.start(16, 1);
    let effects = stage.plan(&effects);
    stage.commit(&effects);
    stage.stop();
    assert_eq!(errand(&stage.finish_moves()), None);
    let progress = stage.progress().await;
    assert_eq!((progress.phase, progress.begun, progress.done), (CompactionPhase::Stopped, 1, 1));
}

#[tokio::test]
async fn what_is_refused_counts_against_the_budget_so_that_a_run_ends() {
    let mut stage = Stage::new();
    stage.changed();
    let effects = stage.start(2, 1);
    let effects = stage.plan(&effects);
    for id in stage.jobs.clone() {
        stage.ledger.apply(Command::SuspendJob { job: id });
    }
    let effects = stage.commit(&effects);
    let progress = stage.progress().await;
    assert_eq!((progress.begun, progress.done, progress.failed), (1, 0, 1));
    stage.plan(&effects);
    assert_eq!(stage.progress().await.phase, CompactionPhase::Done, "nothing runs that could be moved");
}

#[tokio::test]
async fn a_pool_compacts_itself_only_when_its_settings_say_so_and_within_the_hour() {
    let mut stage = Stage::new();
    let policy = CompactionPolicy { automatic: true, threshold: tessera_ledger::Percent(10), moves_per_hour: 1 };
    stage.ledger.apply(Command::SetConfig {
        config: PoolConfig { compaction: policy, ..PoolConfig::default() },
        expected: None,
    });
    let effects = stage.changed();
    let effects = stage.plan(&effects);
    assert_eq!(proposal(&effects).map(|request| moves(&request)), Some(1), "one move an hour");
    stage.commit(&effects);
    let progress = stage.progress().await;
    assert!(progress.automatic && progress.phase == CompactionPhase::Running);
    let effects = stage.finish_moves();
    stage.plan(&effects);
    assert_eq!(stage.progress().await.phase, CompactionPhase::Done);

    let mut stage = Stage::new();
    let patient = CompactionPolicy { threshold: tessera_ledger::Percent(90), ..policy };
    stage.ledger.apply(Command::SetConfig {
        config: PoolConfig { compaction: patient, ..PoolConfig::default() },
        expected: None,
    });
    let effects = stage.changed();
    let effects = stage.plan(&effects);
    assert_eq!(proposal(&effects), None, "less lies scattered than the threshold says, and nobody waits");
    assert_eq!(errand(&stage.on(Event::Woke)), None, "it was looked at just now");
}

#[tokio::test]
async fn moves_make_way_by_themselves_where_a_queue_goes_by_attained_service() {
    let mut stage = Stage::by_attained_service();
    stage.ledger.pass(Duration::from_secs(360));
    let effects = stage.changed();
    stage.plan(&effects);
    assert_eq!(stage.progress().await.phase, CompactionPhase::Idle, "nobody waits");

    let waiting = stage.ledger.submit(job(10));
    stage.ledger.pass(Duration::from_secs(61));
    let effects = stage.changed();
    let effects = stage.plan(&effects);
    assert_eq!(proposal(&effects).map(|request| moves(&request)), Some(1), "six and four are as many as are needed");
    stage.commit(&effects);
    let progress = stage.progress().await;
    assert!(progress.automatic && progress.phase == CompactionPhase::Running);
    let effects = stage.finish_moves();
    let Some(Request { command: Command::CommitPlan { plan }, .. }) = proposal(&effects) else {
        panic!("who waited starts");
    };
    assert!(matches!(plan.parts[..], [PlanPart::Grant { job, .. }] if job == waiting), "{plan:?}");
    let effects = stage.commit(&effects);
    stage.plan(&effects);
    assert_eq!(stage.progress().await.phase, CompactionPhase::Done);
}

#[tokio::test]
async fn a_plan_of_a_run_that_was_stopped_is_dropped() {
    let mut stage = Stage::by_attained_service();
    stage.ledger.submit(job(10));
    stage.ledger.pass(Duration::from_secs(360));
    // A look that nobody asked for is under way when somebody begins a run.
    let look = stage.changed();
    assert_eq!(errand(&stage.start(16, 1)), None);
    let effects = stage.plan(&look);
    assert_eq!(proposal(&effects), None, "it was no plan of that run");
    stage.stop();
    let late = stage.plan(&effects);
    assert_eq!(proposal(&late), None);
    assert_eq!(stage.progress().await.phase, CompactionPhase::Stopped);
}
