//! Everything of a worker that is alive, however it is held: killed, and proven gone.
//!
//! Its control group is asked, and its PID namespace; where the host gives no namespace, descent from the supervisor.
//! Nothing of the worker is left only when each of them is empty.

use std::fs;
use std::io;

use tessera_diagnostics::remark;

use crate::cgroup::WorkerGroup;
use crate::process::{ProcessId, kill_pid, live_descendants};

/// The processes of one worker.
#[derive(Clone, Debug)]
pub struct Containment {
    group: WorkerGroup,
    init: Option<ProcessId>,
    supervisor: i32,
}

impl Containment {
    /// The containment of a worker's processes: its control group, the init of its PID namespace (`None`: it has no
    /// namespace), its supervisor.
    #[must_use]
    pub const fn new(group: WorkerGroup, init: Option<ProcessId>, supervisor: i32) -> Self {
        Self { group, init, supervisor }
    }

    #[must_use]
    pub const fn group(&self) -> &WorkerGroup {
        &self.group
    }

    /// Kills everything once.
    pub fn kill(&self) {
        if let Err(error) = self.group.kill() {
            remark!("{error}: {}", error.source);
        }
        // Its end takes the whole namespace with it. It is a child of this process, so that its pid is nobody else's as
        // long as it is there.
        let rest = match self.init {
            Some(init) => Some(init.pid).filter(|_| init.is_alive()).into_iter().collect(),
            None => self.descendants().unwrap_or_else(|error| {
                remark!("the processes of this host cannot be listed: {error}");
                Vec::new()
            }),
        };
        for pid in rest {
            if let Err(error) = kill_pid(pid) {
                remark!("process {pid} cannot be killed: {error}");
            }
        }
    }

    /// Returns whether no process of the worker is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // The end of an init is complete when nothing of its namespace is left.
        self.group.is_empty()
            && match self.init {
                Some(init) => !init.is_alive(),
                // What cannot be looked at is never gone (law L2).
                None => self.descendants().is_ok_and(|left| left.is_empty()),
            }
    }

    /// Live descendants of the supervisor; it has no others than those of the worker.
    fn descendants(&self) -> io::Result<Vec<i32>> {
        live_descendants(self.supervisor)
    }

    /// Returns whether a process may speak for the agent: no process that the worker started may, whatever user it runs
    /// as.
    #[must_use]
    pub fn is_outside(&self, pid: i32) -> bool {
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
        let own = namespace("self");
        pid > 0
            && own.is_some()
            && namespace(&pid.to_string()) == own
            && !self.group.holds(pid)
            && (self.init.is_some() || self.descendants().is_ok_and(|own| !own.contains(&pid)))
    }
}
