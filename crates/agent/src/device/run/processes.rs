//! The processes below one that a worker with a device begins as: its slice servers and its program, each leading a
//! process group of its own; and the end of that process as its program ended.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus};

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

use super::{Problem, say};
use crate::supervisor::execution::Execution;
use crate::supervisor::unrunnable::{DEFAULT_PATH, Unrunnable};

/// The slice server. It is not waited for at the end: whoever ends the worker finds out that nothing of it is left.
pub(super) struct Server {
    pub child: Child,
    /// Its status, if it ended by itself and was waited for: its process id may belong to another process then.
    pub ended: Option<ExitStatus>,
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.ended.is_none() {
            signal_group(&self.child, libc::SIGKILL);
        }
    }
}

/// Reports on the worker's error output that a server ended whose card the program still had.
pub(super) fn say_lost(device: &str, status: ExitStatus) {
    say(&format!("the slice server for {device} ended ({status}); what the program kept on it is lost"));
}

/// Makes the child lead a process group of its own, with nothing blocked, and end with this process.
#[allow(unsafe_code)]
pub(super) fn as_leader(command: &mut Command) -> &mut Command {
    // SAFETY: both are async-signal-safe system calls that allocate nothing.
    unsafe {
        command.process_group(0).pre_exec(|| {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })
    }
}

/// Starts the job's program, with these variables beside those of this process. Not by the C library's way, which gives
/// the shell whatever the system does not run.
#[allow(unsafe_code)]
pub(super) fn start<'a>(words: &[OsString], more: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Child, Problem> {
    let name = words.first().ok_or_else(|| io::Error::other("there is no program"))?;
    let mut variables: BTreeMap<OsString, OsString> = env::vars_os().collect();
    variables.extend(more.map(|(name, value)| (name.into(), value.into())));
    let path = variables.get(OsStr::new("PATH")).map(|path| path.to_string_lossy().into_owned());
    let failed = |error: io::Error| Problem::Program(Unrunnable::new(name, path.as_deref(), &error));
    let execution = Execution::new(
        words.iter().map(OsString::as_os_str),
        path.as_deref().unwrap_or(DEFAULT_PATH),
        variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())),
    );
    let execution = execution.map_err(|error| failed(error.into()))?;
    let mut command = Command::new(name);
    // SAFETY: it makes system calls that are async-signal-safe, and allocates nothing.
    unsafe { as_leader(&mut command).pre_exec(move || Err(execution.take_over().into())) };
    command.spawn().map_err(failed)
}

/// Sends any signal, also one without a name, to the group that a child leads.
#[allow(unsafe_code)]
pub(super) fn signal_group(child: &Child, signal: i32) {
    // SAFETY: a system call on integers. A group that is gone hears nothing.
    unsafe { libc::kill(-child.id().cast_signed(), signal) };
}

/// Ends as the program has ended, so that whoever waits for this process sees no difference.
pub(super) fn end_as(status: ExitStatus) -> ExitCode {
    match status.signal() {
        Some(signal) => end_by(signal),
        None => ExitCode::from(u8::try_from(status.code().unwrap_or(0)).unwrap_or(u8::MAX)),
    }
}

#[allow(unsafe_code)]
pub(super) fn end_by(signal: i32) -> ExitCode {
    // The program has left its core, if it was to; another of this process would only be in the way.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    // SAFETY: what this program does with a signal is of no use to it any more, and setting the default breaks nothing.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
    // SAFETY: a system call on integers.
    unsafe { libc::raise(signal) };
    // A signal that ends nobody.
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}
