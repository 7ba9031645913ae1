//! Who may be made to give way for a grant (law L4), checked against the state as it is when the entry is applied.

use std::collections::{BTreeMap, BTreeSet};

use crate::allocation::{Allocation, AllocationPhase, PlannedWorker};
use crate::ids::{CardId, JobId, NodeId};
use crate::job::{Job, JobState};
use crate::queue::QueueAmount;
use crate::rejection::Rejection;
use crate::state::State;

/// What the victims of one grant give back, by queue and the queues above.
#[derive(Default)]
struct Returned {
    all: BTreeMap<String, QueueAmount>,
    /// As far as jobs that are not preemptible hold it.
    firm: BTreeMap<String, QueueAmount>,
}

impl Returned {
    fn in_queue(of: &BTreeMap<String, QueueAmount>, name: &str) -> QueueAmount {
        of.get(name).copied().unwrap_or_default()
    }
}

impl State {
    /// Law L4: each victim is of the same queue with a strictly lower effective priority, or is recalled from a queue that holds
    /// more than it is guaranteed; none is preempted too often, and each gives something that the beneficiary gets.
    pub(super) fn validate_victims(
        &self,
        job: &Job,
        workers: &[PlannedWorker],
        victims: &[JobId],
    ) -> Result<(), Rejection> {
        let refuse = |victim: JobId, problem| Rejection::NotPreemptible { victim, beneficiary: job.id, problem };
        let cards: BTreeSet<CardId> =
            workers.iter().flat_map(|worker| &worker.slices).map(|slice| slice.card).collect();
        let nodes: BTreeSet<NodeId> = workers.iter().map(|worker| worker.node).collect();
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
            let mut slices = allocation.workers.iter().flat_map(|worker| &worker.slices);
            let both_use_hosts = !job.spec.host.is_zero() && !victim.spec.host.is_zero();
            let on_hosts = both_use_hosts && allocation.workers.iter().any(|worker| nodes.contains(&worker.node));
            if !on_hosts && !slices.any(|slice| cards.contains(&slice.card)) {
                return Err(refuse(*id, "it holds nothing on the cards and hosts granted"));
            }
            known.push((victim, allocation));
        }
        let mut all = Returned::default();
        known.iter().for_each(|(victim, allocation)| self.give_back(&mut all, victim, allocation));
        let mut before = Returned::default();
        for (victim, allocation) in &known {
            self.validate_victim(job, victim, self.amount_asked(workers), &all, &before)
                .map_err(|problem| refuse(victim.id, problem))?;
            self.give_back(&mut before, victim, allocation);
        }
        Ok(())
    }

    fn give_back(&self, returned: &mut Returned, victim: &Job, allocation: &Allocation) {
        let amount = self.held_by(allocation);
        for name in self.queue_line(&victim.spec.queue) {
            if !victim.spec.preemptible {
                let firm = returned.firm.entry(name.clone()).or_default();
                *firm = firm.plus(amount);
            }
            let all = returned.all.entry(name).or_default();
            *all = all.plus(amount);
        }
    }

    fn validate_victim(
        &self,
        job: &Job,
        victim: &Job,
        asked: QueueAmount,
        all: &Returned,
        before: &Returned,
    ) -> Result<(), &'static str> {
        let recall = victim.spec.queue != job.spec.queue;
        if recall {
            self.validate_recall(job, victim, asked, all, before)?;
        } else if !victim.spec.preemptible {
            return Err("it is not preemptible");
        } else if victim.effective_priority() >= job.spec.priority {
            return Err("its priority is not lower");
        }
        if victim.preemptible_from(self.time, self.config.preemptions_per_hour, recall).is_some() {
            return Err("it was preempted too often within the last hour");
        }
        Ok(())
    }

    /// A recall: below the lowest queue that both have above them, every queue of the beneficiary stays within its guarantee, and
    /// every queue of the victim still holds more than its guarantee when the victims `before` it are gone. So no guarantee
    /// is cut by more than the rest of one job.
    fn validate_recall(
        &self,
        job: &Job,
        victim: &Job,
        asked: QueueAmount,
        all: &Returned,
        before: &Returned,
    ) -> Result<(), &'static str> {
        let (mine, theirs) = (self.queue_line(&job.spec.queue), self.queue_line(&victim.spec.queue));
        let apart = |line: &[String], other: &[String]| -> Vec<String> {
            line.iter().take_while(|name| !other.contains(name)).cloned().collect()
        };
        let (mine, theirs) = (apart(&mine, &theirs), apart(&theirs, &mine));
        let within = mine.iter().filter_map(|name| self.queues.get(name)).all(|queue| {
            let back = Returned::in_queue(&all.all, &queue.settings.name);
            queue.standing().minus(back).plus(asked).within(queue.settings.guaranteed)
        });
        if mine.is_empty() || !within {
            return Err("it is of another queue, and the job's own would hold more than it is guaranteed");
        }
        for queue in theirs.iter().filter_map(|name| self.queues.get(name)) {
            let (name, guaranteed) = (&queue.settings.name, queue.settings.guaranteed);
            if queue.standing().minus(Returned::in_queue(&before.all, name)).within(guaranteed) {
                return Err("its queue holds no more than it is guaranteed");
            }
            let firm = queue.firm.minus(Returned::in_queue(&before.firm, name));
            if !victim.spec.preemptible && firm.within(guaranteed) {
                return Err("it is not preemptible, and its queue is guaranteed what such jobs hold");
            }
        }
        Ok(())
    }
}
