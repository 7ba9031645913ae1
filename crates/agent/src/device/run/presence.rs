//! The thread that tells the slice server of another node that its program is there.
//!
//! A word to the server takes as long as the network takes, which is many seconds where a server hangs or a host is
//! gone. Whoever waits beside the program has signals to pass on meanwhile, so that this is the one who waits.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tessera_actor::Backoff;
use tessera_slice::handshake::Credentials;
use tessera_slice::{Address, Attendance, Error};

/// Interval of the messages that the program is there: several of them in the shortest lease that a node may give.
const BEAT: Duration = Duration::from_millis(500);
/// The shortest and the longest pause between tries to reach a server that does not listen yet. The shortest is that
/// between two words, too, when it is to be seen at once that a server ends.
const PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The outcome of a message to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    Here,
    Over,
    /// It has heard nothing, and why.
    Nothing(String),
    /// Nobody listens where it did, and why that is so.
    Gone(String),
    /// It never lets this program in, and why.
    Never(String),
}

/// Requests to the thread.
enum Ask {
    /// To speak without long pauses.
    Often,
    /// To say that the program has ended.
    Over,
}

/// The program, as the server of its card hears of it as long as this is kept.
pub(super) struct Presence {
    asks: Sender<Ask>,
    heard: Receiver<Heard>,
    ready: Arc<EventFd>,
}

impl Presence {
    /// Goes to the server, and says from then on that the program is there.
    pub(super) fn begin(server: Address, credentials: Credentials) -> io::Result<Self> {
        let ready = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let ((asks, asked), (tell, heard)) = (channel(), channel());
        let speaker = Speaker {
            server,
            credentials,
            attendance: None,
            asked,
            tell: Announcer { tell, ready: Arc::clone(&ready) },
        };
        thread::Builder::new().name("presence".to_owned()).spawn(move || speaker.speak())?;
        Ok(Self { asks, heard, ready })
    }

    /// Can be read when [`Self::next`] has something.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Returns the oldest outcome of a message that was not returned yet, if there is one. Waits for nothing.
    pub(super) fn next(&self) -> Option<Heard> {
        // Before looking: what comes afterwards is announced anew.
        let _ = self.ready.read();
        self.heard.try_recv().ok()
    }

    /// Has it speak at short intervals from now on.
    pub(super) fn speak_often(&self) {
        // A thread that is gone is heard of no more, which is told as a server that hears nothing.
        let _ = self.asks.send(Ask::Often);
    }

    /// Says that the program has ended; waits so long at most until the server has heard it, and says whether it has.
    /// How it ended is no matter of the server's: that is told by this worker.
    pub(super) fn say_over(self, within: Duration) -> bool {
        let until = Instant::now() + within;
        if self.asks.send(Ask::Over).is_err() {
            return false;
        }
        loop {
            match self.heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Heard::Over) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}

/// Tells the other thread, which waits for a descriptor.
struct Announcer {
    tell: Sender<Heard>,
    ready: Arc<EventFd>,
}

impl Announcer {
    /// Says whether somebody still wants to know.
    fn tell(&self, heard: Heard) -> bool {
        let wanted = self.tell.send(heard).is_ok();
        // A counter that is full has not been read yet, and is as good.
        let _ = self.ready.write(1);
        wanted
    }
}

struct Speaker {
    server: Address,
    credentials: Credentials,
    attendance: Option<Attendance>,
    asked: Receiver<Ask>,
    tell: Announcer,
}

impl Speaker {
    fn speak(mut self) {
        let (mut has_come, mut often) = (false, false);
        let mut until_it_comes = Backoff { first: PAUSE, longest: LONGEST_PAUSE }.pauses();
        loop {
            let heard = came_of(self.say(Attendance::is_here), Heard::Here);
            has_come |= heard == Heard::Here;
            if !self.tell.tell(heard) {
                return;
            }
            let pause = match (often, has_come) {
                (true, _) => PAUSE,
                (false, true) => BEAT,
                (false, false) => until_it_comes.next().unwrap_or(LONGEST_PAUSE),
            };
            match self.asked.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Ok(Ask::Often) => often = true,
                Ok(Ask::Over) => {
                    let heard = came_of(self.say(|attendance| attendance.is_over(0)), Heard::Over);
                    self.tell.tell(heard);
                    return;
                }
            }
        }
    }

    /// Says a word. A connection that has broken since the last one says nothing of the server: then over another one.
    fn say(&mut self, word: impl Fn(&mut Attendance) -> Result<(), Error>) -> Result<(), Error> {
        if let Some(mut known) = self.attendance.take()
            && word(&mut known).is_ok()
        {
            self.attendance = Some(known);
            return Ok(());
        }
        let mut other = Attendance::begin(&self.server, &self.credentials)?;
        word(&mut other)?;
        self.attendance = Some(other);
        Ok(())
    }
}

fn came_of(said: Result<(), Error>, word: Heard) -> Heard {
    let Err(error) = said else { return word };
    let why = error.to_string();
    match error {
        Error::Unfit { .. } | Error::Protocol { .. } => Heard::Never(why),
        Error::Unreachable { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => Heard::Gone(why),
        _ => Heard::Nothing(why),
    }
}

#[cfg(test)]
#[path = "presence_tests.rs"]
mod tests;
