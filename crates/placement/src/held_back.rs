//! Why a job waits, as far as that has to do with queues and with other jobs: its queue's maximum and guarantee, whose
//! turn it is, and those that would give way but are left in peace for now.

use tessera_ledger::{LogTime, QueueAmount};

use crate::demand::Applicant;
use crate::pool::{Moment, Pool};
use crate::preempt::InPlan;
use crate::queues::Exceeded;
use crate::why::{Explanation, WaitCode, outside_window};

/// Most ends of protections that are gone through in search of the one after which a job starts.
const PROTECTIONS: usize = 16;

impl Pool {
    /// What of a queue keeps it from a grant of so much: a maximum that it would exceed, or that it is closed.
    pub(crate) fn queue_shortage(&self, at: Moment<'_>, queue: &str, amount: QueueAmount) -> Option<Explanation> {
        if let Some(explanation) = outside_window(at.state.queue_closed_until(queue), at.now) {
            return Some(explanation);
        }
        let over = self.queues.admit(queue, amount).err()?;
        let short = over.used.plus(amount).minus(over.maximum);
        let (queue, used, maximum) = (&over.queue, told(over.used), told(over.maximum));
        let text =
            format!("queue {queue:?} holds {used} of at most {maximum}, and the job needs {} more", told(amount));
        let change = format!("raise the maximum of queue {queue:?} by {}, or wait until its jobs end", told(short));
        let numbers = [
            (["used_compute", "used_memory"], counted(over.used)),
            (["maximum_compute", "maximum_memory"], counted(over.maximum)),
            (["needed_compute", "needed_memory"], counted(amount)),
        ];
        Some(Explanation::new(WaitCode::QueueMaximum, text).with_both(numbers).changed_by(change))
    }

    /// What keeps a job, for which nothing large enough is free, from making others give way, or others from being
    /// behind it; `None`: nothing but the lack of room.
    pub(crate) fn held_back(&mut self, at: Moment<'_>, job: &Applicant) -> Option<Explanation> {
        self.protected(at, job).or_else(|| self.beyond_guarantee(at, job)).or_else(|| self.others_turn(job))
    }

    /// Jobs that would give way, and be enough, are left in peace for now.
    pub(crate) fn protected(&mut self, at: Moment<'_>, job: &Applicant) -> Option<Explanation> {
        let mut try_at = |now| {
            let search = self.search(Moment { now, ..at }, job, job.least.gang, None, &InPlan::default());
            (search.found, search.retry_at)
        };
        let mut until = try_at(at.now).1?;
        // All protections but those for ever are over then.
        try_at(LogTime(u64::MAX - 1)).0?;
        for _ in 0..PROTECTIONS {
            match try_at(until) {
                (None, Some(later)) if later > until => until = later,
                _ => break,
            }
        }
        Some(explain_protected(at.now, until))
    }

    /// The queue, or one above it, is guaranteed something, others hold loans, and the job would start if it were not
    /// on loan itself.
    fn beyond_guarantee(&mut self, at: Moment<'_>, job: &Applicant) -> Option<Explanation> {
        let least = job.amount;
        let exceeded: Vec<Exceeded> = self.queues.exceeded(job.queue(), least).collect();
        let would_start = |one: &Exceeded| {
            self.search(at, job, job.least.gang, Some(&one.raised), &InPlan::default()).found.is_some()
        };
        let Exceeded { queue, guaranteed, holds, .. } = exceeded.into_iter().find(would_start)?;
        let more = holds.plus(least).minus(guaranteed);
        let text = format!(
            "queue {queue:?} holds {} of the {} that it is guaranteed, and the job needs {}: beyond its guarantee it cannot \
             call back what others have borrowed",
            told(holds),
            told(guaranteed),
            told(least),
        );
        let change = format!("guarantee queue {queue:?} {} more, or wait until something is free", told(more));
        let numbers = [
            (["held_compute", "held_memory"], counted(holds)),
            (["guaranteed_compute", "guaranteed_memory"], counted(guaranteed)),
            (["needed_compute", "needed_memory"], counted(least)),
        ];
        Some(Explanation::new(WaitCode::BeyondGuarantee, text).with_both(numbers).changed_by(change))
    }

    /// Another queue has a job waiting that its queue admits and that takes some of the same cards, and its turn is
    /// before this one's: what becomes free goes there first.
    fn others_turn(&self, job: &Applicant) -> Option<Explanation> {
        let queue = job.queue();
        let shapes = &self.line.shapes;
        let others = shapes.lines().filter(|line| shapes.line(*line).queue != queue);
        let first_of = |line| {
            let of_queue = shapes.line(line);
            let first = of_queue.first_ready().into_iter().chain(of_queue.blocked_after(None)).min();
            let (key, shape) = first.and_then(|(key, id)| Some((key, shapes.get(id)?)))?;
            let competes = shape.one.demand.offers.iter().any(|offer| job.least.offer_of(offer.class).is_some());
            if !competes || !self.admits_least(shape) {
                return None;
            }
            Some((self.queues.turn(&of_queue.queue, shape.one.amount), key, of_queue.queue.as_str()))
        };
        let (turn, key, other) = others.filter_map(first_of).min()?;
        if turn >= self.queues.turn(queue, job.amount) {
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

fn told(amount: QueueAmount) -> String {
    format!("{} and {}", amount.compute, amount.memory)
}

fn counted(amount: QueueAmount) -> [u64; 2] {
    [amount.compute.0, amount.memory.0]
}

fn explain_protected(now: LogTime, until: LogTime) -> Explanation {
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
