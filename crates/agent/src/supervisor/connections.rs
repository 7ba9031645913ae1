//! The supervisor's sockets: the one it was born with and those of agents that came later. Nothing here ever waits.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use nix::poll::PollFlags;
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::geteuid;
use tessera_diagnostics::remark;

use super::containment::Containment;
use super::message::{Inbox, Notice, Request, encode};

/// Agents at once; more than one only while a new agent replaces an old one.
const MAX_CONNECTIONS: usize = 8;
/// Most reads of 4 KiB from one agent in one turn: no flood of messages may put off a deadline.
const READS_IN_A_TURN: usize = 16;
/// Bytes that may wait for a peer that does not read. It is cut off then, and can connect again.
const MAX_UNSENT: usize = 1 << 20;

/// One agent.
#[derive(Debug)]
struct Connection {
    /// `None`: it is over, and closed, so that the agent knows and can come again.
    stream: Option<UnixStream>,
    inbox: Inbox,
    unsent: Vec<u8>,
}

#[derive(Debug)]
pub struct Connections {
    listener: UnixListener,
    connections: Vec<Connection>,
    containment: Containment,
}

/// The result of a round of reading.
#[derive(Debug, Default)]
pub struct Received {
    /// Requests, each with the number of the connection to answer on.
    pub requests: Vec<(usize, Request)>,
    /// The first connection, of the agent that started this supervisor, is over.
    pub starter_gone: bool,
}

impl Connections {
    /// Listens at `path` and takes over the socket to the agent that started this process. Whoever is in `containment`
    /// is the worker and is not listened to.
    ///
    /// # Errors
    /// When a socket cannot be had.
    pub fn open(path: &Path, starter: OwnedFd, containment: Containment) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let mut connections = Self { listener, connections: Vec::new(), containment };
        connections.add(UnixStream::from(starter))?;
        Ok(connections)
    }

    /// The descriptors and events to poll for, the listener first.
    #[must_use]
    pub fn interests(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut list = vec![(self.listener.as_fd(), PollFlags::POLLIN)];
        list.extend(self.connections.iter().filter_map(|connection| {
            let output = if connection.unsent.is_empty() { PollFlags::empty() } else { PollFlags::POLLOUT };
            Some((connection.stream.as_ref()?.as_fd(), PollFlags::POLLIN | output))
        }));
        list
    }

    /// Takes new agents, reads of what came as much as one turn takes, and writes what could not be written before.
    pub fn turn(&mut self) -> Received {
        self.accept();
        let mut received = Received::default();
        for (number, connection) in self.connections.iter_mut().enumerate() {
            connection.flush();
            received.requests.extend(connection.read().into_iter().map(|request| (number, request)));
        }
        received.starter_gone = self.connections.first().is_none_or(|starter| starter.stream.is_none());
        received
    }

    pub fn answer(&mut self, number: usize, notice: &Notice) {
        if let Some(connection) = self.connections.get_mut(number) {
            connection.send(notice);
        }
    }

    pub fn tell_all(&mut self, notice: &Notice) {
        for connection in &mut self.connections {
            connection.send(notice);
        }
    }

    /// Returns whether no agent is connected: there is none.
    pub fn are_over(&mut self) -> bool {
        self.turn();
        self.connections.iter().all(|connection| connection.stream.is_none())
    }

    fn accept(&mut self) {
        for _ in 0..MAX_CONNECTIONS {
            let Ok((stream, _)) = self.listener.accept() else { return };
            // A worker that runs as the agent's user could open the socket, and renew its own lease.
            let is_agent = getsockopt(&stream, PeerCredentials).is_ok_and(|peer| {
                (peer.uid() == 0 || peer.uid() == geteuid().as_raw()) && self.containment.is_outside(peer.pid())
            });
            if !is_agent {
                remark!("a connection that is not of this node's agent was refused");
            } else if let Err(error) = self.add(stream) {
                remark!("a connection cannot be used: {error}");
            }
        }
    }

    fn add(&mut self, stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let connection = Connection { stream: Some(stream), inbox: Inbox::default(), unsent: Vec::new() };
        // Slot 0 stays the starter's for ever; of the others a closed one is used again.
        let free = self.connections.iter().skip(1).position(|connection| connection.stream.is_none());
        match free {
            Some(slot) => self.connections[slot + 1] = connection,
            None if self.connections.len() < MAX_CONNECTIONS => self.connections.push(connection),
            None => return Err(io::Error::other("too many agents are connected")),
        }
        Ok(())
    }
}

impl Connection {
    fn read(&mut self) -> Vec<Request> {
        let mut buffer = [0; 4096];
        for _ in 0..READS_IN_A_TURN {
            let Some(stream) = &mut self.stream else { break };
            match stream.read(&mut buffer) {
                Ok(length) if length > 0 => self.inbox.push(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => self.stream = None,
            }
        }
        let mut requests = Vec::new();
        loop {
            match self.inbox.take() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => return requests,
                Err(error) => {
                    remark!("an agent was cut off: {error}");
                    self.stream = None;
                    return requests;
                }
            }
        }
    }

    fn send(&mut self, notice: &Notice) {
        match encode(notice) {
            Ok(_) if self.stream.is_none() => {}
            Ok(frame) if self.unsent.len() + frame.len() <= MAX_UNSENT => {
                self.unsent.extend_from_slice(&frame);
                self.flush();
            }
            Ok(_) => self.stream = None,
            Err(error) => remark!("a notice cannot be sent: {error}"),
        }
    }

    fn flush(&mut self) {
        while let Some(stream) = self.stream.as_mut().filter(|_| !self.unsent.is_empty()) {
            match stream.write(&self.unsent) {
                Ok(length) if length > 0 => drop(self.unsent.drain(..length)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Ok(_) | Err(_) => self.stream = None,
            }
        }
    }
}
