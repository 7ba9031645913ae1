//! A restore as CRIU announces it, step by step: what has to be done before files are opened, and after.
//!
//! CRIU waits for an answer to each step. It is given on a thread of its own, which ends with CRIU, because the
//! supervisor's must not wait.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;

use nix::sys::socket::{MsgFlags, recv, send};
use tessera_diagnostics::remark;

use super::links::WithoutLinks;
use super::tree::{child_that_is, whole_tree};
use super::{error_line, open_files, rpc};
use crate::worker::Account;

/// Nothing is open yet.
const BEFORE: &str = "pre-restore";
/// All files are open, and no process goes on before this is answered.
const AFTER: &str = "post-restore";

/// A restore that is under way.
pub(super) struct Restoring {
    /// CRIU, as the host sees it.
    pub criu: i32,
    /// The first process of the image, as it sees itself.
    pub root: i32,
    /// The process whose child the first process becomes.
    pub supervisor: i32,
    pub account: Option<Account>,
    /// The file into which CRIU writes its errors.
    pub says: File,
}

impl Restoring {
    /// Gives CRIU its order over a socket, and answers until it is over.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn start(self, socket: OwnedFd, order: Vec<u8>) -> io::Result<()> {
        let answers = move || {
            if let Err(error) = self.answer(&socket, &order) {
                // CRIU ends when nobody answers.
                remark!("CRIU is not spoken to any more: {error}");
            }
        };
        thread::Builder::new().name("restoring".to_owned()).spawn(answers).map(drop)
    }

    fn answer(mut self, socket: &OwnedFd, order: &[u8]) -> io::Result<()> {
        let say = |message: &[u8]| send(socket.as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL);
        let mut heard = vec![0; rpc::LONGEST];
        let mut without_links = None;
        say(order)?;
        loop {
            let length = recv(socket.as_raw_fd(), &mut heard, MsgFlags::empty())?;
            let message = &heard[..length];
            // It has no more to say when it ends.
            let Some(step) = (length > 0).then(|| rpc::announced(message)).transpose()?.flatten() else {
                return Ok(());
            };
            let allowed = match step.as_str() {
                // Who runs as this process does could follow them anyway.
                BEFORE if self.account.is_some() => WithoutLinks::of(self.criu).map(|made| without_links = Some(made)),
                AFTER => self.look_at_files().and_then(|()| without_links.take().map_or(Ok(()), WithoutLinks::end)),
                _ => Ok(()),
            };
            if let Err(why) = &allowed {
                self.says.write_all(error_line(&why.to_string()).as_bytes())?;
            }
            say(&rpc::answer(allowed.is_ok()))?;
        }
    }

    fn look_at_files(&self) -> io::Result<()> {
        let Some(account) = &self.account else { return Ok(()) };
        let first = child_that_is(self.root, self.supervisor);
        let first = first.ok_or_else(|| io::Error::other("what CRIU has restored cannot be found"))?;
        open_files::check(&whole_tree(first), account)
    }
}
