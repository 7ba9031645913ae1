//! A worker's process between fork and exec: it joins its groups, leaves everything of the supervisor behind, takes on
//! its identity, waits for the word, and becomes the program. Nothing here allocates.

use std::ffi::CStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::unistd::Pid;

use super::program::Program;
use crate::cgroup::WorkerGroup;

/// `clone3` flag: the child is born into the control group whose folder is given.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The step of the child that failed.
#[derive(Clone, Copy)]
#[repr(u8)]
pub(super) enum Step {
    Group = 1,
    Folder = 2,
    Exec = 3,
    Setup = 4,
    Proc = 5,
    Account = 6,
    Place = 7,
}

impl Step {
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Group, Self::Folder, Self::Exec, Self::Setup, Self::Proc, Self::Account, Self::Place]
            .into_iter()
            .find(|step| *step as u8 == number)
    }
}

/// Forks, where possible straight into the control group: writing into `cgroup.procs` waits for the whole machine.
#[allow(unsafe_code)]
pub(super) fn fork_into(child: &Child<'_>, group: &WorkerGroup, home: Option<&File>) -> Result<Pid, String> {
    if let Some(home) = home {
        let join = group.join_files(true).map_err(|error| error.to_string())?;
        // SAFETY: all-zero is a valid value of this plain structure of integers.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        arguments.flags = CLONE_INTO_CGROUP;
        arguments.exit_signal = libc::SIGCHLD as u64;
        arguments.cgroup = home.as_raw_fd() as u64;
        // SAFETY: without CLONE_VM and with no stack given this is a fork: the child has a copy of this memory and only
        // calls async-signal-safe functions before exec. The structure is valid and its size is given.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
        match pid {
            0 => child.run(&join),
            pid if pid > 0 => return Ok(Pid::from_raw(pid as libc::pid_t)),
            // Older kernels, and sandboxes that forbid clone3, take the long way.
            _ => {}
        }
    }
    let join = group.join_files(false).map_err(|error| error.to_string())?;
    // SAFETY: the child only calls async-signal-safe functions before exec or _exit.
    match unsafe { libc::fork() } {
        0 => child.run(&join),
        pid if pid > 0 => Ok(Pid::from_raw(pid)),
        _ => Err(format!("no process can be had: {}", Errno::last())),
    }
}

/// Everything that the child needs between fork and exec. Nothing here allocates.
pub(super) struct Child<'a> {
    pub program: &'a Program,
    /// The descriptor that becomes its standard input; `None`: it reads `/dev/null`.
    pub input: Option<RawFd>,
    pub outputs: [RawFd; 2],
    pub failed: RawFd,
    pub gate: RawFd,
    /// The supervisor's end of the gate, of which this process has a copy.
    pub word: RawFd,
    pub parent: u32,
    /// True if it was born into a PID namespace, whose end is its own.
    pub in_namespace: bool,
}

#[allow(unsafe_code)]
impl Child<'_> {
    fn run(&self, join: &[File]) -> ! {
        let step = self.set_up(join);
        let error = Errno::last_raw().to_ne_bytes();
        let report = [step as u8, error[0], error[1], error[2], error[3]];
        // SAFETY: the descriptor is open and the buffer has the given length; _exit ends only this process.
        unsafe {
            libc::write(self.failed, report.as_ptr().cast(), report.len());
            libc::_exit(127)
        }
    }

    /// Returns only when a step failed, with `errno` set by it.
    fn set_up(&self, join: &[File]) -> Step {
        // SAFETY: all are async-signal-safe system calls on descriptors and texts that live in this process's copy of
        // the memory; the arrays of pointers end with a null pointer.
        unsafe {
            for file in join {
                if libc::write(file.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                    return Step::Group;
                }
            }
            // While this copy is open, the gate would not close with the supervisor.
            libc::close(self.word);
            libc::setsid();
            libc::umask(0o022);
            step_forward();
            if self.in_namespace && !show_own_processes() {
                return Step::Proc;
            }
            if let Some((folder, place)) = &self.program.place
                && !show_own_folder(folder, place)
            {
                return Step::Place;
            }
            // As its own mounts have it: what is open through others could not be restored.
            let input = self.input.unwrap_or_else(|| libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY));
            for (from, to) in [(input, 0), (self.outputs[0], 1), (self.outputs[1], 2)] {
                if libc::dup2(from, to) < 0 {
                    return Step::Setup;
                }
            }
            // Nothing else of the supervisor is handed on; where the call is missing, close-on-exec does the same.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            reset_signals(&[]);
            if !self.take_account() {
                return Step::Account;
            }
            // Without a namespace the first process at least dies with its supervisor. After the change of identity,
            // which clears the wish. When the supervisor is already gone, the signal would never come.
            if !self.in_namespace
                && (libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
                    || libc::getppid().unsigned_abs() != self.parent)
            {
                return Step::Setup;
            }
            let mut word = 0_u8;
            loop {
                match libc::read(self.gate, (&raw mut word).cast(), 1) {
                    1 => break,
                    // The supervisor is gone.
                    0 => return Step::Setup,
                    _ if Errno::last_raw() == libc::EINTR => {}
                    _ => return Step::Setup,
                }
            }
            if libc::chdir(self.program.folder.as_ptr()) != 0 {
                return Step::Folder;
            }
        }
        self.program.execution.take_over().set();
        Step::Exec
    }

    /// Becomes the worker's own user, for good: nothing that it runs gains a right that it has not got now.
    unsafe fn take_account(&self) -> bool {
        // SAFETY: system calls on integers and on a list that lives in this process's copy of the memory.
        unsafe {
            if let Some(account) = &self.program.account
                && (libc::setgroups(account.groups.len(), account.groups.as_ptr()) != 0
                    || libc::setresgid(account.gid, account.gid, account.gid) != 0
                    || libc::setresuid(account.uid, account.uid, account.uid) != 0)
            {
                return false;
            }
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        }
    }
}

/// Points by which work goes before those that look after it when its host is out of memory.
const BEFORE_SUPERVISORS: i32 = 200;
/// Highest score that a process has for that.
const FIRST_OF_ALL: i32 = 1000;

/// Raises the score by which the process is ended when its host is out of memory, which takes no right: its agent and
/// its supervisor keep theirs. A process that cannot say its score keeps it.
#[allow(unsafe_code)]
pub(super) unsafe fn step_forward() {
    let mut text = [0_u8; 16];
    // SAFETY: system calls on a NUL-terminated text, on a buffer of the given length, and on a descriptor that is
    // closed again; neither reading nor writing a number allocates.
    unsafe {
        let score = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        if score < 0 {
            return;
        }
        let length = usize::try_from(libc::read(score, text.as_mut_ptr().cast(), text.len())).unwrap_or(0);
        let own = std::str::from_utf8(&text[..length]).ok().and_then(|own| own.trim().parse::<i32>().ok());
        if let Some(own) = own {
            let mut rest = &mut text[..];
            let raised = (own + BEFORE_SUPERVISORS).min(FIRST_OF_ALL);
            if write!(rest, "{raised}").is_ok() {
                let left = rest.len();
                libc::pwrite(score, text.as_ptr().cast(), text.len() - left, 0);
            }
        }
        libc::close(score);
    }
}

/// Handlers and mask of the supervisor are none of the worker's business, but for those of `kept`.
#[allow(unsafe_code)]
pub(super) unsafe fn reset_signals(kept: &[libc::c_int]) {
    /// The default action as the kernel reads it, whose order of fields is the machine's.
    const DEFAULT: [u64; 4] = [0; 4];
    // SAFETY: setting a default action and an empty mask cannot break anything in this process; the kernel reads what
    // is given and keeps nothing of it.
    unsafe {
        for number in 1..=64 {
            if !matches!(number, libc::SIGKILL | libc::SIGSTOP) && !kept.contains(&number) {
                // The C library keeps two for itself, and would refuse them, also where somebody ignores them.
                libc::syscall(
                    libc::SYS_rt_sigaction,
                    number,
                    DEFAULT.as_ptr(),
                    ptr::null_mut::<u64>(),
                    size_of::<u64>(),
                );
            }
        }
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
}

/// Shows a worker its folder at a place that is the same on every node. Its mount namespace is its own already.
#[allow(unsafe_code)]
pub(super) unsafe fn show_own_folder(folder: &CStr, place: &CStr) -> bool {
    // SAFETY: a system call on NUL-terminated texts.
    unsafe { libc::mount(folder.as_ptr(), place.as_ptr(), ptr::null(), libc::MS_BIND, ptr::null()) == 0 }
}

/// Shows a worker the processes of its own PID namespace, and no others, below `/proc`. What is mounted on the host
/// later is still seen; what the worker could mount stays its own.
#[allow(unsafe_code)]
pub(super) unsafe fn show_own_processes() -> bool {
    let (none, proc) = (c"none".as_ptr(), c"proc".as_ptr());
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: system calls on NUL-terminated texts.
    unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), ptr::null(), libc::MS_REC | libc::MS_SLAVE, ptr::null()) == 0
            && libc::mount(proc, c"/proc".as_ptr(), proc, flags, ptr::null()) == 0
    }
}
