//! Agents that are killed or stopped while their workers run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_api::v1 as wire;
use tessera_ledger::{AllocationId, Epoch, Rank};
use wire::{StopCause, WorkerDesire, WorkerPhase};

use super::leader::{Leader, order};
use super::support::{control_groups, example, is_alive, pid_in, running_status, supervisor_program, wait_for};
use tessera_agent::supervisor::output::Stream;
use tessera_agent::worker::WorkerId;

/// An agent in a process of its own.
pub struct AgentProcess {
    child: Child,
    data: tempfile::TempDir,
    node: String,
    member: String,
    supervise: PathBuf,
}

impl AgentProcess {
    pub fn start(leader: &Leader) -> Self {
        Self::supervised_by(leader, &supervisor_program())
    }

    /// One whose supervisors are another program.
    pub fn supervised_by(leader: &Leader, supervise: &Path) -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let name = data.path().file_name().expect("a name").to_string_lossy();
        let node = format!("node{}", name.trim_start_matches('.').replace('_', "-"));
        let child = spawn(&node, data.path(), &leader.address(), supervise);
        Self { child, data, node, member: leader.address(), supervise: supervise.to_owned() }
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a pid")
    }

    /// The control group under which its workers run.
    pub fn cgroup_root(&self) -> String {
        format!("{}/{}", control_groups(), self.node)
    }

    pub fn data(&self) -> &Path {
        self.data.path()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it is there");
    }

    pub fn kill_and_start_again(&mut self) {
        self.kill();
        self.start_again();
    }

    pub fn kill(&mut self) {
        self.child.kill().expect("alive");
        self.child.wait().expect("a child");
    }

    pub fn start_again(&mut self) {
        self.child = spawn(&self.node, self.data.path(), &self.member, &self.supervise);
    }

    /// The pid that a worker has written.
    fn worker_pid(&self, allocation: u64) -> i32 {
        let worker = WorkerId { allocation: AllocationId(allocation), epoch: Epoch(10), rank: Rank(0) };
        let folder = self.data.path().join("workers").join(worker.to_string());
        let output = Stream::Stdout.file(&folder, 0);
        let written = wait_for("output", || std::fs::read_to_string(&output).ok().filter(|text| text.ends_with('\n')));
        pid_in(&written, "self", &running_status(&folder))
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        // Also one that is stopped; its workers lose their lease or were stopped by the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(node: &str, data: &Path, member: &str, supervise: &Path) -> Child {
    let mut command = Command::new(example("agent"));
    command.args([node, &data.display().to_string(), member]).arg(supervise).arg(control_groups());
    command.spawn().expect("the example `agent` is built together with the tests")
}

const SCRIPT: &str = "trap '' TERM; echo self=$$; while :; do sleep 0.01; done";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_agent_is_replaced_without_harm() {
    let mut leader = Leader::start().await;
    let mut agent = AgentProcess::start(&leader);
    let first = leader.welcome().await;
    leader.order(true, vec![order(1, WorkerDesire::Run, SCRIPT)]).await;
    leader.report_of(1, WorkerPhase::Running).await;
    let pid = agent.worker_pid(1);
    agent.kill_and_start_again();
    let second = leader.welcome().await;
    assert_eq!((second.incarnation, &second.node_uid), (2, &first.node_uid));
    assert_eq!(second.workers[0].phase(), WorkerPhase::Running);
    assert!(is_alive(pid));
    leader.order(true, Vec::new()).await;
    // It ignores the polite signal and the order's grace is long; its death is asked for at once.
    let mut stop = order(1, WorkerDesire::Stop, SCRIPT);
    stop.stop = Some(wire::StopPolicy { signal: "SIGTERM".to_owned(), grace: None, save: true });
    leader.order(false, vec![stop]).await;
    let stopped = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!(stopped.signal, Some(9));
    assert!(!is_alive(pid));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_agent_does_not_keep_workers_past_their_lease() {
    let mut leader = Leader::start().await;
    leader.lease = (Duration::from_millis(1200), Duration::from_millis(1500));
    let agent = AgentProcess::start(&leader);
    leader.welcome().await;
    leader.order(true, vec![order(1, WorkerDesire::Run, SCRIPT)]).await;
    leader.report_of(1, WorkerPhase::Running).await;
    let pid = agent.worker_pid(1);
    assert!(is_alive(pid));
    agent.signal(Signal::SIGSTOP);
    wait_for("the worker's death without its agent", || (!is_alive(pid)).then_some(()));
    agent.signal(Signal::SIGCONT);
    let over = leader.report_of(1, WorkerPhase::Stopped).await;
    assert_eq!((over.cause(), over.signal), (StopCause::LeaseExpired, Some(9)));
}
