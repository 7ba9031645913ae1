//! Workers that stand still while it is the turn of others.

use super::*;
use crate::supervisor::image::Snapshot;

fn rest(seconds: u64) -> Request {
    Request::Rest { at_most: Duration::from_secs(seconds) }
}

fn resting(lease: Option<Lease>) -> Machine {
    let mut machine = running(lease, None);
    assert_eq!(machine.on_request(at(0), rest(5)), Ok(vec![Effect::Rest]));
    machine
}

#[test]
fn it_stands_still_until_its_turn_and_no_longer_than_was_said() {
    let mut machine = resting(None);
    assert_eq!(machine.on_request(at(1000), rest(5)), Ok(Vec::new()), "it does already, and may for longer");
    assert_eq!(machine.on(at(5999), Event::TimePassed), []);
    assert_eq!(machine.next_deadline(), Some(BootTime(6000)));
    assert_eq!(machine.on(at(6000), Event::TimePassed), [Effect::GoOn], "an agent that is gone leaves it going on");
    assert_eq!(machine.on_request(at(6001), Request::GoOn), Ok(Vec::new()), "it does already");
    assert_eq!(machine.on_request(at(6002), rest(1_000_000)), Ok(vec![Effect::Rest]));
    assert_eq!(machine.next_deadline(), Some(BootTime(66_002)), "whoever asks for it");
    assert_eq!(machine.on_request(at(6003), Request::GoOn), Ok(vec![Effect::GoOn]));
    assert_eq!(machine.next_deadline(), None);
}

#[test]
fn it_goes_on_before_it_is_told_to_stop_and_does_not_rest_in_its_grace() {
    let mut machine = resting(None);
    let signal = Effect::Signal(StopSignal::default());
    assert_eq!(machine.on_request(at(5), stop_request(GRACE)), Ok(vec![Effect::GoOn, signal, Effect::Publish]));
    assert_eq!(machine.on_request(at(6), rest(5)), Ok(Vec::new()), "it has to save itself");
    assert_eq!(machine.next_deadline(), Some(BootTime(1005)));
}

#[test]
fn a_lease_that_runs_out_ends_a_worker_that_stands_still() {
    let mut machine = resting(Some(lease(2000, 3000)));
    assert_eq!(machine.next_deadline(), Some(BootTime(2000)));
    let told = machine.on(at(2000), Event::TimePassed);
    assert_eq!(told, [Effect::GoOn, Effect::Signal(StopSignal::default()), Effect::Publish]);
    assert_eq!(machine.on(at(3000), Event::TimePassed), [Effect::Kill, Effect::Probe]);
}

#[test]
fn it_goes_on_before_it_is_killed_or_dumped() {
    let mut machine = resting(None);
    let killed = machine.on_request(at(5), stop_request(Duration::ZERO));
    assert_eq!(killed, Ok(vec![Effect::Publish, Effect::GoOn, Effect::Kill, Effect::Probe]));
    let mut dumped = dumped_one();
    assert_eq!(dumped.on_request(at(1), rest(5)), Ok(vec![Effect::Rest]));
    assert_eq!(dumped.on_request(at(2), Request::Snapshot { number: 1 }), Ok(vec![Effect::GoOn, Effect::Snapshot(1)]));
    assert_eq!(dumped.on_request(at(3), rest(5)), Ok(Vec::new()), "whoever dumps it has it stand still, and go on");
    let failed = Snapshot { number: 1, image: None, why: "no".to_owned() };
    dumped.on(at(4), Event::Snapshotted(failed));
    assert_eq!(dumped.on_request(at(5), rest(5)), Ok(vec![Effect::Rest]));
    assert_eq!(dumped.on_request(at(6), saving_stop()), Ok(vec![Effect::GoOn, Effect::Dump, Effect::Publish]));
}

#[test]
fn what_has_not_begun_or_is_over_does_not_rest() {
    let mut machine = machine(None, None);
    assert_eq!(machine.on_request(at(0), rest(5)), Ok(Vec::new()));
    let mut over = running(None, None);
    over.on(at(5), Event::Exited { exit: Exit::Code(0), because: None });
    assert_eq!(over.on_request(at(6), rest(5)), Ok(Vec::new()), "what it left behind is killed");
}
