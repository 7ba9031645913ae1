use tessera_ledger::{Outcome, PlanPart, Touched};

use super::*;
use crate::fixture::{Ledger, job};

const WITHIN: Duration = Duration::from_secs(5);

struct Stage {
    ledger: Ledger,
    actor: Placement,
}

impl Stage {
    fn new() -> Self {
        let mut ledger = Ledger::default();
        ledger.node("a", &[10]);
        Self { ledger, actor: Placement::new(WITHIN) }
    }

    fn changed(&mut self) -> Vec<Effect> {
        let touched = self.ledger.state.take_touched();
        let change = Change { state: self.ledger.shared(), scope: Scope::Keys(touched) };
        self.on(Event::Changed(change))
    }

    fn on(&mut self, event: Event) -> Vec<Effect> {
        self.actor.on(event, self.ledger.now())
    }

    fn commit(&mut self, request: Request) -> Committed {
        let outcome = self.ledger.apply(request.command);
        Committed { revision: self.ledger.state.revision(), outcome }
    }
}

fn plan(effects: &[Effect]) -> Option<Request> {
    effects.iter().find_map(|effect| match effect {
        Effect::Propose { request, .. } => Some(Request::clone(request)),
        _ => None,
    })
}

fn grants(request: &Request) -> Vec<JobId> {
    let Command::CommitPlan { plan } = &request.command else { return Vec::new() };
    let jobs = plan.parts.iter().filter_map(|part| match part {
        PlanPart::Grant { job, .. } => Some(*job),
        _ => None,
    });
    jobs.collect()
}

use tessera_ledger::JobId;

#[test]
fn one_plan_at_a_time_and_the_next_from_a_state_that_includes_it() {
    let mut stage = Stage::new();
    let first = stage.ledger.submit(job(4));
    let proposed = plan(&stage.changed()).expect("it fits");
    assert_eq!(grants(&proposed), [first]);

    let second = stage.ledger.submit(job(4));
    assert_eq!(plan(&stage.changed()), None, "a plan is in flight");
    assert_eq!(plan(&stage.on(Event::Woke)), None, "whatever happens");

    let committed = stage.commit(proposed);
    let effects = stage.on(Event::Answered(Ok(committed)));
    assert!(effects.contains(&Effect::Count { accepted: 1, rejected: 0 }));
    assert_eq!(plan(&effects), None, "the feed has not shown the plan's entry");
    let proposed = plan(&stage.changed()).expect("now it has");
    assert_eq!(grants(&proposed), [second]);
}

#[test]
fn what_the_ledger_refuses_is_counted_and_decided_anew() {
    let mut stage = Stage::new();
    let id = stage.ledger.submit(job(4));
    let stale = plan(&stage.changed()).expect("it fits");
    stage.ledger.apply(Command::HoldJob { job: id });
    let committed = stage.commit(stale);
    assert!(matches!(&committed.outcome, Outcome::Planned(parts) if parts[0].is_err()));
    let effects = stage.on(Event::Answered(Ok(committed)));
    assert!(effects.contains(&Effect::Count { accepted: 0, rejected: 1 }));
    assert_eq!(plan(&stage.changed()), None, "it is held");
    stage.ledger.apply(Command::ReleaseJob { job: id });
    assert_eq!(plan(&stage.changed()).map(|plan| grants(&plan)), Some(vec![id]));
}

#[test]
fn a_plan_that_was_not_committed_is_decided_anew_after_a_pause() {
    let mut stage = Stage::new();
    let id = stage.ledger.submit(job(4));
    plan(&stage.changed()).expect("it fits");
    let error = ProposeError::Consensus(tessera_consensus::ProposeError::Unavailable);
    assert_eq!(stage.on(Event::Answered(Err(error))), [Effect::Wake(Wake::In(PAUSE))]);
    assert_eq!(plan(&stage.on(Event::Woke)).map(|plan| grants(&plan)), Some(vec![id]));
}

#[test]
fn a_reader_that_lagged_reads_everything_and_nothing_happens_without_a_change() {
    let mut stage = Stage::new();
    let id = stage.ledger.submit(job(4));
    let change = Change { state: stage.ledger.shared(), scope: Scope::Everything };
    let proposed = plan(&stage.on(Event::Changed(change))).expect("it fits");
    assert_eq!(grants(&proposed), [id]);
    let committed = stage.commit(proposed);
    stage.on(Event::Answered(Ok(committed)));
    stage.changed();
    let empty = Change { state: stage.ledger.shared(), scope: Scope::Keys(Vec::<Touched>::new()) };
    assert_eq!(stage.on(Event::Changed(empty)), []);
}

#[tokio::test]
async fn questions_are_answered_from_the_same_index() {
    let mut stage = Stage::new();
    let waiting = stage.ledger.submit(tessera_ledger::JobSpec { held: true, ..job(4) });
    stage.changed();
    let (reply, answer) = tessera_actor::Reply::channel();
    stage.on(Event::Asked(Question::Explain { job: waiting, reply }));
    let explanation = answer.await.expect("it answers at once").expect("the job is known");
    assert_eq!(explanation.code, tessera_explain::WaitCode::Held);
    let (reply, answer) = tessera_actor::Reply::channel();
    stage.on(Event::Asked(Question::Preview { spec: Box::new(job(4)), reply }));
    let preview = answer.await.expect("it answers at once");
    assert!(matches!(preview, tessera_explain::Preview::Starts { .. }), "{preview:?}");
    let (reply, answer) = tessera_actor::Reply::channel();
    stage.on(Event::Asked(Question::Waits { jobs: vec![JobId(99), waiting], reply }));
    assert_eq!(answer.await.expect("it answers at once"), [(waiting, tessera_explain::WaitCode::Held)]);
    let (reply, answer) = tessera_actor::Reply::channel();
    stage.on(Event::Asked(Question::Explain { job: JobId(99), reply }));
    assert_eq!(answer.await.expect("it answers at once"), None);
}

#[test]
fn a_plan_may_take_as_long_as_is_set() {
    for propose in [2, 9].map(Duration::from_secs) {
        let mut stage = Stage { actor: Placement::new(propose), ..Stage::new() };
        stage.ledger.submit(job(4));
        let effects = stage.changed();
        let within = |effect: &Effect| if let Effect::Propose { within, .. } = effect { Some(*within) } else { None };
        assert_eq!(effects.iter().find_map(within), Some(propose));
    }
}
