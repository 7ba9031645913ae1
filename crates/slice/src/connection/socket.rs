//! The socket below a connection: how it is reached, waited on and ended, and how a descriptor goes over it.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg},
};

use crate::{Address, silence};

pub(crate) const REACH: Duration = Duration::from_secs(10);

/// The socket below.
#[derive(Debug)]
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub(crate) fn tune(&self) -> io::Result<()> {
        if let Self::Tcp(stream) = self {
            stream.set_nodelay(true)?;
            silence::keep_alive(stream)?;
        }
        Ok(())
    }

    /// Limits each wait; without a limit they take as long as the other host is there.
    pub(crate) fn limit(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time)),
            Self::Tcp(stream) => {
                let time = time.or(Some(silence::LOOK));
                stream.set_read_timeout(time).and_then(|()| stream.set_write_timeout(time))
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => silence::wait(stream, || (&*stream).read(buffer)),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(buffer),
            Self::Tcp(stream) => silence::wait(stream, || (&*stream).write(buffer)),
        }
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write_vectored(buffers),
            Self::Tcp(stream) => silence::wait(stream, || (&*stream).write_vectored(buffers)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket that is read until a moment, however slowly its peer speaks.
pub(crate) struct Until<'a> {
    pub socket: &'a mut Socket,
    pub moment: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it took too long"));
        }
        self.socket.limit(Some(left))?;
        self.socket.read(buffer)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.socket.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

pub(crate) fn reach(address: &Address) -> io::Result<Socket> {
    match address {
        Address::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
        Address::Tcp(host) => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            for candidate in host.to_socket_addrs()? {
                match TcpStream::connect_timeout(&candidate, REACH) {
                    Ok(stream) => return Ok(Socket::Tcp(stream)),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

/// Returns whether the other side's end is still open.
pub(super) fn is_open(socket: &Socket) -> bool {
    let mut watched = [PollFd::new(socket.as_fd(), PollFlags::POLLHUP)];
    poll(&mut watched, PollTimeout::ZERO).is_ok_and(|_| {
        !watched[0].revents().is_some_and(|seen| seen.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
    })
}

/// Ends the connection of this socket in both directions, from whatever thread; whoever waits on it is woken.
pub fn end(socket: &OwnedFd) {
    let _ = nix::sys::socket::shutdown(socket.as_raw_fd(), nix::sys::socket::Shutdown::Both);
}

/// Hands a descriptor to the other side of a Unix socket, with one byte to carry it.
pub(crate) fn give_descriptor(stream: &UnixStream, descriptor: &OwnedFd) -> io::Result<()> {
    let raw = [descriptor.as_raw_fd()];
    sendmsg::<()>(
        stream.as_raw_fd(),
        &[IoSlice::new(&[0])],
        &[ControlMessage::ScmRights(&raw)],
        MsgFlags::empty(),
        None,
    )?;
    Ok(())
}

#[allow(unsafe_code)]
pub(super) fn take_descriptor(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!([i32; 1]);
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)?;
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control
            && let [descriptor] = descriptors[..]
        {
            // SAFETY: the kernel has just made it for us, and nobody else knows it.
            return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }
    Err(io::Error::other("the server announced shared memory and gave none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_speaks_slowly_is_heard_until_a_moment_and_no_longer() {
        let (near, mut far) = UnixStream::pair().expect("a pair");
        far.write_all(b"ab").expect("there is room");
        let mut socket = Socket::Unix(near);
        let mut heard = |moment| Until { socket: &mut socket, moment }.read(&mut [0]).map_err(|error| error.kind());
        assert_eq!(heard(Instant::now() + REACH), Ok(1));
        assert_eq!(heard(Instant::now()), Err(io::ErrorKind::TimedOut), "though there is more");
    }
}
