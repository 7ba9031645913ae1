//! Workers that are over leave nothing in their agent, however they end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use tessera_agent::process::{ProcessStat, all_pids};
use tessera_agent::supervisor::status::Status;
use tessera_api::v1 as wire;
use wire::{WorkerDesire, WorkerPhase};

use super::leader::{Leader, order};
use super::outlived::AgentProcess;
use super::support::{running_status, supervisor_program, wait_for};

const WORKERS: u64 = 30;
/// Files that an agent may have open for a moment, for whatever it does meanwhile.
const FOR_A_MOMENT: usize = 6;

/// The supervisor that waits for the next worker is the only process of an agent without workers.
fn has_only_the_spare(agent: i32) -> bool {
    let parents = all_pids().expect("mounted").into_iter().filter_map(ProcessStat::read);
    let states: Vec<bool> = parents.filter(|stat| stat.parent == agent).map(ProcessStat::is_dead).collect();
    states == [false]
}

fn open_files(agent: i32) -> usize {
    fs::read_dir(format!("/proc/{agent}/fd")).expect("it lives").count()
}

/// A run that ends in one of several ways; the third only when it is told to.
fn run(allocation: u64) -> wire::WorkerOrder {
    let script = ["exit 0", "exit 1", "exec sleep 600", "kill -KILL $$", ""][(allocation % 5) as usize];
    let mut run = order(allocation, WorkerDesire::Run, script);
    if script.is_empty() {
        run.spec.as_mut().expect("made with one").command = vec!["/no/such/program".to_owned()];
    }
    run
}

/// Runs workers to their ends until the node has forgotten them.
async fn run_to_the_end(leader: &mut Leader, agent: &AgentProcess, workers: std::ops::Range<u64>) {
    leader.order(true, workers.clone().map(run).collect()).await;
    for allocation in workers.clone().filter(|allocation| allocation % 5 == 2) {
        leader.report_of(allocation, WorkerPhase::Running).await;
        leader.order(false, vec![order(allocation, WorkerDesire::Stop, "")]).await;
    }
    for allocation in workers.clone() {
        leader.report_of(allocation, WorkerPhase::Stopped).await;
    }
    leader.order(true, Vec::new()).await;
    for allocation in workers {
        let note = agent.data().join("workers").join(format!("{allocation}-10-0/settled.json"));
        wait_for("the worker to be forgotten", || note.exists().then_some(()));
    }
}

async fn nothing_stays(supervise: &Path) {
    let mut leader = Leader::start().await;
    let agent = AgentProcess::supervised_by(&leader, supervise);
    leader.welcome().await;
    run_to_the_end(&mut leader, &agent, 0..5).await;
    wait_for("the first supervisors to be gone", || has_only_the_spare(agent.pid()).then_some(()));
    let before = open_files(agent.pid());
    run_to_the_end(&mut leader, &agent, 5..5 + WORKERS).await;
    wait_for("the supervisors to be gone", || has_only_the_spare(agent.pid()).then_some(()));
    wait_for("their files to be closed", || (open_files(agent.pid()) <= before + FOR_A_MOMENT).then_some(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_workers_that_are_over_stays_in_the_agent() {
    nothing_stays(&supervisor_program()).await;
}

/// A program in `folder` that supervises, and stays when its worker is over.
fn staying_in(folder: &Path) -> PathBuf {
    let stays = folder.join("stays");
    fs::write(&stays, format!("#!/bin/sh\nexec {} --stays \"$@\"\n", supervisor_program().display()))
        .expect("writable");
    fs::set_permissions(&stays, fs::Permissions::from_mode(0o755)).expect("mine");
    stays
}

/// The end of a worker is what its supervisor says, not when its socket closes, nor that it ends by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_has_said_the_end_and_stays_is_ended() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    nothing_stays(&staying_in(folder.path())).await;
}

/// The second of the two workers ends while there is no agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_an_earlier_agent_started_and_stays_is_ended() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut agent = AgentProcess::supervised_by(&leader, &staying_in(folder.path()));
    leader.welcome().await;
    let run = |allocation| order(allocation, WorkerDesire::Run, "exec sleep 600");
    leader.order(true, vec![run(1), run(2)]).await;
    for allocation in [1, 2] {
        leader.report_of(allocation, WorkerPhase::Running).await;
    }
    let folders = [1, 2].map(|allocation| agent.data().join("workers").join(format!("{allocation}-10-0")));
    let supervisors = folders.each_ref().map(|folder| running_status(folder).supervisor.expect("at work"));

    agent.kill();
    running_status(&folders[1]).process.expect("it runs").signal_group(Signal::SIGKILL);
    let ended = || Status::load(&folders[1]).expect("readable").filter(Status::is_final);
    wait_for("an end that no agent sees", ended);
    agent.start_again();
    leader.welcome().await;
    leader.order(true, vec![order(1, WorkerDesire::Stop, "")]).await;
    leader.report_of(1, WorkerPhase::Stopped).await;
    for supervisor in supervisors {
        wait_for("the supervisor to be ended", || (!supervisor.is_alive()).then_some(()));
    }
}
