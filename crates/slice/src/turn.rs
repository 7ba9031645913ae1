//! The turn on a card that computes for one process at a time.
//!
//! Such a card stretches what it computes for one slice by what it computes for another meanwhile, and the time that an
//! operation takes says little about its work. So the slices of the card compute in turns, and each measures only
//! itself. It is a courtesy among servers that trust each other and not a lock that anything depends on: whoever keeps
//! its turn for long, because it was frozen, died or runs an operation of that length, is passed over.
#![allow(unsafe_code)] // The kernel is asked to wait for a word of memory.

use std::{
    ptr,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use nix::libc;

/// Bits of a holder's number; above them it counts its turns, so that two of them differ.
const NUMBER_BITS: u32 = 8;
/// The interval at which a waiting server reports again that it waits.
const SAY: Duration = Duration::from_millis(10);

/// In memory that the servers of a card share. Zeroed, it is nobody's turn.
#[repr(C, align(64))]
pub(crate) struct Turn {
    holder: AtomicU32,
    waiting: AtomicU32,
}

/// A turn that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken(u32);

impl Turn {
    /// Waits until it is the turn of the server with this number, and says again and again that it `waits`. One that
    /// has kept its turn for `patience` meanwhile is passed over. No two turns of a server have the same `count`.
    pub(crate) fn take(&self, number: u8, count: u32, patience: Duration, waits: impl Fn()) -> Taken {
        let mine = count << NUMBER_BITS | (u32::from(number) + 1);
        let (mut seen, mut since) = (0, Instant::now());
        while let Err(holder) = self.holder.compare_exchange(0, mine, Ordering::SeqCst, Ordering::SeqCst) {
            if holder != seen {
                (seen, since) = (holder, Instant::now());
            }
            let left = patience.saturating_sub(since.elapsed());
            if left.is_zero() {
                if self.holder.compare_exchange(holder, mine, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                    break;
                }
                continue;
            }
            waits();
            self.wait_while(holder, left.min(SAY));
        }
        Taken(mine)
    }

    /// Gives it to whoever waits, unless somebody has taken it already; says whether somebody waits.
    pub(crate) fn end(&self, taken: Taken) -> bool {
        let is_own = self.holder.compare_exchange(taken.0, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let is_wanted = self.waiting.load(Ordering::SeqCst) > 0;
        if is_own && is_wanted {
            // SAFETY: wakes one that waits for this word, which is valid memory.
            unsafe { libc::syscall(libc::SYS_futex, self.holder.as_ptr(), libc::FUTEX_WAKE, 1) };
        }
        is_wanted
    }

    fn wait_while(&self, holder: u32, most: Duration) {
        let most = libc::timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // SAFETY: the word and the time are valid memory; the kernel reads both. Why it returned does not matter.
        unsafe {
            libc::syscall(libc::SYS_futex, self.holder.as_ptr(), libc::FUTEX_WAIT, holder, ptr::from_ref(&most));
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn turn() -> Turn {
        Turn { holder: AtomicU32::new(0), waiting: AtomicU32::new(0) }
    }

    #[test]
    fn one_computes_at_a_time_and_nobody_is_left_waiting() {
        let (turn, alone) = (turn(), AtomicBool::new(true));
        std::thread::scope(|scope| {
            for number in 0..4 {
                let (turn, alone) = (&turn, &alone);
                scope.spawn(move || {
                    for count in 0..2_000 {
                        let taken = turn.take(number, count, LONG, || ());
                        assert!(alone.swap(false, Ordering::AcqRel), "two have their turn at once");
                        alone.store(true, Ordering::Release);
                        turn.end(taken);
                    }
                });
            }
        });
        assert_eq!(turn.holder.into_inner(), 0);
    }

    #[test]
    fn one_that_keeps_its_turn_is_passed_over_and_takes_nothing_from_the_next() {
        let turn = turn();
        let frozen = turn.take(0, 0, LONG, || ());
        let next = turn.take(1, 0, Duration::from_millis(5), || ());
        turn.end(frozen);
        assert_eq!(
            turn.holder.load(Ordering::Relaxed),
            next.0,
            "it thaws, and ends a turn that is not its own any more"
        );
        turn.end(next);
        assert_eq!(turn.take(0, 1, LONG, || ()), Taken(1 << NUMBER_BITS | 1));
    }
}
