//! Queues and settings.

use std::sync::Arc;
use std::time::Duration;

use super::Applied;
use super::windows::{closed_after, closed_at_first};
use crate::allocation::{Allocation, AllocationPhase, MovePhase};
use crate::checks::{check_config, check_name, check_request_retention, check_windows};
use crate::command::Outcome;
use crate::config::PoolConfig;
use crate::event::{Event, Touched};
use crate::ids::JobId;
use crate::queue::{DEFAULT_QUEUE, Queue, QueueAmount, QueueSettings, half_life};
use crate::rejection::Rejection;
use crate::rule::{DRILL_QUEUE, Rule};
use crate::state::State;
use crate::units::Mebibytes;

/// Nobody has more, and sums of it do not overflow.
const MOST_OF_CHECKPOINTS: Mebibytes = Mebibytes(1 << 40);
/// Most queues above one another.
const DEPTH_LIMIT: usize = 16;

impl State {
    /// The queue and those above it, lowest first.
    pub(crate) fn queue_line(&self, name: &str) -> Vec<String> {
        let mut line = Vec::new();
        let mut next = name.to_owned();
        while line.len() < DEPTH_LIMIT
            && let Some(queue) = self.queues.get(&next)
        {
            line.push(next);
            next = queue.settings.parent.clone();
        }
        line
    }

    pub(super) fn with_queue(&mut self, name: &str, change: impl FnOnce(&mut Queue)) {
        if let Some(queue) = self.queues.get_mut_cow(name) {
            change(Arc::make_mut(queue));
            self.touched.push(Touched::Queues);
        }
    }

    /// Changes what the queue of a job and the queues above it hold. `firm` is given for a job that is not preemptible.
    fn charge(&mut self, job: JobId, change: impl Fn(&mut Queue, bool)) {
        let Some(job) = self.jobs.get(&job).cloned() else { return };
        let (now, half_life) = (self.time, half_life(&self.config));
        for name in self.queue_line(&job.spec.queue) {
            self.with_queue(&name, |queue| {
                queue.past.advance(queue.used, now, half_life);
                change(queue, !job.is_preemptible());
            });
        }
    }

    /// A job holds more.
    pub(super) fn charge_held(&mut self, job: JobId, amount: QueueAmount) {
        self.charge(job, |queue, firm| {
            queue.used = queue.used.plus(amount);
            if firm {
                queue.firm = queue.firm.plus(amount);
            }
        });
    }

    /// Records that an amount which a job holds is on its way back.
    pub(super) fn charge_leaving(&mut self, job: JobId, amount: QueueAmount) {
        self.charge(job, |queue, firm| {
            queue.leaving = queue.leaving.plus(amount);
            if firm {
                queue.firm = queue.firm.minus(amount);
            }
        });
    }

    /// The target of a move stands for its job from now on: the source is told to stop.
    pub(super) fn charge_staying(&mut self, job: JobId, amount: QueueAmount) {
        self.charge(job, |queue, firm| {
            queue.leaving = queue.leaving.minus(amount);
            if firm {
                queue.firm = queue.firm.plus(amount);
            }
        });
    }

    /// Returns whether the amount of an allocation counts as on its way back: the allocation is told to stop, or it is
    /// the target of a move whose source is not.
    pub(super) fn is_leaving(&self, allocation: &Allocation) -> bool {
        let phase = || self.jobs.get(&allocation.job).and_then(|job| self.move_phase(job));
        match allocation.phase {
            AllocationPhase::Ending => true,
            AllocationPhase::Reserved => phase() == Some(MovePhase::Reserved),
            AllocationPhase::Waiting | AllocationPhase::Active => false,
        }
    }

    /// A job has given back what it held; `leaving`: after it had been told to.
    pub(super) fn charge_given_back(&mut self, job: JobId, amount: QueueAmount, leaving: bool) {
        self.charge(job, |queue, firm| {
            queue.used = queue.used.minus(amount);
            if leaving {
                queue.leaving = queue.leaving.minus(amount);
            } else if firm {
                queue.firm = queue.firm.minus(amount);
            }
        });
    }

    pub(super) fn set_queue(&mut self, settings: &QueueSettings) -> Applied {
        check_name("queue.name", &settings.name)?;
        if self.follows(Rule::DrillQueueRefused) && settings.name == DRILL_QUEUE {
            return Err(Rejection::invalid("queue.name", "is kept for drills of upgrades; choose another name"));
        }
        check_windows("queue.windows", &settings.windows)?;
        if let Some(idle) = &settings.idle {
            idle.check("queue.idle")?;
        }
        if let Some(order) = &settings.attained {
            order.check("queue.attained")?;
        }
        if settings.checkpoints.is_some_and(|most| most > MOST_OF_CHECKPOINTS) {
            return Err(Rejection::invalid("queue.checkpoints_mib", "must be at most 1 EiB"));
        }
        if settings.weight == 0 {
            return Err(Rejection::invalid("queue.weight", "must be at least 1"));
        }
        if settings.maximum.is_some_and(|maximum| !settings.guaranteed.within(maximum)) {
            return Err(Rejection::invalid("queue.guaranteed", "must not be above queue.maximum"));
        }
        if !settings.parent.is_empty() {
            if self.queues.get(&settings.parent).is_none() {
                return Err(Rejection::UnknownQueue(settings.parent.clone()));
            }
            self.check_parent(settings)?;
        }
        match self.queues.get(&settings.name).cloned() {
            Some(known) if known.settings.parent != settings.parent && known.used != QueueAmount::default() => {
                return Err(Rejection::invalid("queue.parent", "cannot change while jobs of the queue hold blocks"));
            }
            Some(known) => {
                let closed_until = closed_after(&known.settings, known.closed_until, settings);
                let change = |state: &mut Self| {
                    state.with_queue(&settings.name, |queue| {
                        (queue.settings, queue.closed_until) = (settings.clone(), closed_until)
                    });
                };
                if known.settings.attained == settings.attained {
                    change(self);
                    self.advance_guard(&settings.name);
                } else {
                    self.reorder(&settings.name, change);
                }
                if known.settings.parent != settings.parent {
                    self.checkpoint_bytes = self.count_checkpoint_bytes();
                }
                self.keep_to_quotas(&settings.name, None);
            }
            None if self.queues.len() as u64 >= self.config.limits.queues => {
                return Err(Rejection::TooManyQueues { limit: self.config.limits.queues });
            }
            None => {
                let closed_until = closed_at_first(&settings.windows);
                let queue = Queue { closed_until, ..Queue::new(settings.clone()) };
                self.queues.insert_cow(settings.name.clone(), Arc::new(queue));
                self.touched.push(Touched::Queues);
            }
        }
        self.pending_events.push(Event::Queue { name: settings.name.clone() });
        Ok(Outcome::Done)
    }

    /// Refuses a parent that would make a circle, or put the queue or any below it too deep: those below move along.
    fn check_parent(&self, settings: &QueueSettings) -> Result<(), Rejection> {
        let above = self.queue_line(&settings.parent);
        if above.contains(&settings.name) {
            return Err(Rejection::invalid("queue.parent", "makes a circle: the queue named is this one or below it"));
        }
        let height = |below: &Queue| {
            let line = self.queue_line(&below.settings.name);
            line.iter().position(|name| *name == settings.name)
        };
        let height = self.queues().filter_map(|below| height(below)).max().unwrap_or(0);
        if above.len() + 1 + height >= DEPTH_LIMIT {
            return Err(Rejection::invalid("queue.parent", "makes a line of more than 15 queues, those below counted"));
        }
        Ok(())
    }

    pub(super) fn remove_queue(&mut self, name: &str) -> Applied {
        let queue = self.queues.get(name).ok_or_else(|| Rejection::UnknownQueue(name.to_owned()))?;
        let has_children = self.queues().any(|other| other.settings.parent == name);
        if name == DEFAULT_QUEUE || queue.jobs > 0 || has_children {
            return Err(Rejection::QueueBusy(name.to_owned()));
        }
        self.queues.remove_cow(&name.to_owned());
        self.touched.push(Touched::Queues);
        self.pending_events.push(Event::Queue { name: name.to_owned() });
        Ok(Outcome::Done)
    }

    /// Changes the half-life of all past use. Past use is first summed up to now under the old half-life.
    fn rescale_past_use(&mut self, old: Duration) {
        let (now, new) = (self.time, half_life(&self.config));
        let names: Vec<String> = self.queues().map(|queue| queue.settings.name.clone()).collect();
        for name in names {
            self.with_queue(&name, |queue| queue.past.change_half_life(queue.used, now, old, new));
        }
    }

    /// Changes the settings (law L6). The size of a block is fixed once a card is counted in it.
    /// Whoever names the settings that the new ones were made from undoes nobody else's change.
    pub(super) fn set_config(&mut self, config: &PoolConfig, expected: Option<&PoolConfig>) -> Applied {
        check_config(config)?;
        check_request_retention(config)?;
        if expected.is_some_and(|expected| *expected != *self.config) {
            return Err(Rejection::ConfigChanged);
        }
        let same_blocks = config.block_size == self.config.block_size
            && config.reference_precision == self.config.reference_precision;
        if !same_blocks && self.cards().next().is_some() {
            return Err(Rejection::invalid(
                "config.block_milli_tflops",
                "and the reference precision cannot change once cards are registered",
            ));
        }
        let same_offers = config.oversubscription == self.config.oversubscription;
        let old_half_life = half_life(&self.config);
        self.raise_lease_ceiling(&config.leases);
        self.config = Arc::new(config.clone());
        if half_life(config) != old_half_life {
            self.rescale_past_use(old_half_life);
        }
        if !same_offers {
            self.settle_offers();
        }
        self.touched.push(Touched::Config);
        self.pending_events.push(Event::Config);
        Ok(Outcome::Done)
    }
}
