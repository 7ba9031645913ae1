//! One connection between a program and a slice server: frames in order, and bulk data beside them.

mod socket;

use std::{
    io::{self, BufReader, IoSlice, Read, Write},
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        socket::{MsgFlags, recv},
    },
};

use crate::{
    Address, Coming, Error, LARGEST_FRAME,
    handshake::{self, Credentials, Role, Slice, Versions},
    ring::{Direction, Rings},
    silence,
};
use socket::{is_open, take_descriptor};

pub use socket::end;
pub(crate) use socket::{REACH, Socket, Until, give_descriptor, reach};

/// Bulk data smaller than this goes on the socket: waking up costs more than copying it there.
const LEAST_SHARED: usize = 128 << 10;
/// For how long the other side is looked at before this one sleeps. To sleep and to be woken takes some 15 us. It takes
/// 40 on a machine that sleeps itself, with nothing else to do. Most answers and next questions come sooner.
const EAGER: Duration = Duration::from_micros(30);

/// The result of waiting for a frame.
#[derive(Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// The next frame.
    Frame(&'a [u8]),
    /// The other side has ended the connection between two frames.
    Ended,
    /// Somebody on this side wants to be heard first ([`Interrupter`]).
    Interrupted,
}

/// Ends a wait for the next frame, from whatever thread.
#[derive(Clone, Debug)]
pub struct Interrupter(Arc<EventFd>);

impl Interrupter {
    /// The wait under way, or else the next one, ends with [`Received::Interrupted`] before another frame is taken.
    pub fn interrupt(&self) {
        // A counter that is full has been heard by nobody yet, and will be.
        let _ = self.0.write(1);
    }

    fn heard(&self) {
        // What is not there cannot be read, and need not.
        let _ = self.0.read();
    }
}

/// A connection that both sides have agreed on.
pub struct Connection {
    stream: BufReader<Socket>,
    interrupter: Option<Interrupter>,
    rings: Option<Rings>,
    outward: Direction,
    inward: Direction,
    peer: String,
    slice: Slice,
    frame: Vec<u8>,
    sent_bytes: u64,
    received_bytes: u64,
}

impl Connection {
    /// Goes to a slice server: as its program, or, when none comes, as another server of the same card.
    pub fn connect(
        address: &Address,
        torch: &str,
        credentials: &Credentials,
        program: Option<&Coming>,
    ) -> Result<Self, Error> {
        let role = if program.is_some() { Role::Program } else { Role::Follower };
        let name = address.to_string();
        let unreachable = |source| Error::Unreachable { address: name.clone(), source };
        let mut socket = reach(address).map_err(unreachable)?;
        socket.tune().and_then(|()| socket.limit(Some(REACH))).map_err(unreachable)?;
        let versions = Versions::of_this_build(torch);
        let welcome = handshake::of_program(&mut socket, &name, role, &versions, credentials, program)?;
        let rings = match &socket {
            Socket::Unix(stream) if welcome.bulk => Some(Rings::map(&take_descriptor(stream).map_err(Error::Memory)?)?),
            _ => None,
        };
        socket.limit(None).map_err(unreachable)?;
        Ok(Self::new(socket, rings, Direction::ToServer, format!("the slice server at {name}"), welcome.slice))
    }

    pub(crate) fn new(socket: Socket, rings: Option<Rings>, outward: Direction, peer: String, slice: Slice) -> Self {
        let inward = match outward {
            Direction::ToServer => Direction::ToProgram,
            Direction::ToProgram => Direction::ToServer,
        };
        let stream = BufReader::with_capacity(256 << 10, socket);
        Self {
            stream,
            interrupter: None,
            rings,
            outward,
            inward,
            peer,
            slice,
            frame: Vec::new(),
            sent_bytes: 0,
            received_bytes: 0,
        }
    }

    /// Returns the interrupter of this connection's waits for frames. Each wait costs one more system call from now on.
    ///
    /// # Errors
    /// When the system has no descriptor left.
    pub fn interrupter(&mut self) -> Result<Interrupter, Error> {
        if let Some(made) = &self.interrupter {
            return Ok(made.clone());
        }
        let counter = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let counter = counter.map_err(|errno| self.lost(&errno.into()))?;
        Ok(self.interrupter.insert(Interrupter(Arc::new(counter))).clone())
    }

    /// The slice behind it.
    pub fn slice(&self) -> &Slice {
        &self.slice
    }

    /// Bytes sent and received on it, bulk data included.
    pub fn bytes(&self) -> (u64, u64) {
        (self.sent_bytes, self.received_bytes)
    }

    /// This side's and the other side's address, where the connection goes over the network.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        match self.stream.get_ref() {
            Socket::Tcp(stream) => stream.local_addr().ok().zip(stream.peer_addr().ok()),
            Socket::Unix(_) => None,
        }
    }

    /// Returns whether the other side's end is still open, as far as is known.
    pub fn is_open(&self) -> bool {
        if let Socket::Tcp(stream) = self.stream.get_ref()
            && silence::is_silent(stream)
        {
            return false;
        }
        let peeked = recv(self.descriptor().as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
        matches!(peeked, Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR))
    }

    /// The descriptor of the socket, to be watched.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }

    /// Bytes that the other side has sent and nobody has received yet, but for what lies in shared memory.
    #[allow(unsafe_code)]
    pub fn waiting_bytes(&self) -> usize {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes one number, to a variable of this function.
        let asked = unsafe { libc::ioctl(self.descriptor().as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        self.stream.buffer().len() + if asked == 0 { usize::try_from(bytes).unwrap_or(0) } else { 0 }
    }

    /// Sends one frame. Waits while the other side is far behind.
    pub fn send(&mut self, body: &[u8]) -> Result<(), Error> {
        if body.len() > LARGEST_FRAME {
            return Err(self.broken(&format!("a frame of {} bytes is more than {LARGEST_FRAME}", body.len())));
        }
        let length = (body.len() as u32).to_le_bytes();
        let mut parts = [IoSlice::new(&length), IoSlice::new(body)];
        let mut rest = &mut parts[..];
        self.sent_bytes += 4 + body.len() as u64;
        while !rest.is_empty() {
            match self.stream.get_mut().write_vectored(rest) {
                Ok(0) => return Err(self.lost(&io::ErrorKind::WriteZero.into())),
                Ok(written) => IoSlice::advance_slices(&mut rest, written),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(())
    }

    /// Waits for the next frame.
    pub fn receive(&mut self) -> Result<Received<'_>, Error> {
        self.look_eagerly();
        if self.is_interrupted().map_err(|errno| self.lost(&errno.into()))? {
            return Ok(Received::Interrupted);
        }
        let mut length = [0; 4];
        let first = loop {
            match self.stream.read(&mut length) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match first {
            Ok(0) => return Ok(Received::Ended),
            Ok(read) => self.stream.read_exact(&mut length[read..]).map_err(|error| self.lost(&error))?,
            Err(error) => return Err(self.lost(&error)),
        }
        let length = u32::from_le_bytes(length) as usize;
        if length > LARGEST_FRAME {
            return Err(self.broken(&format!("it announced a frame of {length} bytes; the most is {LARGEST_FRAME}")));
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.resize(length, 0);
        self.stream.read_exact(&mut frame).map_err(|error| self.lost(&error))?;
        self.frame = frame;
        self.received_bytes += 4 + length as u64;
        Ok(Received::Frame(&self.frame))
    }

    /// Waits a moment for something to read without sleeping, as long as nobody else wants this processor.
    fn look_eagerly(&self) {
        let began = Instant::now();
        let mut watched = [PollFd::new(self.descriptor(), PollFlags::POLLIN)];
        while self.stream.buffer().is_empty()
            && poll(&mut watched, PollTimeout::ZERO) == Ok(0)
            && began.elapsed() < EAGER
        {
            std::thread::yield_now();
        }
    }

    /// Waits until there is something to read, or somebody wants to be heard before that.
    fn is_interrupted(&self) -> Result<bool, Errno> {
        let Some(interrupter) = &self.interrupter else { return Ok(false) };
        let socket = self.stream.get_ref();
        let mut watched =
            [PollFd::new(interrupter.0.as_fd(), PollFlags::POLLIN), PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        let buffered = !self.stream.buffer().is_empty();
        let patience = if buffered { PollTimeout::ZERO } else { PollTimeout::NONE };
        loop {
            match poll(&mut watched, patience) {
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
                Ok(_) => break,
            }
        }
        let interrupted = watched[0].any().unwrap_or(false);
        if interrupted {
            interrupter.heard();
        }
        Ok(interrupted)
    }

    /// Sends bulk data; the frame that announces it went before.
    pub fn bulk_send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.sent_bytes += bytes.len() as u64;
        let sent = match &self.rings {
            Some(rings) if bytes.len() >= LEAST_SHARED => {
                let socket = self.stream.get_ref();
                rings.write(self.outward, bytes, || is_open(socket))
            }
            _ => self.stream.get_mut().write_all(bytes),
        };
        sent.map_err(|error| self.lost(&error))
    }

    /// Receives bulk data that the frame before announced.
    ///
    /// # Safety
    /// `to` must be good for writing `length` bytes.
    #[allow(unsafe_code)]
    pub unsafe fn bulk_receive(&mut self, to: *mut u8, length: usize) -> Result<(), Error> {
        self.received_bytes += length as u64;
        let received = match &self.rings {
            Some(rings) if length >= LEAST_SHARED => {
                let socket = self.stream.get_ref();
                // SAFETY: as the caller says.
                unsafe { rings.read(self.inward, to, length, || is_open(socket)) }
            }
            _ if length == 0 => Ok(()),
            // SAFETY: as the caller says; the bytes are only written to.
            _ => self.stream.read_exact(unsafe { std::slice::from_raw_parts_mut(to, length) }),
        };
        received.map_err(|error| self.lost(&error))
    }

    fn lost(&self, cause: &io::Error) -> Error {
        let cause = match cause.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                "it ended".into()
            }
            _ => cause.to_string(),
        };
        Error::Lost { peer: self.peer.clone(), cause }
    }

    fn broken(&self, what: &str) -> Error {
        Error::Protocol { peer: self.peer.clone(), what: what.into() }
    }
}
