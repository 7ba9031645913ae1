//! Ways to end the processes of a pool.

use std::cell::RefCell;

use anyhow::{Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Pool;
use crate::process::Process;
use crate::wait::until;

impl Pool {
    /// The process of a member.
    ///
    /// # Panics
    /// When it was killed and not started again: a mistake of the test.
    pub fn member(&mut self, place: usize) -> &mut Process {
        self.members[place].process.as_mut().expect("the member runs")
    }

    /// Ends a member in order and waits until it is gone.
    ///
    /// # Errors
    /// When it is gone already.
    pub async fn end_member(&mut self, place: usize) -> Result<()> {
        self.member(place).signal(Signal::SIGTERM)?;
        self.member_ended(place).await.map(drop)
    }

    /// Waits until a member has ended; its exit code then.
    ///
    /// # Errors
    /// When the system does not say.
    pub async fn member_ended(&mut self, place: usize) -> Result<i32> {
        let member = RefCell::new(self.member(place));
        until("the member to end", async || member.borrow_mut().ended().ok().flatten()).await
    }

    /// The agent of a node.
    ///
    /// # Panics
    /// When it was killed and not started again: a mistake of the test.
    pub fn agent(&mut self, place: usize) -> &mut Process {
        self.nodes[place].process.as_mut().expect("the agent runs")
    }

    /// Ends an agent in order and waits until it is gone.
    ///
    /// # Errors
    /// When it is gone already.
    pub async fn end_agent(&mut self, place: usize) -> Result<()> {
        self.agent(place).signal(Signal::SIGTERM)?;
        let agent = RefCell::new(self.agent(place));
        until("the agent to end", async || agent.borrow_mut().ended().ok().flatten()).await.map(drop)
    }

    /// Kills a member with SIGKILL.
    pub fn kill_member(&mut self, place: usize) {
        self.members[place].process = None;
    }

    /// Kills the leader with SIGKILL; answers its place.
    ///
    /// # Errors
    /// When nobody leads.
    pub async fn kill_leader(&mut self) -> Result<usize> {
        let leader = self.leader().await?;
        self.kill_member(leader);
        Ok(leader)
    }

    /// The live processes of the workers of a node, whatever they forked.
    #[must_use]
    pub fn processes_on(&self, place: usize) -> Vec<i32> {
        let mark = format!("TESSERA_WORKER_DIR={}/", self.nodes[place].data.display());
        crate::process::live_with_variable(mark.as_bytes())
    }

    /// Kills the supervisors of a node's workers with SIGKILL.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill_supervisors(&self, place: usize) -> Result<()> {
        let mut killed = 0;
        for folder in std::fs::read_dir(self.nodes[place].data.join("workers"))? {
            let Ok(text) = std::fs::read(folder?.path().join("status.json")) else { continue };
            let status: serde_json::Value = serde_json::from_slice(&text)?;
            let pid = status["supervisor"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            killed += usize::from(pid.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()));
        }
        ensure!(killed > 0, "{} has no supervisor", self.nodes[place].name);
        Ok(())
    }

    /// Kills an agent with SIGKILL.
    pub fn kill_agent(&mut self, place: usize) {
        self.nodes[place].process = None;
    }
}
