//! The supervisor of a worker: a small process that outlives the agent and dies with nothing of the worker left behind.
//!
//! One thread (`shell`) waits for deadlines, signals and messages and performs what the state machine (`machine`)
//! decides; a second reads the worker's output ([`output`]); a third writes the status file (`keeper`). The first never
//! touches the disk while the worker runs, so that a disk that hangs cannot delay a kill.
//!
//! What it relies on: it starts in the worker's folder, which holds `launch.json`; its standard input is one end of a
//! socket pair with the agent that started it. Later agents connect to `supervisor.sock` in the folder. It leaves
//! `status.json`, which says how the worker ended, and the output files.
//!
//! The worker runs in a PID namespace that the kernel ends with the supervisor ([`pid_namespace`]), under an identity
//! that is not the agent's, and may not gain another ([`crate::worker::Account`]). Nothing that the worker started is
//! listened to.
//!
//! A program that is dumped and has a device has a second process beside it, with its slice servers (`companion`).
//!
//! Where the host gives no PID namespace, processes are tracked by control group, and by descent from the supervisor,
//! which is made their subreaper: complete while the supervisor lives. After a SIGKILL of the supervisor others than
//! the first process may go on until an agent sweeps; the node says so, and its silence is not taken for a stop.

mod called;
mod child;
mod companion;
mod connections;
mod containment;
pub mod early;
pub(crate) mod execution;
pub mod image;
pub mod inheritance;
mod inherited;
mod keeper;
pub mod machine;
pub mod message;
pub mod output;
pub mod pid_namespace;
pub mod probe;
mod program;
mod ready;
mod shell;
pub mod status;
pub mod unrunnable;

use std::path::Path;
use std::process::ExitCode;

use tessera_diagnostics::remark;

/// The file with the supervisor's task ([`message::Launch`]), in the worker's folder.
pub const LAUNCH_FILE: &str = "launch.json";
/// Locked as long as a supervisor is at work.
pub const LOCK_FILE: &str = "lock";
/// The supervisor's log, into which its standard error leads.
pub const LOG_FILE: &str = "supervisor.log";
/// The socket on which the supervisor accepts connections of agents.
pub const SOCKET_FILE: &str = "supervisor.sock";

/// Runs the supervisor of the worker in `folder` until the worker is over. Without a folder it is told on its standard
/// input, in frames ([`message::encode`]), first what is the same for all workers ([`early::Ahead`]) and then a folder,
/// and ends when that is closed first. The process must not have started any thread or opened any file: call it before
/// any runtime is made.
///
/// What goes wrong is said on standard error, which leads into [`LOG_FILE`].
#[must_use]
pub fn main(folder: Option<&Path>) -> ExitCode {
    let unreset = inheritance::leave_behind();
    let called = match folder {
        Some(folder) => Ok(Some((folder.to_owned(), None))),
        None => called::folder().map(|called| called.map(|(folder, early)| (folder, Some(early)))),
    };
    let (folder, early) = match called {
        Ok(Some(called)) => called,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => {
            remark!("a supervisor that waited for its worker ended: {error}");
            return ExitCode::FAILURE;
        }
    };
    // One that waited has its log only now.
    for complaint in unreset {
        remark!("{complaint}");
    }
    match shell::supervise(&folder, early) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remark!("the supervisor in {} ended: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
