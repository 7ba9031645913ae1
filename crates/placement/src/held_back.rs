//! Why a job waits, as far as that has to do with queues and with other jobs: its queue's maximum and guarantee, whose turn it is, and
//! those that would give way but are left in peace for now.

use tessera_ledger::{Job, LogTime, QueueAmount, State};

use crate::demand::Demand;
use crate::pool::Pool;
use crate::preempt::{self, Beneficiary, InPlan};
use crate::why::{Explanation, WaitCode};

impl Pool {
    /// The maximum of a queue that the least grant would exceed.
    pub(crate) fn queue_shortage(&self, state: &State, queue: &str, demand: &Demand) -> Option<Explanation> {
        let amount = demand.least(state.config().block_size);
        let over = self.queues.admit(queue, amount, &[]).err()?;
        let short = over.used.plus(amount).minus(over.maximum);
        let QueueAmount { compute, memory } = short;
        let text = format!(
            "queue {:?} holds {} and {} of at most {} and {}, and the job needs {} and {} more",
            over.queue,
            over.used.compute,
            over.used.memory,
            over.maximum.compute,
            over.maximum.memory,
            amount.compute,
            amount.memory,
        );
        Some(
            Explanation::new(WaitCode::QueueMaximum, text)
                .with("used_compute", over.used.compute.0)
                .with("maximum_compute", over.maximum.compute.0)
                .with("needed_compute", amount.compute.0)
                .with("used_memory", over.used.memory.0)
                .with("maximum_memory", over.maximum.memory.0)
                .with("needed_memory", amount.memory.0)
                .changed_by(format!(
                    "raise the maximum of queue {:?} by {compute} and {memory}, or wait until its jobs end",
                    over.queue
                )),
        )
    }

    /// What keeps a job, for which nothing large enough is free, from making others give way, or others from being behind it;
    /// `None`: nothing but the lack of room.
    pub(crate) fn held_back(&mut self, state: &State, job: &Job, demand: &Demand, now: LogTime) -> Option<Explanation> {
        let least = demand.least(state.config().block_size);
        let (queue, priority) = (job.spec.queue.as_str(), job.spec.priority);
        let beneficiary = Beneficiary { demand, priority, queue, least, missing: 1 };
        let search =
            preempt::search(&mut self.index, state, now, &self.victims, &self.queues, beneficiary, &InPlan::default());
        if search.found.is_some() {
            return None;
        }
        if let Some(at) = search.retry_at {
            return Some(protected(now, at));
        }
        self.beyond_guarantee(queue, least).or_else(|| self.others_turn(state, queue, demand))
    }

    /// The queue is guaranteed something, others hold loans, and the job would be on loan itself.
    fn beyond_guarantee(&self, queue: &str, least: QueueAmount) -> Option<Explanation> {
        let (guaranteed, holds) = self.queues.guarantee(queue)?;
        let with_job = holds.plus(least);
        if with_job.within(guaranteed) || !self.queues.others_borrow(queue) {
            return None;
        }
        let more = with_job.minus(guaranteed);
        let text = format!(
            "queue {queue:?} holds {} and {} of the {} and {} that it is guaranteed, and the job needs {} and {}: beyond its \
             guarantee it cannot call back what others have borrowed",
            holds.compute, holds.memory, guaranteed.compute, guaranteed.memory, least.compute, least.memory,
        );
        let change = format!(
            "guarantee queue {queue:?} {} and {} more, or wait until something is free",
            more.compute, more.memory
        );
        Some(
            Explanation::new(WaitCode::BeyondGuarantee, text)
                .with("held_compute", holds.compute.0)
                .with("guaranteed_compute", guaranteed.compute.0)
                .with("needed_compute", least.compute.0)
                .with("held_memory", holds.memory.0)
                .with("guaranteed_memory", guaranteed.memory.0)
                .with("needed_memory", least.memory.0)
                .changed_by(change),
        )
    }

    /// Another queue has a job waiting that its queue admits and that takes some of the same cards, and its turn is before this
    /// one's: what becomes free goes there first.
    fn others_turn(&self, state: &State, queue: &str, demand: &Demand) -> Option<Explanation> {
        let block_size = state.config().block_size;
        let least = demand.least(block_size);
        let shapes = &self.line.shapes;
        let others = shapes.lines().filter(|line| shapes.line(*line).queue != queue);
        let first_of = |line| {
            let of_queue = shapes.line(line);
            let first = of_queue.first_ready().into_iter().chain(of_queue.blocked_after(None)).min();
            let (key, shape) = first.and_then(|(key, id)| Some((key, shapes.get(id)?)))?;
            let competes = shape.demand.offers.iter().any(|offer| demand.offer_of(offer.class).is_some());
            if !competes || !self.admits_least(state, shape) {
                return None;
            }
            Some((self.queues.turn(&of_queue.queue, shape.least(block_size)), key, of_queue.queue.as_str()))
        };
        let (turn, key, other) = others.filter_map(first_of).min()?;
        if turn >= self.queues.turn(queue, least) {
            return None;
        }
        let (mine, theirs) = (self.queues.share_ppm(queue), self.queues.share_ppm(other));
        let (holder, percent) = (key.job, |ppm: u64| format!("{}.{:02} %", ppm / 10_000, ppm / 100 % 100));
        let text = format!(
            "too little is free, and what becomes free goes to queue {other:?} first: it has borrowed {} of the pool for its \
             weight, or is within its guarantee, and queue {queue:?} has borrowed {}",
            percent(theirs),
            percent(mine),
        );
        Some(
            Explanation::new(WaitCode::FairShareTurn, text)
                .with("share_ppm", mine)
                .with("first_share_ppm", theirs)
                .with("first_job", holder.0)
                .changed_by(format!(
                    "give queue {queue:?} a higher weight or a guarantee, or wait: its share falls while others hold more"
                )),
        )
    }
}

fn protected(now: LogTime, until: LogTime) -> Explanation {
    let left = until.since(now);
    let text = format!(
        "jobs that would give way are left running for {} s more: they were preempted too often within the last hour, or have \
         not run as long as they asked to",
        left.as_secs().max(1)
    );
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    Explanation::new(WaitCode::VictimsProtected, text)
        .with("milliseconds_left", millis)
        .changed_by("wait; it is tried again by itself at that time")
}
