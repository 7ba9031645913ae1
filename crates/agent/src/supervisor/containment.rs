//! Everything of a worker that is alive, however it was tracked: killed, and proven gone.

use crate::cgroup::WorkerGroup;
use crate::process::{kill_pid, live_descendants};

/// The processes of one worker.
#[derive(Clone, Debug)]
pub struct Containment {
    group: WorkerGroup,
    supervisor: i32,
}

impl Containment {
    /// By its control group, or else as the descendants of the supervisor.
    #[must_use]
    pub const fn new(group: WorkerGroup, supervisor: i32) -> Self {
        Self { group, supervisor }
    }

    /// The control group.
    #[must_use]
    pub const fn group(&self) -> &WorkerGroup {
        &self.group
    }

    /// Kills everything once.
    pub fn kill(&self) {
        if self.group.is_tracked() {
            if let Err(error) = self.group.kill() {
                eprintln!("{error}: {}", error.source);
            }
            return;
        }
        for pid in live_descendants(self.supervisor) {
            if let Err(error) = kill_pid(pid) {
                eprintln!("process {pid} cannot be killed: {error}");
            }
        }
    }

    /// Whether nothing is alive.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        if self.group.is_tracked() { self.group.is_empty() } else { live_descendants(self.supervisor).is_empty() }
    }
}
