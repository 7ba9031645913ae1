//! Every rule of a supervisor, without a process or a clock.

use std::time::Duration;

use tessera_ledger::{AllocationId, Epoch, Rank};

use super::*;
use crate::config::LONGEST_LEASE;
use crate::supervisor::image::ImageRecord;
use crate::worker::{Term, WorkerId};

const GRACE: Duration = Duration::from_millis(1000);

fn at(ms: u64) -> Now {
    Now { boot: BootTime(ms), unix_ms: 1_000_000 + ms }
}

fn fence(term: u64, epoch: u64) -> Fence {
    Fence { term: Term(term), epoch: Epoch(epoch) }
}

fn lease(stop_at: u64, kill_at: u64) -> Lease {
    Lease { stop_at: BootTime(stop_at), kill_at: BootTime(kill_at) }
}

fn machine(lease: Option<Lease>, time_limit: Option<Duration>) -> Machine {
    machine_that(lease, time_limit, false)
}

fn machine_that(lease: Option<Lease>, time_limit: Option<Duration>, dumps: bool) -> Machine {
    let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(10), rank: Rank(0) };
    let mut status = Status::new(worker, 5, fence(3, 10), "boot".to_owned());
    status.lease = lease;
    let stop = StopPolicy { signal: StopSignal::default(), grace: GRACE };
    Machine::new(
        Rules { stop, time_limit, kill_confirmation: Duration::from_millis(300), longest_lease: LONGEST_LEASE, dumps },
        status,
    )
}

fn running(lease: Option<Lease>, time_limit: Option<Duration>) -> Machine {
    let mut machine = machine(lease, time_limit);
    assert_eq!(machine.on_request(at(0), Request::Begin), Ok(vec![Effect::Start]));
    let process = ProcessId { pid: 42, start_ticks: 7 };
    assert_eq!(machine.on(at(0), Event::Started(process)), [Effect::Publish]);
    machine
}

fn stop_request(grace: Duration) -> Request {
    let policy = StopPolicy { signal: StopSignal::default(), grace };
    Request::Stop { fence: fence(3, 10), policy, cause: Cause::Ordered, save: false }
}

#[test]
fn an_exit_is_over_once_nothing_is_left() {
    let mut machine = running(None, None);
    assert_eq!(machine.on(at(5), Event::Exited { exit: Exit::Code(3), because: None }), [Effect::Probe]);
    assert_eq!(machine.on(at(5), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
    let status = machine.status();
    assert_eq!((status.phase, status.cause, status.exit), (Phase::Stopped, Some(Cause::Exited), Some(Exit::Code(3))));
    assert_eq!(status.message, "exited with code 3");
    assert!(status.within_grace);
}

#[test]
fn it_is_kept_when_a_worker_began_to_end_and_when_its_program_was_over() {
    let times = |machine: &Machine| {
        let status = machine.status();
        let times = [status.started_unix_ms, status.ending_unix_ms, status.exited_unix_ms, status.stopped_unix_ms];
        times.map(|time| time.expect("it is kept") - 1_000_000)
    };
    let mut stopped = running(None, None);
    stopped.on_request(at(5), stop_request(GRACE)).expect("obeyed");
    stopped.on(at(8), Event::Exited { exit: Exit::Signal(15), because: None });
    stopped.on(at(9), Event::Probed { empty: true });
    assert_eq!(times(&stopped), [0, 5, 8, 9]);
    let mut by_itself = running(None, None);
    by_itself.on(at(3), Event::Exited { exit: Exit::Code(0), because: None });
    by_itself.on(at(3), Event::Probed { empty: false });
    by_itself.on(at(7), Event::Probed { empty: true });
    assert_eq!(times(&by_itself), [0, 3, 3, 7]);
}

#[test]
fn a_stop_that_comes_after_the_exit_does_not_change_what_ended_it() {
    let mut machine = running(Some(lease(100, 200)), None);
    machine.on(at(5), Event::Exited { exit: Exit::Code(0), because: None });
    assert_eq!(machine.on(at(5), Event::Probed { empty: false }), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on_request(at(6), stop_request(GRACE)), Ok(vec![]));
    machine.on(at(300), Event::TimePassed);
    machine.on(at(301), Event::Probed { empty: true });
    assert_eq!((machine.status().phase, machine.status().cause), (Phase::Stopped, Some(Cause::Exited)));
}

#[test]
fn what_the_first_process_leaves_behind_is_killed() {
    let mut machine = running(None, None);
    machine.on(at(5), Event::Exited { exit: Exit::Code(0), because: None });
    assert_eq!(machine.on(at(5), Event::Probed { empty: false }), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(6), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
    assert_eq!(machine.status().cause, Some(Cause::Exited));
    assert!(machine.status().within_grace, "the program itself had ended in time");
}

#[test]
fn begin_starts_once_and_only_under_a_valid_lease() {
    let mut machine = running(None, None);
    assert_eq!(machine.on_request(at(1), Request::Begin), Ok(Vec::new()));
    let mut late = self::machine(Some(lease(100, 200)), None);
    assert_eq!(late.on_request(at(100), Request::Begin), Ok(vec![Effect::Publish, Effect::Finish]));
    assert_eq!(late.status().cause, Some(Cause::LeaseExpired));
    assert_eq!(late.status().process, None);
}

#[test]
fn an_agent_that_dies_before_the_order_is_durable_starts_nothing() {
    let mut machine = machine(None, None);
    assert_eq!(machine.on(at(0), Event::Abandoned), [Effect::Publish, Effect::Finish]);
    assert_eq!(machine.status().cause, Some(Cause::Vanished));
    let mut running = running(None, None);
    assert_eq!(running.on(at(1), Event::Abandoned), [], "later it does not matter");
}

#[test]
fn a_silent_agent_means_stop_at_stop_at_and_kill_at_kill_at() {
    let mut machine = running(Some(lease(9_000, 12_000)), None);
    assert_eq!(machine.next_deadline(), Some(BootTime(9_000)));
    assert_eq!(machine.on(at(8_999), Event::TimePassed), []);
    assert_eq!(machine.on(at(9_000), Event::TimePassed), [Effect::Signal(StopSignal::default()), Effect::Publish]);
    assert_eq!(machine.next_deadline(), Some(BootTime(12_000)));
    assert_eq!(machine.on(at(12_000), Event::TimePassed), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.status().cause, Some(Cause::LeaseExpired));
    assert!(!machine.status().within_grace);
}

#[test]
fn renewals_move_the_deadline_forward_only() {
    let mut machine = running(Some(lease(9_000, 12_000)), None);
    let renew = |stop, kill| Request::Renew { fence: fence(3, 10), lease: lease(stop, kill) };
    assert_eq!(machine.on_request(at(1_000), renew(11_000, 14_000)), Ok(Vec::new()));
    assert_eq!(machine.next_deadline(), Some(BootTime(11_000)));
    assert_eq!(machine.on_request(at(1_001), renew(10_000, 13_000)), Ok(Vec::new()), "a late, older one");
    assert_eq!(machine.next_deadline(), Some(BootTime(11_000)));
}

#[test]
fn older_terms_and_epochs_are_refused_and_change_nothing() {
    let mut machine = running(Some(lease(9_000, 12_000)), None);
    let renewal = |term, epoch| Request::Renew { fence: fence(term, epoch), lease: lease(50_000, 60_000) };
    for (term, epoch) in [(2, 10), (3, 9), (2, 99)] {
        let before = machine.status().clone();
        assert!(machine.on_request(at(1), renewal(term, epoch)).is_err());
        assert_eq!(machine.status(), &before);
    }
    assert_eq!(machine.on_request(at(1), renewal(4, 10)), Ok(vec![Effect::Publish]), "kept on disk");
    assert!(machine.on_request(at(2), renewal(3, 10)).is_err(), "the new term was remembered");
    let stop = Request::Stop { fence: fence(3, 10), policy: StopPolicy::default(), cause: Cause::Ordered, save: false };
    assert!(machine.on_request(at(2), stop).is_err());
    assert_eq!(machine.status().phase, Phase::Running);
}

#[test]
fn stop_gives_grace_then_kills_until_nothing_is_left() {
    let mut machine = running(Some(lease(90_000, 120_000)), None);
    assert_eq!(
        machine.on_request(at(10), stop_request(GRACE)),
        Ok(vec![Effect::Signal(StopSignal::default()), Effect::Publish])
    );
    assert_eq!(machine.next_deadline(), Some(BootTime(1_010)));
    assert_eq!(machine.on(at(1_010), Event::TimePassed), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(1_010), Event::Probed { empty: false }), []);
    assert_eq!(machine.next_deadline(), Some(BootTime(1_020)));
    assert_eq!(machine.on(at(1_020), Event::TimePassed), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(1_021), Event::Exited { exit: Exit::Signal(9), because: None }), [Effect::Probe]);
    assert_eq!(machine.on(at(1_021), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
    let status = machine.status();
    assert_eq!((status.cause, status.within_grace), (Some(Cause::Ordered), false));
}

#[test]
fn a_program_that_ends_in_its_grace_is_seen_to() {
    let mut machine = running(None, None);
    machine.on_request(at(10), stop_request(GRACE)).expect("not fenced");
    machine.on(at(20), Event::Exited { exit: Exit::Code(0), because: None });
    machine.on(at(20), Event::Probed { empty: true });
    let status = machine.status();
    assert_eq!((status.cause, status.exit, status.within_grace), (Some(Cause::Ordered), Some(Exit::Code(0)), true));
}

#[test]
fn no_grace_kills_at_once_and_a_second_stop_only_hurries() {
    let mut machine = running(None, None);
    machine.on_request(at(0), stop_request(Duration::from_secs(3600))).expect("not fenced");
    assert_eq!(machine.on_request(at(1), stop_request(Duration::from_secs(7200))), Ok(Vec::new()));
    assert_eq!(machine.next_deadline(), Some(BootTime(3_600_000)));
    assert_eq!(machine.on_request(at(2), stop_request(Duration::ZERO)), Ok(vec![Effect::Kill, Effect::Probe]));
    let mut other = running(None, None);
    assert_eq!(
        other.on_request(at(0), stop_request(Duration::ZERO)),
        Ok(vec![Effect::Publish, Effect::Kill, Effect::Probe])
    );
}

#[test]
fn a_long_grace_does_not_outlive_the_lease() {
    let mut machine = running(Some(lease(9_000, 12_000)), None);
    machine.on_request(at(0), stop_request(Duration::from_secs(3600))).expect("not fenced");
    assert_eq!(machine.next_deadline(), Some(BootTime(12_000)));
    assert_eq!(machine.on(at(12_000), Event::TimePassed), [Effect::Kill, Effect::Probe]);
}

#[test]
fn a_time_limit_stops_with_the_job_s_own_policy() {
    let mut machine = running(None, Some(Duration::from_millis(700)));
    assert_eq!(machine.next_deadline(), Some(BootTime(700)));
    assert_eq!(machine.on(at(700), Event::TimePassed), [Effect::Signal(StopSignal::default()), Effect::Publish]);
    assert_eq!(machine.status().cause, Some(Cause::TimeLimit));
    assert_eq!(machine.next_deadline(), Some(BootTime(1_700)));
}

#[test]
fn a_kill_that_does_not_work_is_unconfirmed_until_it_does() {
    let mut machine = running(None, None);
    machine.on_request(at(0), stop_request(Duration::ZERO)).expect("not fenced");
    assert_eq!(machine.on(at(0), Event::Probed { empty: false }), []);
    assert_eq!(machine.on(at(300), Event::Probed { empty: false }), [Effect::Publish]);
    assert_eq!(machine.status().phase, Phase::Unconfirmed);
    assert!(machine.next_deadline().is_some(), "it is tried further");
    assert_eq!(machine.on(at(310), Event::TimePassed), [Effect::Kill, Effect::Probe]);
    machine.on(at(900), Event::Exited { exit: Exit::Signal(9), because: None });
    assert_eq!(machine.on(at(900), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
    assert_eq!(machine.status().phase, Phase::Stopped);
}

#[test]
fn a_kill_by_the_kernel_for_memory_is_told_apart() {
    let mut machine = running(None, None);
    machine.on(at(1), Event::Exited { exit: Exit::Signal(9), because: Some((Cause::OutOfMemory, String::new())) });
    machine.on(at(1), Event::Probed { empty: true });
    assert_eq!(machine.status().cause, Some(Cause::OutOfMemory));
}

#[test]
fn a_stop_before_the_start_prevents_it() {
    let mut machine = machine(None, None);
    assert_eq!(machine.on_request(at(0), stop_request(GRACE)), Ok(vec![Effect::Publish, Effect::Finish]));
    assert_eq!(machine.on_request(at(1), Request::Begin), Ok(Vec::new()));
    assert_eq!(machine.status().cause, Some(Cause::Ordered));
}

#[test]
fn a_worker_without_a_lease_does_not_get_one_by_renewal() {
    let mut machine = running(None, None);
    let renew = Request::Renew { fence: fence(3, 10), lease: lease(1, 2) };
    assert_eq!(machine.on_request(at(0), renew), Ok(Vec::new()));
    assert_eq!(machine.next_deadline(), None);
}

#[test]
fn no_lease_reaches_further_than_the_longest_one_from_now_and_its_grace_stays() {
    let grace = 3_000;
    let longest = BootTime(500).after(LONGEST_LEASE);
    let cut = Some(Lease { stop_at: longest.before(Duration::from_millis(grace)), kill_at: longest });
    let mut machine = running(Some(lease(1_000, 2_000)), None);
    let far = lease(u64::MAX - grace, u64::MAX);
    machine.on_request(at(500), Request::Renew { fence: fence(3, 10), lease: far }).expect("the right leader");
    assert_eq!(machine.status().lease, cut);

    let mut first = self::machine(Some(far), None);
    assert_eq!(first.on_request(at(500), Request::Begin), Ok(vec![Effect::Start]));
    assert_eq!(first.status().lease, cut, "the lease that it was launched with too");
}

/// A worker whose job wants it dumped, with a lease far away.
fn dumped_one() -> Machine {
    let mut machine = machine_that(Some(lease(90_000, 120_000)), None, true);
    assert_eq!(machine.on_request(at(0), Request::Begin), Ok(vec![Effect::Start]));
    machine.on(at(0), Event::Started(ProcessId { pid: 42, start_ticks: 7 }));
    machine
}

fn saving_stop() -> Request {
    let policy = StopPolicy { signal: StopSignal::default(), grace: GRACE };
    Request::Stop { fence: fence(3, 10), policy, cause: Cause::Ordered, save: true }
}

fn image() -> Box<ImageRecord> {
    let text = r#"{"format":1,"node":"n","criu":"4.2","root":2,"free_from":9,"outputs":[1,2],"connections":"none",
        "on_cards":[],"user":5,"group":5}"#;
    Box::new(serde_json::from_str(text).expect("a record"))
}

#[path = "image_tests.rs"]
mod images;

#[path = "resting_tests.rs"]
mod resting;

#[path = "card_tests.rs"]
mod card;
