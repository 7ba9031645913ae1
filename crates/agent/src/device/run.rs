//! The process that a worker with a device begins as: starts its slice servers, then its program, and ends as that does.
//!
//! It has no threads and no runtime, and allocates little: it waits beside a program for as long as that runs. Signals
//! are the program's: they come to the whole process group, of which this is one and the servers are not, and this
//! process takes none of them. What it says, it says on the worker's own error output.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, raise, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::plan::{Plan, PlannedSlice};
use crate::worker::WORKER_DIR;

/// The worker ended before its program began: what it needs could not be had.
const NOT_SERVED: u8 = 125;
/// The program cannot be run, and is not there, as shells say it.
const NOT_RUN: (u8, u8) = (126, 127);
/// How often it is looked whether the worker was told to stop while servers start, in milliseconds.
const LOOK_MS: u16 = 100;
/// Variables of the worker that its servers have too.
const HANDED_ON: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "TESSERA_JOB_ID", "TESSERA_EPOCH"];
/// Longest path of a Unix socket, in bytes.
const SOCKET_PATH: usize = 107;

/// Runs a worker: `words` are the plan, and the program with its arguments.
#[must_use]
pub fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let plan = words.next().unwrap_or_default();
    let program: Vec<OsString> = words.collect();
    match prepare(&plan).and_then(|worker| worker.run(&program)) {
        Ok(ended) => end_as(ended),
        Err(Problem::Stopped(signal)) => end_by(signal),
        Err(problem) => {
            eprintln!("tessera: {problem}");
            ExitCode::from(problem.exit_code())
        }
    }
}

/// Why a program did not begin.
#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("the plan of this worker's device cannot be read: {0}; agent and supervisor are of different releases")]
    Plan(#[from] serde_json::Error),
    #[error("this worker cannot be prepared: {0}")]
    System(#[from] io::Error),
    #[error("{0} has more than {SOCKET_PATH} bytes, and no socket can lie there; give the agent a shorter data folder")]
    LongPath(PathBuf),
    #[error("the slice server {0} cannot be started: {1}; see `[device] python` of the agent's configuration")]
    NoServer(String, #[source] io::Error),
    #[error("the slice server for {0} ended before it listened; what it said is above")]
    Ended(String),
    #[error(
        "the slice server for {0} did not listen in time; see `[device] start_within` of the agent's configuration"
    )]
    Late(String),
    #[error("the worker was stopped before its program began")]
    Stopped(Signal),
    #[error("`{0}` cannot be run: {1}")]
    Program(String, #[source] io::Error),
}

impl Problem {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Program(_, error) if error.kind() == io::ErrorKind::NotFound => NOT_RUN.1,
            Self::Program(..) => NOT_RUN.0,
            _ => NOT_SERVED,
        }
    }
}

/// Everything that is needed before the first process starts.
struct Worker {
    plan: Plan,
    folder: PathBuf,
    token: String,
    signals: SignalFd,
}

/// A server that was started.
struct Server {
    child: Child,
    device: String,
    /// It ended by itself, and was waited for.
    over: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        // Its whole group, while its number is still its own.
        let _ = kill(group(&self.child), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

fn prepare(plan: &OsStr) -> Result<Worker, Problem> {
    let plan = serde_json::from_slice(plan.as_encoded_bytes())?;
    // Children get an empty mask again. SIGCHLD is not asked for: ends are waited for.
    let mut theirs = SigSet::all();
    theirs.remove(Signal::SIGCHLD);
    theirs.thread_block().map_err(io::Error::from)?;
    let signals =
        SignalFd::with_flags(&theirs, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(io::Error::from)?;
    let folder = PathBuf::from(std::env::var_os(WORKER_DIR).unwrap_or_default());
    Ok(Worker { plan, folder, token: token()?, signals })
}

/// 32 random digits that nobody else knows: who has them may talk to the servers.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

impl Worker {
    fn run(self, program: &[OsString]) -> Result<ExitStatus, Problem> {
        let mut servers = Vec::new();
        let mut addresses = Vec::new();
        let until = Instant::now() + self.plan.start_within;
        let mut starting = Vec::new();
        for (number, slice) in self.plan.slices.iter().enumerate() {
            let mut server = self.start(slice, &self.folder.join(format!(".slice-{number}.sock")))?;
            starting.extend(server.child.stdout.take());
            servers.push(server);
        }
        for (server, stdout) in servers.iter().zip(&mut starting) {
            addresses.push(self.listening(&server.device, stdout, until)?);
        }
        let program = self.start_program(program, &addresses.join(","))?;
        let ended = wait_for(&program, &mut servers)?;
        drop(servers);
        Ok(ended)
    }

    fn start(&self, slice: &PlannedSlice, socket: &Path) -> Result<Server, Problem> {
        if socket.as_os_str().len() > SOCKET_PATH {
            return Err(Problem::LongPath(socket.to_owned()));
        }
        let words = slice.arguments(&format!("unix:{}", socket.display()));
        let (name, first) =
            self.plan.command.split_first().map_or(("", &[][..]), |(name, first)| (name.as_str(), first));
        let handed_on = HANDED_ON.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
        let mut command = Command::new(name);
        command.args(first).args(words).env_clear().envs(handed_on);
        command.envs(&self.plan.environment).envs(&slice.environment);
        // The worker's processes are known by its folder.
        command.env(WORKER_DIR, &self.folder).env("TESSERA_TOKEN", &self.token).env("TESSERA_BUILD", &self.plan.build);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let child = with_empty_mask(&mut command).spawn().map_err(|error| Problem::NoServer(name.to_owned(), error))?;
        Ok(Server { child, device: slice.device.clone(), over: false })
    }

    /// The address at which a server listens, once it says so.
    fn listening(&self, device: &str, stdout: &mut ChildStdout, until: Instant) -> Result<String, Problem> {
        let mut said = Vec::new();
        loop {
            if let Some(signal) = self.told_to_stop()? {
                return Err(Problem::Stopped(signal));
            }
            if Instant::now() > until {
                return Err(Problem::Late(device.to_owned()));
            }
            let mut ready = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            if poll(&mut ready, LOOK_MS).map_err(io::Error::from)? == 0 {
                continue;
            }
            let mut bytes = [0; 512];
            match stdout.read(&mut bytes)? {
                0 => return Err(Problem::Ended(device.to_owned())),
                count => said.extend_from_slice(&bytes[..count]),
            }
            let text = String::from_utf8_lossy(&said);
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            if let Some(address) = whole.lines().find_map(|line| line.strip_prefix("listening ")) {
                return Ok(address.trim().to_owned());
            }
        }
    }

    /// The first signal that came and would end or stop a program.
    fn told_to_stop(&self) -> Result<Option<Signal>, Problem> {
        while let Some(info) = self.signals.read_signal().map_err(io::Error::from)? {
            let signal = i32::try_from(info.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
            if let Some(signal) =
                signal.filter(|signal| !matches!(signal, Signal::SIGWINCH | Signal::SIGURG | Signal::SIGCONT))
            {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    fn start_program(&self, words: &[OsString], addresses: &str) -> Result<Child, Problem> {
        let (name, arguments) = words.split_first().ok_or_else(|| io::Error::other("there is no program"))?;
        let mut command = Command::new(name);
        command.args(arguments).env("TESSERA_SLICES", addresses).env("TESSERA_TOKEN", &self.token);
        command.env("TESSERA_BUILD", &self.plan.build);
        let failed = |error| Problem::Program(name.to_string_lossy().into_owned(), error);
        let mut program = with_empty_mask(&mut command).spawn().map_err(failed)?;
        // What came before it was there came to nobody else.
        if let Some(signal) = self.told_to_stop()? {
            kill(pid(&program), signal).map_err(io::Error::from).or_else(|error| program.kill().and(Err(error)))?;
        }
        Ok(program)
    }
}

/// Waits until the program ends. A server that ends before is spoken of; its program is told by its connection.
fn wait_for(program: &Child, servers: &mut [Server]) -> Result<ExitStatus, Problem> {
    loop {
        let (ended, status) = match waitpid(None, None).map_err(io::Error::from)? {
            WaitStatus::Exited(ended, code) => (ended, ExitStatus::from_raw((code & 0xff) << 8)),
            WaitStatus::Signaled(ended, signal, _) => (ended, ExitStatus::from_raw(signal as i32)),
            _ => continue,
        };
        if ended == pid(program) {
            return Ok(status);
        }
        if let Some(server) = servers.iter_mut().find(|server| pid(&server.child) == ended) {
            server.over = true;
            eprintln!(
                "tessera: the slice server for {} ended ({status}); what the program kept on it is lost",
                server.device
            );
        }
    }
}

/// Children are no business of the mask that this process has, and end with it.
#[allow(unsafe_code)]
fn with_empty_mask(command: &mut Command) -> &mut Command {
    // SAFETY: both are async-signal-safe system calls that allocate nothing.
    unsafe {
        command.pre_exec(|| {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                Ok(())
            } else {
                Err(io::Error::last_os_error())
            }
        })
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

fn group(child: &Child) -> Pid {
    Pid::from_raw(-child.id().cast_signed())
}

/// Ends as the program has ended, so that whoever waits for this process sees no difference.
fn end_as(status: ExitStatus) -> ExitCode {
    match status.signal().and_then(|number| Signal::try_from(number).ok()) {
        Some(signal) => end_by(signal),
        None => ExitCode::from(u8::try_from(status.code().unwrap_or(0)).unwrap_or(u8::MAX)),
    }
}

fn end_by(signal: Signal) -> ExitCode {
    // The program has left its core, if it was to; another of this process would only be in the way.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let _ = sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None);
    let _ = raise(signal);
    // A signal that ends nobody.
    ExitCode::from(128_u8.saturating_add(u8::try_from(signal as i32).unwrap_or(0)))
}
