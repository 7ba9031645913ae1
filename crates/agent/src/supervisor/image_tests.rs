//! Workers that are dumped and restored.

use super::*;
use crate::supervisor::image::Snapshot;
use crate::supervisor::program::NoStart;

#[test]
fn what_is_dumped_is_not_told_to_stop_and_is_over_when_nothing_is_left() {
    let mut machine = dumped_one();
    assert_eq!(machine.on_request(at(5), saving_stop()), Ok(vec![Effect::Dump, Effect::Publish]));
    // CRIU kills what it has dumped, and is not disturbed before it has said so.
    assert_eq!(machine.on(at(8), Event::Exited { exit: Exit::Signal(9), because: None }), []);
    assert_eq!(machine.on(at(9), Event::Dumped(Ok(image()))), [Effect::Publish, Effect::Probe]);
    assert_eq!(machine.on(at(9), Event::Probed { empty: false }), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(9), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
    let status = machine.status();
    assert!(status.image.is_some() && status.message.ends_with("were dumped"), "{}", status.message);
}

#[test]
fn what_cannot_be_dumped_is_told_to_stop_in_its_own_way() {
    let mut machine = dumped_one();
    machine.on_request(at(5), saving_stop()).expect("obeyed");
    let failed = machine.on(at(8), Event::Dumped(Err("no such thing".to_owned())));
    assert_eq!(failed, [Effect::Signal(StopSignal::default()), Effect::Publish]);
    assert!(machine.status().not_saved.ends_with("cannot be dumped: no such thing"));
    assert_eq!(machine.on(at(1004), Event::TimePassed), [], "its grace counts from when it was told");
    assert_eq!(machine.on(at(1005), Event::TimePassed), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.status().image, None);
}

#[test]
fn a_program_that_completes_while_it_is_to_be_dumped_has_completed() {
    let mut machine = dumped_one();
    machine.on_request(at(5), saving_stop()).expect("obeyed");
    assert_eq!(machine.on(at(6), Event::Exited { exit: Exit::Code(0), because: None }), []);
    let failed = machine.on(at(8), Event::Dumped(Err("no such process".to_owned())));
    assert_eq!(failed, [Effect::Publish, Effect::Probe]);
    machine.on(at(8), Event::Probed { empty: true });
    let status = machine.status();
    assert_eq!((status.phase, status.cause, status.exit), (Phase::Stopped, Some(Cause::Exited), Some(Exit::Code(0))));
    assert_eq!((status.message.as_str(), status.not_saved.as_str()), ("exited with code 0", ""));
    // The same while it is dumped and was to run on.
    let mut machine = dumped_one();
    machine.on_request(at(1), Request::Snapshot { number: 1 }).expect("obeyed");
    machine.on_request(at(5), saving_stop()).expect("obeyed");
    machine.on(at(6), Event::Exited { exit: Exit::Code(0), because: None });
    let failed = Snapshot { number: 1, image: None, why: "no such process".to_owned() };
    assert_eq!(machine.on(at(7), Event::Snapshotted(failed)), [Effect::Publish, Effect::Probe]);
    machine.on(at(7), Event::Probed { empty: true });
    assert_eq!((machine.status().phase, machine.status().cause), (Phase::Stopped, Some(Cause::Exited)));
}

#[test]
fn a_dump_that_takes_too_long_ends_with_its_worker() {
    let mut machine = dumped_one();
    machine.on_request(at(5), saving_stop()).expect("obeyed");
    assert_eq!(machine.on(at(1005), Event::TimePassed), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(1006), Event::Exited { exit: Exit::Signal(9), because: None }), [Effect::Probe]);
    assert_eq!(machine.on(at(1006), Event::Dumped(Ok(image()))), [], "whatever it says now");
    machine.on(at(1007), Event::Probed { empty: true });
    let status = machine.status();
    assert!(status.image.is_none() && status.not_saved.contains("not dumped in time"), "{}", status.not_saved);
}

#[test]
fn a_restore_that_outlasts_the_lease_comes_to_nothing() {
    let mut machine = machine_that(Some(lease(100, 200)), None, true);
    assert_eq!(machine.on_request(at(0), Request::Begin), Ok(vec![Effect::Start]));
    assert_eq!(machine.next_deadline(), Some(BootTime(100)));
    assert_eq!(machine.on(at(100), Event::TimePassed), [Effect::Publish, Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(101), Event::Probed { empty: true }), [], "CRIU has not been heard of");
    let killed = NoStart::by_node("CRIU was killed");
    assert_eq!(machine.on(at(102), Event::StartFailed(killed)), [Effect::Probe]);
    assert_eq!(machine.on(at(102), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
    assert_eq!((machine.status().cause, machine.status().process), (Some(Cause::LeaseExpired), None));
    // One that was done at that moment is killed like any other.
    let mut late = machine_that(Some(lease(100, 200)), None, true);
    late.on_request(at(0), Request::Begin).expect("obeyed");
    late.on(at(100), Event::TimePassed);
    let process = ProcessId { pid: 42, start_ticks: 7 };
    assert_eq!(late.on(at(100), Event::Started(process)), [Effect::Kill, Effect::Probe]);
    assert_eq!(late.on(at(101), Event::Exited { exit: Exit::Signal(9), because: None }), [Effect::Probe]);
    assert_eq!(late.on(at(101), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
}

#[test]
fn what_a_restore_that_failed_has_left_is_killed_before_it_is_over() {
    let mut machine = machine_that(None, None, true);
    machine.on_request(at(0), Request::Begin).expect("obeyed");
    let failed = machine.on(at(5), Event::StartFailed(NoStart::by_node("no such file")));
    assert_eq!(failed, [Effect::Publish, Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(5), Event::Probed { empty: false }), []);
    assert_eq!(machine.on(at(20), Event::TimePassed), [Effect::Kill, Effect::Probe]);
    assert_eq!(machine.on(at(20), Event::Probed { empty: true }), [Effect::Publish, Effect::Finish]);
    assert_eq!(machine.status().message, "no such file");
}

#[test]
fn it_is_dumped_while_it_runs_once_at_a_time_and_before_it_is_dumped_for_good() {
    let mut machine = dumped_one();
    let ask = |machine: &mut Machine, number| machine.on_request(at(1), Request::Snapshot { number });
    assert_eq!(ask(&mut machine, 1), Ok(vec![Effect::Snapshot(1)]));
    assert_eq!(ask(&mut machine, 2), Ok(vec![]), "one is being made");
    let made = Snapshot { number: 1, image: Some(*image()), why: String::new() };
    assert_eq!(machine.on(at(2), Event::Snapshotted(made.clone())), [Effect::Publish]);
    assert_eq!(machine.status().snapshot, Some(made));
    assert_eq!(ask(&mut machine, 3), Ok(vec![Effect::Snapshot(3)]));
    assert_eq!(machine.on_request(at(4), saving_stop()), Ok(vec![Effect::Publish]));
    let failed = Snapshot { number: 3, image: None, why: "no".to_owned() };
    assert_eq!(machine.on(at(5), Event::Snapshotted(failed)), [Effect::Publish, Effect::Dump]);
    assert_eq!(ask(&mut machine, 4), Ok(vec![]), "it is being stopped");
    let mut requeued = running(None, None);
    assert_eq!(ask(&mut requeued, 1), Ok(vec![]), "its job does not want that");
}
