//! The order among the jobs of one queue, where the queue says that it is by attained service: what a job has had of
//! cards decides, not when it came. Nothing is known of how long jobs run, and little needs to be: most are short, so
//! that whoever has had little is likely to be over soon.
//!
//! * **Attained service** of a job is the time that its attempts ran, times the cards that they held: seconds of a
//!   whole card. It only grows.
//! * **Bands.** Attained service falls into geometric bands, from 0 on. Within a priority lower bands go first, and a
//!   job may take the blocks of a running one whose band is higher ([`Claim::Band`]). A band only rises, and there are
//!   few, so that between two arrivals or ends only finitely many jobs are suspended for it (law L4).
//! * **The guard.** The oldest jobs of the queue, as many as fit a share of what it can have, go before all others
//!   whatever they have attained: everybody becomes one of them once enough older ones are over, so nobody starves.
//!   Who is guarded stays so, until a person holds or suspends the job.
//!
//! Only jobs that can go on where they stopped are suspended for a band: those of mode `requeue` would lose their work.

use std::cmp::Reverse;
use std::time::Duration;

use crate::checks::LONGEST;
use crate::job::Job;
use crate::rejection::Rejection;
use crate::spec::CheckpointMode;
use crate::state::{State, WaitingKey};
use crate::units::{LogTime, MilliTflops, Percent};

/// Least time that a job has run before another takes its blocks for being in a lower band.
pub const BAND_PATIENCE: Duration = Duration::from_secs(300);

/// Most bands of a queue.
pub const MOST_BANDS: u32 = 16;
/// Highest ratio between the ends of neighbouring bands.
const MOST_RATIO: u32 = 100;

/// The order of a queue by attained service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttainedOrder {
    /// Attained service at which the first band ends: time of one whole card.
    pub first_band: Duration,
    /// Each further band ends at so many times the attained service of the one before.
    pub ratio: u32,
    /// Number of bands; the last one has no end.
    pub bands: u32,
    /// The share of what the queue can have that goes to its oldest jobs; none: nobody is guarded.
    pub guard: Percent,
}

impl Default for AttainedOrder {
    /// Eight bands, the first of ten minutes of a card, each four times the one before; a fifth for the oldest.
    fn default() -> Self {
        Self { first_band: Duration::from_secs(600), ratio: 4, bands: 8, guard: Percent(20) }
    }
}

impl AttainedOrder {
    /// Attained service at which a band ends; `None`: it is the last.
    #[must_use]
    pub fn end_of(&self, band: u32) -> Option<Duration> {
        let times = u64::from(self.ratio).saturating_pow(band);
        let millis = u64::try_from(self.first_band.as_millis()).unwrap_or(u64::MAX);
        (band + 1 < self.bands).then(|| Duration::from_millis(millis.saturating_mul(times)))
    }

    /// The band of a job that has attained so much.
    #[must_use]
    pub fn band_of(&self, attained: Duration) -> u32 {
        (0..self.bands).find(|band| self.end_of(*band).is_none_or(|end| attained < end)).unwrap_or(0)
    }

    /// Refuses an order that nobody could have meant.
    ///
    /// # Errors
    /// [`Rejection::Invalid`] with the path of the first field that is not acceptable.
    pub fn check(&self, field: &str) -> Result<(), Rejection> {
        let invalid = |name: &str, problem: String| Err(Rejection::invalid(format!("{field}.{name}"), problem));
        if self.first_band < Duration::from_secs(1) || self.first_band > LONGEST {
            return invalid("first_band", "must be a second to ten years".to_owned());
        }
        if !(2..=MOST_RATIO).contains(&self.ratio) {
            return invalid("ratio", format!("must be 2 to {MOST_RATIO}"));
        }
        if !(2..=MOST_BANDS).contains(&self.bands) {
            return invalid("bands", format!("must be 2 to {MOST_BANDS}"));
        }
        if self.guard > Percent::WHOLE {
            return invalid("guard_percent", "must be at most 100".to_owned());
        }
        Ok(())
    }
}

/// The rank of a job within its queue: whoever has the greater one goes first, and may take blocks from the others as
/// far as [`State::claim`] says. Where the order is not by attained service it is the priority alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Precedence {
    pub guarded: bool,
    pub priority: u32,
    /// 0 for the lowest band and where there are none.
    pub band: Reverse<u32>,
}

impl Precedence {
    /// The rank of a priority where there are no bands.
    #[must_use]
    pub const fn of_priority(priority: u32) -> Self {
        Self { guarded: false, priority, band: Reverse(0) }
    }

    /// The number of ranks, at most, that lie between another one and this.
    #[must_use]
    pub fn above(self, other: Self) -> u64 {
        let number = |rank: Self| {
            let of_priority = u64::from(rank.priority) * u64::from(MOST_BANDS);
            of_priority + u64::from(MOST_BANDS.saturating_sub(rank.band.0)) + (u64::from(rank.guarded) << 40)
        };
        number(self).saturating_sub(number(other))
    }
}

/// The right by which one job takes the blocks of another (law L4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claim {
    /// Its priority is higher.
    Priority,
    /// It is guarded or its band is lower, in a queue that goes by attained service.
    Band,
    /// Its queue has a guarantee, and the other's more than that.
    Recall,
}

impl Job {
    /// Service that its attempts had up to `now`, as time of a whole card.
    #[must_use]
    pub fn attained(&self, now: LogTime) -> Duration {
        let running = self.history.last().filter(|attempt| attempt.ended_at.is_none());
        self.attained.saturating_add(running.map_or(Duration::ZERO, |attempt| attempt.served(now)))
    }

    /// Returns whether another job may take its blocks and it goes on later where it stopped.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.is_preemptible() && self.spec.checkpoint.mode != CheckpointMode::Requeue
    }

    /// Returns whether the guard of its queue can be for it: nobody keeps it from running.
    pub(crate) const fn can_be_guarded(&self) -> bool {
        !self.state.is_terminal() && !self.held && !self.parked
    }

    /// Returns whether the guard of its queue may come to it.
    pub(crate) const fn awaits_guard(&self) -> bool {
        !self.guarded && self.can_be_guarded()
    }

    /// Compute that it asks for, all virtual cards together.
    pub(crate) fn asked(&self) -> MilliTflops {
        self.spec.virtual_card.compute.saturating_mul(self.spec.gang)
    }

    /// The rank within a queue of that order, at `now`.
    #[must_use]
    pub fn precedence(&self, order: Option<AttainedOrder>, now: LogTime) -> Precedence {
        let Some(order) = order else {
            let waits = self.is_waiting();
            return Precedence::of_priority(if waits { self.spec.priority } else { self.effective_priority() });
        };
        // The oldest go by age, whatever they have had.
        let band = if self.guarded { 0 } else { order.band_of(self.attained(now)) };
        Precedence { guarded: self.guarded, priority: self.spec.priority, band: Reverse(band) }
    }

    /// The time at which its band will be a higher one if it runs on, in a queue of that order. `None`: never, or
    /// nobody takes from it for that.
    #[must_use]
    pub fn next_band_at(&self, order: AttainedOrder, now: LogTime) -> Option<LogTime> {
        let attempt = self.history.last().filter(|attempt| attempt.ended_at.is_none())?;
        if self.guarded || !self.goes_on() {
            return None;
        }
        let end = order.end_of(order.band_of(self.attained(now)))?;
        let at = attempt.served_at(end.saturating_sub(self.attained))?.max(now.after(Duration::from_millis(1)));
        (at.0 < u64::MAX).then_some(at)
    }
}

impl State {
    /// The order of the queue of a job, where that is by attained service.
    #[must_use]
    pub fn order_of(&self, queue: &str) -> Option<AttainedOrder> {
        self.queues.get(queue)?.settings.attained
    }

    /// The rank of a job within its queue, at `now`.
    #[must_use]
    pub fn precedence_of(&self, job: &Job, now: LogTime) -> Precedence {
        job.precedence(self.order_of(&job.spec.queue), now)
    }

    /// The place of a waiting job among those of its queue.
    #[must_use]
    pub fn waiting_key(&self, job: &Job) -> WaitingKey {
        WaitingKey::of(job, self.order_of(&job.spec.queue))
    }

    /// The right by which a waiting job of that precedence may take the blocks of another one of its queue at `now`
    /// (law L4).
    ///
    /// # Errors
    /// What forbids it.
    pub fn claim(&self, mine: Precedence, victim: &Job, now: LogTime) -> Result<Claim, &'static str> {
        if !victim.is_preemptible() {
            return Err("it is not preemptible");
        }
        let order = self.order_of(&victim.spec.queue);
        let theirs = victim.precedence(order, now);
        match () {
            () if mine <= theirs && order.is_none() => Err("its priority is not lower"),
            () if mine <= theirs => Err("neither its priority is lower nor its band higher"),
            () if mine.priority > theirs.priority => Ok(Claim::Priority),
            () if victim.goes_on() => Ok(Claim::Band),
            () => Err("its priority is not lower, and it would lose its work"),
        }
    }
}
