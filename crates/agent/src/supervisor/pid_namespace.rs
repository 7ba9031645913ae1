//! The process tree of a worker, held by the kernel: a PID namespace that ends with its supervisor.
//!
//! The first process of a PID namespace is its *init*: when it ends, the kernel kills everything else in the namespace,
//! and the end of the init is complete only when nothing of it is left. The init here runs nothing of the worker. It
//! asks the kernel to be killed when the supervisor dies, and collects whatever the worker's programs leave behind. So
//! a SIGKILL of the supervisor ends the whole tree: programs that fork twice, lead sessions of their own, ignore
//! signals or become other programs included (law L2). A worker cannot reach its init: signals from inside the
//! namespace do not count for it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, pipe2};

use super::child::show_own_processes;
use crate::process::{ProcessId, kill_pid};

/// A PID namespace with its init.
#[derive(Debug)]
pub struct PidNamespace {
    init: ProcessId,
    /// Children of this process are born into it while it is entered.
    inner: File,
    /// The namespace that children are born into otherwise.
    own: File,
}

impl PidNamespace {
    /// Makes a namespace. The calling thread must be the one that lives as long as the worker may: the kernel
    /// watches it.
    ///
    /// # Errors
    /// What the system says; without the right to administrate the host it says no.
    pub fn create() -> io::Result<Self> {
        let own = File::open("/proc/self/ns/pid")?;
        let (ready, tell_ready) = pipe2(OFlag::O_CLOEXEC)?;
        let (gate, word) = pipe2(OFlag::O_CLOEXEC)?;
        let pid = fork_init(&Init { ready: &tell_ready, gate: &gate, word: &word })?;
        drop((tell_ready, gate));
        let init = ProcessId::of(pid.as_raw()).ok_or_else(|| io::Error::other("the init of a worker ended at once"))?;
        let mut made = Made { init, keep: false };
        // The init says so once the kernel watches this process for it; only then may it stay. Were this process to die
        // before the word is given, the init would find the gate closed.
        let mut byte = [0];
        File::from(ready).read_exact(&mut byte)?;
        File::from(word).write_all(&byte)?;
        let inner = File::open(format!("/proc/{}/ns/pid", init.pid))?;
        made.keep = true;
        Ok(Self { init, inner, own })
    }

    /// Its init, as processes outside the namespace see it.
    #[must_use]
    pub const fn init(&self) -> ProcessId {
        self.init
    }

    /// Has the kernel count on from `number` for processes that are born into the namespace.
    ///
    /// # Errors
    /// When no process can be had inside that says so, or the kernel refuses.
    pub fn count_from(&self, number: i32) -> io::Result<()> {
        let text = number.to_string();
        let pid = self.with_children_inside(|| fork_and_count(text.as_bytes()))??;
        match waitpid(pid, None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, error) => Err(io::Error::from_raw_os_error(error)),
            other => Err(io::Error::other(format!("the process that says so ended unexpectedly: {other:?}"))),
        }
    }

    /// Does something, forking, whose children are born into the namespace.
    ///
    /// # Errors
    /// When the namespace cannot be entered, because its init is gone, or not be left again.
    pub fn with_children_inside<T>(&self, forking: impl FnOnce() -> T) -> io::Result<T> {
        setns(self.inner.as_fd(), CloneFlags::CLONE_NEWPID)?;
        let done = forking();
        setns(self.own.as_fd(), CloneFlags::CLONE_NEWPID)?;
        Ok(done)
    }
}

/// An init that is killed when its preparation fails half-way.
struct Made {
    init: ProcessId,
    keep: bool,
}

impl Drop for Made {
    fn drop(&mut self) {
        if !self.keep && self.init.is_alive() {
            // It is a child of this process and not waited for, so the pid is its own.
            let _ = kill_pid(self.init.pid);
        }
    }
}

/// The descriptors that the init needs. Nothing here allocates.
struct Init<'a> {
    ready: &'a OwnedFd,
    gate: &'a OwnedFd,
    word: &'a OwnedFd,
}

/// The kernel hears the number from a process of the namespace that it is meant for; through mounts of its own, because
/// those of a service may be closed.
#[allow(unsafe_code)]
fn fork_and_count(number: &[u8]) -> io::Result<Pid> {
    // SAFETY: the child only makes async-signal-safe system calls, on texts of its own copy of the memory, and ends.
    match unsafe { libc::fork() } {
        0 => unsafe {
            if !show_own_processes() {
                libc::_exit(Errno::last_raw() & 0xff);
            }
            let file = libc::open(c"/proc/sys/kernel/ns_last_pid".as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
            let length = number.len().cast_signed();
            let written = file >= 0 && libc::write(file, number.as_ptr().cast(), number.len()) == length;
            libc::_exit(if written { 0 } else { Errno::last_raw() & 0xff })
        },
        pid if pid > 0 => Ok(Pid::from_raw(pid)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[allow(unsafe_code)]
fn fork_init(init: &Init<'_>) -> io::Result<Pid> {
    // `clone` and not `clone3`, which the filters of many container runtimes do not let through.
    let flags = libc::c_long::from(libc::CLONE_NEWPID | libc::SIGCHLD);
    // SAFETY: without CLONE_VM and with no stack given this is a fork: the child has a copy of this memory and only
    // calls async-signal-safe functions until it ends.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        0 => init.run(),
        pid if pid > 0 => Ok(Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?)),
        _ => Err(io::Error::last_os_error()),
    }
}

#[allow(unsafe_code)]
impl Init<'_> {
    fn run(&self) -> ! {
        // SAFETY: all are async-signal-safe system calls on descriptors and buffers of this process's own copy.
        unsafe {
            libc::prctl(libc::PR_SET_NAME, c"tessera-init".as_ptr());
            let mut byte = 0_u8;
            libc::close(self.word.as_raw_fd());
            let watched = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0
                && libc::write(self.ready.as_raw_fd(), (&raw const byte).cast(), 1) == 1
                && read_one(self.gate.as_raw_fd(), &mut byte);
            if !watched {
                libc::_exit(1);
            }
            // Sockets, locks and pipes of the supervisor are none of its business, and must end with the supervisor.
            libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0);
            let mut ended: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut ended);
            libc::sigaddset(&raw mut ended, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_BLOCK, &raw const ended, std::ptr::null_mut());
            loop {
                while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
                libc::sigwaitinfo(&raw const ended, std::ptr::null_mut());
            }
        }
    }
}

/// Reads one byte; false when the other end is closed.
#[allow(unsafe_code)]
unsafe fn read_one(fd: i32, byte: &mut u8) -> bool {
    loop {
        // SAFETY: the descriptor is open and the buffer has one byte.
        match unsafe { libc::read(fd, (&raw mut *byte).cast(), 1) } {
            1 => return true,
            0 => return false,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return false,
        }
    }
}
