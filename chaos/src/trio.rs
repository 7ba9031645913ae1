//! Three members of which one leads, as far as losing them needs it.

use std::future::Future;

use anyhow::{Context, Result};
use clap::ValueEnum;
use futures::future::try_join_all;
use nix::sys::signal::Signal;
use serde::Serialize;
use tokio::time::{Duration, Instant};

use crate::hosts::Hosts;
use crate::process::{Process, Program};

pub const MEMBERS: usize = 3;

/// Time within which a member that was asked to stop must be gone.
const ORDERLY_END: Duration = Duration::from_secs(20);

/// One of the members: 0, 1 or 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat(pub usize);

impl Seat {
    pub const ALL: [Self; MEMBERS] = [Self(0), Self(1), Self(2)];

    /// Another one.
    #[must_use]
    pub fn next(self) -> Self {
        Self((self.0 + 1) % MEMBERS)
    }
}

/// How a member is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// SIGKILL: the system closes its connections.
    Killed,
    /// SIGSTOP: its connections stay open, and nothing is answered.
    Hung,
    /// Its host has no network any more: packets to and from it vanish.
    CutOff,
    /// SIGTERM, as for an upgrade.
    Stopped,
}

/// The processes of the three members, each on a host of its own when they can be cut off.
#[derive(Debug)]
pub struct Seats {
    programs: Vec<Program>,
    processes: Vec<Process>,
    hosts: Option<Hosts>,
}

impl Seats {
    /// Starts one process for each program, in the order of the seats.
    ///
    /// # Errors
    /// One cannot be started.
    pub fn start(mut programs: Vec<Program>, hosts: Option<Hosts>) -> Result<Self> {
        if let Some(hosts) = &hosts {
            for (seat, program) in programs.iter_mut().enumerate() {
                program.network = Some(hosts.network(seat));
            }
        }
        let processes = programs.iter().map(Program::start).collect::<Result<_>>()?;
        Ok(Self { programs, processes, hosts })
    }

    /// Fails when a process has ended by itself.
    ///
    /// # Errors
    /// One has.
    pub fn check_alive(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check_alive)
    }

    /// Loses a member; answers the moment just before. One that is killed is gone then.
    ///
    /// # Errors
    /// It is lost already, or was not started on a host that can be cut off.
    pub async fn lose(&mut self, Seat(seat): Seat, loss: Loss) -> Result<Instant> {
        let moment = Instant::now();
        let process = &mut self.processes[seat];
        match loss {
            Loss::Killed => {
                process.send(Signal::SIGKILL)?;
                process.gone().await?;
            }
            Loss::Hung => process.send(Signal::SIGSTOP)?,
            Loss::Stopped => process.send(Signal::SIGTERM)?,
            Loss::CutOff => self.hosts()?.cut_off(seat)?,
        }
        Ok(moment)
    }

    /// Brings a lost member back, with what it has on disk.
    ///
    /// # Errors
    /// It cannot be started, or has not ended when it was asked to.
    pub async fn bring_back(&mut self, Seat(seat): Seat, loss: Loss) -> Result<()> {
        match loss {
            Loss::Killed => self.processes[seat] = self.programs[seat].start()?,
            Loss::Hung => self.processes[seat].send(Signal::SIGCONT)?,
            Loss::CutOff => self.hosts()?.join(seat)?,
            Loss::Stopped => {
                self.processes[seat].ended(ORDERLY_END).await?;
                self.processes[seat] = self.programs[seat].start()?;
            }
        }
        Ok(())
    }

    /// The pid of a member.
    ///
    /// # Errors
    /// It does not run.
    pub fn pid(&self, Seat(seat): Seat) -> Result<u32> {
        self.processes[seat].pid().context("the member does not run")
    }

    /// Resident memory of a member.
    ///
    /// # Errors
    /// It does not run.
    pub fn resident_bytes(&self, Seat(seat): Seat) -> Result<u64> {
        self.processes[seat].resident_bytes()
    }

    /// Ends all members.
    ///
    /// # Errors
    /// One is not gone.
    pub async fn stop(mut self) -> Result<()> {
        try_join_all(self.processes.iter_mut().map(|process| process.stop(Duration::from_secs(5)))).await?;
        Ok(())
    }

    fn hosts(&self) -> Result<&Hosts> {
        self.hosts.as_ref().context("the members share this host and cannot be cut off")
    }
}

/// Three members.
pub trait Trio {
    /// Waits until all three answer, agree who leads, and hold nearly all of the log; says who leads.
    fn healthy(&mut self) -> impl Future<Output = Result<Seat>>;

    /// Their processes.
    fn seats(&self) -> &Seats;

    /// Their processes, to be lost and brought back.
    fn seats_mut(&mut self) -> &mut Seats;
}
