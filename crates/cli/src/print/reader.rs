//! The reader of the output of a command that stays.

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::exit::Exit;

/// Ends this process, as SIGPIPE would, once nobody reads its output any more, also while it has nothing to say: in
/// `tessera job events --follow | grep -m 1 completed` it would stay until the next event otherwise. A terminal that
/// goes away says so by SIGHUP.
pub fn end_without_reader() {
    if io::stdout().is_terminal() {
        return;
    }
    // A thread of its own: it waits for as long as the command stays.
    std::thread::spawn(|| {
        if left() {
            Exit::ReaderGone.end_on_the_spot();
        }
    });
}

/// Waits until the other end of the output is closed; false at once or never where it has none.
fn left() -> bool {
    let output = io::stdout();
    let mut polled = [PollFd::new(output.as_fd(), PollFlags::empty())];
    loop {
        match poll(&mut polled, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(_) => return false,
            Ok(_) => {
                return polled[0].revents().is_some_and(|of| of.intersects(PollFlags::POLLERR | PollFlags::POLLHUP));
            }
        }
    }
}
