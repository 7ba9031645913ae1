//! The sights that workloads are there for: each of these must be seen to happen in some seed of the suite, or the
//! suite fails. A promise about loans that nobody ever recalls is not tested.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::{Allocation, Command, Event, IdleStep, Job, JobId, JobState, Outcome, PlanPart, Reason, State};

use super::refusals::is_refused;
use super::wishes::granted;
use crate::journal::Applied;

/// Everything that is to be seen.
pub const ALL: [&str; 39] = [
    COPIED,
    WENT_ON,
    BORROWED,
    RECALLED,
    PREEMPTED,
    SMALL,
    SHRUNK,
    GREW,
    GROWN,
    HOST_HELD,
    HOST_FULL,
    TOGETHER,
    SPREAD,
    APART,
    PREFERRED,
    OVERSUBSCRIBED,
    OVERFULL,
    COMPACTED,
    MOVED,
    RENUMBERED,
    REFUSED,
    PART_REFUSED,
    FORGOTTEN,
    WAITED,
    IDLE_TOLD,
    IDLE_GAVE_WAY,
    IDLE_SUSPENDED,
    IDLE_ENDED,
    BUSY_AGAIN,
    CLOSED,
    OPENED,
    ENTRY_REFUSED,
    SNAPSHOT_REFUSED,
    HELLO_REFUSED,
    WELCOME_REFUSED,
    ORDERS_REFUSED,
    START_HEARD,
    DOUBLED,
    READS_AGAIN,
];

const COPIED: &str = "copy of a checkpoint kept";
const WENT_ON: &str = "attempt goes on from a checkpoint";
const BORROWED: &str = "queue holds more than its guarantee";
const RECALLED: &str = "loan recalled";
const PREEMPTED: &str = "job preempted by its own queue";
const SMALL: &str = "elastic gang starts smaller than it would like";
const SHRUNK: &str = "elastic gang is smaller than before";
const GREW: &str = "elastic gang is larger than before";
const GROWN: &str = "gang that was stopped to grow is larger than before";
const HOST_HELD: &str = "host held by a worker";
const HOST_FULL: &str = "host has no room for another such worker";
const TOGETHER: &str = "gang kept together";
const SPREAD: &str = "gang spread";
const APART: &str = "job kept apart from one that it avoids";
const PREFERRED: &str = "preferred label met";
const OVERSUBSCRIBED: &str = "block granted that its card is not rated for";
const OVERFULL: &str = "card holds more than it offers";
const COMPACTED: &str = "move of compaction";
const MOVED: &str = "move that somebody ordered";
const RENUMBERED: &str = "card renumbered";
const REFUSED: &str = "request refused by the ledger";
const PART_REFUSED: &str = "part of a plan refused";
const FORGOTTEN: &str = "past forgotten by the ledger";
const WAITED: &str = "allocation waits for those that give way";
const IDLE_TOLD: &str = "idle job told so";
const IDLE_GAVE_WAY: &str = "idle job made preemptible";
const IDLE_SUSPENDED: &str = "idle job suspended";
const IDLE_ENDED: &str = "idle job ended";
const BUSY_AGAIN: &str = "job that was idle is busy again";
const CLOSED: &str = "window closed on a running job";
const OPENED: &str = "window opened for a job that waited";
pub const ENTRY_REFUSED: &str = "entry of a stranger refused";
pub const SNAPSHOT_REFUSED: &str = "snapshot of a stranger refused";
pub const HELLO_REFUSED: &str = "hello of a stranger refused";
pub const WELCOME_REFUSED: &str = "welcome of a stranger refused";
pub const ORDERS_REFUSED: &str = "orders of a stranger refused";
pub const START_HEARD: &str = "forged start of a member heard";
pub const DOUBLED: &str = "copy of a member not listened to";
pub const READS_AGAIN: &str = "member reads again after its copy stopped";

/// A sight, among what a run has covered.
pub fn named(sight: &str) -> String {
    format!("seen: {sight}")
}

/// Looks at every entry.
#[derive(Default)]
pub struct Sights {
    /// With how many virtual cards each job ran last.
    sizes: BTreeMap<JobId, u32>,
}

impl Sights {
    /// The sights in an entry.
    pub fn of(&mut self, entry: &Applied) -> BTreeSet<&'static str> {
        let mut seen: BTreeSet<&'static str> = BTreeSet::new();
        seen.extend(answers(entry));
        if entry.events.is_empty() {
            return seen;
        }
        seen.extend(queues(entry));
        for allocation in granted(entry) {
            let Some(job) = entry.after.job(allocation.job) else { continue };
            seen.extend(opened(entry, job).then_some(OPENED));
            seen.extend(self.size(&entry.before, job, allocation));
            seen.extend(wishes(&entry.after, job, allocation));
            seen.extend(places(&entry.after, job, allocation));
        }
        let overfull = |event: &Event| matches!(event, Event::Config);
        if entry.events.iter().any(overfull) && entry.after.cards().any(|(_, card)| card.is_overfull()) {
            seen.insert(OVERFULL);
        }
        let goes_on = |event: &Event| match event {
            Event::Worker { allocation, .. } => {
                entry.after.allocation(*allocation).is_some_and(|begun| begun.from.is_some())
            }
            _ => false,
        };
        if entry.events.iter().any(goes_on) {
            seen.insert(WENT_ON);
        }
        if entry.after.compacted() > entry.before.compacted() {
            seen.insert(FORGOTTEN);
        }
        seen
    }

    /// The sights in the size of an elastic gang, and in its change.
    fn size(&mut self, state: &State, job: &Job, allocation: &Allocation) -> Vec<&'static str> {
        let size = allocation.virtual_cards();
        let before = self.sizes.insert(job.id, size).unwrap_or(size);
        let asked = state.job(job.id).is_some_and(|waiting| waiting.reason == Reason::Growing);
        let seen = [
            (size < job.spec.gang, SMALL),
            (size < before, SHRUNK),
            (size > before, GREW),
            (size > before && asked, GROWN),
        ];
        seen.into_iter().filter_map(|(seen, what)| seen.then_some(what)).collect()
    }
}

/// The sights in the answers to requests.
fn answers(entry: &Applied) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for (request, outcome) in entry.requests.iter().zip(&entry.outcomes) {
        match (&request.command, outcome) {
            (Command::NoteKept { kept, .. }, _) => seen.extend((!kept.is_empty()).then_some(COPIED)),
            (Command::NoteIdle { step, .. }, Outcome::Done) => seen.push(idleness(*step)),
            _ => {}
        }
        let (Command::CommitPlan { plan }, Outcome::Planned(answers)) = (&request.command, outcome) else {
            seen.extend(is_refused(outcome).then_some(REFUSED));
            continue;
        };
        seen.extend(plan.parts.iter().zip(answers).filter_map(|(part, answer)| match (part, answer) {
            (_, Err(_)) => Some(PART_REFUSED),
            (PlanPart::Renumber { .. }, Ok(_)) => Some(RENUMBERED),
            (PlanPart::Move { .. }, Ok(_)) => Some(if request.key.is_some() { MOVED } else { COMPACTED }),
            _ => None,
        }));
    }
    seen
}

/// The sight of a job's step of idleness.
const fn idleness(step: Option<IdleStep>) -> &'static str {
    match step {
        None => BUSY_AGAIN,
        Some(IdleStep::Noticed) => IDLE_TOLD,
        Some(IdleStep::Preemptible) => IDLE_GAVE_WAY,
        Some(IdleStep::Suspended) => IDLE_SUSPENDED,
        Some(IdleStep::Released) => IDLE_ENDED,
    }
}

/// The sights in loans between queues, in preemptions, and in the closing of windows.
fn queues(entry: &Applied) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for queue in entry.after.queues() {
        let guaranteed = queue.settings.guaranteed;
        let borrows = |queue: &tessera_ledger::Queue| !queue.standing().within(guaranteed);
        if guaranteed.compute.0 > 0
            && borrows(queue)
            && !entry.before.queue(&queue.settings.name).is_some_and(|queue| borrows(queue))
        {
            seen.push(BORROWED);
        }
    }
    for event in entry.events.iter() {
        match event {
            Event::Job { job, to: JobState::Suspending, reason: Reason::Preempted { beneficiary }, .. } => {
                let queue = |id: &JobId| entry.after.job(*id).map(|job| &job.spec.queue);
                seen.push(if queue(job) == queue(beneficiary) { PREEMPTED } else { RECALLED });
            }
            Event::Job { to: JobState::Starting, reason: Reason::WaitingForPreempted, .. } => seen.push(WAITED),
            Event::Job { to: JobState::Suspending, reason: Reason::OutsideWindow, .. } => seen.push(CLOSED),
            _ => {}
        }
    }
    seen
}

/// Returns whether a job is granted something that its windows kept from it before.
fn opened(entry: &Applied, job: &Job) -> bool {
    let closed_until = entry.before.job_closed_until(job);
    job.submitted_at < closed_until && closed_until <= entry.at.time
}

/// The sights in the wishes of a job that are met.
fn wishes(state: &State, job: &Job, allocation: &Allocation) -> Vec<&'static str> {
    let affinity = &job.spec.affinity;
    let values = |key: &str| -> BTreeSet<String> {
        let of = |worker: &tessera_ledger::Worker| Some(state.node(worker.node)?.description.label(key)?.to_owned());
        allocation.workers.iter().filter_map(of).collect()
    };
    let carried = |other: &Job| affinity.avoid.iter().all(|(key, value)| other.spec.labels.get(key) == Some(value));
    let elsewhere = || {
        state.allocations().filter_map(|other| state.job(other.job)).any(|other| other.id != job.id && carried(other))
    };
    let several = allocation.workers.len() > 1;
    let preferred = |label: &tessera_ledger::PreferredLabel| values(&label.key).contains(&label.value);
    let seen = [
        (several && !affinity.together.is_empty(), TOGETHER),
        (several && !affinity.spread.is_empty() && values(&affinity.spread).len() > 1, SPREAD),
        (!affinity.avoid.is_empty() && elsewhere(), APART),
        (affinity.preferred.iter().any(preferred), PREFERRED),
    ];
    seen.into_iter().filter_map(|(seen, what)| seen.then_some(what)).collect()
}

/// The sights in the blocks and hosts of an allocation.
fn places(state: &State, job: &Job, allocation: &Allocation) -> Vec<&'static str> {
    let config = state.config();
    let beyond = |slice: &tessera_ledger::Slice| {
        let card = state.card(slice.card);
        card.is_some_and(|card| {
            let rated = card.description.block_count(config.reference_precision, config.block_size);
            slice.start.0 + slice.length.0 > rated.0
        })
    };
    let full =
        |worker: &tessera_ledger::Worker| state.host_left(worker.node).is_some_and(|left| !job.spec.host.fits_in(left));
    let asks = !job.spec.host.is_zero();
    let seen = [
        (allocation.workers.iter().flat_map(|worker| &worker.slices).any(beyond), OVERSUBSCRIBED),
        (asks, HOST_HELD),
        (asks && allocation.workers.iter().any(full), HOST_FULL),
    ];
    seen.into_iter().filter_map(|(seen, what)| seen.then_some(what)).collect()
}
