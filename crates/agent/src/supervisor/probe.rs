//! The containment that this host can give workers, tried once by the agent when it starts, and not guessed.

use std::thread;

use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::child::show_own_processes;
use super::pid_namespace::PidNamespace;
use crate::process::kill_pid;

/// Tries whether every process of a worker can be made to end with its supervisor: makes a PID namespace, and in it a
/// process with a `/proc` of its own.
///
/// # Errors
/// The sentence that tells what the host refuses.
pub fn whole_trees_end() -> Result<(), String> {
    // The kernel watches the thread that makes a namespace, and remembers in it where children are born.
    let tried = thread::Builder::new().name("probe".to_owned()).spawn(try_namespace);
    let tried = tried.map_err(|error| format!("no thread can be had to try it: {error}"))?;
    tried.join().unwrap_or_else(|_| Err("the trial itself failed".to_owned()))
}

fn try_namespace() -> Result<(), String> {
    let namespace = PidNamespace::create().map_err(|error| {
        format!("no PID namespace can be had ({error}); run the agent as root, or give it CAP_SYS_ADMIN")
    })?;
    let shown = namespace
        .with_children_inside(fork_and_show)
        .map_err(|error| format!("a PID namespace cannot be entered: {error}"))
        .flatten();
    let init = namespace.init().pid;
    // It is a child of this process, not waited for, so that the pid is its own.
    let _ = kill_pid(init);
    let _ = waitpid(Pid::from_raw(init), None);
    shown
}

#[allow(unsafe_code)]
fn fork_and_show() -> Result<(), String> {
    // SAFETY: the child only makes async-signal-safe system calls and ends.
    let pid = match unsafe { libc::fork() } {
        0 => unsafe {
            libc::_exit(if show_own_processes() { 0 } else { Errno::last_raw() & 0xff });
        },
        pid if pid > 0 => Pid::from_raw(pid),
        _ => return Err(format!("no process can be had in a PID namespace: {}", Errno::last())),
    };
    match waitpid(pid, None) {
        Ok(WaitStatus::Exited(_, 0)) => Ok(()),
        Ok(WaitStatus::Exited(_, error)) => {
            Err(format!("no /proc can be mounted in a PID namespace ({})", Errno::from_raw(error)))
        }
        other => Err(format!("the trial ended unexpectedly: {other:?}")),
    }
}
