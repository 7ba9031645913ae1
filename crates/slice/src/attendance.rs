//! The attendance of a program's host: signs by which a slice server knows that the host is still there.
//!
//! A program outside of the pool has no agent that would see its host die. So whoever started it says, over a
//! connection of its own, that it is there, some times in each lease; after a lease without a word the slice is given
//! back. A program that is silent because it loads data, or waits for a user, loses nothing by that.

use std::{
    io::{self, Read, Write},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    Address, Error,
    connection::{REACH, Socket, reach},
    handshake::{self, Credentials, Role, Versions},
};

/// The host is there.
const HERE: u8 = b'.';
/// The program has ended, and the slice is not needed any more. The code with which it ended follows.
const OVER: u8 = b'o';
/// Most hosts that are heard at a time: the one that counts, and those that the network has not given up yet.
const MOST_HOSTS: u32 = 8;
/// The longest silence of a host before its connection is given up. The host connects again.
const SILENCE: Duration = Duration::from_secs(60);

/// The state of the host of the program, as the server knows it.
#[derive(Debug)]
pub struct Attended {
    heard: Mutex<Instant>,
    came: AtomicBool,
    over: OnceLock<u8>,
    hosts: AtomicU32,
}

impl Default for Attended {
    /// The time until a first word counts from now.
    fn default() -> Self {
        Self {
            heard: Mutex::new(Instant::now()),
            came: AtomicBool::new(false),
            over: OnceLock::new(),
            hosts: AtomicU32::new(0),
        }
    }
}

impl Attended {
    /// The time since the host was last heard of.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Returns whether a host has come at all.
    #[must_use]
    pub fn has_come(&self) -> bool {
        self.came.load(Ordering::Acquire)
    }

    /// The code with which the program ended, once its host has said so. The first word stands.
    #[must_use]
    pub fn over(&self) -> Option<u8> {
        self.over.get().copied()
    }

    fn hear(&self) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Hears a host that was let in, until its connection ends.
    pub(crate) fn listen(self: &Arc<Self>, mut socket: Socket) {
        if self.hosts.fetch_add(1, Ordering::AcqRel) < MOST_HOSTS && socket.limit(Some(SILENCE)).is_ok() {
            self.hear();
            self.came.store(true, Ordering::Release);
            while self.hear_word(&mut socket).is_ok() {}
        }
        self.hosts.fetch_sub(1, Ordering::AcqRel);
    }

    fn hear_word(&self, socket: &mut Socket) -> io::Result<()> {
        let (mut word, mut code) = ([0], [0]);
        socket.read_exact(&mut word)?;
        self.hear();
        if word == [OVER] {
            socket.read_exact(&mut code)?;
            let _ = self.over.set(code[0]);
        }
        socket.write_all(&word)
    }
}

/// The host's side: a connection on which it says that it is there.
pub struct Attendance {
    socket: Socket,
    name: String,
}

impl Attendance {
    /// Goes to the slice server of a program of this host.
    ///
    /// # Errors
    /// When the server cannot be reached, or does not know the token of the epoch.
    pub fn begin(address: &Address, credentials: &Credentials) -> Result<Self, Error> {
        let name = address.to_string();
        let unreachable = |source| Error::Unreachable { address: name.clone(), source };
        let mut socket = reach(address).map_err(unreachable)?;
        socket.tune().and_then(|()| socket.limit(Some(REACH))).map_err(unreachable)?;
        handshake::of_program(&mut socket, &name, Role::Host, &Versions::of_this_build(""), credentials, None)?;
        Ok(Self { socket, name })
    }

    /// Says that the host is there; the server has heard it when this comes back.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn is_here(&mut self) -> Result<(), Error> {
        self.say(&[HERE])
    }

    /// Says that the program has ended with this code: the server ends, and its job has that code.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn is_over(&mut self, code: u8) -> Result<(), Error> {
        self.say(&[OVER, code])
    }

    fn say(&mut self, word: &[u8]) -> Result<(), Error> {
        let mut heard = [0];
        let said = self.socket.write_all(word).and_then(|()| self.socket.read_exact(&mut heard));
        said.map_err(|error| Error::Lost {
            peer: format!("the slice server at {}", self.name),
            cause: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, handshake::Slice};

    fn listener(credentials: &Credentials) -> Listener {
        let slice = Slice { device: "cpu".into(), memory_bytes: 1, share: 1.0, sequence: 0 };
        let any: Address = "tcp:127.0.0.1:0".parse().expect("an address");
        Listener::bind(&any, "2.0", credentials.clone(), slice, crate::Admits::Program, None).expect("a free port")
    }

    #[test]
    fn so_many_hosts_are_heard_at_a_time() {
        let credentials = Credentials { token: "0123456789abcdef".into(), epoch: 7 };
        let listener = listener(&credentials);
        let begin = || Attendance::begin(listener.address(), &credentials).expect("the right token");
        let mut hosts: Vec<Attendance> = (0..MOST_HOSTS).map(|_| begin()).collect();
        for host in &mut hosts {
            host.is_here().expect("an answer");
        }
        assert!(begin().is_here().is_err(), "as many are heard as may be");
        drop(hosts.pop());
        // It is noticed in a moment.
        while begin().is_here().is_err() {}
    }

    #[test]
    fn a_host_needs_the_token_and_no_pytorch_and_says_that_it_is_there_and_that_it_is_over() {
        let credentials = Credentials { token: "0123456789abcdef".into(), epoch: 7 };
        let listener = listener(&credentials);
        let attended = listener.attended();
        assert!(!attended.has_come());
        let earlier = Credentials { epoch: 6, ..credentials.clone() };
        assert!(matches!(Attendance::begin(listener.address(), &earlier), Err(Error::Refused { .. })));
        let mut host = Attendance::begin(listener.address(), &credentials).expect("the right token");
        let before = Instant::now();
        host.is_here().expect("an answer");
        assert!(attended.silent_for() <= before.elapsed());
        assert_eq!((attended.has_come(), attended.over()), (true, None));
        host.is_over(3).expect("an answer");
        host.is_over(4).expect("an answer");
        assert_eq!(attended.over(), Some(3), "the first word stands");
        assert!(listener.accept(Duration::ZERO).is_none(), "a host is no program");
    }
}
