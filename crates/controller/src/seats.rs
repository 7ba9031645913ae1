//! Who has a seat at a member: each connection has one from when it is accepted until it is closed.
//!
//! A connection is nobody's until its first call says whose it is. Agents and other members keep theirs whatever clients do;
//! clients may have so many and no more. A connection over which no call comes is closed after a while, and at once when
//! too many of them wait: the oldest goes, so that who has something to say always finds a place, and a flood of silent
//! connections takes nothing but places of silent connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio_util::sync::CancellationToken;

use crate::limits::{LimitMeters, Limited, MemberLimits};

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guest {
    /// No call has come yet.
    Nobody,
    /// A client.
    Client,
    /// An agent or another member.
    Own,
}

/// All seats of a member. Clones are the same seats.
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clients: usize,
    silent: usize,
    silence: Duration,
    used: Gauge,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    clients: usize,
    /// Connections without a call, oldest first, with what closes each.
    silent: BTreeMap<u64, CancellationToken>,
}

impl Seats {
    pub(crate) fn new(limits: &MemberLimits, meters: &LimitMeters) -> Self {
        let shared = Shared {
            clients: limits.connections,
            silent: limits.connections.div_ceil(4).max(16),
            silence: limits.silence,
            used: meters.used(Limited::Connections),
            book: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A seat for a connection that was just accepted.
    pub(crate) fn take(&self) -> Seat {
        let mut book = self.shared.book();
        if book.silent.len() >= self.shared.silent
            && let Some((_, oldest)) = book.silent.pop_first()
        {
            oldest.cancel();
        }
        let (id, closing) = (book.next, CancellationToken::new());
        book.next += 1;
        book.silent.insert(id, closing.clone());
        drop(book);
        let seat = Taken { id, closing, guest: Mutex::new(Guest::Nobody), shared: Arc::clone(&self.shared) };
        Seat(Arc::new(seat))
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
pub(crate) struct Seat(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    id: u64,
    closing: CancellationToken,
    guest: Mutex<Guest>,
    shared: Arc<Shared>,
}

impl Seat {
    /// A call says who is at the other end. False: it is a client, and there are as many as may be.
    pub(crate) fn belongs_to(&self, guest: Guest) -> bool {
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
        shared.used.set(i64::try_from(book.clients).unwrap_or(i64::MAX));
        *present = guest;
        true
    }

    /// Whether any call has come.
    pub(crate) fn is_silent(&self) -> bool {
        *self.0.guest() == Guest::Nobody
    }

    /// How long it may stay so.
    pub(crate) fn silence(&self) -> Duration {
        self.0.shared.silence
    }

    /// Cancelled when the connection is to be closed.
    pub(crate) fn closing(&self) -> CancellationToken {
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
        book.silent.remove(&self.id);
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
        let limits = MemberLimits { connections, ..MemberLimits::default() };
        Seats::new(&limits, &LimitMeters::new(limits))
    }

    #[test]
    fn clients_have_so_many_seats_and_agents_and_members_always_one() {
        let seats = seats(2);
        let [first, second, third] = std::array::from_fn(|_| seats.take());
        assert!(first.belongs_to(Guest::Client) && second.belongs_to(Guest::Client));
        assert!(!third.belongs_to(Guest::Client), "there are two already");
        assert!(third.belongs_to(Guest::Own), "agents are not counted");
        assert!(third.belongs_to(Guest::Client), "an agent may ask what clients ask");
        assert!(first.belongs_to(Guest::Client), "its seat is its own");
        drop(second);
        assert!(seats.take().belongs_to(Guest::Client), "a seat that is left is free");
    }

    #[test]
    fn the_oldest_silent_connection_goes_when_there_are_too_many() {
        let seats = seats(64);
        let spoken = seats.take();
        assert!(spoken.belongs_to(Guest::Client));
        let silent: Vec<Seat> = (0..20).map(|_| seats.take()).collect();
        let closed = |seat: &&Seat| seat.closing().is_cancelled();
        assert_eq!(silent.iter().filter(closed).count(), 4, "16 may wait");
        assert!(silent[..4].iter().all(|seat| closed(&seat)), "the oldest go");
        assert!(!closed(&&spoken) && silent[19].is_silent() && !spoken.is_silent());
    }
}
