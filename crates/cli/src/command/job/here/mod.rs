//! `tessera run --here`: the program runs on this host, and only its virtual card is in the pool.
//!
//! The job is a slice server without a program beside it. The program starts at once and asks this process where that
//! server is ([`door`]); it waits for the answer where it first needs its card, and again whenever the server is
//! suspended, moved or lost. Meanwhile this process watches the job ([`place`]), tells the server that this host is
//! still there ([`presence`]), and at the end gives the card back with the program's exit code.

mod door;
mod place;
mod presence;
mod program;

use std::future::ready;
use std::io::IsTerminal;
use std::time::Duration;

use futures::FutureExt;
use nix::sys::signal::Signal;
use tessera_api::v1::{Access, CheckpointMode, CheckpointPolicy, JobSpec};
use tokio::sync::watch;

use self::door::Door;
use self::place::{Whereabouts, track};
use self::presence::Presence;
use self::program::{Ended, Program};
use super::run::{cancel, spec, submitted};
use super::submit::remark_unknown_labels;
use crate::args::{JobNumber, RunArgs};
use crate::command::Desk;
use crate::command::desk::wire_time;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::print::remark;
use crate::signals::{Signals, until_left};

/// The interval at which the card is saved unless the arguments set another.
const SAVED_EVERY: Duration = Duration::from_secs(300);
/// The longest time that the job may take to end after its program has ended.
const LAST_WORD: Duration = Duration::from_secs(15);

pub(super) async fn run(desk: Desk, args: RunArgs) -> Result<Exit, Failure> {
    let mut signals = Signals::by(&[Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP])?;
    let (at, whereabouts) = watch::channel(Whereabouts::Waiting("it is being submitted".to_owned()));
    let door = Door::open()?;
    let (command, environment) = (args.command.clone(), args.env.clone());
    let job = match submit(&desk, here(args), &mut signals).await? {
        Ok(job) => job,
        Err(signal) => return Ok(Exit::Signalled(signal)),
    };
    let mut sayings = Sayings::new();
    sayings.say(&format!("job {}", job.0), false);
    let started = Program::start(&command, environment, door.path());
    let mut program = match started {
        Ok(program) => program,
        Err(failure) => {
            give_back(&desk, job, ready(false), ready(()), &mut signals).await;
            return Err(failure);
        }
    };
    door.answer(whereabouts.clone(), desk.client.clone(), job);
    let presence = Presence::begin(whereabouts.clone());
    let mut news = whereabouts;
    let following = track(&desk, job, &at);
    tokio::pin!(following);
    let mut over = false;
    let ended = loop {
        tokio::select! {
            biased;
            ended = program.ended(&mut signals) => break ended?,
            Ok(()) = news.changed() => {
                let now = news.borrow_and_update();
                sayings.say(&now.to_string(), matches!(*now, Whereabouts::Over(_)));
            }
            () = &mut following, if !over => over = true,
        }
    };
    if !over {
        let telling = async { !ended.by_force && presence.over(ended.code).await };
        give_back(&desk, job, telling, following, &mut signals).await;
    }
    Ok(match ended {
        Ended { by_force: true, .. } => Exit::Signalled(Signal::SIGINT),
        Ended { code: 0, .. } => Exit::Done,
        Ended { code, .. } => Exit::Job(code),
    })
}

/// The remarks of this command beside the output of the program.
struct Sayings {
    read_along: bool,
    last: String,
}

impl Sayings {
    fn new() -> Self {
        Self { read_along: std::io::stderr().is_terminal(), last: String::new() }
    }

    /// Says what is new, to somebody at a terminal or always.
    fn say(&mut self, what: &str, always: bool) {
        if (always || self.read_along) && self.last != what {
            remark(&format!("[{what}]"));
            what.clone_into(&mut self.last);
        }
    }
}

/// Submits the job; `Err`: this command was told to end by that signal, and there is no job, or it is cancelled.
/// Signals are heard all the time: once this has returned, the program is there at once.
async fn submit(desk: &Desk, spec: JobSpec, signals: &mut Signals) -> Result<Result<JobNumber, Signal>, Failure> {
    let labels = spec.node_labels.clone();
    let (first, told) = watch::channel(None);
    let submitting = async {
        let job = submitted(desk, spec, &told).await?;
        remark_unknown_labels(desk, labels).await;
        let told = *told.borrow();
        match told {
            Some(signal) => cancel(desk, job, Outage::after_an_answer(desk)).await.map(|()| Err(signal)),
            None => Ok(Ok(job)),
        }
    };
    tokio::select! {
        submitted = submitting => submitted,
        signal = until_left(async || signals.next().await, &first) => Ok(Err(signal)),
    }
}

/// Sees to it that the card is given back, through an outage if nobody has told its server the end, unless a Ctrl-C
/// from now on leaves that. A card whose server was told, or whose server does not hear of this host any more, is given
/// back without a word of this command. `telling` answers whether the server was told.
async fn give_back(
    desk: &Desk,
    job: JobNumber,
    telling: impl Future<Output = bool>,
    following: impl Future<Output = ()>,
    signals: &mut Signals,
) {
    tokio::pin!(following);
    let giving = async {
        let told = telling.await;
        if told && tokio::time::timeout(LAST_WORD, &mut following).await.is_ok() {
            return true;
        }
        // It is not placed now, or was being suspended or lost when it was told.
        let outage = if told { Outage::never(desk) } else { Outage::after_an_answer(desk) };
        cancel(desk, job, outage).await.is_ok() && tokio::time::timeout(LAST_WORD, following).await.is_ok()
    };
    let given = tokio::select! {
        given = giving => given,
        () = interrupted(signals) => false,
    };
    if !given {
        remark(&format!(
            "[job {0} may still have its card, at most until the lease of this host ends; `tessera job show {0}` says]",
            job.0
        ));
    }
}

/// Waits for an interrupt that was not meant for the program.
async fn interrupted(signals: &mut Signals) {
    while signals.next().now_or_never().is_some() {}
    while signals.next().await != Signal::SIGINT {}
}

/// The job that holds the card of a program that runs here.
fn here(args: RunArgs) -> JobSpec {
    let every = args.checkpoint_every.unwrap_or(SAVED_EVERY);
    let mut spec = spec(args);
    spec.command.clear();
    // They are the program's, and stay here.
    spec.environment.clear();
    spec.virtual_card.get_or_insert_default().access = Access::Remote.into();
    spec.checkpoint = Some(CheckpointPolicy {
        mode: CheckpointMode::Cooperative.into(),
        every: Some(wire_time(every)),
        ..CheckpointPolicy::default()
    });
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn what_is_the_programs_stays_here() {
        let words = "tessera run --here --tflops 2 --memory 1GiB --env SECRET=x -- /opt/bin/python train.py";
        let Command::Run(command) = Cli::parse_from(words.split(' ')).command else { panic!("another command") };
        let spec = here(command.run);
        assert_eq!((spec.name.as_str(), spec.command.len(), spec.environment.len()), ("python", 0, 0));
        assert_eq!(spec.virtual_card.map(|card| card.access()), Some(Access::Remote));
        assert_eq!(spec.checkpoint.and_then(|policy| policy.every), Some(wire_time(SAVED_EVERY)));
    }
}
