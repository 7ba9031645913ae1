//! Tests of how a session handles the reports of its agent, and a node that is lost, returns or changes.

use super::*;
use crate::pool::ProposeError;

#[test]
fn reports_are_acknowledged_when_they_are_in_the_log_and_share_proposals() {
    let (ledger, _, allocation) = granted(job(4));
    let worker = owner(&allocation, 0);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    let first = stage.report(1, vec![running(worker)]);
    assert!(acknowledged(&first).is_empty(), "not before it is committed");
    assert_eq!(stage.report(2, vec![stopped(worker)]), [], "one proposal at a time");
    assert_eq!(stage.report(3, vec![stopped(stranger())]).len(), 1, "only that it may be forgotten");
    let effects = stage.commit(first);
    assert_eq!(acknowledged(&effects), [1, 2, 3]);
    let proposals = effects.iter().filter(|effect| matches!(effect, Effect::Propose(..))).count();
    assert_eq!(proposals, 2, "what came meanwhile shared one");
}

#[test]
fn a_report_that_says_nothing_new_is_acknowledged_without_the_log() {
    let (ledger, _, allocation) = granted(job(4));
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    let old = Owner { epoch: tessera_ledger::Epoch(1), ..owner(&allocation, 0) };
    let effects = stage.report(4, vec![stopped(old)]);
    assert_eq!(proposal(&effects), None, "its epoch is over");
    assert_eq!(acknowledged(&effects), [4]);
}

#[test]
fn a_report_that_could_not_be_committed_is_proposed_again_after_a_pause() {
    let (ledger, _, allocation) = granted(job(4));
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    stage.report(1, vec![running(owner(&allocation, 0))]);
    let lost = ProposeError::Consensus(tessera_consensus::ProposeError::OutcomeUnknown);
    assert_eq!(stage.on(Event::Proposed(Step::Report, Err(lost))), [Effect::Pause(PAUSE)]);
    assert_eq!(proposal(&stage.on(Event::Changed(Concern::Everything))), None, "not before the pause is over");
    let effects = stage.on(Event::Resumed);
    let effects = stage.commit(effects);
    assert_eq!(acknowledged(&effects), [1]);
    let gone = ProposeError::Consensus(tessera_consensus::ProposeError::NotLeader { leader: None });
    stage.report(2, vec![stopped(owner(&allocation, 0))]);
    assert_eq!(closed(&stage.on(Event::Proposed(Step::Report, Err(gone)))), Some(ErrorReason::NotLeader));
}

#[test]
fn an_agent_that_waits_for_no_acknowledgement_is_cut_by_number_and_by_bytes() {
    for (bytes, taken) in [(0, REPORTS), (REPORT_BYTES / 4, 4)] {
        let (ledger, _, allocation) = granted(job(4));
        let mut stage = Stage::new(ledger);
        stage.hello("a", Vec::new());
        // What is proposed waits no more; what comes after it waits for that.
        let report = |stage: &mut Stage| {
            let workers = vec![running(owner(&allocation, 0))];
            let report = Report { id: Some(1), workers, bytes, ..Report::default() };
            closed(&stage.on(Event::Heard(Heard::Report(report))))
        };
        for number in 0..=taken {
            assert_eq!(report(&mut stage), None, "{number} of {bytes} bytes");
        }
        assert_eq!(report(&mut stage), Some(ErrorReason::Overloaded), "{bytes} bytes");
    }
}

#[test]
fn an_agent_that_has_more_workers_than_a_node_can_have_is_cut() {
    let mut ledger = Ledger::default();
    ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    let some = |from: usize, count: usize| -> Vec<Sighting> {
        let allocation = |number: usize| tessera_ledger::AllocationId(number as u64);
        (from..from + count).map(|number| running(Owner { allocation: allocation(number), ..stranger() })).collect()
    };
    assert_eq!(closed(&stage.report(1, some(0, MOST_SIGHTED))), None);
    assert_eq!(closed(&stage.report(2, some(0, 1))), None, "it is known");
    assert_eq!(closed(&stage.report(3, some(MOST_SIGHTED, 1))), Some(ErrorReason::ProtocolViolation));
}

#[test]
fn many_reports_go_into_the_log_in_commands_that_fit_and_what_never_fits_ends_the_session() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[300]);
    let allocations: Vec<_> = (0..300)
        .map(|place| {
            let job = ledger.submit(job(1));
            ledger.grant(job, &[(node, place, 1)])
        })
        .collect();
    let mut stage = Stage::new(ledger);
    let hello = Greeting { cards: vec![card("a", 0, 300)], ..greeting("a", Vec::new()) };
    stage.on(Event::Heard(Heard::Hello(Box::new(hello))));
    let all = allocations.iter().map(|allocation| running(owner(allocation, 0))).collect();
    let effects = stage.report(1, all);
    let told: Vec<usize> = proposal(&effects)
        .into_iter()
        .flat_map(|(_, requests)| requests)
        .map(|request| match request.command {
            Command::ReportWorkers { reports, .. } => reports.len(),
            other => panic!("{other:?} is no report"),
        })
        .collect();
    assert_eq!(told, [256, 44]);
    let never = ProposeError::Consensus(tessera_consensus::ProposeError::TooLarge { bytes: 2, limit: 1 });
    assert_eq!(closed(&stage.on(Event::Proposed(Step::Report, Err(never)))), Some(ErrorReason::RequestTooLarge));
}

#[test]
fn what_nobody_granted_is_stopped_and_then_forgotten() {
    let mut ledger = Ledger::default();
    ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    let effects = stage.hello("a", vec![running(stranger())]);
    assert_eq!(orders(&effects), [(true, Vec::new())], "complete orders do not name it: it must stop");
    assert_eq!(stage.on(Event::Changed(Concern::Everything)), []);
    let effects = stage.report(1, vec![stopped(stranger())]);
    assert_eq!(orders(&effects), [(false, vec![(77, WorkerDesire::Forget)])]);
    assert_eq!(acknowledged(&effects), [1]);

    let late = Owner { allocation: tessera_ledger::AllocationId(78), ..stranger() };
    let effects = stage.report(2, vec![running(late)]);
    assert_eq!(orders(&effects), [(false, vec![(78, WorkerDesire::Stop)])], "one that shows up later is told to stop");
}

#[test]
fn a_lost_node_returns_only_when_nothing_is_left_that_was_not_granted() {
    let (mut ledger, node, allocation) = granted(job(4));
    ledger.report(node, owner(&allocation, 0), Observation::Running);
    ledger.lose(node);
    assert_eq!(ledger.state.allocations_on(node).count(), 0, "its work is written off");
    let mut stage = Stage::new(ledger);
    let effects = stage.hello("a", vec![running(owner(&allocation, 0))]);
    assert_eq!(orders(&effects), [(true, Vec::new())]);
    assert_eq!(proposal(&effects), None, "the old worker still runs");
    let effects = stage.report(1, vec![Sighting { worker: owner(&allocation, 0), observation: None, saved: None }]);
    assert_eq!(proposal(&effects), None, "it is being stopped");
    let effects = stage.report(2, vec![stopped(owner(&allocation, 0))]);
    assert_eq!(proposal(&effects).map(|(step, _)| step), Some(Step::Return));
    stage.commit(effects);
    assert!(stage.ledger.state.is_ready(node));
}

#[test]
fn an_unconfirmed_worker_keeps_its_node_lost() {
    let (mut ledger, node, allocation) = granted(job(4));
    ledger.lose(node);
    let mut stage = Stage::new(ledger);
    let unconfirmed = Observation::Unconfirmed { message: "it does not die".to_owned() };
    let effects =
        stage.hello("a", vec![Sighting { worker: owner(&allocation, 0), observation: Some(unconfirmed), saved: None }]);
    assert_eq!(proposal(&effects), None);
}

#[test]
fn kept_work_goes_on_when_its_node_returns() {
    let (mut ledger, node, allocation) = granted(JobSpec { on_disconnect: OnDisconnect::Keep, ..job(4) });
    let worker = owner(&allocation, 0);
    ledger.report(node, worker, Observation::Running);
    ledger.lose(node);
    let mut stage = Stage::new(ledger);
    let effects = stage.hello("a", vec![running(worker)]);
    assert_eq!(orders(&effects), [(true, vec![(allocation.id.0, WorkerDesire::Run)])]);
    stage.commit(effects);
    assert!(stage.ledger.state.is_ready(node));
    let state = stage.ledger.allocation(allocation.id).workers[0].state;
    assert_eq!(state, WorkerState::Running);
}

#[test]
fn a_node_that_is_lost_or_forgotten_while_connected_must_say_hello_again() {
    let (ledger, node, _) = granted(job(4));
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    stage.ledger.lose(node);
    assert_eq!(closed(&stage.on(Event::Changed(Concern::Everything))), Some(ErrorReason::NodeChanged));

    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    stage.ledger.apply(Command::ForgetNode { node });
    assert_eq!(closed(&stage.on(Event::Changed(Concern::Everything))), Some(ErrorReason::NodeForgotten));
}

#[test]
fn changed_cards_reach_the_ledger_and_unchanged_ones_do_not() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    let same = Report { id: Some(1), cards: vec![card("a", 0, 10)], ..Report::default() };
    let effects = stage.on(Event::Heard(Heard::Report(same)));
    assert_eq!((proposal(&effects), acknowledged(&effects)), (None, vec![1]));
    let mut ill = card("a", 0, 10);
    ill.health = tessera_ledger::CardHealth::Unhealthy;
    let report = Report { id: Some(2), cards: vec![ill.clone()], ..Report::default() };
    let effects = stage.on(Event::Heard(Heard::Report(report)));
    let effects = stage.commit(effects);
    assert_eq!(acknowledged(&effects), [2]);
    let id = tessera_ledger::CardId { node, index: 0 };
    assert_eq!(stage.ledger.state.card(id).map(|card| card.description.clone()), Some(ill));
}

#[test]
fn changed_data_reaches_the_ledger_without_a_new_registration() {
    let mut ledger = Ledger::default();
    let node = ledger.node("a", &[10]);
    let mut stage = Stage::new(ledger);
    stage.hello("a", Vec::new());
    let epoch = stage.ledger.state.node(node).map(|node| node.epoch);
    let report = |id, names: &[&str]| {
        let cached = Some(names.iter().map(|name| (*name).to_owned()).collect());
        Event::Heard(Heard::Report(Report { id: Some(id), cached, ..Report::default() }))
    };
    let effects = stage.on(report(1, &[]));
    assert_eq!((proposal(&effects), acknowledged(&effects)), (None, vec![1]), "that is what it said before");
    let effects = stage.on(report(2, &["imagenet"]));
    let effects = stage.commit(effects);
    assert_eq!(acknowledged(&effects), [2]);
    let known = stage.ledger.state.node(node).expect("registered");
    assert_eq!((Some(known.epoch), known.description.cached.len()), (epoch, 1));
}

#[test]
fn another_boot_speaks_for_its_node_once_the_leases_of_the_one_before_are_over() {
    let from = |boot: &str, incarnation| {
        let mut greeting = greeting("a", Vec::new());
        greeting.node.start =
            tessera_ledger::AgentStart { boot_id: boot.to_owned(), nonce: format!("{boot}-{incarnation}") };
        greeting.node.incarnation = incarnation;
        Event::Heard(Heard::Hello(Box::new(greeting)))
    };
    let mut stage = Stage::new(Ledger::default());
    let first = stage.on(from("boot-1", 1));
    stage.commit(first);
    // Another start of the agent in the same boot is nobody else.
    let mut restarted = Stage::new(stage.ledger);
    let again = restarted.on(from("boot-1", 2));
    assert!(proposal(&again).is_some(), "{again:?}");
    let ledger = restarted.ledger;
    let node = ledger.state.node_by_name("a").expect("registered").id;

    let mut copy = Stage::new(ledger);
    assert_eq!(copy.on(from("boot-2", 2)), [Effect::Outlive(node)]);
    assert_eq!(closed(&copy.on(Event::Outlived(false))), Some(ErrorReason::NodeStillLeased));

    let mut rebooted = Stage::new(copy.ledger);
    rebooted.on(from("boot-2", 2));
    let admitted = rebooted.on(Event::Outlived(true));
    assert!(proposal(&admitted).is_some(), "{admitted:?}");
    rebooted.commit(admitted);

    let mut lost = Stage::new(rebooted.ledger);
    lost.ledger.lose(node);
    assert!(proposal(&lost.on(from("boot-3", 3))).is_some(), "what a lost node ran is given up already");
}
