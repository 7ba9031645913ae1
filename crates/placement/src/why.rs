//! Why a job waits: the one constraint that binds, its numbers, and the smallest change that would start the job.

use std::sync::Arc;
use std::time::Duration;

use tessera_ledger::state::WaitingKey;
use tessera_ledger::{IdleStep, Job, JobSpec, JobState, KEEP_LABEL, LogTime, MilliTflops, State};

use crate::demand::{Applicant, Demand};
use crate::fit;
use crate::index::class::{ClassKey, Classes};
use crate::kept::Reservation;
use crate::pool::{Moment, Pool};
use crate::preempt::{Start, Victim};
use crate::queues;
use crate::request::STOPPING;
use crate::reserve;
use crate::shortage::{host_shortage, is_never_together, never_together, refused_for_size, unmet_wish};

/// Windows that open no sooner are as good as never open.
const DISTANT: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Words for what a job waits for, each with the one that the API uses for it.
macro_rules! wait_codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal,)*) => {
        /// The machine-readable part of an explanation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum WaitCode {
            $($(#[$doc])* $code,)*
        }

        impl WaitCode {
            /// The word used in the API; documented in docs/reasons.md.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }
        }
    };
}

wait_codes! {
    /// The job does not wait for an allocation.
    NotWaiting = "NOT_WAITING",
    /// A person put it on hold.
    Held = "HELD",
    /// A person suspended it.
    SuspendedByUser = "SUSPENDED_BY_USER",
    /// It was suspended because it computed next to nothing with what it held.
    IdleSuspended = "IDLE_SUSPENDED",
    /// It waits before the next attempt after a failure.
    Backoff = "BACKOFF",
    /// It is outside of its time windows, or of those of its queue.
    OutsideWindow = "OUTSIDE_WINDOW",
    /// The whole pool is too small for it, or what of it takes new work now.
    ExceedsPool = "EXCEEDS_POOL",
    /// No host that could have a program of it has what that asks of its host.
    ExceedsHost = "EXCEEDS_HOST",
    /// No card of the pool is of a kind, vendor, model, precision and isolation that it accepts.
    NoAcceptableCard = "NO_ACCEPTABLE_CARD",
    /// The cards that it accepts have no blocks: what each of them computes is less than one block of this pool.
    NoBlocks = "NO_BLOCKS",
    /// No node that takes new work carries the labels it asks for.
    NoNodeWithLabels = "NO_NODE_WITH_LABELS",
    /// Its queue, or one above it, is at its maximum.
    QueueMaximum = "QUEUE_MAXIMUM",
    /// Too few blocks are free on the cards that it accepts.
    ComputeShort = "COMPUTE_SHORT",
    /// Too little memory is free on the cards that it accepts.
    MemoryShort = "MEMORY_SHORT",
    /// It would fit on cards, but too little processor time or memory is left of the hosts for it.
    HostShort = "HOST_SHORT",
    /// Enough is free in all, but not together in the way that it asks for.
    Fragmented = "FRAGMENTED",
    /// It would fit, but not where its affinity allows it: not now, or, where the sentence says that waiting does not
    /// help, never in this pool.
    Affinity = "AFFINITY",
    /// It would fit, but the cards are kept for a job before it in line.
    ReservedForEarlier = "RESERVED_FOR_EARLIER",
    /// Others have borrowed what it needs, and it would take its queue beyond what the queue is guaranteed itself.
    BeyondGuarantee = "BEYOND_GUARANTEE",
    /// Too little is free, and what becomes free goes first to a queue that has borrowed less for its weight.
    FairShareTurn = "FAIR_SHARE_TURN",
    /// Jobs that would give way to it are protected for now: preempted too often, or not yet run as long as they
    /// asked to.
    VictimsProtected = "VICTIMS_PROTECTED",
    /// It found no room when it was tried last, though enough is free in all; said by lists only, `tessera job why`
    /// knows more.
    NoRoom = "NO_ROOM",
    /// It fits, or would once others give way to it; the next decision starts it.
    Ready = "READY",
}

/// Why a job waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The constraint that binds.
    pub code: WaitCode,
    /// One sentence for people.
    pub sentence: String,
    /// The numbers behind it, by name; compute in thousandths of a TFLOPS, memory in MiB.
    pub numbers: Vec<(&'static str, u64)>,
    /// The smallest change known that would start the job.
    pub change: Option<String>,
}

impl Explanation {
    pub(crate) fn new(code: WaitCode, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), numbers: Vec::new(), change: None }
    }

    pub(crate) fn with(mut self, name: &'static str, number: u64) -> Self {
        self.numbers.push((name, number));
        self
    }

    /// Adds numbers of two resources: all of the first, then all of the second.
    pub(crate) fn with_both<const N: usize>(mut self, each: [([&'static str; 2], [u64; 2]); N]) -> Self {
        for resource in 0..2 {
            self.numbers.extend(each.iter().map(|(names, numbers)| (names[resource], numbers[resource])));
        }
        self
    }

    pub(crate) fn changed_by(mut self, change: impl Into<String>) -> Self {
        self.change = Some(change.into());
        self
    }

    /// Says that all this is about the least number of virtual cards.
    fn of_elastic(mut self, demand: &Demand) -> Self {
        let (least, most) = (demand.gang_min(), demand.gang);
        self.sentence.push_str(&format!(" (for {least} virtual cards, the least of {least} to {most})"));
        self.with("gang_min", u64::from(least)).with("gang_max", u64::from(most))
    }
}

impl Pool {
    /// Says why a job waits at `now`, as far as the last decision knows what is kept for whom. Tries on the index and
    /// leaves it as it was.
    pub fn explain(&mut self, state: &State, job: &Job, now: LogTime) -> Explanation {
        let at = Moment::of(state, now);
        if let Some(explanation) = standing(at, job) {
            return explanation;
        }
        let applicant = Applicant::of(&job.spec, job.gave_way(), &self.index.classes, state.config());
        match self.judge(at, &applicant, WaitingKey::of(job)) {
            Ok((_, victims)) => ready(&victims),
            Err(explanation) => explanation,
        }
    }

    /// Where a job starts by the next decision, and who gives way for that.
    ///
    /// # Errors
    /// What keeps it from that.
    pub(crate) fn judge(&mut self, at: Moment<'_>, job: &Applicant, place: WaitingKey) -> Result<Start, Explanation> {
        let kept = self.binding(at, job, place);
        self.beside(&kept, |pool| pool.try_now(at, job)).ok_or_else(|| {
            let explanation = match self.kept_for_another(at, job, &kept) {
                Some(explanation) => explanation,
                None => self.shortage(at, job, &kept),
            };
            if job.demand.gang_min() < job.demand.gang { explanation.of_elastic(&job.demand) } else { explanation }
        })
    }

    /// What a job is short of that would not start either if nothing were kept for others.
    fn shortage(&mut self, at: Moment<'_>, job: &Applicant, kept: &[Reservation]) -> Explanation {
        let (demand, state) = (&job.least, at.state);
        if demand.offers.is_empty() {
            if let Some(without) = without_blocks(&self.index.classes, &job.spec, state) {
                return without;
            }
            let text = "no card of the pool is of a kind, vendor, model, precision and isolation that it accepts";
            let change = "accept other kinds, vendors or models, another precision or a weaker isolation";
            return Explanation::new(WaitCode::NoAcceptableCard, text).changed_by(change);
        }
        if let Some(over) = self.queue_shortage(at, job.queue(), job.amount) {
            return self.beside(kept, |pool| pool.protected(at, job)).unwrap_or(over);
        }
        if let Some(placement) = fit::would_take(&mut self.index, demand) {
            let amount = queues::amount_of(placement.slices(), state.config().block_size);
            let over = self.queue_shortage(at, job.queue(), amount);
            return over.unwrap_or_else(|| self.capacity_shortage(demand));
        }
        if is_never_together(&self.index, state, demand) {
            return never_together(demand);
        }
        if let Some(unmet) = unmet_wish(&mut self.index, demand) {
            return unmet;
        }
        let host = host_shortage(&mut self.index, demand);
        let lack = host.unwrap_or_else(|| self.capacity_shortage(demand));
        if lack.code == WaitCode::NoNodeWithLabels {
            return lack;
        }
        if !reserve::could_hold(&self.index, state, demand) {
            return never_enough(lack);
        }
        self.beside(kept, |pool| pool.held_back(at, job)).unwrap_or(lack)
    }

    /// Whether a job can never start in this pool because its workers must be together.
    #[must_use]
    pub fn is_never_together(&self, state: &State, spec: &Arc<JobSpec>) -> bool {
        let job = Applicant::of(spec, false, &self.index.classes, state.config());
        is_never_together(&self.index, state, &job.least)
    }

    /// Names the job for which cards are kept that would be enough: the first one without whose reservation it would
    /// start; if only all of them together matter, the first.
    fn kept_for_another(&mut self, at: Moment<'_>, job: &Applicant, kept: &[Reservation]) -> Option<Explanation> {
        if kept.is_empty() || self.try_now(at, job).is_none() {
            return None;
        }
        let alone = (0..kept.len()).find(|place| {
            let others = kept[..*place].iter().chain(&kept[place + 1..]);
            self.beside(others, |pool| pool.try_now(at, job).is_some())
        });
        let place = alone.unwrap_or(0);
        // Beside the cards that are kept there may be others, but not on a host of which as much is left.
        let mut but_hosts = kept.to_vec();
        but_hosts.get_mut(place)?.kept.hosts.clear();
        let on_hosts = self.beside(&but_hosts, |pool| pool.try_now(at, job).is_some());
        kept.get(place).map(|kept| reserved(at, kept, on_hosts))
    }
}

/// That a job is kept from cards, or from what is left of hosts.
fn reserved(at: Moment<'_>, kept: &Reservation, on_hosts: bool) -> Explanation {
    let earlier = kept.holder.job;
    let what = if on_hosts { hosts_of(at.state, kept) } else { "the cards are".to_owned() };
    let text = format!("it would fit, but {what} kept for job {earlier}, which has waited longer");
    let mut explanation = Explanation::new(WaitCode::ReservedForEarlier, text)
        .with("cards_reserved", kept.kept.cards.len() as u64)
        .with("reserved_for_job", earlier.0);
    if on_hosts {
        explanation = explanation.with("hosts_reserved", kept.kept.hosts.len() as u64);
    }
    let free_by = kept.kept.free_by;
    if let Some(free) = free_by {
        explanation = explanation.with("reserved_until_ms", free.max(at.now).0);
    }
    let again = format!("it is tried again when job {earlier} has started");
    // Even the shortest time limit is over too late where the room is free already, or is about to be.
    if free_by.is_some_and(|free| free > at.now.after(STOPPING)) {
        return explanation.changed_by(format!(
            "give it a time limit with which it is over before job {earlier} can start; else {again}"
        ));
    }
    explanation.changed_by(match kept.out_of_turn {
        true => again,
        false => format!("{again}; a higher priority goes before it"),
    })
}

/// That a job takes cards of the pool, and that these have no blocks.
pub(crate) fn without_blocks(classes: &Classes, spec: &JobSpec, state: &State) -> Option<Explanation> {
    let config = state.config();
    let precision = spec.virtual_card.precision.unwrap_or(config.reference_precision);
    let accepted = |key: &&ClassKey| key.class.is_accepted_by(spec) && key.class.rate(precision) > MilliTflops::ZERO;
    let classes: Vec<&ClassKey> = classes.in_order().map(|(key, _)| key).filter(accepted).collect();
    let largest = classes.iter().map(|key| key.class.rate(config.reference_precision)).max()?;
    let (size, reference) = (config.block_size, config.reference_precision.name());
    let computes = match largest {
        MilliTflops::ZERO => format!("nothing in {reference}"),
        some => format!("{some} {reference}"),
    };
    let text = format!(
        "the cards that it accepts have no blocks: a block of this pool is {size} {reference}, and the largest of them computes {computes}"
    );
    let change =
        "accept other cards, or make a pool with smaller blocks: cluster init --block-size, --reference-precision";
    let numbers =
        Explanation::new(WaitCode::NoBlocks, text).with("block_compute", size.0).with("largest_compute", largest.0);
    Some(numbers.changed_by(change))
}

/// The hosts of which something is kept, for a sentence.
fn hosts_of(state: &State, kept: &Reservation) -> String {
    let mut hosts = kept.kept.hosts.keys();
    let first = hosts.next().and_then(|id| state.node(*id)).map_or("", |node| &node.description.name);
    match hosts.count() {
        0 => format!("room on the host {first:?} is"),
        more => format!("room on the host {first:?} and {more} more is"),
    }
}

fn ready(victims: &[Arc<Victim>]) -> Explanation {
    if victims.is_empty() {
        return Explanation::new(WaitCode::Ready, "it fits now; the next decision starts it");
    }
    let jobs: Vec<String> = victims.iter().map(|victim| victim.job.id.to_string()).collect();
    let text = format!("the next decision starts it in the place of job {}", jobs.join(", job "));
    Explanation::new(WaitCode::Ready, text).with("jobs_preempted", victims.len() as u64)
}

/// What of a job's own standing keeps it from being considered.
pub(crate) fn standing(at: Moment<'_>, job: &Job) -> Option<Explanation> {
    let Moment { state, now } = at;
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
