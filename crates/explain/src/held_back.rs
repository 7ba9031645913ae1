//! Reasons for waiting that have to do with queues and with other jobs: the maximum and guarantee of the job's queue,
//! the turn of another queue, and the jobs that would give way but are left in peace for now.

use tessera_ledger::{LogTime, QueueAmount};
use tessera_placement::{BeyondGuarantee, Inquiry};

use crate::why::outside_window;
use crate::words::{Explanation, WaitCode, counted, told};

/// Most ends of protections that are gone through in search of the one after which a job starts.
const PROTECTIONS: usize = 16;

/// The reason for which a queue keeps the job from an allocation of `amount`: a maximum that would be exceeded, or that
/// the queue is closed.
pub(crate) fn queue_shortage(asked: &Inquiry<'_>, amount: QueueAmount) -> Option<Explanation> {
    if let Some(explanation) = outside_window(asked.state().queue_closed_until(&asked.spec().queue), asked.now()) {
        return Some(explanation);
    }
    let over = asked.admits(amount).err()?;
    let short = over.used.plus(amount).minus(over.maximum);
    let (queue, used, maximum) = (&over.queue, told(over.used), told(over.maximum));
    let text = format!("queue {queue:?} holds {used} of at most {maximum}, and the job needs {} more", told(amount));
    let change = format!("raise the maximum of queue {queue:?} by {}, or wait until its jobs end", told(short));
    let numbers = [
        (["used_compute", "used_memory"], counted(over.used)),
        (["maximum_compute", "maximum_memory"], counted(over.maximum)),
        (["needed_compute", "needed_memory"], counted(amount)),
    ];
    Some(Explanation::new(WaitCode::QueueMaximum, text).with_both(numbers).changed_by(change))
}

/// The reason for which a job, for which nothing large enough is free, does not make others give way or has others
/// before it; `None`: nothing but the lack of room.
pub(crate) fn held_back(asked: &mut Inquiry<'_>) -> Option<Explanation> {
    protected(asked).or_else(|| beyond_guarantee(asked)).or_else(|| others_turn(asked))
}

/// Jobs that would give way, and be enough, are left in peace for now.
pub(crate) fn protected(asked: &mut Inquiry<'_>) -> Option<Explanation> {
    let now = asked.now();
    let mut until = asked.replaces_at(now).1?;
    // All protections but those for ever are over then.
    if !asked.replaces_at(LogTime(u64::MAX - 1)).0 {
        return None;
    }
    for _ in 0..PROTECTIONS {
        match asked.replaces_at(until) {
            (false, Some(later)) if later > until => until = later,
            _ => break,
        }
    }
    Some(explain_protected(now, until))
}

/// The queue, or one above it, is guaranteed something, others hold loans, and the job would start if it were not on
/// loan itself.
fn beyond_guarantee(asked: &mut Inquiry<'_>) -> Option<Explanation> {
    let least = asked.least_amount();
    let BeyondGuarantee { queue, guaranteed, holds } = asked.beyond_guarantee()?;
    let more = holds.plus(least).minus(guaranteed);
    let text = format!(
        "queue {queue:?} holds {} of the {} that it is guaranteed, and the job needs {}: beyond its guarantee it \
         cannot call back what others have borrowed",
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

/// Explains that blocks which become free go to another queue first.
fn others_turn(asked: &Inquiry<'_>) -> Option<Explanation> {
    let first = asked.turn_before()?;
    let (queue, other, percent) =
        (&asked.spec().queue, &first.queue, |ppm: u64| format!("{}.{:02} %", ppm / 10_000, ppm / 100 % 100));
    let text = format!(
        "too little is free, and what becomes free goes to queue {other:?} first: it has borrowed {} of the pool for \
         its weight, or is within its guarantee, and queue {queue:?} has borrowed {}",
        percent(first.share_ppm),
        percent(first.own_share_ppm),
    );
    let change =
        format!("give queue {queue:?} a higher weight or a guarantee, or wait: its share falls while others hold more");
    let numbers = Explanation::new(WaitCode::FairShareTurn, text)
        .with("share_ppm", first.own_share_ppm)
        .with("first_share_ppm", first.share_ppm)
        .with("first_job", first.job.0);
    Some(numbers.changed_by(change))
}

fn explain_protected(now: LogTime, until: LogTime) -> Explanation {
    let left = until.since(now);
    let text = format!(
        "jobs that would give way are left running for {} s more: they were preempted too often within the last \
         hour, or have not run as long as they asked to",
        left.as_secs().max(1)
    );
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    Explanation::new(WaitCode::VictimsProtected, text)
        .with("milliseconds_left", millis)
        .changed_by("wait; it is tried again by itself at that time")
}
