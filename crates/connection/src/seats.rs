//! The seats of a process for connections: each has one from when it is accepted until it is closed.
//!
//! A connection is nobody's until its first call says whose it is. At a member, agents and other members keep theirs
//! whatever clients do; clients may have so many and no more.
//!
//! A connection over which no call comes is closed after a while, and after a second when too many of them wait: the
//! oldest goes, so that who has something to say always finds a place, and a flood of silent connections takes nothing
//! but places of silent connections. Nobody is accepted before there is a place: what does not come at once waits with
//! the kernel, and every connection has that second to say something.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

/// The time that a connection always has to say something, however many wait.
const HEARING: Duration = Duration::from_secs(1);

/// Bounds on the connections that come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeatLimits {
    /// Connections of clients. A quarter as many again may be open that have made no call yet.
    pub connections: usize,
    /// The time for which a connection may be open without any call.
    pub silence: Duration,
}

/// The kind of whoever is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guest {
    /// No call has come yet.
    Nobody,
    Client,
    /// An agent or another member.
    Own,
}

/// All seats of a process. Clones are the same seats.
#[derive(Clone, Debug)]
pub struct Seats {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clients: usize,
    silent: usize,
    silence: Duration,
    used: Gauge,
    book: Mutex<Book>,
    /// A connection has spoken, or has left without a word.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    clients: usize,
    /// Connections without a call, oldest first: since when, and what closes each.
    silent: BTreeMap<u64, (Instant, CancellationToken)>,
}

impl Seats {
    /// Seats within limits; `used` is set to how many clients have.
    #[must_use]
    pub fn new(limits: SeatLimits, used: Gauge) -> Self {
        let shared = Shared {
            clients: limits.connections,
            silent: limits.connections.div_ceil(4).max(16),
            silence: limits.silence,
            used,
            book: Mutex::default(),
            freed: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Takes a seat for a connection, as soon as there is one.
    pub async fn take(&self) -> Seat {
        loop {
            let freed = self.shared.freed.notified();
            match self.try_take(Instant::now()) {
                Ok(seat) => return seat,
                Err(until) => drop(timeout_at(until, freed).await),
            }
        }
    }

    /// A seat at this moment, or when to ask again.
    fn try_take(&self, now: Instant) -> Result<Seat, Instant> {
        let mut book = self.shared.book();
        if book.silent.len() >= self.shared.silent
            && let Some(oldest) = book.silent.first_entry()
        {
            let until = oldest.get().0 + HEARING;
            if until > now {
                return Err(until);
            }
            oldest.remove().1.cancel();
        }
        let (id, closing) = (book.next, CancellationToken::new());
        book.next += 1;
        book.silent.insert(id, (now, closing.clone()));
        drop(book);
        let seat = Taken {
            id,
            closing,
            guest: Mutex::new(Guest::Nobody),
            calls: AtomicUsize::new(0),
            shared: Arc::clone(&self.shared),
        };
        Ok(Seat(Arc::new(seat)))
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        // Every change of the book leaves it whole.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The seat of one connection; its calls carry clones of it.
#[derive(Clone, Debug)]
pub struct Seat(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    id: u64,
    closing: CancellationToken,
    guest: Mutex<Guest>,
    /// Calls under way.
    calls: AtomicUsize,
    shared: Arc<Shared>,
}

/// A call under way over a connection.
#[derive(Debug)]
pub struct Calling(Seat);

impl Drop for Calling {
    fn drop(&mut self) {
        self.0.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Seat {
    /// Notes whose the connection is, which a call says. False: it is a client, and there are as many as may be.
    #[must_use]
    pub fn belongs_to(&self, guest: Guest) -> bool {
        let mut present = self.0.guest();
        // An agent that asks as clients do remains an agent.
        if *present == guest || *present == Guest::Own {
            return true;
        }
        let shared = &self.0.shared;
        let mut book = shared.book();
        match (*present, guest) {
            (Guest::Nobody, Guest::Client) if book.clients >= shared.clients => return false,
            (Guest::Nobody, Guest::Client) => book.clients += 1,
            (Guest::Client, Guest::Own) => book.clients -= 1,
            _ => {}
        }
        book.silent.remove(&self.0.id);
        shared.freed.notify_one();
        shared.used.set(i64::try_from(book.clients).unwrap_or(i64::MAX));
        *present = guest;
        true
    }

    /// Counts a call that comes over the connection and will be answered soon.
    #[must_use]
    pub fn call(&self) -> Calling {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        Calling(self.clone())
    }

    /// Tells whether such calls are under way.
    #[must_use]
    pub fn has_calls(&self) -> bool {
        self.0.calls.load(Ordering::Relaxed) > 0
    }

    /// Tells whether no call has come yet.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        *self.0.guest() == Guest::Nobody
    }

    /// The time for which it may stay so.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.0.shared.silence
    }

    /// The token that is cancelled when the connection is to be closed.
    #[must_use]
    pub fn closing(&self) -> CancellationToken {
        self.0.closing.clone()
    }
}

impl Taken {
    fn guest(&self) -> MutexGuard<'_, Guest> {
        self.guest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut book = self.shared.book();
        if book.silent.remove(&self.id).is_some() {
            self.shared.freed.notify_one();
        }
        if *self.guest() == Guest::Client {
            book.clients -= 1;
            self.shared.used.set(i64::try_from(book.clients).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(connections: usize) -> Seats {
        Seats::new(SeatLimits { connections, silence: Duration::from_secs(10) }, Gauge::default())
    }

    #[tokio::test]
    async fn clients_have_so_many_seats_and_agents_and_members_always_one() {
        let seats = seats(2);
        let [first, second, third] = [seats.take().await, seats.take().await, seats.take().await];
        assert!(first.belongs_to(Guest::Client) && second.belongs_to(Guest::Client));
        assert!(!third.belongs_to(Guest::Client), "there are two already");
        assert!(third.belongs_to(Guest::Own), "agents are not counted");
        assert!(third.belongs_to(Guest::Client), "an agent may ask what clients ask");
        assert!(first.belongs_to(Guest::Client), "its seat is its own");
        drop(second);
        assert!(seats.take().await.belongs_to(Guest::Client), "a seat that is left is free");
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_silent_connection_goes_after_its_hearing_when_there_are_too_many() {
        let (seats, began) = (seats(64), Instant::now());
        let spoken = seats.take().await;
        assert!(spoken.belongs_to(Guest::Client));
        let mut silent = Vec::new();
        for _ in 0..16 {
            silent.push(seats.take().await);
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "16 may wait");
        silent.push(seats.take().await);
        assert_eq!(began.elapsed(), HEARING, "the next is accepted when the oldest had its time");
        let closed: Vec<bool> = silent.iter().map(|seat| seat.closing().is_cancelled()).collect();
        assert!(closed[0] && !closed[1..].contains(&true), "the oldest goes: {closed:?}");
        assert!(!spoken.closing().is_cancelled() && silent[16].is_silent() && !spoken.is_silent());
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_free_as_soon_as_a_silent_connection_speaks_or_leaves() {
        let (seats, began) = (seats(64), Instant::now());
        let mut silent = Vec::new();
        for _ in 0..16 {
            silent.push(seats.take().await);
        }
        assert!(silent[7].belongs_to(Guest::Own));
        silent.push(seats.take().await);
        drop(silent.remove(3));
        silent.push(seats.take().await);
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
