//! The process that a worker with a device begins as: starts its slice servers, then its program, and ends as that
//! does.
//!
//! It has no runtime, and no thread but the one that speaks to a server of another node (`presence.rs`): it waits
//! beside a program for as long as that runs. Signals come to this process, and it passes each on, once, to the
//! program's own process group, which the program leads as it would without a device.

mod apart;
mod presence;
mod processes;
mod serving;
pub(crate) mod unaware;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};

use self::processes::{Server, as_leader, end_as, end_by, say_lost, signal_group, start};
use super::lines::Lines;
use super::plan::Plan;
use super::problem::Problem;
use super::served::{NO_USER_SITE, handed_on};
use super::word::take_supervisor;
use super::{ProgramPlace, Reached, Word};
use crate::process::reap;
use crate::reach::advertised;
use crate::worker::WORKER_DIR;

/// Variables that Tessera sets and a server has, too: by the first the worker's processes are known.
const OF_WORKER: [&str; 3] = [WORKER_DIR, "TESSERA_JOB_ID", "TESSERA_EPOCH"];
/// Variables by which a job decides how its card shares the work; they override those of the node.
const OF_JOB: [&str; 2] = ["TESSERA_SPLIT", "TESSERA_SLOWER"];
/// Further variables of a server that saves what its program has on the card.
const OF_SAVING: [&str; 2] = ["TESSERA_CHECKPOINT_DIR", "TESSERA_CONTROL"];
/// The codes with which a server ends that failed itself, and one whose program's host was not heard of for its lease.
/// With any other it ends as its program did.
const FAULT: i32 = 123;
const HOST_LOST: i32 = 124;
/// Signals that ask a program to save itself; a server knows one of them.
const STOPS: [i32; 6] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// The variable with the token of the servers.
pub(crate) const TOKEN: &str = "TESSERA_TOKEN";
/// Name of the socket at which the servers of several slices find each other, in the worker's own folder.
const GROUP: &str = ".group.sock";
/// Within which time a server fails whose program has gone after a part of its card was lost.
const FAILS_WITHIN: Duration = Duration::from_secs(2);
/// Within which time it is known how a program of another node has ended that ended as its server did: that counts.
const TELLS_WITHIN: Duration = Duration::from_secs(5);
/// Longest time that servers that are killed may take to be gone.
const DYING: Duration = Duration::from_secs(2);

/// Runs a worker: `words` are the plan, and the program with its arguments.
#[must_use]
pub fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    // Without one it is not believed, and goes on.
    let supervisor = take_supervisor().unwrap_or_default();
    let plan = words.next().unwrap_or_default();
    let program: Vec<OsString> = words.collect();
    let run = |mut worker: Worker| {
        worker.run(&program).map_err(|problem| match (&problem, worker.plan.listens_at()) {
            (Problem::Ended(_), given) if !given.is_empty() => {
                wait_for_the_killed();
                problem.with_port_of(&given)
            }
            _ => problem,
        })
    };
    match Worker::prepare(&plan, supervisor.as_ref()).and_then(run) {
        Ok(ended) => end_as(ended),
        Err(Problem::Stopped(signal)) => end_by(signal),
        Err(problem) => {
            say(&problem.to_string());
            if let Some((cause, supervisor)) = problem.cause().zip(supervisor) {
                Word { cause, why: problem.to_string() }.say(&supervisor);
            }
            ExitCode::from(problem.exit_code())
        }
    }
}

/// Waits until none of its servers, which are killed, has a port any more; not for one that the system holds.
fn wait_for_the_killed() {
    let until = Instant::now() + DYING;
    while Instant::now() < until && reap(libc::WNOHANG).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn own_folder() -> PathBuf {
    PathBuf::from(std::env::var_os(WORKER_DIR).unwrap_or_default())
}

/// The named environment variables that are set.
fn set<'a>(names: impl Iterator<Item = &'a &'static str>) -> impl Iterator<Item = (&'static str, OsString)> {
    names.filter_map(|name| Some((*name, std::env::var_os(name)?)))
}

/// On the worker's own error output, which may be gone.
fn say(what: &str) {
    tessera_diagnostics::remark!("tessera: {what}");
}

/// Everything that is needed before the first process starts.
struct Worker {
    plan: Plan,
    token: String,
    signals: SignalFd,
    supervisor: Option<UnixStream>,
}

impl Worker {
    fn prepare(plan: &OsStr, supervisor: Option<&UnixStream>) -> Result<Self, Problem> {
        let plan: Plan = serde_json::from_slice(plan.as_encoded_bytes())?;
        // Children get an empty mask again.
        let all = SigSet::all();
        all.thread_block().map_err(io::Error::from)?;
        let signals =
            SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map_err(io::Error::from)?;
        // The servers of the other nodes have the same.
        let given = std::env::var(TOKEN).ok().filter(|_| plan.is_shared());
        let supervisor = supervisor.map(UnixStream::try_clone).transpose()?;
        Ok(Self { token: given.map_or_else(token, Ok)?, plan, signals, supervisor })
    }

    fn run(&mut self, program: &[OsString]) -> Result<ExitStatus, Problem> {
        if let ProgramPlace::Apart { server, within } = self.plan.place.clone() {
            return self.run_apart(program, &server, within);
        }
        if let ProgramPlace::Unaware(folder) = self.plan.place.clone() {
            return self.serve_unaware(&folder);
        }
        // They come to the first one of the card, which listens for the program once all are there.
        let slices = 0..self.plan.slices.len();
        let mut servers = slices.map(|slice| self.start_server(slice)).collect::<Result<Vec<_>, _>>()?;
        let place = self.plan.place.clone();
        let awaited = if place == ProgramPlace::WithFirst { "following" } else { "listening " };
        let address = self.said(&mut servers, awaited)?;
        match place {
            ProgramPlace::OnOtherNode { lease, .. } => self.serve_other_node(&mut servers, lease),
            ProgramPlace::WithFirst | ProgramPlace::Apart { .. } | ProgramPlace::Unaware(_) => {
                self.wait_for_card(&mut servers)
            }
            ProgramPlace::Here(_) => {
                let program = self.start_program(program, &address)?;
                self.wait_for(&program, &mut servers)
            }
            ProgramPlace::Elsewhere { host, lease, .. } => {
                self.tell_reach(&address, &host, lease)?;
                self.wait_for_server(&mut servers[0], lease)
            }
        }
    }

    /// Tells where the server listens, for a program on another host.
    fn tell_reach(&self, address: &str, host: &str, lease: Duration) -> Result<(), Problem> {
        let listens = address.strip_prefix("tcp:").and_then(|listens| listens.parse::<SocketAddr>().ok());
        let listens = listens.ok_or_else(|| Problem::Reach(format!("it listens at {address:?}")))?;
        let address = format!("tcp:{}", advertised(listens, host));
        let reached = Reached { address, token: self.token.clone(), lease };
        reached.tell(&own_folder()).map_err(|error| Problem::Reach(error.to_string()))
    }

    fn start_server(&self, slice: usize) -> Result<Server, Problem> {
        let (name, first) =
            self.plan.command.split_first().map_or(("", &[][..]), |(name, first)| (name.as_str(), first));
        let arguments = self.plan.arguments(slice, &own_folder().join(GROUP));
        let of_slice = self.plan.slices.get(slice).map(|slice| slice.environment.clone()).unwrap_or_default();
        let saving = if self.plan.place.saves() { &OF_SAVING[..] } else { &[] };
        let own = set(OF_WORKER.iter().chain(saving));
        let mut command = Command::new(name);
        command.args(first).args(arguments).env_clear().envs(handed_on()).envs(own);
        command
            .envs(&self.plan.environment)
            .envs(of_slice)
            .envs(set(OF_JOB.iter()))
            .env("TESSERA_BUILD", &self.plan.build)
            .env(NO_USER_SITE, "1");
        command.env(TOKEN, &self.token);
        if let ProgramPlace::Unaware(folder) = &self.plan.place {
            command.envs(unaware::of_saving(folder));
        }
        // Python looks for its libraries where it starts: nothing of the job is to be found there.
        let heard = if slice == 0 { Stdio::piped() } else { Stdio::null() };
        command.current_dir("/").stdin(Stdio::null()).stdout(heard);
        let child = as_leader(&mut command).spawn().map_err(|error| Problem::NoServer(name.to_owned(), error))?;
        Ok(Server { child, ended: None })
    }

    /// Returns the rest of the first server's line that begins with `awaited`: the address at which it listens, or
    /// nothing if it only joins the card. Fails once another server has ended, for which it would wait in vain.
    fn said(&mut self, servers: &mut [Server], awaited: &str) -> Result<String, Problem> {
        let device = || self.plan.devices();
        let until = self.plan.ready_within().map(|within| Instant::now() + within);
        let stdout = servers.first_mut().and_then(|first| first.child.stdout.take());
        let Some(mut stdout) = stdout else { return Err(Problem::Ended(device())) };
        let mut said = Lines::default();
        let mut one_ended = false;
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            // What it said before it ended counts: that is read first.
            let patience = if one_ended { Some(Duration::ZERO) } else { left };
            let has_said = self.wait_for_signal_or(Some(stdout.as_fd()), patience)?;
            while let Some(signal) = self.next_signal()? {
                one_ended |= signal == libc::SIGCHLD;
                if !matches!(signal, libc::SIGCHLD | libc::SIGCONT | libc::SIGWINCH | libc::SIGURG) {
                    return Err(Problem::Stopped(signal));
                }
            }
            if !has_said {
                if one_ended && patience == Some(Duration::ZERO) {
                    self.miss_none(servers, false)?;
                    one_ended = false;
                }
                if left == Some(Duration::ZERO) {
                    return Err(self.late());
                }
                continue;
            }
            if !said.read(&mut stdout) {
                return Err(Problem::Ended(device()));
            }
            while let Some(line) = said.next() {
                if let Some(address) = line.strip_prefix(awaited) {
                    return Ok(address.trim().to_owned());
                }
            }
        }
    }

    /// The problem of a first server that reported nothing in time.
    fn late(&self) -> Problem {
        match &self.plan.across {
            Some(across) => Problem::Apart { others: across.others.join(", "), address: across.address.clone() },
            None => Problem::Late(self.plan.devices()),
        }
    }

    /// Fails when one of the servers has ended: before it served, or with what the program had on it.
    fn miss_none(&self, servers: &mut [Server], has_served: bool) -> Result<(), Problem> {
        while let Some((ended, status)) = reap(libc::WNOHANG)? {
            let of_ended = |(server, _): &(&mut Server, _)| server.child.id() == ended.cast_unsigned();
            if let Some((server, slice)) = servers.iter_mut().zip(&self.plan.slices).find(of_ended) {
                server.ended = Some(status);
                let device = slice.device.clone();
                return Err(if has_served { Problem::Died(device, status) } else { Problem::Ended(device) });
            }
        }
        Ok(())
    }

    fn next_signal(&self) -> Result<Option<i32>, Problem> {
        let info = self.signals.read_signal().map_err(io::Error::from)?;
        Ok(info.map(|info| info.ssi_signo.cast_signed()))
    }

    /// The next signal to stop, if one has come; others that came before it are dropped.
    fn next_stop(&self) -> Result<Option<i32>, Problem> {
        while let Some(signal) = self.next_signal()? {
            if STOPS.contains(&signal) {
                return Ok(Some(signal));
            }
        }
        Ok(None)
    }

    /// Waits for a signal, for so long at most if that is said.
    fn wait_for_signal(&self, within: Option<Duration>) -> Result<(), Problem> {
        self.wait_for_signal_or(None, within).map(drop)
    }

    /// The same, or until something else can be read; says whether it can.
    fn wait_for_signal_or(&self, other: Option<BorrowedFd<'_>>, within: Option<Duration>) -> Result<bool, Problem> {
        let [_, other] = ready([Some(self.signals.as_fd()), other], within)?;
        Ok(other)
    }

    fn start_program(&self, words: &[OsString], address: &str) -> Result<Child, Problem> {
        let of_plan = self.plan.of_program.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let (token, build) = (self.token.as_str(), self.plan.build.as_str());
        let own = [("TESSERA_SLICES", address), (TOKEN, token), ("TESSERA_BUILD", build)];
        start(words, of_plan.chain(own))
    }

    /// Waits until the program ends, and passes signals on to it. Of a server that ends before is spoken; the program
    /// is told by its connection.
    fn wait_for(&mut self, program: &Child, servers: &mut [Server]) -> Result<ExitStatus, Problem> {
        let mut stopped = false;
        loop {
            let (ended, status) = self.next_end(|signal| {
                stopped |= STOPS.contains(&signal);
                signal_group(program, signal);
            })?;
            if ended == program.id() {
                let fails = !status.success() && !stopped && self.plan.across.is_some();
                let lost = fails && self.has_lost_a_part(servers)?;
                return if lost { Err(Problem::PartLost) } else { Ok(status) };
            }
            for (server, slice) in
                servers.iter_mut().zip(&self.plan.slices).filter(|(server, _)| server.child.id() == ended)
            {
                server.ended = Some(status);
                say_lost(&slice.device, status);
            }
        }
    }

    /// Returns whether a part of the card on another node was lost: the first server then fails once the program is
    /// gone. A program that failed for that is not at fault, and is tried again as after the loss of a node.
    fn has_lost_a_part(&self, servers: &mut [Server]) -> Result<bool, Problem> {
        let Some(first) = servers.first_mut() else { return Ok(false) };
        let until = Instant::now() + FAILS_WITHIN;
        while first.ended.is_none() && Instant::now() < until {
            match reap(libc::WNOHANG)? {
                Some((ended, status)) if ended.cast_unsigned() == first.child.id() => first.ended = Some(status),
                Some(_) => {}
                None => {
                    self.wait_for_signal(Some(until.saturating_duration_since(Instant::now())))?;
                    while self.next_signal()?.is_some() {}
                }
            }
        }
        Ok(first.ended.is_some_and(|ended| ended.code() == Some(FAULT)))
    }

    /// Waits until the server ends whose program is on another host: by the word of that host, which hands on the code
    /// of its program, or because it was told to stop. Whatever asks a program to save asks it to save and end.
    fn wait_for_server(&mut self, server: &mut Server, lease: Duration) -> Result<ExitStatus, Problem> {
        let mut stopped = false;
        loop {
            let (ended, status) = self.next_end(|signal| {
                let passed = if STOPS.contains(&signal) { libc::SIGTERM } else { signal };
                stopped |= passed == libc::SIGTERM;
                signal_group(&server.child, passed);
            })?;
            if ended != server.child.id() {
                continue;
            }
            server.ended = Some(status);
            return match status.code() {
                Some(HOST_LOST) => Err(Problem::HostLost(lease)),
                Some(FAULT) => Err(Problem::Died(self.plan.devices(), status)),
                None if !stopped => Err(Problem::Died(self.plan.devices(), status)),
                _ => Ok(status),
            };
        }
    }

    /// Waits until a process of this one ends, and passes signals on meanwhile.
    fn next_end(&mut self, mut pass_on: impl FnMut(i32)) -> Result<(u32, ExitStatus), Problem> {
        loop {
            while let Some(signal) = self.next_signal()? {
                if signal != libc::SIGCHLD {
                    pass_on(signal);
                }
            }
            if let Some((ended, status)) = reap(libc::WNOHANG)? {
                return Ok((ended.cast_unsigned(), status));
            }
            self.wait_for_signal(None)?;
        }
    }
}

/// 32 random digits that nobody else knows: who has them may talk to the server.
fn token() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

/// Waits until some of these can be read, or so long at most; says which.
fn ready<const N: usize>(of: [Option<BorrowedFd<'_>>; N], within: Option<Duration>) -> io::Result<[bool; N]> {
    let mut open: Vec<_> = of.iter().flatten().map(|one| PollFd::new(*one, PollFlags::POLLIN)).collect();
    let patience = within.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    poll(&mut open, patience)?;
    let mut open = open.iter();
    Ok(of.map(|one| one.is_some() && open.next().is_some_and(|one| one.any().unwrap_or(false))))
}
