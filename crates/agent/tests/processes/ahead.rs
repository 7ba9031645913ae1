//! Processes and the folder that an agent makes ahead of its next worker: they may be lost at any time. The processes
//! end with the agent; the next agent removes the folder.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_api::v1 as wire;
use wire::{WorkerDesire, WorkerPhase};

use super::leader::{Leader, order};
use super::outlived::AgentProcess;
use super::support::{contained, is_alive, wait_for};

/// A process that a process has started.
fn child_of(pid: i32) -> Option<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// The supervisor that waits, and the init of the namespace that it has made for its worker. It is a child of whichever
/// thread of the agent started it.
fn waiting(agent: &AgentProcess) -> (i32, Option<i32>) {
    wait_for("a supervisor to wait, with what it makes ahead", || {
        let threads = fs::read_dir(format!("/proc/{}/task", agent.pid())).ok()?.flatten();
        let started = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let started = started.flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        // One that has a worker is in its folder.
        let waits =
            |pid: &i32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|folder| !folder.starts_with(agent.data()));
        let supervisor: i32 = started.filter_map(|pid| pid.parse().ok()).find(waits)?;
        let init = child_of(supervisor);
        (init.is_some() || !contained()).then_some((supervisor, init))
    })
}

fn end(pid: i32) {
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it is there");
    wait_for("its end", || (!is_alive(pid)).then_some(()));
}

/// Somebody has ended what waited, in part or as a whole: the next worker runs all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_runs_whatever_became_of_what_was_made_ahead() {
    let mut leader = Leader::start().await;
    let agent = AgentProcess::start(&leader);
    leader.welcome().await;
    let (_, init) = waiting(&agent);
    init.into_iter().for_each(end);
    leader.order(true, vec![order(1, WorkerDesire::Run, "exit 7")]).await;
    let report = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(report.exit_code, Some(7), "{report:?}");
    let (supervisor, init) = waiting(&agent);
    end(supervisor);
    if let Some(init) = init {
        wait_for("what it made to end with it", || (!is_alive(init)).then_some(()));
    }
    leader.order(false, vec![order(2, WorkerDesire::Run, "exit 8")]).await;
    assert_eq!(leader.report_of(2, WorkerPhase::Stopped).await.exit_code, Some(8));
}

/// Nothing of it outlives an agent that is killed, and the next one removes its folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_made_ahead_goes_with_its_agent() {
    let mut leader = Leader::start().await;
    let mut agent = AgentProcess::start(&leader);
    leader.welcome().await;
    let blank = || {
        let names = fs::read_dir(agent.data().join("workers")).expect("readable").flatten();
        names.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("/.blank-"))
    };
    let (supervisor, init) = waiting(&agent);
    let left = wait_for("a folder to lie ready", blank);
    agent.kill_and_start_again();
    leader.welcome().await;
    wait_for("nothing of it to be left", || {
        (!is_alive(supervisor) && !init.is_some_and(is_alive) && !left.exists()).then_some(())
    });
}
