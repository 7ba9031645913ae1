//! Limits on the silence of the other side of a network connection.
//!
//! A side that computes for minutes takes nothing off its connection meanwhile, and is well: its host still
//! acknowledges. One whose host is gone acknowledges nothing. Where nothing is under way keep-alives tell the two
//! apart. Where something is, the kernel would try for a quarter of an hour, and its own limit for that
//! (`TCP_USER_TIMEOUT`) counts the time in which a healthy receiver has no room, too. So whoever waits looks from time
//! to time at what the kernel has heard.

use std::{io, net::TcpStream, os::fd::AsRawFd, time::Duration};

use nix::libc;

/// The longest wait in the kernel before the other side is looked at.
pub(crate) const LOOK: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(7) };
/// The longest time in which the other host may acknowledge nothing.
const SILENCE: Duration = Duration::from_secs(30);
/// Questions whether there is room again that must have gone without an answer: the kernel asks ever more seldom.
const UNANSWERED: u8 = 3;

/// Has the kernel find out by itself that the other host is gone while nothing is under way.
pub(crate) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let alive = socket2::TcpKeepalive::new()
        .with_time(Duration::from_secs(10))
        .with_interval(Duration::from_secs(5))
        .with_retries(4);
    socket2::SockRef::from(stream).set_tcp_keepalive(&alive)
}

/// Does this until it comes to something. A stream whose limit is [`LOOK`] waits as long as the other host is there.
pub(crate) fn wait<T>(stream: &TcpStream, mut once: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match once() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && stream.read_timeout()? == Some(LOOK) => {
                if is_gone(&seen(stream)?) {
                    let why = format!("its host has acknowledged nothing for {} s", SILENCE.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
            }
            done => return done,
        }
    }
}

/// Returns whether the other host has acknowledged nothing for so long that it is gone.
pub(crate) fn is_silent(stream: &TcpStream) -> bool {
    seen(stream).is_ok_and(|seen| is_gone(&seen))
}

fn is_gone(seen: &libc::tcp_info) -> bool {
    let unanswered = seen.tcpi_retransmits > 0 || seen.tcpi_probes >= UNANSWERED;
    unanswered && u128::from(seen.tcpi_last_ack_recv) >= SILENCE.as_millis()
}

#[allow(unsafe_code)]
fn seen(stream: &TcpStream) -> io::Result<libc::tcp_info> {
    // SAFETY: it is numbers only, for which zero is a value.
    let mut seen: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    let to = std::ptr::from_mut(&mut seen).cast();
    // SAFETY: the kernel writes at most `length` bytes there.
    let failed = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, to, &mut length) };
    if failed == 0 { Ok(seen) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    #[test]
    fn a_receiver_that_takes_nothing_for_long_is_not_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let mut from = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let (mut to, _) = listener.accept().expect("a connection");
        from.set_read_timeout(Some(LOOK)).and_then(|()| from.set_write_timeout(Some(LOOK))).expect("a limit");
        let data = vec![7; 16 << 20];
        // Until it has no room, has been looked at, and is asked whether it has room again.
        let mut sent = 0;
        while seen(&from).expect("what was seen").tcpi_probes == 0 && seen(&from).expect("it").tcpi_backoff == 0 {
            sent += from.write(&data[sent..]).unwrap_or(0);
        }
        let length = data.len();
        let taken = thread::spawn(move || {
            let mut taken = vec![0; length];
            to.read_exact(&mut taken).map(|()| taken)
        });
        while sent < length {
            sent += wait(&from, || (&from).write(&data[sent..])).expect("room, in the end");
        }
        assert!(taken.join().expect("a thread").expect("all of it") == data);
    }

    #[test]
    fn a_host_is_gone_when_it_answers_nothing_for_long() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
        let mut info = seen(&stream).expect("what was seen");
        assert!(!is_gone(&info));
        info.tcpi_last_ack_recv = 31_000;
        assert!(!is_gone(&info), "nothing was asked of it");
        info.tcpi_probes = 1;
        assert!(!is_gone(&info), "it is asked seldom");
        info.tcpi_retransmits = 7;
        assert!(is_gone(&info));
    }
}
