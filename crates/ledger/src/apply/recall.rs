//! Checks of the victims of a grant (law L4), against the state as it is when the entry is applied.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocation::{Allocation, AllocationPhase, PlannedWorker, WorkerState};
use crate::ids::{CardId, JobId, NodeId};
use crate::job::{Job, JobState};
use crate::order::Claim;
use crate::queue::{Queue, QueueAmount};
use crate::rejection::Rejection;
use crate::standing::{Held, may_recall};
use crate::state::State;
use crate::units::LogTime;

/// An amount, and as far as jobs that are not preemptible hold it.
#[derive(Clone, Copy, Default)]
struct Amount {
    all: QueueAmount,
    firm: QueueAmount,
}

impl Amount {
    fn plus(self, more: Self) -> Self {
        Self { all: self.all.plus(more.all), firm: self.firm.plus(more.firm) }
    }
}

/// The amounts that the victims of one grant give back.
#[derive(Default)]
struct Returned {
    /// By queue, those below it counted.
    whole: BTreeMap<String, Amount>,
    /// By queue, of jobs that name it.
    own: BTreeMap<String, Amount>,
}

impl Returned {
    fn in_queue(of: &BTreeMap<String, Amount>, name: &str) -> Amount {
        of.get(name).copied().unwrap_or_default()
    }
}

/// The effect of all victims of one grant on queues.
struct Recalls {
    /// The amounts that all victims give back together.
    all: Returned,
    /// By queue that a victim names, what of it is for such jobs.
    lenders: BTreeMap<String, Held>,
}

impl State {
    /// Law L4: each victim is of the same queue with a strictly lower effective priority, or is recalled from a queue
    /// that holds more than it is guaranteed; none is preempted too often, and each gives something that the
    /// beneficiary gets.
    pub(super) fn validate_victims(
        &self,
        job: &Job,
        workers: &[PlannedWorker],
        victims: &[JobId],
    ) -> Result<(), Rejection> {
        let refuse = |victim: JobId, problem| Rejection::NotPreemptible { victim, beneficiary: job.id, problem };
        let cards: BTreeSet<CardId> =
            workers.iter().flat_map(|worker| &worker.slices).map(|slice| slice.card).collect();
        let hosts: BTreeSet<NodeId> = job.spec.asked_of_hosts(workers).map(|(node, _)| node).collect();
        let mut seen = BTreeSet::new();
        let mut known = Vec::with_capacity(victims.len());
        for id in victims {
            let victim = self.known_job(*id)?;
            let allocation = victim.allocation.and_then(|id| self.allocations.get(&id)).cloned();
            let allocation = allocation.filter(|allocation| allocation.phase == AllocationPhase::Active);
            let allocation = allocation.ok_or_else(|| refuse(*id, "it holds no blocks that could be taken"))?;
            if !matches!(victim.state, JobState::Starting | JobState::Running) || !seen.insert(*id) {
                return Err(refuse(*id, "it is not starting or running"));
            }
            // What a worker held that is over is nobody's to give.
            let live = || allocation.workers.iter().filter(|worker| worker.state != WorkerState::Stopped);
            let on_hosts = allocation.held_of_hosts(&victim.spec).any(|(node, _)| hosts.contains(&node));
            if !on_hosts && !live().flat_map(|worker| &worker.slices).any(|slice| cards.contains(&slice.card)) {
                return Err(refuse(*id, "it holds nothing on the cards and hosts granted"));
            }
            known.push((victim, allocation));
        }
        let mut all = Returned::default();
        known.iter().for_each(|(victim, allocation)| self.give_back(&mut all, victim, allocation));
        let queues: BTreeSet<&String> = known.iter().map(|(victim, _)| &victim.spec.queue).collect();
        let lenders = queues.into_iter().filter_map(|name| Some((name.clone(), self.own_part(self.queues.get(name)?))));
        let plan = Recalls { all, lenders: lenders.collect() };
        let mut before = Returned::default();
        for (victim, allocation) in &known {
            let since = allocation.started_at.unwrap_or(allocation.granted_at);
            self.validate_victim(job, victim, since, self.amount_asked(workers), &plan, &before)
                .map_err(|problem| refuse(victim.id, problem))?;
            self.give_back(&mut before, victim, allocation);
        }
        Ok(())
    }

    fn give_back(&self, returned: &mut Returned, victim: &Job, allocation: &Allocation) {
        let all = self.held_by(allocation);
        let amount = Amount { all, firm: if victim.is_preemptible() { QueueAmount::default() } else { all } };
        let own = returned.own.entry(victim.spec.queue.clone()).or_default();
        *own = own.plus(amount);
        for name in self.queue_line(&victim.spec.queue) {
            let whole = returned.whole.entry(name).or_default();
            *whole = whole.plus(amount);
        }
    }

    /// The part of a queue that is for the jobs that name it, without the queues below it.
    fn own_part(&self, queue: &Queue) -> Held {
        let below =
            self.queues().filter(|below| below.settings.parent == queue.settings.name).map(|below| held_of(below));
        below.fold(held_of(queue), |own, below| Held {
            guaranteed: own.guaranteed.minus(below.guaranteed),
            ..own.without(below.all, below.firm)
        })
    }

    fn validate_victim(
        &self,
        job: &Job,
        victim: &Job,
        running_since: LogTime,
        asked: QueueAmount,
        plan: &Recalls,
        before: &Returned,
    ) -> Result<(), &'static str> {
        let claim = if victim.spec.queue == job.spec.queue {
            self.claim(self.precedence_of(job, self.time), victim, self.time)?
        } else {
            self.validate_recall(job, victim, asked, plan, before)?;
            Claim::Recall
        };
        if victim.preemptible_from(running_since, self.time, self.config.preemptions_per_hour, claim).is_some() {
            return Err("it was preempted too often within the last hour, or has not run as long as it asked to");
        }
        Ok(())
    }

    /// A recall: which queues matter, and what they hold; the rule is [`may_recall`].
    fn validate_recall(
        &self,
        job: &Job,
        victim: &Job,
        asked: QueueAmount,
        plan: &Recalls,
        before: &Returned,
    ) -> Result<(), &'static str> {
        let (mine, theirs) = (self.queue_line(&job.spec.queue), self.queue_line(&victim.spec.queue));
        let apart = |line: &[String], other: &[String]| -> Vec<String> {
            line.iter().take_while(|name| !other.contains(name)).cloned().collect()
        };
        let (mine, theirs) = (apart(&mine, &theirs), apart(&theirs, &mine));
        let without = |held: Held, back: Amount| held.without(back.all, back.firm);
        let branch = mine.last().and_then(|name| self.queues.get(name));
        let branch =
            branch.map(|queue| without(held_of(queue), Returned::in_queue(&plan.all.whole, &queue.settings.name)));
        let own = plan.lenders.get(&victim.spec.queue);
        let own = own.map(|own| without(*own, Returned::in_queue(&before.own, &victim.spec.queue)));
        let whole = theirs.iter().filter_map(|name| self.queues.get(name));
        let whole = whole.map(|queue| without(held_of(queue), Returned::in_queue(&before.whole, &queue.settings.name)));
        let gives = victim.allocation.and_then(|id| self.allocations.get(&id)).map(|held| self.held_by(held));
        may_recall(asked, branch, own.into_iter().chain(whole), gives.unwrap_or_default(), victim.is_preemptible())
    }
}

/// The amount that a queue holds, and its guarantee.
fn held_of(queue: &Queue) -> Held {
    Held { all: queue.standing(), firm: queue.firm, guaranteed: queue.settings.guaranteed }
}
