//! The control groups of an agent and its workers: they go with the last process that needs them.

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use tessera_agent::cgroup::Hierarchies;
use tessera_api::v1 as wire;
use wire::{WorkerDesire, WorkerPhase};

use super::agent::{config, start};
use super::leader::{Leader, order};
use super::outlived::AgentProcess;
use super::support::{control_groups, running_status, wait_for};

/// Finds the groups called `root` in all hierarchies.
fn groups(root: &str) -> Vec<PathBuf> {
    let found = Hierarchies::detect(Path::new("/")).expect("readable");
    let mounts = found.unified.iter().chain(&found.legacy).map(|hierarchy| hierarchy.mount.join(root));
    mounts.filter(|group| group.exists()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_ends_leaves_no_control_groups() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let config = config(data.path(), &leader);
    let root = config.effective_cgroup_root();
    let running = start(config).await;
    leader.welcome().await;
    leader.order(true, vec![order(1, WorkerDesire::Run, "exit 0")]).await;
    leader.report_of(1, WorkerPhase::Stopped).await;
    assert!(!groups(&root).is_empty(), "further workers are to come");
    running.stop().await;
    wait_for("its groups to be gone", || groups(&root).is_empty().then_some(()));
}

/// A service manager has an agent in a group of its own, which the agent's supervisors leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_groups_go_with_the_last_worker_of_an_agent_that_is_gone() {
    let mut leader = Leader::start().await;
    let mut agent = AgentProcess::start(&leader);
    leader.welcome().await;
    let root = agent.cgroup_root();
    let unified = Hierarchies::detect(Path::new("/")).expect("readable").unified.expect("mounted").mount;
    let service = unified.join(format!("{}-service-{}", control_groups(), agent.pid()));
    fs::create_dir(&service).expect("writable");
    fs::write(service.join("cgroup.procs"), agent.pid().to_string()).expect("writable");
    leader
        .order(true, vec![order(1, WorkerDesire::Run, "exec sleep 600"), order(2, WorkerDesire::Run, "exit 0")])
        .await;
    leader.report_of(1, WorkerPhase::Running).await;
    leader.report_of(2, WorkerPhase::Stopped).await;
    let supervisors = unified.join(&root).join("supervisors");
    let waits = || fs::read_to_string(supervisors.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty());
    wait_for("a supervisor to wait in a group of its own", || waits().then_some(()));
    let worker = running_status(&agent.data().join("workers/1-10-0")).process.expect("it runs");
    agent.kill();
    assert!(worker.is_alive() && !groups(&root).is_empty(), "a worker is in them");
    worker.signal_group(Signal::SIGKILL);
    wait_for("the groups to be gone", || groups(&root).is_empty().then_some(()));
    wait_for("the service to be removable", || fs::remove_dir(&service).ok());
}
