//! Turning a launch into a process: born into its control group, in a session of its own, tied to the
//! supervisor's life.

use std::collections::BTreeMap;
use std::ffi::{CString, NulError, OsStr};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, pipe2};

use super::child::{Child, Step, fork_into};
use super::execution::{Execution, path_text};
use super::image::PLACE;
use super::message::{CompanionPlan, Launch};
use super::pid_namespace::PidNamespace;
use super::unrunnable::{DEFAULT_PATH, Unrunnable, is_mounted_without_programs, not_entered, path_here, too_long};
use crate::cgroup::WorkerGroup;
use crate::process::ProcessId;
use crate::supervisor::status::Cause;
use crate::worker::{Account, WORKER_DIR};

/// This very program, which starts slice servers.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// The longest wait for the start of a program, in milliseconds. A program on a disk that hangs counts as started: its
/// lease must be watched meanwhile.
const START_PATIENCE_MS: u16 = 2000;

/// The reason why there is no process, and the party at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoStart {
    /// [`Cause::StartFailed`] for what the job asked for, [`Cause::NodeFault`] for what this host could not give.
    pub cause: Cause,
    /// One sentence for people.
    pub message: String,
}

impl NoStart {
    /// The job asked for something that cannot be.
    pub fn by_job(message: impl Into<String>) -> Self {
        Self { cause: Cause::StartFailed, message: message.into() }
    }

    /// This host could not give what every job gets.
    pub fn by_node(message: impl Into<String>) -> Self {
        Self { cause: Cause::NodeFault, message: message.into() }
    }
}

/// The party that has put a program where it lies, and answers for it when it cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// The job names it: whatever the system says of it, any node would say, or the job could be made to say.
    Job,
    /// It lies in the worker's folder, which this host has made, and the job has written what is in it.
    Folder,
    /// It is a program of this host's own.
    Host,
}

/// A program with everything that it starts with.
#[derive(Debug)]
pub struct Program {
    pub(super) execution: Execution,
    pub(super) folder: CString,
    /// Its folder, and where it finds it; `None`: where it lies.
    pub(super) place: Option<(CString, CString)>,
    /// Under which identity it runs; `None`: that of the supervisor.
    pub(super) account: Option<Account>,
    origin: Origin,
    /// The worker's own folder, which this host has made.
    home: CString,
}

impl Program {
    /// Prepares the program of a launch.
    ///
    /// # Errors
    /// When there is no command, or a text holds a NUL byte.
    pub fn new(launch: &Launch) -> Result<Self, NoStart> {
        Self::of(launch, &launch.command, &launch.environment, &launch.working_directory)
    }

    /// Prepares what runs beside it, under the same identity.
    ///
    /// # Errors
    /// As for the program.
    pub fn beside(launch: &Launch, plan: &CompanionPlan) -> Result<Self, NoStart> {
        Self::of(launch, &plan.command, &plan.environment, Path::new("/"))
    }

    fn of(
        launch: &Launch,
        command: &[String],
        environment: &BTreeMap<String, String>,
        folder: &Path,
    ) -> Result<Self, NoStart> {
        let name = command.first().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| NoStart::by_job("the command is empty"))?;
        let own = environment.get(WORKER_DIR).filter(|folder| !folder.is_empty());
        let prepare = || -> Result<Self, NulError> {
            let path = environment.get("PATH").map_or(DEFAULT_PATH, String::as_str);
            let variables = environment.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value)));
            Ok(Self {
                execution: Execution::new(command.iter().map(OsStr::new), path, variables)?,
                folder: path_text(folder)?,
                place: match &launch.image {
                    Some(plan) => Some((path_text(&plan.folder)?, CString::new(PLACE)?)),
                    None => None,
                },
                account: launch.account.clone(),
                home: CString::new(own.map_or("", String::as_str))?,
                origin: match own {
                    _ if name == OWN_PROGRAM => Origin::Host,
                    Some(own) if Path::new(name).starts_with(own) => Origin::Folder,
                    _ => Origin::Job,
                },
            })
        };
        prepare().map_err(|_| NoStart::by_job("the command, environment or working directory holds a NUL byte"))
    }

    /// Makes its process, which joins its control groups and then waits for the word to become the program. Joining may
    /// take some ten milliseconds on a busy machine; the agent puts the order on disk meanwhile.
    ///
    /// # Errors
    /// Why there is no process.
    pub fn fork(
        self,
        group: &WorkerGroup,
        namespace: Option<&PidNamespace>,
        input: Option<OwnedFd>,
        outputs: [OwnedFd; 2],
    ) -> Result<Waiting, NoStart> {
        let pipe = || pipe2(OFlag::O_CLOEXEC).map_err(|error| NoStart::by_node(format!("no pipe can be had: {error}")));
        let ((failures, failed), (gate, word)) = (pipe()?, pipe()?);
        let home = group.birth_folder().map_err(|error| NoStart::by_node(error.to_string()))?;
        let child = Child {
            program: &self,
            input: input.as_ref().map(AsRawFd::as_raw_fd),
            outputs: [outputs[0].as_raw_fd(), outputs[1].as_raw_fd()],
            failed: failed.as_raw_fd(),
            gate: gate.as_raw_fd(),
            word: word.as_raw_fd(),
            parent: std::process::id(),
            in_namespace: namespace.is_some(),
        };
        let fork = || fork_into(&child, group, home.as_ref()).map_err(NoStart::by_node);
        let pid = match namespace {
            Some(namespace) => namespace
                .with_children_inside(fork)
                .map_err(|error| NoStart::by_node(format!("its PID namespace cannot be entered: {error}")))??,
            None => fork()?,
        };
        let process =
            ProcessId::of(pid.as_raw()).ok_or_else(|| NoStart::by_node("its process cannot be found in /proc"))?;
        Ok(Waiting { process, word: File::from(word), failures, program: self })
    }

    /// It cannot become the process that it was to be.
    fn not_run(&self, error: Errno) -> NoStart {
        let Execution { paths, arguments, environment, .. } = &self.execution;
        let is_of_job = match self.origin {
            // Whatever starts it, the words are the job's.
            _ if error == Errno::E2BIG => true,
            Origin::Job => true,
            // Whatever else fails is what the job has written into it.
            Origin::Folder => !is_mounted_without_programs(&self.path_here(&self.home)),
            Origin::Host => false,
        };
        let unrunnable = Unrunnable {
            name: self.execution.name(),
            paths: paths.iter().map(|path| self.path_here(path)).collect(),
            error,
            too_long: (error == Errno::E2BIG).then(|| too_long(arguments, environment)),
        };
        let message = unrunnable.explained_to(self.account.clone());
        if is_of_job { NoStart::by_job(message) } else { NoStart::by_node(message) }
    }

    /// Its working directory cannot be entered.
    fn not_entered(&self, error: Errno) -> NoStart {
        let cause = not_entered(self.path_here(&self.folder), error, self.account.clone());
        let folder = self.folder.to_string_lossy();
        let message = format!("the working directory `{folder}` cannot be entered: {cause}");
        if self.folder == self.home { NoStart::by_node(message) } else { NoStart::by_job(message) }
    }

    /// A path of its as this host sees it.
    fn path_here(&self, path: &CString) -> PathBuf {
        path_here(path, &self.folder, self.place.as_ref())
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
    /// Why it did not.
    pub fn release(mut self) -> Result<ProcessId, NoStart> {
        // One that is gone cannot read it; what it left to say is read next.
        let _ = self.word.write_all(b"0");
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        if ProcessId::of(self.process.pid) != Some(self.process) {
            return Err(NoStart::by_node("its process was killed before it was started"));
        }
        let process = self.process;
        self.process.pid = 0;
        Ok(process)
    }

    /// Reads what the process says of its failure; `None` when the program runs.
    fn failure(&mut self) -> Option<NoStart> {
        let mut fds = [PollFd::new(self.failures.as_fd(), PollFlags::POLLIN)];
        if matches!(poll(&mut fds, START_PATIENCE_MS), Ok(0)) {
            return None;
        }
        let mut report = [0; 5];
        // The program runs when the pipe was closed by `execve` without a word.
        File::from(self.failures.try_clone().ok()?).read_exact(&mut report).ok()?;
        let error = Errno::from_raw(i32::from_ne_bytes([report[1], report[2], report[3], report[4]]));
        let name = self.program.execution.name();
        let node = |what: &str| NoStart::by_node(format!("{what}: {error}"));
        Some(match Step::from_number(report[0]) {
            Some(Step::Group) => node("it cannot join its control group"),
            Some(Step::Proc) => node("it cannot be given a /proc of its own"),
            Some(Step::Place) => node(&format!("its folder cannot be shown at {PLACE}")),
            Some(Step::Account) => node("it cannot take on its identity"),
            Some(Step::Folder) => self.program.not_entered(error),
            Some(Step::Exec) => self.program.not_run(error),
            Some(Step::Setup) | None => node(&format!("`{name}` cannot be prepared")),
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
