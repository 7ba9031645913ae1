//! Workers that stand still while it is the turn of others, and the agent that said so is gone, or says something else.

use std::time::Duration;

use tessera_agent::cgroup::WorkerGroup;
use tessera_agent::supervisor::message::Request;
use tessera_agent::supervisor::output::Stream;
use tessera_agent::supervisor::status::{Cause, Exit};

use crate::support::{Supervised, contained, is_alive, launch, lease_in, wait_for};

/// Longer than any test.
const LONG: Duration = Duration::from_secs(50);
/// Counts, and saves itself when it is told to stop.
const COUNTS: &str = "trap 'echo saved; exit 0' TERM; i=0; while :; do echo $i; i=$((i+1)); sleep 0.01; done";

/// Has it stand still; answers what it has written by then.
fn rest(worker: &mut Supervised, at_most: Duration) -> String {
    worker.output_with("3\n");
    let group = WorkerGroup::from_record(worker.running().group);
    worker.send(&Request::Rest { at_most });
    wait_for("the worker to stand still", || group.is_frozen().then_some(()));
    worker.output(Stream::Stdout)
}

#[test]
fn it_goes_on_where_it_was() {
    let mut worker = Supervised::start(launch(COUNTS));
    rest(&mut worker, LONG);
    let group = WorkerGroup::from_record(worker.running().group);
    worker.send(&Request::GoOn);
    wait_for("the worker to go on", || (!group.is_frozen()).then_some(()));
    let last = worker.output(Stream::Stdout).lines().count() + 20;
    let numbers = worker.output_with(&format!("\n{last}\n"));
    assert!(numbers.lines().enumerate().all(|(place, line)| line == place.to_string()), "it missed nothing: {numbers}");
}

#[test]
fn it_goes_on_when_the_agent_says_nothing_more() {
    let mut worker = Supervised::start(launch(COUNTS));
    let before = rest(&mut worker, Duration::from_millis(300)).lines().count();
    worker.hang_up();
    worker.output_with(&format!("\n{}\n", before + 10));
}

#[test]
fn it_is_ended_when_its_lease_runs_out_and_saves_itself_before() {
    let mut leased = launch(COUNTS);
    leased.lease = Some(lease_in(Duration::from_millis(1500), Duration::from_secs(20)));
    let mut worker = Supervised::start(leased);
    rest(&mut worker, LONG);
    worker.hang_up();
    worker.connect();
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::LeaseExpired), Some(Exit::Code(0))));
    assert!(worker.output(Stream::Stdout).ends_with("saved\n"));
}

#[test]
fn it_is_killed_when_it_does_not_listen() {
    let mut deaf = launch("trap '' TERM; i=0; while :; do echo $i; i=$((i+1)); sleep 0.01; done");
    deaf.lease = Some(lease_in(Duration::from_millis(1000), Duration::from_millis(1500)));
    let mut worker = Supervised::start(deaf);
    rest(&mut worker, LONG);
    let first = worker.running().process.expect("it runs").pid;
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::LeaseExpired), Some(Exit::Signal(9))));
    assert!(!is_alive(first));
}

#[test]
fn it_is_told_to_stop_at_once() {
    let mut worker = Supervised::start(launch(COUNTS));
    rest(&mut worker, LONG);
    worker.stop(LONG);
    assert_eq!(worker.stopped().exit, Some(Exit::Code(0)), "it was let go on to save itself");
    assert!(worker.output(Stream::Stdout).ends_with("saved\n"));
}

#[test]
fn nothing_of_it_is_left_when_its_supervisor_is_killed() {
    if !contained() {
        return;
    }
    let mut worker = Supervised::start(launch(COUNTS));
    rest(&mut worker, LONG);
    let first = worker.running().process.expect("it runs").pid;
    worker.child.kill().expect("it runs");
    wait_for("the worker to be gone", || (!is_alive(first)).then_some(()));
}
