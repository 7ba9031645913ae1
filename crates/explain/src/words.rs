//! The parts of an explanation: a code, a sentence, numbers and the smallest change.

use tessera_ledger::{AttainedOrder, Job, LogTime, QueueAmount};

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

/// An explanation of why a job waits.
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
    /// Says as well where a job stands in a queue that goes by attained service.
    pub(crate) fn in_band(self, order: AttainedOrder, job: &Job, now: LogTime) -> Self {
        let service = job.attained(now);
        let band = order.band_of(service);
        let standing = match job.guarded {
            true => "it is one of the oldest of its queue, which go first".to_owned(),
            false => {
                format!("by what it has had of cards it is in band {band}, of 0 to {}", order.bands.saturating_sub(1))
            }
        };
        let sentence = format!("{}; {standing}", self.sentence);
        let numbers = Self { sentence, ..self }.with("band", band.into());
        numbers.with("attained_card_seconds", service.as_secs())
    }

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
    pub(crate) fn of_elastic(mut self, least: u32, most: u32) -> Self {
        self.sentence.push_str(&format!(" (for {least} virtual cards, the least of {least} to {most})"));
        self.with("gang_min", u64::from(least)).with("gang_max", u64::from(most))
    }
}

pub(crate) fn told(amount: QueueAmount) -> String {
    format!("{} and {}", amount.compute, amount.memory)
}

pub(crate) fn counted(amount: QueueAmount) -> [u64; 2] {
    [amount.compute.0, amount.memory.0]
}
