//! The reactions of a session, event by event: hello, leases and orders here, the reports of agents beside it.

use tessera_api::v1::WorkerDesire;
use tessera_ledger::{
    Allocation, JobSpec, LeaseTimings, LogTime, Observation, OnDisconnect, Outcome, Owner, PoolConfig, StopCause,
    WorkerState,
};

use super::*;
use crate::fixture::{Ledger, card, exit, job, node, owner};
use crate::lifecycle::leases::{Leases, Withheld};
use crate::pool::Committed;
use crate::session::messages::Measured;
use crate::session::messages::Sighting;

#[path = "report_tests.rs"]
mod reports;

const TERM: Term = Term(7);

struct Stage {
    ledger: Ledger,
    session: Session,
}

impl Stage {
    fn new(ledger: Ledger) -> Self {
        Self { ledger, session: session() }
    }

    fn on(&mut self, event: Event) -> Vec<Effect> {
        self.session.on(event, &self.ledger.state)
    }

    fn hello(&mut self, name: &str, workers: Vec<Sighting>) -> Vec<Effect> {
        self.on(Event::Heard(Heard::Hello(Box::new(greeting(name, workers)))))
    }

    fn report(&mut self, id: u64, workers: Vec<Sighting>) -> Vec<Effect> {
        self.on(Event::Heard(Heard::Report(Report { id: Some(id), workers, ..Report::default() })))
    }

    fn beat(&mut self, sequence: u64) -> Vec<Effect> {
        let heartbeat = Heartbeat { sequence, sent_at_boottime_ms: sequence * 1000, sent_at: LogTime(0) };
        self.on(Event::Heard(Heard::Heartbeat(heartbeat, Measured::default(), None)))
    }

    /// Commits what the session proposes, and what it proposes because of that.
    fn commit(&mut self, effects: Vec<Effect>) -> Vec<Effect> {
        let mut all = Vec::new();
        let mut next = effects;
        while let Some((step, requests)) = proposal(&next) {
            let committed = requests.into_iter().map(|request| {
                let outcome = self.ledger.apply(request.command);
                Committed { revision: self.ledger.state.revision(), outcome }
            });
            let committed = committed.collect();
            all.extend(std::mem::take(&mut next));
            next = self.on(Event::Proposed(step, Ok(committed)));
        }
        all.extend(next);
        all
    }
}

fn session() -> Session {
    Session::new(TERM, "pool")
}

fn greeting(name: &str, workers: Vec<Sighting>) -> Greeting {
    Greeting {
        node: node(name),
        cards: vec![card(name, 0, 10)],
        workers,
        highest_term: Term(3),
        cluster: "pool".to_owned(),
        sent_at: LogTime(0),
    }
}

fn running(worker: Owner) -> Sighting {
    Sighting { worker, observation: Some(Observation::Running), saved: None }
}

fn stopped(worker: Owner) -> Sighting {
    let exit = exit(StopCause::Exited, Some(0), false);
    Sighting { worker, observation: Some(Observation::Stopped(exit)), saved: None }
}

fn stranger() -> Owner {
    Owner {
        allocation: tessera_ledger::AllocationId(77),
        epoch: tessera_ledger::Epoch(5),
        rank: tessera_ledger::Rank(0),
    }
}

fn proposal(effects: &[Effect]) -> Option<(Step, Vec<Request>)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Propose(step, requests) => Some((*step, requests.clone())),
        _ => None,
    })
}

fn messages(effects: &[Effect]) -> Vec<Message> {
    let sent = effects.iter().filter_map(|effect| match effect {
        Effect::Send(response) => response.message.clone(),
        _ => None,
    });
    sent.collect()
}

/// The orders in effects: whether they are complete, and what each worker is to do.
fn orders(effects: &[Effect]) -> Vec<(bool, Vec<(u64, WorkerDesire)>)> {
    let orders = messages(effects).into_iter().filter_map(|message| match message {
        Message::Orders(orders) => {
            let allocation = |order: &v1::WorkerOrder| order.worker.as_ref().map_or(0, |worker| worker.allocation_id);
            let workers = orders.workers.iter().map(|order| (allocation(order), order.desire())).collect();
            Some((orders.complete, workers))
        }
        _ => None,
    });
    orders.collect()
}

fn acknowledged(effects: &[Effect]) -> Vec<u64> {
    let ids = messages(effects).into_iter().filter_map(|message| match message {
        Message::ReportAcknowledged(acknowledged) => Some(acknowledged.report_id),
        _ => None,
    });
    ids.collect()
}

fn leases(effects: &[Effect]) -> Vec<v1::LeaseGrant> {
    let grants = messages(effects).into_iter().filter_map(|message| match message {
        Message::LeaseGrant(grant) => Some(grant),
        _ => None,
    });
    grants.collect()
}

fn closed(effects: &[Effect]) -> Option<ErrorReason> {
    effects.iter().find_map(|effect| match effect {
        Effect::Close(refusal) => Some(refusal.reason()),
        _ => None,
    })
}

/// A ledger with node `a`, a job, and its allocation there.
fn granted(spec: JobSpec) -> (Ledger, NodeId, std::sync::Arc<Allocation>) {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let job = ledger.submit(spec);
    let allocation = ledger.grant(job, &[(node, 0, 4)]);
    (ledger, node, allocation)
}

#[test]
fn a_new_node_is_registered_before_it_is_welcome() {
    let mut stage = Stage::new(Ledger::default());
    let effects = stage.hello("a", Vec::new());
    assert_eq!(proposal(&effects).map(|(step, _)| step), Some(Step::Register));
    assert_eq!(messages(&effects), []);
    let effects = stage.commit(effects);
    assert!(effects.contains(&Effect::Meet(NodeId(0))));
    let Some(Message::Welcome(welcome)) = messages(&effects).into_iter().next() else { panic!("no welcome") };
    assert_eq!((welcome.node_id, welcome.term, welcome.cluster_id.as_str()), (0, 7, "pool"));
    assert_eq!(orders(&effects), [(true, Vec::new())]);
}

#[test]
fn a_node_with_nothing_new_is_welcome_at_once_and_news_are_registered() {
    let mut ledger = Ledger::default();
    ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    let effects = stage.hello("a", Vec::new());
    assert_eq!(proposal(&effects), None);
    assert_eq!(orders(&effects), [(true, Vec::new())]);

    let mut news = greeting("a", Vec::new());
    news.node.incarnation = 2;
    let mut other = session();
    let effects = other.on(Event::Heard(Heard::Hello(Box::new(news))), &stage.ledger.state);
    assert_eq!(proposal(&effects).map(|(step, _)| step), Some(Step::Register));

    let mut news = greeting("a", Vec::new());
    news.cards.push(card("a", 1, 5));
    let mut other = session();
    let effects = other.on(Event::Heard(Heard::Hello(Box::new(news))), &stage.ledger.state);
    assert_eq!(proposal(&effects).map(|(step, _)| step), Some(Step::Register));
}

#[test]
fn agents_that_cannot_be_served_are_told_why() {
    let refused = |change: fn(&mut Greeting)| {
        let mut ledger = Ledger::default();
        ledger.node("a", &[10]);
        let mut stage = Stage::new(ledger);
        let mut greeting = greeting("a", Vec::new());
        change(&mut greeting);
        let effects = stage.on(Event::Heard(Heard::Hello(Box::new(greeting))));
        closed(&stage.commit(effects))
    };
    assert_eq!(refused(|hello| hello.highest_term = Term(8)), Some(ErrorReason::TermStale));
    assert_eq!(refused(|hello| hello.cluster = "other".to_owned()), Some(ErrorReason::ClusterMismatch));
    assert_eq!(refused(|hello| hello.node.uid = "stolen".to_owned()), Some(ErrorReason::NodeNameTaken));
    assert_eq!(refused(|hello| hello.node.name = "b".to_owned()), Some(ErrorReason::NodeCloned), "one host, two nodes");
    assert_eq!(refused(|hello| hello.node.incarnation = 0), Some(ErrorReason::NodeChanged));
    assert_eq!(refused(|hello| hello.node.incarnation += 1 << 20), None, "it was started in vain a million times");
    assert_eq!(refused(|hello| hello.node.incarnation = u64::MAX), Some(ErrorReason::InvalidField));
    assert_eq!(refused(|hello| hello.cards[0].index = 3), Some(ErrorReason::CardInvalid));
    assert_eq!(refused(|hello| hello.cluster.clear()), None, "its first session");
}

#[test]
fn a_session_begins_with_one_hello() {
    let mut stage = Stage::new(Ledger::default());
    assert_eq!(closed(&stage.beat(1)), Some(ErrorReason::ProtocolViolation));
    assert_eq!(stage.hello("a", Vec::new()), [], "it is over");

    let mut stage = Stage::new(Ledger::default());
    let effects = stage.hello("a", Vec::new());
    stage.commit(effects);
    assert_eq!(closed(&stage.hello("a", Vec::new())), Some(ErrorReason::ProtocolViolation));
}

/// Drops the effects that record measurements: they come with every heartbeat, and decide nothing.
fn but_measured(effects: Vec<Effect>) -> Vec<Effect> {
    effects.into_iter().filter(|effect| !matches!(effect, Effect::Note(..))).collect()
}

#[test]
fn no_lease_without_a_quorum_that_confirmed_after_the_heartbeat() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    let effects = but_measured(stage.beat(1));
    let first = Heartbeat { sequence: 1, sent_at_boottime_ms: 1000, sent_at: LogTime(0) };
    assert_eq!(effects, [Effect::Confirm(node, first)], "nothing is granted before the confirmation");
    stage.beat(2);
    assert_eq!(but_measured(stage.beat(3)), [], "one confirmation at a time");
    let effects = stage.on(Event::Leased(first, Ok(LeaseTimings::default())));
    let third = Heartbeat { sequence: 3, sent_at_boottime_ms: 3000, sent_at: LogTime(0) };
    assert!(effects.contains(&Effect::Confirm(node, third)), "of those that waited, the newest counts");
    let grant = leases(&effects).pop().expect("the confirmed heartbeat is answered");
    assert_eq!(grant.heartbeat_interval.map(|every| every.seconds), Some(2));
    assert_eq!((grant.heartbeat_sequence, grant.sent_at_boottime_ms, grant.term), (1, 1000, 7));
    assert_eq!((grant.stop_after_ms, grant.kill_after_ms), (9_000, 12_000));
    let effects = stage.on(Event::Leased(third, Err(Withheld::Unconfirmed)));
    assert_eq!(leases(&effects), []);
    assert_eq!(closed(&effects), Some(ErrorReason::NotLeader), "the agent is sent to look for whoever leads");
}

#[test]
fn a_lease_lasts_as_long_as_the_pool_says() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    for factor in [1, 3] {
        let seconds = |seconds: u64| Duration::from_secs(seconds * factor);
        let (heartbeat, stop_after, kill_after) = (seconds(1), seconds(4), seconds(6));
        let leases_of = LeaseTimings { heartbeat, stop_after, kill_after, regrant_after: seconds(10) };
        let config = PoolConfig { leases: leases_of, ..PoolConfig::default() };
        assert_eq!(stage.ledger.apply(Command::SetConfig { config, expected: None }), Outcome::Done);
        let now = tokio::time::Instant::now();
        let granted = Leases::new(now, &stage.ledger.state).grant(node, now, &stage.ledger.state);
        let beat = Heartbeat { sequence: factor, sent_at_boottime_ms: 1_000, sent_at: LogTime(0) };
        let grant = leases(&stage.on(Event::Leased(beat, granted))).pop().expect("it is granted");
        assert_eq!((grant.stop_after_ms, grant.kill_after_ms), (4_000 * factor, 6_000 * factor));
        let every = grant.heartbeat_interval.map(|every| every.seconds);
        assert_eq!(every, Some(i64::try_from(factor).expect("small")));
    }
}

#[test]
fn how_long_output_is_kept_is_told_to_agents_whose_sessions_are_open() {
    let mut ledger = Ledger::default();
    ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    let told = |stage: &mut Stage| {
        let heartbeat = Heartbeat { sequence: 1, sent_at_boottime_ms: 1000, sent_at: LogTime(0) };
        let grant = leases(&stage.on(Event::Leased(heartbeat, Ok(LeaseTimings::default())))).pop();
        grant.and_then(|grant| grant.output_retention).map(|kept| kept.seconds)
    };
    assert_eq!(told(&mut stage), Some(7 * 24 * 3600));
    let config = PoolConfig { output_retention: Duration::from_secs(3), ..PoolConfig::default() };
    assert_eq!(stage.ledger.apply(Command::SetConfig { config, expected: None }), Outcome::Done);
    assert_eq!(told(&mut stage), Some(3));
}

/// That the ledger has given a node up says nothing against its leader.
#[test]
fn the_session_of_a_node_that_is_given_up_goes_on() {
    let mut ledger = Ledger::default();
    ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    stage.beat(1);
    let first = Heartbeat { sequence: 1, sent_at_boottime_ms: 1000, sent_at: LogTime(0) };
    let effects = stage.on(Event::Leased(first, Err(Withheld::Lost)));
    assert_eq!((leases(&effects), closed(&effects)), (vec![], None));
}

#[test]
fn a_heartbeat_before_the_welcome_is_answered_after_it() {
    let mut stage = Stage::new(Ledger::default());
    let effects = stage.hello("a", Vec::new());
    assert_eq!(stage.beat(1), []);
    let effects = stage.commit(effects);
    let heartbeat = Heartbeat { sequence: 1, sent_at_boottime_ms: 1000, sent_at: LogTime(0) };
    assert!(effects.contains(&Effect::Confirm(NodeId(0), heartbeat)));
}

#[test]
fn what_the_ledger_grants_is_ordered_once_and_forgotten_when_it_is_settled() {
    let (ledger, _, allocation) = granted(job(4));
    let id = allocation.id.0;
    let worker = owner(&allocation, 0);
    let mut stage = Stage::new(ledger);
    let effects = stage.hello("a", Vec::new());
    assert_eq!(orders(&effects), [(true, vec![(id, WorkerDesire::Run)])], "an order without a process is simply given");
    assert_eq!(stage.on(Event::Changed(Concern::Everything)), [], "and not again");
    let effects = stage.report(1, vec![running(worker)]);
    stage.commit(effects);
    let effects = stage.report(2, vec![stopped(worker)]);
    let effects = stage.commit(effects);
    assert_eq!(acknowledged(&effects), [2]);
    assert_eq!(orders(&effects), [(false, vec![(id, WorkerDesire::Forget)])]);
    assert_eq!(stage.on(Event::Changed(Concern::Everything)), []);
}

#[test]
fn orders_too_large_for_one_message_come_in_several() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let ids: Vec<u64> = (0..3)
        .map(|place| {
            let large = ledger.submit(JobSpec { script: "x".repeat(3 << 20), ..job(2) });
            ledger.grant(large, &[(node, place * 2, 2)]).id.0
        })
        .collect();
    let mut stage = Stage::new(ledger);
    let run = |id: u64| (false, vec![(id, WorkerDesire::Run)]);
    let named = ids.iter().map(|id| (*id, WorkerDesire::Unspecified)).collect();
    let expected = [run(ids[0]), run(ids[1]), run(ids[2]), (true, named)];
    assert_eq!(orders(&stage.hello("a", Vec::new())), expected);
}

#[test]
fn a_grant_and_a_stop_reach_the_agent_as_they_happen() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    let job = stage.ledger.submit(job(4));
    let allocation = stage.ledger.grant(job, &[(node, 0, 4)]);
    assert_eq!(
        orders(&stage.on(Event::Changed(Concern::Everything))),
        [(false, vec![(allocation.id.0, WorkerDesire::Run)])]
    );
    stage.report(1, vec![Sighting { worker: owner(&allocation, 0), observation: None, saved: None }]);
    stage.ledger.apply(Command::CancelJob { job });
    let effects = stage.on(Event::Changed(Concern::Everything));
    assert_eq!(orders(&effects), [(false, vec![(allocation.id.0, WorkerDesire::Stop)])]);
}
