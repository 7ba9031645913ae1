//! The preparations of a supervisor that are the same for any worker, made before it is known for which.

use std::io;
use std::path::Path;

use nix::sys::prctl;
use nix::unistd::setsid;
use serde::{Deserialize, Serialize};
use tessera_diagnostics::remark;

use super::pid_namespace::PidNamespace;
use super::shell::{SuperviseError, step};
use crate::boot::boot_id;
use crate::cgroup::{Hierarchies, leave_service_groups, remove_empty_groups};

/// Settings that are the same for all workers of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ahead {
    /// True if workers run in PID namespaces.
    pub contained: bool,
    /// Control group under which workers run.
    pub cgroup_root: String,
}

/// The resources that exist before the worker is known.
pub(super) struct Early {
    pub hierarchies: Hierarchies,
    pub cgroup_root: String,
    pub boot_id: String,
    contained: bool,
    /// `None`: there is none, or it could not be made then.
    namespace: Option<PidNamespace>,
}

impl Early {
    /// Makes it. The process becomes the one that all processes of its worker are left to, and is no part of what a
    /// service manager ends together with the agent.
    ///
    /// # Errors
    /// The step that failed.
    pub fn make(ahead: &Ahead) -> Result<Self, SuperviseError> {
        // The agent's session and terminal are left behind; a process that already leads a session has none to leave.
        let _ = setsid();
        prctl::set_child_subreaper(true).map_err(step("become the subreaper"))?;
        let hierarchies = Hierarchies::detect(Path::new("/")).map_err(step("find control groups"))?;
        if let Err(error) = leave_service_groups(&hierarchies, &ahead.cgroup_root) {
            remark!("cannot leave the agent's control group, so stopping the service stops this worker: {error}");
        }
        let boot_id = boot_id().map_err(step("read the boot id"))?;
        let namespace = if ahead.contained { PidNamespace::create().ok() } else { None };
        let Ahead { contained, cgroup_root } = ahead.clone();
        Ok(Self { hierarchies, cgroup_root, boot_id, contained, namespace })
    }

    /// Ends what was made for a worker that will not come, as the agent is gone.
    pub fn leave(self) {
        let Self { hierarchies, cgroup_root, namespace, .. } = self;
        drop(namespace);
        remove_empty_groups(&hierarchies, &cgroup_root);
    }

    /// The PID namespace of the worker; `None`: it has none. One whose init has been ended while it waited is no use
    /// any more, and another is made.
    ///
    /// # Errors
    /// What the system says.
    pub fn namespace(&mut self) -> io::Result<Option<PidNamespace>> {
        let waited = self.namespace.take().filter(|waited| waited.init().is_alive());
        match (self.contained, waited) {
            (true, None) => PidNamespace::create().map(Some),
            (_, waited) => Ok(waited),
        }
    }
}
