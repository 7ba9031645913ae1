//! Why a job waits: the one constraint that binds, its numbers, and the smallest change that would start the job.

use tessera_ledger::{Job, JobId, JobState, LogTime, Rejection, State};

use crate::demand::Demand;
use crate::fit;
use crate::index::Index;
use crate::kept::Reservation;
use crate::pool::Pool;
use crate::reserve;
use crate::unmet;

/// The machine-readable part of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitCode {
    /// The job does not wait for a grant.
    NotWaiting,
    /// A person put it on hold.
    Held,
    /// A person suspended it.
    SuspendedByUser,
    /// It waits before the next attempt after a failure.
    Backoff,
    /// The whole pool is too small for it, or what of it takes new work now.
    ExceedsPool,
    /// No host with a card for it has what each of its workers asks of it.
    ExceedsHost,
    /// No card of the pool is of a kind, vendor, model, precision and isolation that it accepts.
    NoAcceptableCard,
    /// No node that takes new work carries the labels it asks for.
    NoNodeWithLabels,
    /// Its queue, or one above it, is at its maximum.
    QueueMaximum,
    /// Too few blocks are free on the cards that it accepts.
    ComputeShort,
    /// Too little memory is free on the cards that it accepts.
    MemoryShort,
    /// It would fit on cards, but too little processor time or memory is left of their hosts.
    HostShort,
    /// Enough is free in all, but not together in the way that it asks for.
    Fragmented,
    /// It would fit, but not where its affinity allows it.
    Affinity,
    /// It would fit, but the cards are kept for a job before it in line.
    ReservedForEarlier,
    /// Others have borrowed what it needs, and it would take its queue beyond what the queue is guaranteed itself.
    BeyondGuarantee,
    /// Too little is free, and what becomes free goes first to a queue that has borrowed less for its weight.
    FairShareTurn,
    /// Jobs that would give way to it are protected for now: preempted too often, or not yet run as long as they asked to.
    VictimsProtected,
    /// It fits; the next decision starts it.
    Ready,
}

impl WaitCode {
    /// The word used in the API; documented in docs/reasons.md.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotWaiting => "NOT_WAITING",
            Self::Held => "HELD",
            Self::SuspendedByUser => "SUSPENDED_BY_USER",
            Self::Backoff => "BACKOFF",
            Self::ExceedsPool => "EXCEEDS_POOL",
            Self::ExceedsHost => "EXCEEDS_HOST",
            Self::NoAcceptableCard => "NO_ACCEPTABLE_CARD",
            Self::NoNodeWithLabels => "NO_NODE_WITH_LABELS",
            Self::QueueMaximum => "QUEUE_MAXIMUM",
            Self::ComputeShort => "COMPUTE_SHORT",
            Self::MemoryShort => "MEMORY_SHORT",
            Self::HostShort => "HOST_SHORT",
            Self::Fragmented => "FRAGMENTED",
            Self::Affinity => "AFFINITY",
            Self::ReservedForEarlier => "RESERVED_FOR_EARLIER",
            Self::BeyondGuarantee => "BEYOND_GUARANTEE",
            Self::FairShareTurn => "FAIR_SHARE_TURN",
            Self::VictimsProtected => "VICTIMS_PROTECTED",
            Self::Ready => "READY",
        }
    }
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

    pub(crate) fn changed_by(mut self, change: impl Into<String>) -> Self {
        self.change = Some(change.into());
        self
    }

    /// Says that all this is about the least number of virtual cards.
    fn of_elastic(mut self, demand: &Demand) -> Self {
        let (least, most) = (demand.gang_min, demand.gang);
        self.sentence.push_str(&format!(" (for {least} virtual cards, the least of {least} to {most})"));
        self.with("gang_min", u64::from(least)).with("gang_max", u64::from(most))
    }
}

impl Pool {
    /// Says why a job waits at `now`. Tries on the index and leaves it as it was.
    pub fn explain(&mut self, state: &State, job: &Job, now: LogTime) -> Explanation {
        let now = now.max(state.time());
        if let Some(explanation) = standing(state, job, now) {
            return explanation;
        }
        let demand = Demand::compile(&job.spec, &self.index.classes, state.config());
        let least = demand.of_gang(demand.gang_min);
        let explanation = self.shortage(state, &job.spec.queue, &least, Some(job.id));
        let lacks_room = |explanation: &Explanation| {
            matches!(
                explanation.code,
                WaitCode::ComputeShort | WaitCode::MemoryShort | WaitCode::HostShort | WaitCode::Fragmented
            )
        };
        let explanation = match explanation {
            Some(lack) if lacks_room(&lack) && !reserve::could_hold(&self.index, &least) => Some(never_enough(lack)),
            Some(lack) if lacks_room(&lack) => Some(self.held_back(state, job, &least, now).unwrap_or(lack)),
            other => other,
        };
        let explanation = explanation.map(|explanation| match demand.gang_min < demand.gang {
            true => explanation.of_elastic(&demand),
            false => explanation,
        });
        explanation.unwrap_or_else(|| Explanation::new(WaitCode::Ready, "it fits now; the next decision starts it"))
    }

    /// What keeps a request from being granted now; `None` when it fits.
    pub(crate) fn shortage(
        &mut self,
        state: &State,
        queue: &str,
        demand: &Demand,
        job: Option<JobId>,
    ) -> Option<Explanation> {
        if demand.offers.is_empty() {
            let text = "no card of the pool is of a kind, vendor, model, precision and isolation that it accepts";
            let change = "accept other kinds, vendors or models, another precision or a weaker isolation";
            return Some(Explanation::new(WaitCode::NoAcceptableCard, text).changed_by(change));
        }
        if let Some(explanation) = self.queue_shortage(state, queue, demand) {
            return Some(explanation);
        }
        if !fits(&mut self.index, demand) {
            let unmet = unmet::explain(&mut self.index, demand);
            let unmet = unmet.or_else(|| unmet::host_shortage(&mut self.index, demand));
            return Some(unmet.unwrap_or_else(|| self.capacity_shortage(demand)));
        }
        self.kept_for_another(demand, job)
    }

    /// Names the job for which cards are kept that would be enough.
    fn kept_for_another(&mut self, demand: &Demand, job: Option<JobId>) -> Option<Explanation> {
        let others = self.reservations.iter().filter(|kept| job.is_none_or(|job| job != kept.holder.job));
        let kept: Vec<Reservation> = others.cloned().collect();
        kept.iter().for_each(|kept| self.index.set_hidden(&kept.cards, true));
        let fits_beside = fits(&mut self.index, demand);
        // The first one without whose reservation it would fit; if only all of them together matter, the first.
        let mut first = None;
        for kept in kept.iter().filter(|_| !fits_beside) {
            self.index.set_hidden(&kept.cards, false);
            if first.is_none() && fits(&mut self.index, demand) {
                first = Some(kept);
            }
            self.index.set_hidden(&kept.cards, true);
        }
        kept.iter().for_each(|kept| self.index.set_hidden(&kept.cards, false));
        let kept = first.or(kept.first()).filter(|_| !fits_beside)?;
        let earlier = kept.holder.job;
        let text = format!("it would fit, but the cards are kept for job {earlier}, which has waited longer");
        let explanation = Explanation::new(WaitCode::ReservedForEarlier, text)
            .with("cards_reserved", kept.cards.len() as u64)
            .with("reserved_for_job", earlier.0);
        Some(match kept.free_by {
            Some(at) => explanation.with("reserved_until_ms", at.0).changed_by(format!(
                "give it a time limit with which it is over before job {earlier} can start; else it is tried again when that job \
                 has started"
            )),
            None => explanation
                .changed_by(format!("it is tried again when job {earlier} has started; a higher priority goes before it")),
        })
    }
}

/// What of a job's own standing keeps it from being considered.
fn standing(state: &State, job: &Job, now: LogTime) -> Option<Explanation> {
    if !matches!(job.state, JobState::Pending | JobState::Suspended) {
        return Some(Explanation::new(
            WaitCode::NotWaiting,
            format!("the job is {}: {}", job.state.name(), job.reason),
        ));
    }
    if job.held {
        return Some(Explanation::new(WaitCode::Held, "a person put it on hold").changed_by("release the job"));
    }
    if job.parked {
        return Some(Explanation::new(WaitCode::SuspendedByUser, "a person suspended it").changed_by("resume the job"));
    }
    if job.not_before > now {
        let left = job.not_before.since(now);
        let text = format!("it waits {} s before attempt {}", left.as_secs().max(1), job.attempts.saturating_add(1));
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        return Some(Explanation::new(WaitCode::Backoff, text).with("milliseconds_left", millis));
    }
    state.capacity().admit(&job.spec, state.config().reference_precision).err().map(|refused| too_large(&refused))
}

/// What keeps a job from ever starting in this pool, with the numbers of the refusal that it would get now.
fn too_large(refused: &Rejection) -> Explanation {
    let explanation = |code| Explanation::new(code, refused.to_string());
    match refused {
        Rejection::ExceedsHost { demand, most } => explanation(WaitCode::ExceedsHost)
            .with("needed_milli_cpus", demand.cpu.0)
            .with("most_milli_cpus", most.cpu.0)
            .with("needed_host_memory", demand.memory.0)
            .with("most_host_memory", most.memory.0)
            .changed_by("ask for less of the host, or add nodes"),
        Rejection::ExceedsPool { demand, total } => explanation(WaitCode::ExceedsPool)
            .with("needed_compute", demand.0)
            .with("total_compute", total.0)
            .changed_by("ask for less, or add cards"),
        Rejection::ExceedsCard { demand, largest } => explanation(WaitCode::ExceedsPool)
            .with("needed_compute", demand.0)
            .with("largest_compute", largest.0)
            .changed_by("ask for less, or let the virtual card spread: span: node"),
        Rejection::ExceedsCardMemory { demand_mib, largest_mib } => explanation(WaitCode::ExceedsPool)
            .with("needed_memory", *demand_mib)
            .with("largest_memory", *largest_mib)
            .changed_by("ask for less, or let the virtual card spread: span: node"),
        Rejection::ExceedsMemory { demand_mib, total_mib } => explanation(WaitCode::ExceedsPool)
            .with("needed_memory", *demand_mib)
            .with("total_memory", *total_mib)
            .changed_by("ask for less, or add cards"),
        Rejection::ExceedsGang { gang, most } => explanation(WaitCode::ExceedsPool)
            .with("gang", u64::from(*gang))
            .with("most_virtual_cards", *most)
            .changed_by("ask for fewer or smaller virtual cards, or add cards"),
        _ => explanation(WaitCode::ExceedsPool).changed_by("ask for less, or add cards"),
    }
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

/// Whether a gang fits now; changes nothing.
pub(crate) fn fits(index: &mut Index, demand: &Demand) -> bool {
    let mark = index.mark();
    let fits = fit::place(index, demand).is_ok();
    index.undo_to(mark);
    fits
}
