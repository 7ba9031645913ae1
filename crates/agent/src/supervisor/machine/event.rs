//! The interface of a supervisor's state machine: the events that it decides about, the effects that its shell
//! performs, the clocks that it is given, and the rules that do not change.

use std::time::Duration;

use crate::boot::BootTime;
use crate::process::ProcessId;
use crate::supervisor::image::{ImageRecord, Snapshot};
use crate::supervisor::program::NoStart;
use crate::supervisor::status::{Cause, Exit};
use crate::worker::{StopPolicy, StopSignal};

/// Both clocks, read by the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The clock on which deadlines are counted.
    pub boot: BootTime,
    /// The time of day for people, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// Everything that can happen to a supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Started(ProcessId),
    /// It could not be started: whose fault that is, and why.
    StartFailed(NoStart),
    /// The worker's first process ended.
    Exited {
        exit: Exit,
        /// The party at fault and a message, where more is known than the exit itself.
        because: Option<(Cause, String)>,
    },
    /// Its processes were dumped and are gone; or why they were not, and run on.
    Dumped(Result<Box<ImageRecord>, String>),
    /// They were dumped while they ran, and run on; or they were not.
    Snapshotted(Snapshot),
    Probed {
        /// Nothing of the worker is alive.
        empty: bool,
    },
    /// The process that runs beside it and has its card has ended: the party at fault, and the reason.
    CardLost(Cause, String),
    /// The agent went away before it said that the order is durable.
    Abandoned,
    /// The supervisor itself was told to end: the host shuts down.
    Terminated,
    /// A deadline may have passed.
    TimePassed,
}

/// An action for the shell. The shell performs the actions in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start the process, or begin to restore it.
    Start,
    /// Begin to dump its processes.
    Dump,
    /// Begin to dump them and let them go on, under this number.
    Snapshot(u64),
    /// Let all its processes stand still.
    Rest,
    /// Let them go on.
    GoOn,
    /// Send a signal to the worker's process group.
    Signal(StopSignal),
    /// Kill everything of the worker, once.
    Kill,
    /// Look whether anything of the worker is alive.
    Probe,
    /// The status changed: keep it and tell the agents that listen.
    Publish,
    /// Everything is done.
    Finish,
}

/// Rules that do not change during a worker's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rules {
    /// The stop policy where the reason for the stop gives none: time limit, shutdown of the host. A lease that expires
    /// takes its signal from here.
    pub stop: StopPolicy,
    pub time_limit: Option<Duration>,
    /// The longest time that a kill may take before it counts as unconfirmed.
    pub kill_confirmation: Duration,
    /// The furthest that a lease may reach from now, whoever grants it.
    pub longest_lease: Duration,
    /// True if its processes may be dumped: at a stop after which its job is to resume, and for snapshots while they
    /// run.
    pub dumps: bool,
}
