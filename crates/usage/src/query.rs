//! Questions to the accounts, and their answers.

use tessera_ledger::{LogTime, Revision};

/// By what sums are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GroupBy {
    /// All together.
    #[default]
    Nothing,
    Job,
    Submitter,
    Queue,
    Kind,
    /// By the value of a label.
    Label(String),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// From when on; zero: from the beginning.
    pub from: LogTime,
    /// Until when; `None`: until now.
    pub to: Option<LogTime>,
    pub by: GroupBy,
    /// Only this queue.
    pub queue: Option<String>,
    /// Only what this person submitted.
    pub submitter: Option<String>,
    /// Most rows; those with the most blocks come first.
    pub rows: usize,
}

/// Sums over time. Milliseconds, so that they are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Blocks times milliseconds.
    pub block_ms: u128,
    /// Thousandths of a TFLOPS times milliseconds.
    pub milli_tflops_ms: u128,
    /// MiB of card memory times milliseconds.
    pub memory_mib_ms: u128,
    /// As far as of `block_ms` the work was lost.
    pub lost_block_ms: u128,
}

impl Sums {
    pub(crate) fn add(&mut self, other: Self) {
        self.block_ms += other.block_ms;
        self.milli_tflops_ms += other.milli_tflops_ms;
        self.memory_mib_ms += other.memory_mib_ms;
        self.lost_block_ms += other.lost_block_ms;
    }
}

/// One group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The common key of the group: a number, a name, or the value of a label; empty: its jobs have no such label.
    pub key: String,
    /// The name of the job, in sums job by job.
    pub name: String,
    pub sums: Sums,
    /// The same by kind of card.
    pub kinds: Vec<(String, Sums)>,
    /// The number of jobs that held something.
    pub jobs: u64,
}

/// A time of which these accounts know nothing, because this member was not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The last entry that is known before it.
    pub after: Revision,
    /// The first entry that is known after it.
    pub before: Revision,
    /// Its time: what happened since then is not known; zero: since the beginning.
    pub from: LogTime,
    /// Until then.
    pub to: LogTime,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The groups, those with the most blocks first.
    pub rows: Vec<Row>,
    /// The number of groups beyond those.
    pub left_out: u64,
    /// Everything together, also what was left out.
    pub total: Row,
    /// Up to when it counts.
    pub to: LogTime,
    /// Gaps in the time asked for.
    pub gaps: Vec<Gap>,
}
