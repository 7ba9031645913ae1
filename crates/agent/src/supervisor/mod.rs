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
//! Without control groups processes are tracked as descendants of the supervisor, which is made their subreaper: complete
//! while the supervisor lives; after a SIGKILL of the supervisor only processes that carry the worker's environment are
//! found by the agent's sweep. The status says so.

mod connections;
mod containment;
mod keeper;
pub mod machine;
pub mod message;
pub mod output;
mod program;
mod shell;
pub mod status;

use std::path::Path;
use std::process::ExitCode;

/// What the supervisor has to do ([`message::Launch`]), in the worker's folder.
pub const LAUNCH_FILE: &str = "launch.json";
/// Locked as long as a supervisor is at work.
pub const LOCK_FILE: &str = "lock";
/// Where agents connect to the supervisor.
pub const SOCKET_FILE: &str = "supervisor.sock";

/// Runs the supervisor of the worker in `folder` until the worker is over. The process must not have started any thread:
/// call it before any runtime is made.
///
/// What goes wrong is said on standard error, which the agent leads into `supervisor.log`.
#[must_use]
pub fn main(folder: &Path) -> ExitCode {
    match shell::supervise(folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the supervisor in {} ended: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}
