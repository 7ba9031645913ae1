//! Why a job waits: the one constraint that binds, its numbers, and the smallest change that would start the job.

use tessera_ledger::{BlockCount, Job, JobId, JobState, MilliTflops, Rejection, Span, State};

use crate::demand::{Demand, Offer};
use crate::fit;
use crate::index::Index;
use crate::kept::Reservation;
use crate::pool::Pool;
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
    /// The whole pool is too small for it.
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

/// What the cards that a job accepts have left, together and at best in one place.
#[derive(Clone, Copy, Debug, Default)]
struct Supply {
    compute: u64,
    memory: u64,
    best_compute: u64,
    best_memory: u64,
    nodes: u64,
}

impl Pool {
    /// Says why a job waits. Tries on the index and leaves it as it was.
    pub fn explain(&mut self, state: &State, job: &Job) -> Explanation {
        if let Some(explanation) = standing(state, job) {
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
            Some(lack) if lacks_room(&lack) => Some(self.held_back(state, job, &least).unwrap_or(lack)),
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

    /// Names the shortest of compute, memory and room together.
    fn capacity_shortage(&mut self, demand: &Demand) -> Explanation {
        let supply = supply(&self.index, demand);
        if supply.nodes == 0 {
            let labels: Vec<String> = demand.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let text = format!("no node that takes new work has a card for it and the labels {}", labels.join(", "));
            return Explanation::new(WaitCode::NoNodeWithLabels, text)
                .changed_by("ask for other labels, or uncordon nodes");
        }
        let compute = demand.compute.saturating_mul(u64::from(demand.gang));
        let memory = demand.memory.saturating_mul(u64::from(demand.gang));
        let change = self.smallest_change(demand);
        let place = match demand.span {
            Span::Card => "card",
            Span::Node => "node",
            Span::Pool => "kind of card",
        };
        let explanation = if supply.compute < compute {
            let (asked, free) = (MilliTflops(compute), MilliTflops(supply.compute));
            let missing = MilliTflops(compute - supply.compute);
            let text =
                format!("it needs {asked} and {free} is free on the cards that it accepts: {missing} too little");
            Explanation::new(WaitCode::ComputeShort, text)
        } else if supply.memory < memory {
            let missing = memory - supply.memory;
            let text = format!(
                "it needs {memory} MiB and {} MiB is free on the cards that it accepts: {missing} MiB too little",
                supply.memory
            );
            Explanation::new(WaitCode::MemoryShort, text)
        } else {
            let text = format!(
                "enough is free in all, but not together: each of its {} virtual cards needs {} and {} MiB on one {place}, \
                 and the {place} with the most has {} and {} MiB",
                demand.gang,
                MilliTflops(demand.compute),
                demand.memory,
                MilliTflops(supply.best_compute),
                supply.best_memory,
            );
            Explanation::new(WaitCode::Fragmented, text)
        };
        let explanation = explanation
            .with("needed_compute", compute)
            .with("free_compute", supply.compute)
            .with("best_compute", supply.best_compute)
            .with("needed_memory", memory)
            .with("free_memory", supply.memory)
            .with("best_memory", supply.best_memory);
        match change {
            Some(change) => explanation.changed_by(change),
            None => explanation,
        }
    }

    /// The first of the changes that ask least of the user, or of the pool.
    fn smallest_change(&mut self, demand: &Demand) -> Option<String> {
        for (span, name) in [(Span::Node, "node"), (Span::Pool, "pool")] {
            let wider = demand.changed(|demand| demand.span = span);
            if span > demand.span && fits(&mut self.index, &wider) {
                return Some(format!("allow the virtual card to spread: span: {name}"));
            }
        }
        let mixed = demand.changed(|demand| (demand.mixed, demand.span) = (true, demand.span.max(Span::Node)));
        if !demand.mixed && fits(&mut self.index, &mixed) {
            return Some("allow several kinds of cards in one virtual card: mixed: true".to_owned());
        }
        let unlabelled = demand.changed(|demand| demand.labels.clear());
        if !demand.labels.is_empty() && fits(&mut self.index, &unlabelled) {
            return Some("ask for no node labels".to_owned());
        }
        if let Some(compute) = largest_that_fits(&mut self.index, demand) {
            return Some(format!("ask for at most {} per virtual card", MilliTflops(compute)));
        }
        largest_gang(&mut self.index, demand).map(|gang| format!("ask for at most {gang} virtual cards at once"))
    }
}

/// What of a job's own standing keeps it from being considered.
fn standing(state: &State, job: &Job) -> Option<Explanation> {
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
    if job.not_before > state.time() {
        let left = job.not_before.since(state.time());
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
        _ => explanation(WaitCode::ExceedsPool).changed_by("ask for less, or add cards"),
    }
}

/// Whether a gang fits now; changes nothing.
pub(crate) fn fits(index: &mut Index, demand: &Demand) -> bool {
    let mark = index.mark();
    let fits = fit::place(index, demand).is_ok();
    index.undo_to(mark);
    fits
}

/// What is left for a demand.
fn supply(index: &Index, demand: &Demand) -> Supply {
    let mut supply = Supply::default();
    for (_, node) in index.nodes() {
        if !node.node.as_ref().is_some_and(|node| node.grantable() && demand.accepts(node)) {
            continue;
        }
        let offer_of = |card: &crate::index::card::CardEntry| demand.offer_of(card.class).copied();
        let cards: Vec<(Offer, &crate::index::card::CardEntry)> =
            node.cards.iter().filter_map(|card| Some((offer_of(card)?, card))).collect();
        supply.nodes += u64::from(!cards.is_empty());
        let (mut node_compute, mut node_memory) = (0u64, 0u64);
        for (offer, card) in cards.iter().filter(|(_, card)| card.offered() > 0) {
            let compute = offer.compute_of(card.offered());
            node_compute = node_compute.saturating_add(compute);
            node_memory = node_memory.saturating_add(card.memory_free);
            if demand.span == Span::Card && compute >= supply.best_compute {
                (supply.best_compute, supply.best_memory) = (compute, card.memory_free);
            }
        }
        if demand.span != Span::Card && node_compute >= supply.best_compute {
            (supply.best_compute, supply.best_memory) = (node_compute, node_memory);
        }
        supply.compute = supply.compute.saturating_add(node_compute);
        supply.memory = supply.memory.saturating_add(node_memory);
    }
    supply
}

/// The most compute per virtual card with which the gang would fit, in whole blocks of the class that gives the finest steps.
fn largest_that_fits(index: &mut Index, demand: &Demand) -> Option<u64> {
    let step = demand.offers.iter().map(|offer| offer.compute_of(BlockCount(1).0)).filter(|step| *step > 0).min()?;
    let (mut fitting, mut failing) = (0u64, demand.compute / step);
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        let smaller = demand.changed(|demand| {
            demand.compute = middle * step;
            for offer in &mut demand.offers {
                offer.need = offer.blocks_for(middle * step).max(1);
            }
        });
        if fits(index, &smaller) { fitting = middle } else { failing = middle }
    }
    (fitting > 0).then_some(fitting * step)
}

/// The largest gang of the same virtual cards that fits.
fn largest_gang(index: &mut Index, demand: &Demand) -> Option<u32> {
    let (mut fitting, mut failing) = (0u32, demand.gang);
    while failing - fitting > 1 {
        let middle = fitting + (failing - fitting) / 2;
        let smaller = demand.changed(|demand| demand.gang = middle);
        if fits(index, &smaller) { fitting = middle } else { failing = middle }
    }
    (fitting > 0).then_some(fitting)
}
