//! The gate: no operation starts before the slice has paid for those before it.
//!
//! A token bucket over measured device time. Time flows in at the slice's share of the device, up to a short burst, and
//! every operation takes out what it was measured to take. An operation cannot be interrupted, so the bucket may fall
//! below nothing; the next one waits until it is even. A strict slice gets its share and no more. An elastic slice
//! divides the device with those neighbours that compute just now, in proportion to their shares, and so never gets
//! less than its own.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::{Error, neighbours::Neighbours, turn::Taken};

/// The most time that may be saved up, in time of the device: enough for even steps, too little to starve a neighbour.
const BURST: Duration = Duration::from_millis(10);
/// The longest turn of a slice that has work: long beside what it takes to wake the next one up, short for a person.
const QUANTUM: Duration = Duration::from_millis(2);
/// The longest turn of a neighbour before it is passed over.
const PATIENCE: Duration = Duration::from_millis(250);
/// The pause in which a slice whose turn is over leaves the next to whoever waits: as long as it takes to wake up.
const STAND_BACK: Duration = Duration::from_micros(100);

/// The bucket alone: no clock, no neighbours.
#[derive(Clone, Debug)]
pub struct Bucket {
    balance: f64,
    burst: f64,
}

impl Bucket {
    /// A full bucket.
    pub fn new(burst: Duration) -> Self {
        Self { balance: burst.as_secs_f64(), burst: burst.as_secs_f64() }
    }

    /// Time has passed, of which `rate` belongs to the slice. What was taken in that time must have been taken before,
    /// or a long operation would meet a bucket that was full already.
    pub fn refill(&mut self, passed: Duration, rate: f64) {
        let refilled = (self.balance + passed.as_secs_f64() * rate).min(self.burst);
        self.balance = self.balance.max(refilled);
    }

    /// Time has passed in which the slice had to wait for a neighbour. More of it is saved up, since it was no idler's:
    /// as much as the longest wait brings.
    pub fn refill_waiting(&mut self, passed: Duration, rate: f64) {
        let most = self.burst + PATIENCE.as_secs_f64() * rate;
        self.balance = self.balance.max((self.balance + passed.as_secs_f64() * rate).min(most));
    }

    /// Returns whether more was taken than there was.
    pub fn is_overdrawn(&self) -> bool {
        self.balance < 0.0
    }

    /// The device has worked for the slice.
    pub fn take(&mut self, measured: Duration) {
        self.balance -= measured.as_secs_f64();
    }

    /// The time until the next operation may start.
    pub fn wait(&self, rate: f64) -> Duration {
        if self.balance >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.balance / rate).unwrap_or(Duration::from_secs(1))
    }
}

/// The card that a slice has in common with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// A file that the servers of its slices share.
    pub path: PathBuf,
    /// True if the slice takes what its neighbours leave.
    pub elastic: bool,
    /// True if the card computes for one process at a time, so that its slices take turns.
    pub turns: bool,
}

/// The gate of one slice.
pub struct Gate {
    bucket: Bucket,
    share: f64,
    card: Option<(Neighbours, Card)>,
    refilled: Instant,
    turn: Option<(Taken, Instant)>,
    turns: u32,
    stands_back: bool,
    worked: Duration,
    waited: Duration,
}

impl Gate {
    /// A gate for `share` of the device, above 0 and at most 1. Without a `card` nothing is known of neighbours.
    ///
    /// # Errors
    /// When the card's file cannot be used.
    pub fn new(share: f64, card: Option<Card>) -> Result<Self, Error> {
        let share = share.clamp(0.001, 1.0);
        let join = |card: Card| Neighbours::join(&card.path, share).map(|neighbours| (neighbours, card));
        Ok(Self {
            bucket: Bucket::new(BURST),
            share,
            // A strict slice whose device divides itself has no use for neighbours.
            card: card.filter(|card| card.elastic || card.turns).map(join).transpose()?,
            refilled: Instant::now(),
            turn: None,
            turns: 0,
            stands_back: false,
            worked: Duration::ZERO,
            waited: Duration::ZERO,
        })
    }

    /// Waits until the next operation may start.
    pub fn enter(&mut self) {
        let is_alone = self.share >= 1.0 && self.card.is_none();
        if is_alone || self.turn.is_some() {
            return;
        }
        loop {
            let rate = self.rate();
            let now = Instant::now();
            self.bucket.refill(now - self.refilled, rate);
            self.refilled = now;
            let wait = self.bucket.wait(rate);
            if wait.is_zero() {
                break;
            }
            // Not all of it at once: a neighbour may stop meanwhile, and what it leaves is taken up.
            std::thread::sleep(wait.min(Duration::from_millis(20)));
            self.waited += now.elapsed();
        }
        self.take_turn();
    }

    fn take_turn(&mut self) {
        let Some((neighbours, card)) = &self.card else { return };
        if !card.turns {
            return;
        }
        if std::mem::take(&mut self.stands_back) {
            std::thread::sleep(STAND_BACK);
        }
        let (turn, number) = neighbours.turn();
        // Who waits wants to compute: elastic neighbours leave it its share.
        let taken = turn.take(number, self.turns, PATIENCE, || neighbours.tell_active());
        self.turns = self.turns.wrapping_add(1);
        let (now, rate) = (Instant::now(), self.rate());
        self.turn = Some((taken, now));
        self.bucket.refill_waiting(now - self.refilled, rate);
        self.waited += now - self.refilled;
        self.refilled = now;
    }

    /// The device has worked this long for the slice. Who `rests` has nothing more to compute at once.
    pub fn pay(&mut self, measured: Duration, rests: bool) {
        self.worked += measured;
        self.bucket.take(measured);
        let Some((neighbours, _)) = &self.card else { return };
        if !measured.is_zero() {
            neighbours.tell_active();
        }
        let is_over = |since: &Instant| rests || self.bucket.is_overdrawn() || since.elapsed() >= QUANTUM;
        if let Some((taken, _)) = self.turn.take_if(|(_, since)| is_over(since)) {
            self.stands_back = neighbours.turn().0.end(taken);
        }
    }

    /// Device time used, and time spent waiting at the gate.
    pub fn spent(&self) -> (Duration, Duration) {
        (self.worked, self.waited)
    }

    fn rate(&self) -> f64 {
        match &self.card {
            Some((neighbours, card)) if card.elastic => self.share / neighbours.active_shares().max(self.share),
            _ => self.share,
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let (Some((neighbours, _)), Some((taken, _))) = (&self.card, self.turn.take()) {
            neighbours.turn().0.end(taken);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// The part of the time that a slice computes if it always has an operation of this length to run.
    fn part_of_time(operation: Duration, rate: f64) -> f64 {
        let (mut bucket, mut now, mut worked) = (Bucket::new(BURST), Duration::ZERO, Duration::ZERO);
        while now < Duration::from_secs(20) {
            let wait = bucket.wait(rate);
            bucket.refill(wait, rate);
            now += wait + operation;
            bucket.take(operation);
            bucket.refill(operation, rate);
            worked += operation;
        }
        worked.as_secs_f64() / now.as_secs_f64()
    }

    #[test]
    fn a_slice_gets_its_share_whatever_the_length_of_its_operations() {
        for share in [0.1, 0.25, 0.5, 0.9] {
            for operation in [MILLISECOND / 100, MILLISECOND, 40 * MILLISECOND] {
                let part = part_of_time(operation, share);
                assert!((part - share).abs() < 0.01, "{share} of the time, operations of {operation:?}: {part}");
            }
        }
    }

    #[test]
    fn time_that_was_not_used_is_saved_up_only_for_a_burst() {
        let mut bucket = Bucket::new(BURST);
        bucket.refill(Duration::from_secs(3600), 0.5);
        bucket.take(BURST + MILLISECOND);
        assert!(bucket.wait(0.5) >= 2 * MILLISECOND - Duration::from_micros(1));
    }

    #[test]
    fn an_elastic_slice_has_the_device_alone_until_a_neighbour_computes() {
        let folder = tempfile::tempdir().unwrap();
        let card = folder.path().join("card");
        let elastic = |share| Gate::new(share, Some(Card { path: card.clone(), elastic: true, turns: false })).unwrap();
        let gate = elastic(0.25);
        assert!((gate.rate() - 1.0).abs() < 1e-6);
        let mut neighbour = elastic(0.75);
        neighbour.pay(MILLISECOND, true);
        assert!((gate.rate() - 0.25).abs() < 1e-6, "it has its share beside a neighbour: {}", gate.rate());
        drop(neighbour);
        assert!((gate.rate() - 1.0).abs() < 1e-6, "and all of it again once the neighbour is gone");
    }

    #[test]
    fn a_turn_lasts_while_a_slice_has_something_to_compute_and_time_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let card = Card { path: folder.path().join("card"), elastic: false, turns: true };
        let [mut first, mut second] = [0.5, 0.5].map(|share| Gate::new(share, Some(card.clone())).unwrap());
        first.enter();
        first.enter();
        assert!(first.turn.is_some() && first.turns == 1, "it is still the same turn");
        first.pay(BURST + MILLISECOND, false);
        assert!(first.turn.is_none(), "it has computed for more than it had");
        second.enter();
        assert!(second.turn.is_some());
        second.pay(MILLISECOND, true);
        assert!(second.turn.is_none(), "it has nothing more to compute");
        second.enter();
        drop(second);
        first.bucket.refill(10 * BURST, 0.5);
        first.enter();
        assert!(first.turn.is_some());
    }

    #[test]
    fn time_that_a_neighbour_kept_it_waiting_is_not_lost() {
        let mut bucket = Bucket::new(BURST);
        bucket.refill_waiting(10 * BURST, 0.5);
        bucket.refill(Duration::ZERO, 0.5);
        bucket.take(5 * BURST);
        assert!(!bucket.is_overdrawn());
        for _ in 0..100 {
            bucket.refill_waiting(PATIENCE, 0.5);
        }
        bucket.take(BURST + PATIENCE);
        assert!(bucket.is_overdrawn(), "it is not saved up for ever");
    }
}
