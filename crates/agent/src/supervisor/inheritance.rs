//! The attributes that a worker has from the process that started its agent, and those that are reset: one list, so
//! that work finds the same on every node, however somebody started the agent there.
//!
//! A supervisor resets what it can before it does anything else (`leave_behind`). What it needs otherwise for itself
//! is reset by the process that becomes the worker's program (`child`).

use std::fs;
use std::io;
use std::os::fd::RawFd;
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::stat::{Mode, umask};
use tessera_diagnostics::remark;

use super::child::reset_signals;

/// The treatment of an attribute of the agent's process.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// Workers have it as the agent has it, for this reason.
    Kept(&'static str),
    /// The supervisor resets it to this, for itself and all that it starts.
    Reset(&'static str, fn() -> io::Result<()>),
    /// The worker's own process resets it to this: its supervisor has it otherwise.
    OfWorker(&'static str),
}

/// All that a process hands on to those that it starts. `docs/worker.md` has the same table.
pub const ATTRIBUTES: [(&str, Fate); 24] = [
    ("environment", Fate::OfWorker("the variables above, and no others")),
    ("processors that it may run on", Fate::Kept("by them an operator keeps processors from all work of a node")),
    ("root folder, network, host name, users", Fate::Kept("work uses the host's")),
    ("labels and filters of system calls", Fate::Kept("the host's rules hold for work, and nobody can take them off")),
    (
        "capabilities that can be had at most",
        Fate::Kept("unless it runs as root, it has none of them and can gain none"),
    ),
    ("open files", Fate::Reset("none but input, output and errors", close_files)),
    ("working directory", Fate::Reset("the worker's own, or the job's", leave_folder)),
    ("file mode mask", Fate::OfWorker("022")),
    ("handling of signals", Fate::Reset("the default for all", handle_no_signals)),
    ("blocked signals", Fate::OfWorker("none")),
    ("session and terminal", Fate::OfWorker("a session of its own without one")),
    ("limits of resources", Fate::Reset("those below", reset_limits)),
    ("nice value", Fate::Reset("0", reset_nice)),
    ("scheduling policy", Fate::Reset("`SCHED_OTHER`", reset_scheduling)),
    ("priority of its input and output", Fate::Reset("by its nice value", reset_io_priority)),
    ("memory policy", Fate::Reset("the default", reset_memory_policy)),
    ("slack of timers", Fate::Reset("50 µs", reset_timer_slack)),
    ("huge pages", Fate::Reset("as the host has it", allow_huge_pages)),
    ("personality", Fate::Reset("Linux, with addresses at random", reset_personality)),
    ("session keyring", Fate::Reset("a new one", leave_keyring)),
    ("ambient capabilities", Fate::Reset("none", drop_ambient_capabilities)),
    ("secure bits", Fate::Reset("none", reset_secure_bits)),
    ("score for want of memory", Fate::OfWorker("200 above that of its agent and its supervisor, 1000 at most")),
    ("new privileges", Fate::OfWorker("none")),
];

/// Limits of workers, soft and hard. What they may use is up to their control groups; these keep programs from harming
/// themselves. `docs/worker.md` has the same table.
pub const LIMITS: [(Resource, u64, u64); 16] = [
    (Resource::RLIMIT_AS, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_CORE, 0, UNLIMITED),
    (Resource::RLIMIT_CPU, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_DATA, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_FSIZE, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_LOCKS, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_MEMLOCK, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_MSGQUEUE, 819_200, 819_200),
    (Resource::RLIMIT_NICE, 0, 0),
    (Resource::RLIMIT_NOFILE, 65_536, 1_048_576),
    (Resource::RLIMIT_NPROC, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_RSS, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_RTPRIO, 0, 0),
    (Resource::RLIMIT_RTTIME, UNLIMITED, UNLIMITED),
    (Resource::RLIMIT_SIGPENDING, 65_536, 65_536),
    (Resource::RLIMIT_STACK, 8 << 20, UNLIMITED),
];

const UNLIMITED: u64 = libc::RLIM_INFINITY;
/// Files above input, output and errors.
const FIRST_OTHER_FILE: RawFd = 3;
/// Slack of timers of a process that nobody gave another one, in nanoseconds.
const TIMER_SLACK: libc::c_ulong = 50_000;
/// Personality of ordinary programs.
const LINUX: libc::c_ulong = 0;
/// Handlers of Rust's runtime, which say that a stack was too small.
const OF_RUNTIME: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Leaves everything behind that the agent was started with and work is not to have. Answers what cannot be reset, in
/// sentences for people. It stays: where the host forbids that to its agent, hardly anybody can have set it.
pub(super) fn leave_behind() -> Vec<String> {
    let tried = ATTRIBUTES.into_iter().filter_map(|(name, fate)| match fate {
        Fate::Reset(to, reset) => Some((name, to, reset())),
        Fate::Kept(_) | Fate::OfWorker(_) => None,
    });
    let complaint = |(name, to, done): (&str, &str, io::Result<()>)| {
        let error = done.err()?;
        Some(format!("{name}: a worker has what its agent has, not {to}: {error}"))
    };
    tried.filter_map(complaint).collect()
}

/// Has the agent's own process told of the ends of those that it starts, also where whoever started it ignores such
/// words. Called by the program before it makes any thread.
pub fn hear_of_ends() {
    if ignores(Signal::SIGCHLD)
        && let Err(error) = handle(Signal::SIGCHLD, SigHandler::SigDfl)
    {
        remark!("the agent is not told of the ends of its supervisors: {error}");
    }
}

/// Closes what was open before this process began. Nothing of its own may be open yet.
#[allow(unsafe_code)]
fn close_files() -> io::Result<()> {
    let numbers = fs::read_dir("/proc/self/fd")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // One of them is that of the listing, which is closed by then.
    let open: Vec<RawFd> = numbers.filter(|number| *number >= FIRST_OTHER_FILE).collect();
    for number in open {
        // SAFETY: nothing in this process has opened a file yet that it still uses.
        unsafe { libc::close(number) };
    }
    Ok(())
}

/// It may be gone, closed to others, or in the way of whoever unmounts it.
fn leave_folder() -> io::Result<()> {
    // Nobody else's to read either is what the supervisor itself writes.
    umask(Mode::from_bits_truncate(0o077));
    std::env::set_current_dir(Path::new("/"))
}

/// Whatever the agent ignores, programs expect to be ended by, and supervisors to be told.
#[allow(unsafe_code)]
fn handle_no_signals() -> io::Result<()> {
    // SAFETY: nothing in this process handles another signal yet.
    unsafe { reset_signals(&OF_RUNTIME) };
    // A write to whoever has gone is told by its error.
    handle(Signal::SIGPIPE, SigHandler::SigIgn)
}

#[allow(unsafe_code)]
fn handle(of: Signal, by: SigHandler) -> io::Result<()> {
    // SAFETY: neither the default nor to ignore it runs anything in this process.
    unsafe { signal(of, by) }?;
    Ok(())
}

#[allow(unsafe_code)]
fn ignores(what: Signal) -> bool {
    // SAFETY: all-zero is a valid value of this structure, which the call fills and does not keep.
    unsafe {
        let mut present: libc::sigaction = std::mem::zeroed();
        libc::sigaction(what as libc::c_int, std::ptr::null(), &raw mut present) == 0
            && present.sa_sigaction == libc::SIG_IGN
    }
}

/// Resets each of them, whatever becomes of the others.
fn reset_limits() -> io::Result<()> {
    let failed = |(resource, soft, hard)| {
        let error = reset_limit(resource, soft, hard).err()?;
        Some(format!("{resource:?}: {error}"))
    };
    let failed: Vec<String> = LIMITS.into_iter().filter_map(failed).collect();
    if failed.is_empty() { Ok(()) } else { Err(io::Error::other(failed.join("; "))) }
}

fn reset_limit(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    if setrlimit(resource, soft, hard).is_err() {
        // Without the right to raise it there is as much as the agent may have.
        let (_, most) = getrlimit(resource)?;
        let hard = hard.min(most);
        setrlimit(resource, soft.min(hard), hard)?;
    }
    Ok(())
}

#[allow(unsafe_code)]
fn reset_nice() -> io::Result<()> {
    // SAFETY: a system call on integers.
    done(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) }.into())
}

#[allow(unsafe_code)]
fn reset_scheduling() -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: a system call that reads a valid structure.
    done(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) }.into())
}

#[allow(unsafe_code)]
fn reset_io_priority() -> io::Result<()> {
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: a system call on integers.
    possible(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, 0) })
}

#[allow(unsafe_code)]
fn reset_memory_policy() -> io::Result<()> {
    // SAFETY: a system call on integers; without nodes no memory is read.
    possible(unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_DEFAULT, 0_usize, 0_usize) })
}

#[allow(unsafe_code)]
fn reset_timer_slack() -> io::Result<()> {
    // SAFETY: a system call on integers.
    done(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0) }.into())
}

#[allow(unsafe_code)]
fn allow_huge_pages() -> io::Result<()> {
    // SAFETY: a system call on integers.
    possible(unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 0, 0, 0, 0) }.into())
}

#[allow(unsafe_code)]
fn reset_personality() -> io::Result<()> {
    // SAFETY: a system call on an integer.
    possible(unsafe { libc::personality(LINUX) }.into())
}

/// Whoever holds a keyring may use the keys in it.
#[allow(unsafe_code)]
fn leave_keyring() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_int = 1;
    // SAFETY: a system call on an integer; without a name no memory is read.
    possible(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, 0_usize) })
}

#[allow(unsafe_code)]
fn drop_ambient_capabilities() -> io::Result<()> {
    // SAFETY: a system call on integers.
    possible(unsafe { libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) }.into())
}

/// With some of them a change of identity keeps rights.
#[allow(unsafe_code)]
fn reset_secure_bits() -> io::Result<()> {
    // SAFETY: system calls on integers.
    match unsafe { libc::prctl(libc::PR_GET_SECUREBITS) } {
        0 => Ok(()),
        _ => done(unsafe { libc::prctl(libc::PR_SET_SECUREBITS, 0) }.into()),
    }
}

/// Returns the error of a system call that failed.
fn done(answer: i64) -> io::Result<()> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The same for one that the host may not have, or forbid to everybody, so that nothing can have been set by it.
fn possible(answer: i64) -> io::Result<()> {
    match done(answer) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM | libc::EINVAL)) => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attribute_and_every_limit_is_described_as_it_is() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/worker.md");
        let page = fs::read_to_string(path).expect("docs/worker.md is there");
        let attributes = ATTRIBUTES.iter().map(|(name, fate)| match fate {
            Fate::Kept(why) => format!("| {name} | as the agent has it: {why} |"),
            Fate::Reset(to, _) | Fate::OfWorker(to) => format!("| {name} | {to} |"),
        });
        let shown = |limit: u64| if limit == UNLIMITED { "unlimited".to_owned() } else { limit.to_string() };
        let limits =
            LIMITS.iter().map(|(of, soft, hard)| format!("| `{of:?}` | {} | {} |", shown(*soft), shown(*hard)));
        let missing: Vec<String> =
            attributes.chain(limits).filter(|row| !page.lines().any(|line| line == row)).collect();
        assert!(missing.is_empty(), "docs/worker.md lacks\n{}", missing.join("\n"));
    }
}
