//! A worker that has the program and nothing of its card: the first slice server of that is on another node.
//!
//! That server serves until it hears that the program has ended, or that nothing is heard of it any more. So this
//! process says that it is there as long as the program runs, and in the end that it is over. It never waits for the
//! network itself ([`Presence`]): a signal, and the end of the program, may come at any time.

use std::ffi::OsString;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use tessera_slice::Address;
use tessera_slice::handshake::Credentials;

use super::presence::{Heard, Presence};
use super::processes::signal_group;
use super::{FAILS_WITHIN, Problem, STOPS, Worker, say};
use crate::process::reap;

/// The longest wait at this worker's end for its server to hear of it; one that has not gives the card back later.
const OVER_WITHIN: Duration = Duration::from_secs(1);

impl Worker {
    /// Runs the program once its card is there.
    pub(super) fn run_apart(
        &self,
        program: &[OsString],
        server: &str,
        within: Duration,
    ) -> Result<ExitStatus, Problem> {
        let presence = self.come_to(server, within)?;
        let ended =
            self.start_program(program, server).and_then(|program| self.wait_beside(&program, &presence, server));
        let lost = match &ended {
            Ok((status, false)) if !status.success() => self.has_lost_its_server(&presence),
            _ => Ok(false),
        };
        // A server that is well would keep its card for a whole lease, whatever this worker ends with.
        presence.say_over(OVER_WITHIN);
        if lost? {
            return Err(Problem::PartLost);
        }
        ended.map(|(status, _)| status)
    }

    /// Waits until the first server of the card is there.
    fn come_to(&self, server: &str, within: Duration) -> Result<Presence, Problem> {
        let epoch = std::env::var("TESSERA_EPOCH").ok().and_then(|epoch| epoch.parse().ok());
        let address: Result<Address, _> = server.parse();
        let (Some(epoch), Ok(address)) = (epoch, address) else {
            return Err(Problem::Reach(format!("{server:?} is no address of one of this worker's epoch")));
        };
        let presence = Presence::begin(address, Credentials { token: self.token.clone(), epoch })?;
        self.wait_until_heard(&presence, within)?;
        Ok(presence)
    }

    fn wait_until_heard(&self, presence: &Presence, within: Duration) -> Result<(), Problem> {
        let until = Instant::now() + within;
        let mut last = "it has not answered".to_owned();
        loop {
            while let Some(heard) = presence.next() {
                match heard {
                    Heard::Here | Heard::Over => return Ok(()),
                    Heard::Never(why) => return Err(Problem::NoCard(why)),
                    Heard::Nothing(why) | Heard::Gone(why) => last = why,
                }
            }
            if let Some(signal) = self.next_stop()? {
                return Err(Problem::Stopped(signal));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Problem::NoCard(last));
            }
            self.wait_for_signal_or(Some(presence.descriptor()), Some(left))?;
        }
    }

    /// Waits until the program ends, and passes signals on to it; says how it ended, and whether it had been asked to.
    fn wait_beside(&self, program: &Child, presence: &Presence, server: &str) -> Result<(ExitStatus, bool), Problem> {
        let (mut stopped, mut reached) = (false, true);
        loop {
            while let Some(signal) = self.next_signal()? {
                if signal != libc::SIGCHLD {
                    stopped |= STOPS.contains(&signal);
                    signal_group(program, signal);
                }
            }
            while let Some((ended, status)) = reap(libc::WNOHANG)? {
                if ended.cast_unsigned() == program.id() {
                    return Ok((status, stopped));
                }
            }
            while let Some(heard) = presence.next() {
                let hears = heard == Heard::Here;
                if hears != reached {
                    say_reached(server, hears);
                }
                reached = hears;
            }
            self.wait_for_signal_or(Some(presence.descriptor()), None)?;
        }
    }

    /// Returns whether the first server of the program's card is gone: a server that lost a part of the card ends as
    /// soon as its program has. A program that ended with an error for that is not at fault. One message that is not
    /// heard proves little. A refused connection proves that there is no server, and so does a newest message that was
    /// not heard by the end of `FAILS_WITHIN`.
    fn has_lost_its_server(&self, presence: &Presence) -> Result<bool, Problem> {
        let until = Instant::now() + FAILS_WITHIN;
        // What was heard while the program ran says nothing of the server now.
        while presence.next().is_some() {}
        presence.speak_often();
        let mut heard = false;
        loop {
            while let Some(news) = presence.next() {
                if matches!(news, Heard::Gone(_)) {
                    return Ok(true);
                }
                heard = news == Heard::Here;
            }
            if self.next_stop()?.is_some() {
                return Ok(false);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(!heard);
            }
            self.wait_for_signal_or(Some(presence.descriptor()), Some(left))?;
        }
    }
}

fn say_reached(server: &str, reached: bool) {
    let what = if reached { "is heard of again" } else { "cannot be reached; what the program kept on it may be lost" };
    say(&format!("the slice server at {server} {what}"));
}
