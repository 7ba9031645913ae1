//! The reason why a job waits: the one constraint that binds, its numbers, and the smallest change that would start it.

use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{IdleStep, Job, JobState, KEEP_LABEL, LogTime, MilliTflops, State};
use tessera_placement::{Inquiry, Pool, Reservation, STOPPING, Start};

use crate::held_back::{held_back, protected, queue_shortage};
use crate::shortage::{
    capacity_shortage, host_shortage, least, never_fits_together, never_together, refused_for_size, unmet_wish,
};
use crate::words::{Explanation, WaitCode};

/// Windows that open no sooner are as good as never open.
const DISTANT: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Says why a job waits at `now`, as far as the last decision of this pool knows what is kept for whom. Leaves the pool
/// as it was.
pub fn explain(pool: &mut Pool, state: &State, job: &Job, now: LogTime) -> Explanation {
    let now = now.max(state.time());
    if let Some(explanation) = standing(state, job, now) {
        return explanation;
    }
    let mut asked = pool.inquire_of(state, job, now);
    let explanation = match judge(&mut asked, state.waiting_key(job)) {
        Ok(start) => ready(&start.victims),
        Err(explanation) => explanation,
    };
    match state.order_of(&job.spec.queue) {
        Some(order) => explanation.in_band(order, job, now),
        None => explanation,
    }
}

/// The start of a job by the next decision: its places, and the jobs that give way for it.
///
/// # Errors
/// What keeps it from that.
pub(crate) fn judge(asked: &mut Inquiry<'_>, place: WaitingKey) -> Result<Start, Explanation> {
    let kept = asked.kept_from_it(place);
    asked.beside(&kept, |asked| asked.starts()).ok_or_else(|| {
        let explanation = kept_for_another(asked, &kept).unwrap_or_else(|| shortage(asked, &kept));
        let (fewest, most) = asked.spec().gang_sizes().into_inner();
        if fewest < most { explanation.of_elastic(fewest, most) } else { explanation }
    })
}

/// The shortage of a job that would not start either if nothing were kept for others.
fn shortage(asked: &mut Inquiry<'_>, kept: &[Reservation]) -> Explanation {
    if !asked.takes_cards() {
        if let Some(largest) = asked.largest_accepted() {
            return without_blocks(asked.state(), largest);
        }
        let text = "no card of the pool is of a kind, vendor, model, precision and isolation that it accepts";
        let change = "accept other kinds, vendors or models, another precision or a weaker isolation";
        return Explanation::new(WaitCode::NoAcceptableCard, text).changed_by(change);
    }
    if let Some(over) = queue_shortage(asked, asked.least_amount()) {
        return asked.beside(kept, protected).unwrap_or(over);
    }
    if let Some(amount) = asked.amount_now() {
        return queue_shortage(asked, amount).unwrap_or_else(|| capacity_shortage(asked));
    }
    if never_fits_together(asked) {
        return never_together(asked.spec());
    }
    if let Some(unmet) = unmet_wish(asked) {
        return unmet;
    }
    let lack = host_shortage(asked).unwrap_or_else(|| capacity_shortage(asked));
    if lack.code == WaitCode::NoNodeWithLabels {
        return lack;
    }
    if !asked.could_hold(least(asked.spec())) {
        return never_enough(lack);
    }
    asked.beside(kept, held_back).unwrap_or(lack)
}

/// Names the job for which cards are kept that would be enough: the first one without whose reservation it would start;
/// if only all of them together matter, the first.
fn kept_for_another(asked: &mut Inquiry<'_>, kept: &[Reservation]) -> Option<Explanation> {
    if kept.is_empty() || asked.starts().is_none() {
        return None;
    }
    let alone = (0..kept.len()).find(|place| {
        let others = kept[..*place].iter().chain(&kept[place + 1..]);
        asked.beside(others, |asked| asked.starts()).is_some()
    });
    let place = alone.unwrap_or(0);
    // Beside the cards that are kept there may be others, but not on a host of which as much is left.
    let mut but_hosts = kept.to_vec();
    *but_hosts.get_mut(place)? = kept[place].without_hosts();
    let on_hosts = asked.beside(&but_hosts, |asked| asked.starts()).is_some();
    Some(reserved(asked, &kept[place], on_hosts))
}

/// That a job is kept from cards, or from what is left of hosts.
fn reserved(asked: &Inquiry<'_>, kept: &Reservation, on_hosts: bool) -> Explanation {
    let (earlier, now) = (kept.holder(), asked.now());
    let what = if on_hosts { hosts_of(asked.state(), kept) } else { "the cards are".to_owned() };
    let text = format!("it would fit, but {what} kept for job {earlier}, which has waited longer");
    let mut explanation = Explanation::new(WaitCode::ReservedForEarlier, text)
        .with("cards_reserved", kept.cards() as u64)
        .with("reserved_for_job", earlier.0);
    if on_hosts {
        explanation = explanation.with("hosts_reserved", kept.hosts().count() as u64);
    }
    let free_by = kept.free_by();
    if let Some(free) = free_by {
        explanation = explanation.with("reserved_until_ms", free.max(now).0);
    }
    let again = format!("it is tried again when job {earlier} has started");
    // Even the shortest time limit is over too late where the room is free already, or is about to be.
    if free_by.is_some_and(|free| free > now.after(STOPPING)) {
        return explanation.changed_by(format!(
            "give it a time limit with which it is over before job {earlier} can start; else {again}"
        ));
    }
    explanation.changed_by(match kept.is_out_of_turn() {
        true => again,
        false => format!("{again}; a higher priority goes before it"),
    })
}

/// That a job takes cards of the pool, of which the largest computes so much, and that these have no blocks.
fn without_blocks(state: &State, largest: MilliTflops) -> Explanation {
    let (size, reference) = (state.config().block_size, state.config().reference_precision.name());
    let computes = match largest {
        MilliTflops::ZERO => format!("nothing in {reference}"),
        some => format!("{some} {reference}"),
    };
    let text = format!(
        "the cards that it accepts have no blocks: a block of this pool is {size} {reference}, and the largest of \
         them computes {computes}"
    );
    let change =
        "accept other cards, or make a pool with smaller blocks: cluster init --block-size, --reference-precision";
    let numbers =
        Explanation::new(WaitCode::NoBlocks, text).with("block_compute", size.0).with("largest_compute", largest.0);
    numbers.changed_by(change)
}

/// The hosts of which something is kept, for a sentence.
fn hosts_of(state: &State, kept: &Reservation) -> String {
    let mut hosts = kept.hosts();
    let first = hosts.next().and_then(|id| state.node(id)).map_or("", |node| &node.description.name);
    match hosts.count() {
        0 => format!("room on the host {first:?} is"),
        more => format!("room on the host {first:?} and {more} more is"),
    }
}

fn ready(victims: &[Arc<Job>]) -> Explanation {
    if victims.is_empty() {
        return Explanation::new(WaitCode::Ready, "it fits now; the next decision starts it");
    }
    let jobs: Vec<String> = victims.iter().map(|victim| victim.id.to_string()).collect();
    let text = format!("the next decision starts it in the place of job {}", jobs.join(", job "));
    Explanation::new(WaitCode::Ready, text).with("jobs_preempted", victims.len() as u64)
}

/// The reason in a job's own standing that keeps it from being considered.
pub(crate) fn standing(state: &State, job: &Job, now: LogTime) -> Option<Explanation> {
    if !matches!(job.state, JobState::Pending | JobState::Suspended) {
        return Some(Explanation::new(
            WaitCode::NotWaiting,
            format!("the job is {}: {}", job.state.name(), job.reason),
        ));
    }
    if job.held {
        return Some(Explanation::new(WaitCode::Held, "a person put it on hold").changed_by("release the job"));
    }
    if job.parked && job.idle_step() == Some(IdleStep::Suspended) {
        let text = "it was suspended because it computed next to nothing with what it held";
        let change = format!("resume the job; with the label {}={} it is left alone", KEEP_LABEL.0, KEEP_LABEL.1);
        return Some(Explanation::new(WaitCode::IdleSuspended, text).changed_by(change));
    }
    if job.parked {
        return Some(Explanation::new(WaitCode::SuspendedByUser, "a person suspended it").changed_by("resume the job"));
    }
    if let Some(explanation) = outside_window(state.job_closed_until(job), now) {
        return Some(explanation);
    }
    if job.not_before > now {
        let left = job.not_before.since(now);
        let text = format!("it waits {} s before attempt {}", left.as_secs().max(1), job.attempts.saturating_add(1));
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        return Some(Explanation::new(WaitCode::Backoff, text).with("milliseconds_left", millis));
    }
    refused_for_size(state, &job.spec)
}

pub(crate) fn outside_window(closed_until: LogTime, now: LogTime) -> Option<Explanation> {
    if closed_until <= now {
        return None;
    }
    let left = closed_until.since(now);
    let (text, millis) = match u64::try_from(left.as_millis()) {
        Ok(millis) if left < DISTANT => (format!("its next time window opens in {} s", left.as_secs().max(1)), millis),
        _ => ("no time window of it, or of its queue, is known to open".to_owned(), u64::MAX),
    };
    let change = "change the windows of the queue, or submit the job without windows of its own";
    Some(Explanation::new(WaitCode::OutsideWindow, text).with("milliseconds_left", millis).changed_by(change))
}

/// Says of a lack that no end of other work helps; its numbers stay, and so does what to change unless that is to wait.
fn never_enough(lack: Explanation) -> Explanation {
    let now = &lack.sentence;
    let sentence =
        format!("it would not fit if all other work on the nodes that take new work ended; as things are now, {now}");
    let ask = match lack.code {
        WaitCode::HostShort => "ask for less of the host or for fewer workers at once, or add or uncordon nodes",
        _ => "ask for fewer or smaller virtual cards, or add or uncordon nodes",
    };
    let change = lack.change.filter(|_| lack.code != WaitCode::HostShort).unwrap_or_else(|| ask.to_owned());
    Explanation { code: WaitCode::ExceedsPool, sentence, change: Some(change), numbers: lack.numbers }
}
