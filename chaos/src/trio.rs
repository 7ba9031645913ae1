//! Three members of which one leads, as far as killing them needs it.

use std::future::Future;

use anyhow::Result;
use tokio::time::Instant;

/// How many members there are.
pub const MEMBERS: usize = 3;

/// One of the members: 0, 1 or 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat(pub usize);

impl Seat {
    /// All of them.
    pub const ALL: [Self; MEMBERS] = [Self(0), Self(1), Self(2)];

    /// Another one.
    #[must_use]
    pub fn next(self) -> Self {
        Self((self.0 + 1) % MEMBERS)
    }
}

/// Three members.
pub trait Trio {
    /// Waits until all three answer, agree who leads, and hold nearly all of the log; says who leads.
    fn healthy(&mut self) -> impl Future<Output = Result<Seat>>;

    /// Kills a member with SIGKILL; answers the moment just before the signal was sent, once the process is gone.
    fn kill(&mut self, seat: Seat) -> impl Future<Output = Result<Instant>>;

    /// Starts a member again, with what it has on disk.
    ///
    /// # Errors
    /// It cannot be started.
    fn restart(&mut self, seat: Seat) -> Result<()>;

    /// The pid of a member.
    ///
    /// # Errors
    /// It does not run.
    fn pid(&self, seat: Seat) -> Result<u32>;
}
