//! A worker that has the program and nothing of its card: the first slice server of that is on another node.
//!
//! That server serves until it hears that the program has ended, or that nothing is heard of it any more. So this
//! process says that it is there as long as the program runs, and in the end that it is over.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tessera_slice::handshake::Credentials;
use tessera_slice::{Address, Attendance};

use super::{FAILS_WITHIN, Problem, STOPS, Worker, say, signal_group};
use crate::process::reap;

/// How often the server is told that the program is there: several times in the shortest lease that a node may give.
const BEAT: Duration = Duration::from_millis(500);
/// The pause between tries to reach a server that does not listen yet.
const PAUSE: Duration = Duration::from_millis(50);

/// The program, as the server of its card knows it.
struct Presence {
    server: Address,
    credentials: Credentials,
    attendance: Option<Attendance>,
}

impl Presence {
    /// Says that the program is there, over another connection where one has broken; `false`: nobody has heard it.
    fn is_here(&mut self) -> bool {
        self.say(Attendance::is_here)
    }

    /// Says that it has ended. How is no matter of the server's: that is told by this worker.
    fn is_over(&mut self) {
        let heard = self.say(|attendance| attendance.is_over(0));
        if !heard {
            self.say(|attendance| attendance.is_over(0));
        }
    }

    fn say(&mut self, word: impl FnOnce(&mut Attendance) -> Result<(), tessera_slice::Error>) -> bool {
        let begin = || Attendance::begin(&self.server, &self.credentials).ok();
        let Some(mut attendance) = self.attendance.take().or_else(begin) else { return false };
        let heard = word(&mut attendance).is_ok();
        self.attendance = heard.then_some(attendance);
        heard
    }
}

impl Worker {
    /// Runs the program once its card is there.
    pub(super) fn run_apart(
        &self,
        program: &[OsString],
        server: &str,
        within: Duration,
    ) -> Result<ExitStatus, Problem> {
        let mut presence = self.come_to(server, within)?;
        let ended = self.start_program(program, server).and_then(|program| self.wait_beside(&program, &mut presence));
        if let Ok((status, false)) = ended
            && !status.success()
            && self.has_lost_its_server(&mut presence)?
        {
            return Err(Problem::PartLost);
        }
        presence.is_over();
        ended.map(|(status, _)| status)
    }

    /// Waits until the first server of the card is there.
    fn come_to(&self, server: &str, within: Duration) -> Result<Presence, Problem> {
        let epoch = std::env::var("TESSERA_EPOCH").ok().and_then(|epoch| epoch.parse().ok());
        let address: Result<Address, _> = server.parse();
        let (Some(epoch), Ok(address)) = (epoch, address) else {
            return Err(Problem::Reach(format!("{server:?} is no address of one of this worker's epoch")));
        };
        let credentials = Credentials { token: self.token.clone(), epoch };
        let until = Instant::now() + within;
        loop {
            match Attendance::begin(&address, &credentials) {
                Ok(attendance) => return Ok(Presence { server: address, credentials, attendance: Some(attendance) }),
                Err(error) if Instant::now() >= until => return Err(Problem::NoCard(error.to_string())),
                Err(_) => self.wait_for_signal(PAUSE)?,
            }
            while let Some(signal) = self.next_signal()? {
                if STOPS.contains(&signal) {
                    return Err(Problem::Stopped(signal));
                }
            }
        }
    }

    /// Waits until the program ends, and passes signals on to it; says how it ended, and whether it had been asked to.
    fn wait_beside(&self, program: &Child, presence: &mut Presence) -> Result<(ExitStatus, bool), Problem> {
        let (mut stopped, mut heard) = (false, true);
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
            if heard != presence.is_here() {
                heard = !heard;
                let what = if heard {
                    "is heard of again"
                } else {
                    "cannot be reached; what the program kept on it may be lost"
                };
                say(&format!("the slice server at {} {what}", presence.server));
            }
            self.wait_for_signal(BEAT)?;
        }
    }

    /// Whether the server is gone with whose card the program was: one that lost a part of it ends as soon as its
    /// program has. A program that ended with an error for that is not at fault.
    fn has_lost_its_server(&self, presence: &mut Presence) -> Result<bool, Problem> {
        let until = Instant::now() + FAILS_WITHIN;
        while Instant::now() < until {
            if !presence.is_here() {
                return Ok(true);
            }
            self.wait_for_signal(PAUSE)?;
            while self.next_signal()?.is_some() {}
        }
        Ok(false)
    }

    fn wait_for_signal(&self, within: Duration) -> Result<(), Problem> {
        let mut ready = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        let patience = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        poll(&mut ready, patience).map_err(io::Error::from)?;
        Ok(())
    }
}
