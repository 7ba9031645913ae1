//! Turning a launch into a process: born into its control group, in a session of its own, tied to the supervisor's life.

use std::cell::Cell;
use std::ffi::{CString, NulError};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2};

use super::message::Launch;
use crate::cgroup::WorkerGroup;
use crate::process::ProcessId;

/// Where programs are looked for when the environment has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// How long the start of a program is waited for, in milliseconds. A program on a disk that hangs counts as started: its
/// lease must be watched meanwhile.
const START_PATIENCE_MS: u16 = 2000;
/// `clone3` flag: the child is born into the control group whose folder is given.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// A program with everything in the form that `execve` takes, so that nothing is allocated between fork and exec.
#[derive(Debug)]
pub struct Program {
    paths: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    folder: CString,
    shell: CString,
}

impl Program {
    /// Prepares the program of a launch.
    ///
    /// # Errors
    /// When there is no command, or a text holds a NUL byte.
    pub fn new(launch: &Launch) -> Result<Self, String> {
        let name = launch.command.first().filter(|name| !name.is_empty()).ok_or("the command is empty")?;
        let prepare = || -> Result<Self, NulError> {
            let arguments = launch.command.iter().map(|word| CString::new(word.as_str())).collect::<Result<_, _>>()?;
            let variables = launch.environment.iter().map(|(name, value)| CString::new(format!("{name}={value}")));
            Ok(Self {
                paths: candidates(name, launch.environment.get("PATH").map_or(DEFAULT_PATH, String::as_str))?,
                arguments,
                environment: variables.collect::<Result<_, _>>()?,
                folder: path_text(&launch.working_directory)?,
                shell: CString::new("/bin/sh")?,
            })
        };
        prepare().map_err(|_| "the command, environment or working directory holds a NUL byte".to_owned())
    }

    /// Makes its process, which joins its control groups and then waits for the word to become the program. Joining may take
    /// some ten milliseconds on a busy machine; the agent puts the order on disk meanwhile.
    ///
    /// # Errors
    /// The sentence that tells why there is no process.
    pub fn fork(self, group: &WorkerGroup, outputs: [OwnedFd; 2]) -> Result<Waiting, String> {
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|error| format!("no pipe can be had: {error}"));
        let ((failures, failed), (gate, word)) = (pipe()?, pipe()?);
        let null = File::open("/dev/null").map_err(|error| format!("/dev/null cannot be opened: {error}"))?;
        let home = group.birth_folder().map_err(|error| error.to_string())?;
        let child = Child {
            program: &self,
            arguments: pointers(&self.arguments),
            shell_arguments: self.shell_pointers(),
            environment: pointers(&self.environment),
            input: null.as_raw_fd(),
            outputs: [outputs[0].as_raw_fd(), outputs[1].as_raw_fd()],
            failed: failed.as_raw_fd(),
            gate: gate.as_raw_fd(),
            parent: std::process::id(),
        };
        let pid = fork_into(&child, group, home.as_ref())?;
        drop(child);
        let process = ProcessId::of(pid.as_raw()).ok_or("its process cannot be found in /proc")?;
        Ok(Waiting { process, word: File::from(word), failures, program: self })
    }

    /// `/bin/sh` and the arguments, for a script without a first line that names its interpreter.
    fn shell_pointers(&self) -> Vec<Cell<*const libc::c_char>> {
        [self.shell.as_ptr()].into_iter().chain(pointers(&self.arguments)).map(Cell::new).collect()
    }
}

/// A process that has everything and waits to become the program. Dropped without the word, it ends.
#[derive(Debug)]
pub struct Waiting {
    process: ProcessId,
    word: File,
    failures: OwnedFd,
    program: Program,
}

impl Waiting {
    /// Lets it become the program.
    ///
    /// # Errors
    /// The sentence that tells why it did not.
    pub fn release(mut self) -> Result<ProcessId, String> {
        // One that is gone cannot read it; what it left to say is read next.
        let _ = self.word.write_all(b"0");
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if ProcessId::of(self.process.pid) != Some(self.process) {
            return Err("its process was killed before it was started".to_owned());
        }
        let process = self.process;
        self.process.pid = 0;
        Ok(process)
    }

    /// Reads what the process says of its failure; `None` when the program runs.
    fn failure(&mut self) -> Option<String> {
        let mut fds = [PollFd::new(self.failures.as_fd(), PollFlags::POLLIN)];
        if matches!(poll(&mut fds, START_PATIENCE_MS), Ok(0)) {
            return None;
        }
        let mut report = [0; 5];
        // The program runs when the pipe was closed by `execve` without a word.
        File::from(self.failures.try_clone().ok()?).read_exact(&mut report).ok()?;
        let error = Errno::from_raw(i32::from_ne_bytes([report[1], report[2], report[3], report[4]]));
        let name = self.program.arguments[0].to_string_lossy();
        Some(match report[0] {
            step if step == Step::Group as u8 => format!("it cannot join its control group: {error}"),
            step if step == Step::Folder as u8 => {
                let folder = self.program.folder.to_string_lossy();
                format!("the working directory `{folder}` cannot be entered: {error}")
            }
            step if step == Step::Exec as u8 => format!("`{name}` cannot be run: {error}"),
            _ => format!("`{name}` cannot be prepared: {error}"),
        })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // It has run nothing of the worker. Once it was waited for, its pid may be another's.
        if ProcessId::of(self.process.pid) == Some(self.process) {
            let pid = Pid::from_raw(self.process.pid);
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
        }
    }
}

/// Where `execve` looks: the name itself when it holds a slash, else every folder of `PATH`.
fn candidates(name: &str, path: &str) -> Result<Vec<CString>, NulError> {
    if name.contains('/') {
        return Ok(vec![CString::new(name)?]);
    }
    path.split(':')
        .map(|folder| CString::new(format!("{}/{name}", if folder.is_empty() { "." } else { folder })))
        .collect()
}

fn path_text(path: &Path) -> Result<CString, NulError> {
    CString::new(path.as_os_str().as_bytes())
}

fn pointers(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Which step of the child failed.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Step {
    Group = 1,
    Folder = 2,
    Exec = 3,
    Setup = 4,
}

/// Forks, where possible straight into the control group: writing into `cgroup.procs` waits for the whole machine.
#[allow(unsafe_code)]
fn fork_into(child: &Child<'_>, group: &WorkerGroup, home: Option<&File>) -> Result<Pid, String> {
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

/// What the child needs between fork and exec. Nothing here allocates.
struct Child<'a> {
    program: &'a Program,
    arguments: Vec<*const libc::c_char>,
    /// The second one is set to the script's path once it is known.
    shell_arguments: Vec<Cell<*const libc::c_char>>,
    environment: Vec<*const libc::c_char>,
    input: RawFd,
    outputs: [RawFd; 2],
    failed: RawFd,
    gate: RawFd,
    parent: u32,
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
        // SAFETY: all are async-signal-safe system calls on descriptors and texts that live in this process's copy of the
        // memory; the arrays of pointers end with a null pointer.
        unsafe {
            for file in join {
                if libc::write(file.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                    return Step::Group;
                }
            }
            libc::setsid();
            // The worker dies with its supervisor. When that is already gone, the signal would never come.
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 || libc::getppid().unsigned_abs() != self.parent
            {
                return Step::Setup;
            }
            for (from, to) in [(self.input, 0), (self.outputs[0], 1), (self.outputs[1], 2)] {
                if libc::dup2(from, to) < 0 {
                    return Step::Setup;
                }
            }
            // Nothing else of the supervisor is handed on; where the call is missing, close-on-exec does the same.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            self.reset_signals();
            let mut word = 0_u8;
            while libc::read(self.gate, (&raw mut word).cast(), 1) != 1 {
                if Errno::last_raw() != libc::EINTR {
                    return Step::Setup;
                }
            }
            if libc::chdir(self.program.folder.as_ptr()) != 0 {
                return Step::Folder;
            }
            self.execute();
        }
        Step::Exec
    }

    /// Handlers and mask of the supervisor are none of the worker's business.
    unsafe fn reset_signals(&self) {
        // SAFETY: setting a default action and an empty mask cannot break anything in this process.
        unsafe {
            for number in 1..=64 {
                if !matches!(number, libc::SIGKILL | libc::SIGSTOP) {
                    libc::signal(number, libc::SIG_DFL);
                }
            }
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        }
    }

    /// Tries every place; the error that is told is the most telling one.
    unsafe fn execute(&self) {
        let mut telling = libc::ENOENT;
        for path in &self.program.paths {
            // SAFETY: all pointers lead to NUL-terminated texts and null-terminated arrays.
            unsafe { libc::execve(path.as_ptr(), self.arguments.as_ptr(), self.environment.as_ptr()) };
            match Errno::last_raw() {
                libc::ENOEXEC => self.execute_script(path),
                libc::ENOENT | libc::ENOTDIR => {}
                other => telling = other,
            }
        }
        Errno::from_raw(telling).set();
    }

    fn execute_script(&self, path: &CString) {
        self.shell_arguments[1].set(path.as_ptr());
        // SAFETY: as in `execute`; a `Cell` has the layout of what it holds.
        unsafe {
            libc::execve(self.program.shell.as_ptr(), self.shell_arguments.as_ptr().cast(), self.environment.as_ptr());
        }
    }
}
