//! Reports reach the leader, however often it takes.

use std::collections::BTreeSet;

use tessera_api::agent::part_name;
use tessera_devices::{Sample, ShareControl};
use tessera_ledger::{CheckpointKey, JobId, PartKey, SavedPart};
use wire::session_request::Message as ToLeader;
use wire::{StopCause, WorkerDesire, WorkerPhase};

use super::super::super::event::CheckpointNews;
use super::super::super::readings::Readings;
use super::*;
use crate::device::Counts;
use crate::turns::TurnBook;
use crate::turns::rounds::Terms;
use crate::worker::WorkerUse;

/// A worker that has exited, with the effects that reported it.
fn with_report() -> (Bench, WorkerId, Vec<Effect>) {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    let effects = bench.order(one, WorkerDesire::Run);
    bench.acknowledge(&effects);
    let effects = bench.told(exited(one, 0));
    (bench, one, effects)
}

const OVER: (u64, WorkerPhase, StopCause) = (10, WorkerPhase::Stopped, StopCause::Exited);

#[test]
fn a_change_is_reported_at_once_and_only_once() {
    let (mut bench, one, effects) = with_report();
    assert_eq!(reported(&effects), [OVER]);
    assert!(reported(&bench.told(exited(one, 0))).is_empty());
    bench.acknowledge(&effects);
    bench.pass(Duration::from_secs(60));
    assert!(reported(&bench.on(Event::HeartbeatDue)).is_empty());
}

#[test]
fn a_lost_acknowledgement_means_the_report_is_sent_again() {
    let (mut bench, _, effects) = with_report();
    bench.pass(Duration::from_secs(4));
    assert!(reported(&bench.on(Event::HeartbeatDue)).is_empty(), "patience");
    bench.pass(Duration::from_secs(2));
    let again = bench.on(Event::HeartbeatDue);
    assert_eq!(reported(&again), [OVER]);
    assert!(reports(&again)[0].report_id > reports(&effects)[0].report_id);
    bench.acknowledge(&again);
    bench.pass(Duration::from_secs(60));
    assert!(reported(&bench.on(Event::HeartbeatDue)).is_empty());
}

#[test]
fn a_new_session_repeats_what_was_not_acknowledged() {
    let (mut bench, _, _) = with_report();
    bench.on(Event::SessionClosed);
    assert!(bench.on(Event::HeartbeatDue).is_empty(), "nobody to talk to");
    let hello = bench.hello();
    assert_eq!(hello.workers.len(), 1);
    let effects = bench.hear(welcome(5));
    assert_eq!(reported(&effects), [OVER]);
    bench.acknowledge(&effects);
    bench.on(Event::SessionClosed);
    assert!(bench.hello().workers.is_empty(), "stopped and acknowledged");
}

#[test]
fn acknowledging_an_old_state_does_not_settle_the_new_one() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    let starting = bench.order(one, WorkerDesire::Run);
    let running = bench.told(status(one, Phase::Running));
    let over = bench.told(exited(one, 0));
    bench.acknowledge(&starting);
    bench.acknowledge(&running);
    assert!(forgotten(&bench.hear(orders(5, true, Vec::new()))).is_empty(), "its end is not acknowledged");
    assert_eq!(forgotten(&bench.acknowledge(&over)), [one]);
}

#[test]
fn an_unconfirmed_kill_is_reported_and_later_its_confirmation() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    bench.order(one, WorkerDesire::Run);
    let mut stuck = status(one, Phase::Unconfirmed);
    stuck.cause = Some(Cause::LeaseExpired);
    assert_eq!(reported(&bench.told(stuck.clone())), [(10, WorkerPhase::Unconfirmed, StopCause::LeaseExpired)]);
    stuck.phase = Phase::Stopped;
    assert_eq!(reported(&bench.told(stuck)), [(10, WorkerPhase::Stopped, StopCause::LeaseExpired)]);
}

#[test]
fn a_late_word_does_not_bring_the_dead_back() {
    let (mut bench, one, effects) = with_report();
    bench.acknowledge(&effects);
    assert!(reported(&bench.told(status(one, Phase::Running))).is_empty());
    assert_eq!(bench.node.workers().next().map(|record| record.status.phase), Some(Phase::Stopped));
}

fn saved(sequence: u64, bytes: u64) -> SavedPart {
    SavedPart { progress: 12, ..tessera_testkit::saved(sequence, bytes) }
}

#[test]
fn a_worker_has_saved_itself_when_what_it_wrote_at_its_end_is_kept() {
    let checkpointed = |news: Option<SavedPart>| {
        let mut bench = Bench::leased();
        let one = worker(1, 10, 0);
        bench.hear(orders(5, false, vec![order(one, WorkerDesire::Run)]));
        let told = news.map(|news| bench.on(Event::Checkpoint(one, CheckpointNews::Saved(news))));
        if let Some(told) = told {
            let reported = &reports(&told)[0].workers[0];
            assert!(
                reported.saved.is_some() && !reported.checkpointed,
                "it is told at once, and the worker is not over"
            );
        }
        let mut over = exited(one, 0);
        over.cause = Some(Cause::Ordered);
        reports(&bench.told(over))[0].workers[0].checkpointed
    };
    assert!(checkpointed(Some(saved(CheckpointKey::LAST, 10))));
    assert!(!checkpointed(Some(saved(CheckpointKey::LAST, 0))), "nothing was written");
    assert!(!checkpointed(Some(saved(3, 10))), "that was while it ran");
    assert!(!checkpointed(None));
}

#[test]
fn a_worker_without_its_checkpoint_is_told_as_such() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    bench.hear(orders(5, false, vec![order(one, WorkerDesire::Run)]));
    bench.on(Event::Checkpoint(one, CheckpointNews::Unusable { for_good: true }));
    let mut over = exited(one, 0);
    (over.cause, over.exit) = (Some(Cause::StartFailed), None);
    let told = reports(&bench.told(over))[0].workers[0].clone();
    assert!(told.unusable && told.unusable_for_good);
}

/// Its supervisor has written it down: an agent that is started meanwhile tells the same.
#[test]
fn a_worker_that_could_not_be_restored_is_told_as_such_by_whichever_agent() {
    let one = worker(1, 10, 0);
    let mut over = exited(one, 0);
    (over.cause, over.exit) = (Some(Cause::NotRestored), None);
    let told = WorkerRecord::found(over.clone(), None).report();
    assert_eq!((told.cause(), told.unusable), (wire::StopCause::NotRestored, false));
    let mut bench = Bench::leased();
    bench.hear(orders(5, false, vec![order(one, WorkerDesire::Run)]));
    assert_eq!(reports(&bench.told(over))[0].workers[0].cause(), wire::StopCause::NotRestored);
}

#[test]
fn why_no_image_was_made_while_it_ran_is_told_at_its_end() {
    let not_saved = |failed: &[&str], at_the_end: &str| {
        let mut bench = Bench::leased();
        let one = worker(1, 10, 0);
        bench.hear(orders(5, false, vec![order(one, WorkerDesire::Run)]));
        for failed in failed {
            let failed = (*failed).to_owned();
            bench.on(Event::Checkpoint(one, CheckpointNews::Snapshot { failed }));
        }
        let mut over = exited(one, 1);
        at_the_end.clone_into(&mut over.not_saved);
        reports(&bench.told(over))[0].workers[0].not_saved.clone()
    };
    assert_eq!(not_saved(&["it is full"], ""), "it was not dumped while it ran: it is full");
    assert_eq!(not_saved(&["it is full", ""], ""), "", "the next one was");
    assert_eq!(not_saved(&["it is full"], "it cannot be dumped"), "it cannot be dumped");
}

#[test]
fn what_is_kept_is_said_with_a_heartbeat_when_it_has_changed() {
    let part = |sequence| PartKey {
        job: JobId(7),
        checkpoint: CheckpointKey { attempt: 1, sequence },
        epoch: Epoch(40),
        rank: Rank(0),
    };
    let said = |effects: &[Effect]| {
        let beat = effects.iter().find_map(|effect| match effect {
            Effect::Send(message) => match &message.message {
                Some(ToLeader::Heartbeat(beat)) => Some(beat.kept.as_ref().map(|kept| kept.names.len())),
                _ => None,
            },
            _ => None,
        });
        beat.expect("a heartbeat is sent")
    };
    let mut bench = Bench::leased();
    assert_eq!(said(&bench.on(Event::HeartbeatDue)), None, "it is not known yet");
    bench.on(Event::Kept(BTreeSet::from([part(1)])));
    assert_eq!(said(&bench.on(Event::HeartbeatDue)), Some(1));
    bench.on(Event::Kept(BTreeSet::from([part(1)])));
    assert_eq!(said(&bench.on(Event::HeartbeatDue)), None, "nothing has changed");
    bench.on(Event::Kept(BTreeSet::new()));
    assert_eq!(said(&bench.on(Event::HeartbeatDue)), Some(0), "all of it is gone");
}

/// Checkpoints that were looked for in vain are reported once, with the list as it is then.
#[test]
fn what_the_leader_misses_is_looked_for_and_what_is_not_there_is_said() {
    let part = PartKey {
        job: JobId(7),
        checkpoint: CheckpointKey { attempt: 1, sequence: 1 },
        epoch: Epoch(40),
        rank: Rank(0),
    };
    let mut bench = Bench::leased();
    bench.on(Event::Kept(BTreeSet::new()));
    bench.on(Event::HeartbeatDue);
    let source = wire::CheckpointSource { name: Some(part_name(&part)), ..Default::default() };
    let orders = wire::CheckpointOrders { term: 5, missed: vec![source], ..Default::default() };
    let effects = bench.hear(FromLeader::CheckpointOrders(orders));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::LookFor(missed) if missed.len() == 1)), "{effects:?}");
    let absent = |effects: &[Effect]| {
        effects.iter().find_map(|effect| match effect {
            Effect::Send(message) => match &message.message {
                Some(ToLeader::Heartbeat(beat)) => beat.kept.as_ref().map(|kept| kept.absent.clone()),
                _ => None,
            },
            _ => None,
        })
    };
    bench.on(Event::Absent(vec![]));
    assert_eq!(absent(&bench.on(Event::HeartbeatDue)), None, "it is there, and the list says so when it has it");
    bench.on(Event::Absent(vec![part]));
    assert_eq!(absent(&bench.on(Event::HeartbeatDue)), Some(vec![part_name(&part)]));
    assert_eq!(absent(&bench.on(Event::HeartbeatDue)), None);
}

#[test]
fn cards_are_reported_when_their_health_changes() {
    let mut bench = Bench::leased();
    let card = wire::CardDescription { index: 1, health: wire::CardHealth::Unhealthy.into(), ..Default::default() };
    let effects = bench.on(Event::CardsChanged(vec![card.clone()]));
    assert_eq!(reports(&effects)[0].cards, [card]);
    bench.pass(Duration::from_secs(6));
    assert_eq!(reports(&bench.on(Event::HeartbeatDue)).len(), 1, "until it is acknowledged");
}

#[test]
fn of_a_gang_that_of_whoever_ended_first_is_told_first() {
    let mut bench = Bench::leased();
    let ranks = [worker(1, 10, 0), worker(1, 10, 1)];
    for rank in ranks {
        let effects = bench.order(rank, WorkerDesire::Run);
        bench.acknowledge(&effects);
    }
    for (rank, at) in [(ranks[1], 5), (ranks[0], 9)] {
        bench.told(Status { exited_unix_ms: Some(at), ..exited(rank, 1) });
    }
    bench.pass(Duration::from_secs(6));
    let again = reports(&bench.on(Event::HeartbeatDue));
    let told = again[0].workers.iter().map(|report| report.worker.map(|worker| worker.rank));
    assert_eq!(told.collect::<Vec<_>>(), [Some(1), Some(0)]);
}

#[test]
fn many_workers_are_reported_in_several_messages() {
    let mut bench = Bench::leased();
    let run = |number| order(worker(number, 10, 0), WorkerDesire::Run);
    let effects = bench.hear(orders(5, true, (0..600).map(run).collect()));
    let sizes: Vec<usize> = reports(&effects).iter().map(|report| report.workers.len()).collect();
    assert_eq!(sizes, [256, 256, 88]);
}

fn data(names: &[&str]) -> Event {
    Event::CachedChanged(names.iter().map(|name| (*name).to_owned()).collect())
}

fn told_data(effects: &[Effect]) -> Vec<Vec<String>> {
    reports(effects).into_iter().filter_map(|report| Some(report.cached?.names)).collect()
}

#[test]
fn data_that_changed_is_reported_on_the_session_until_it_is_acknowledged() {
    let mut bench = Bench::leased();
    assert_eq!(bench.hello().cached, Vec::<String>::new());
    let mut bench = Bench::leased();
    // Its leader may take its time.
    bench.lease(200_000);
    let effects = bench.on(data(&["imagenet", "llama"]));
    assert_eq!(told_data(&effects), [["imagenet", "llama"]]);
    assert_eq!(closes(&effects), None);
    assert!(told_data(&bench.on(data(&["imagenet", "llama"]))).is_empty(), "nothing changed");
    bench.pass(Duration::from_secs(6));
    let again = bench.on(Event::HeartbeatDue);
    assert_eq!(told_data(&again).len(), 1, "it was not acknowledged");
    bench.acknowledge(&again);
    bench.pass(Duration::from_secs(60));
    assert!(told_data(&bench.on(Event::HeartbeatDue)).is_empty());
    assert_eq!(told_data(&bench.on(data(&[]))), [Vec::<String>::new()], "an empty disk is news, too");
    bench.on(data(&["other"]));
    assert_eq!(bench.hello().cached, ["other"], "a new session begins with all of it");
}

#[test]
fn data_that_changes_between_hello_and_welcome_is_not_forgotten() {
    let mut bench = Bench::with(0, Vec::new());
    bench.hello();
    assert!(told_data(&bench.on(data(&["late"]))).is_empty(), "there is no session yet");
    let effects = bench.hear(welcome(5));
    assert_eq!(told_data(&effects), [["late"]]);
}

#[test]
fn how_the_time_of_a_card_is_divided_is_told_though_nothing_of_it_is_read() {
    let mut bench = Bench::leased();
    let book = TurnBook::new(Terms::default());
    let sliced = |card| (card, book.of_card(card, ShareControl::Freeze { lends: false }));
    let readings = Readings {
        at: Some(bench.now),
        cards: vec![Sample { card_index: 1, ..Sample::default() }],
        slicing: [sliced(0), sliced(1)].into(),
        ..Readings::default()
    };
    bench.on(Event::Measured(Box::new(readings)));
    let mut told = bench.heartbeat().samples;
    told.sort_by_key(|sample| sample.card_index);
    let told: Vec<_> = told.iter().map(|sample| (sample.unread, sample.time_slicing.is_some())).collect();
    assert_eq!(told, [(true, true), (false, true)]);
}

#[test]
fn slice_servers_take_no_turns_before_they_are_there() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    let mut of_device = order(one, WorkerDesire::Run);
    let card = wire::VirtualCardRequest { access: wire::Access::Device.into(), ..Default::default() };
    of_device.spec.as_mut().expect("it has one").virtual_card = Some(card);
    bench.hear(orders(5, false, vec![of_device]));
    bench.told(status(one, Phase::Running));
    let turns = |bench: &Bench| bench.node.holders().workers.len();
    assert_eq!(turns(&bench), 0, "its servers have so long to be there, whether they stand still or not");
    let used = WorkerUse { served: Some((0, Counts::default())), ..WorkerUse::default() };
    let readings = Readings { at: Some(bench.now), workers: [(one, used)].into(), ..Readings::default() };
    bench.on(Event::Measured(Box::new(readings)));
    assert_eq!(turns(&bench), 1);
}

#[test]
fn readings_that_are_too_old_are_told_to_nobody() {
    let mut bench = Bench::leased();
    let one = worker(1, 10, 0);
    bench.order(one, WorkerDesire::Run);
    let card = Sample { utilization: 0.5, ..Sample::default() };
    let read = |at| Readings {
        at: Some(at),
        cards: vec![card.clone()],
        workers: [(one, WorkerUse::default())].into(),
        ..Readings::default()
    };
    let told = |bench: &mut Bench| {
        let wire::Heartbeat { samples, workers, .. } = bench.heartbeat();
        (samples.len(), workers.len())
    };
    bench.on(Event::Measured(Box::new(read(bench.now))));
    bench.pass(Duration::from_secs(10));
    assert_eq!(told(&mut bench), (1, 1));
    bench.pass(Duration::from_secs(1));
    assert_eq!(told(&mut bench), (0, 0), "whoever reads the cards has not come back");
    assert_eq!(bench.node.readings(bench.now).age(bench.now), Some(Duration::from_secs(11)));
    bench.on(Event::Measured(Box::new(read(bench.now))));
    assert_eq!(told(&mut bench), (1, 1));
}
