//! Jobs as they are submitted: what can be asked for, what it counts for, and what no ledger may hold. Services check
//! the same and more beforehand, with the names of their own fields.
//!
//! A field is declared here, given its default in [`JobSpec::new`], counted in [`JobSpec::bytes`] and checked in
//! [`JobSpec::check`]. Whoever reads a whole job takes it apart field by field, here and elsewhere, so that one that is
//! forgotten does not compile.

mod policies;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::affinity::{Affinity, Packing};
use crate::checkpoint::MOST_CHECKPOINTS;
use crate::checks::{GANG_LIMIT, LONGEST, NAME_LIMIT, PRIORITY_LIMIT, check_host, check_name, check_windows};
use crate::host::HostRequest;
use crate::queue::DEFAULT_QUEUE;
use crate::rejection::Rejection;
use crate::units::{Mebibytes, MilliTflops};
use crate::virtual_card::{Access, DEVICE_KINDS, DEVICE_LABEL, DEVICE_VERSION_LABEL, VirtualCardRequest};

pub use policies::{CheckpointMode, CheckpointPolicy, OnDisconnect, RetryPolicy, TRANSPARENT_LABEL};

/// Priority of a job that names none.
pub const DEFAULT_PRIORITY: u32 = 50;
/// Cost of a job besides what its submitter wrote: its record, its history and its places in the indexes of members, in
/// bytes. Part of what replays of a log must agree on, so that it never changes (law L8).
const JOB_BYTES: u64 = 2048;
/// Cost of one entry of a list or map besides its text, in bytes. It never changes either.
const ENTRY_BYTES: u64 = 48;

/// A job as an engineer submitted it; it never changes afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobSpec {
    /// A name for people.
    pub name: String,
    pub queue: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment beside what Tessera sets.
    pub environment: BTreeMap<String, String>,
    /// Folder in which the program starts; empty: a fresh folder.
    pub working_directory: String,
    /// A script that travels with the job; empty: none.
    pub script: String,
    /// Number of virtual cards that start together or not at all.
    pub gang: u32,
    /// Requirements of each virtual card.
    pub virtual_card: VirtualCardRequest,
    /// 0 to 100; a higher one goes first.
    pub priority: u32,
    pub preemptible: bool,
    /// Policy of suspending the job.
    pub checkpoint: CheckpointPolicy,
    /// Policy for the work when its node is cut off.
    pub on_disconnect: OnDisconnect,
    /// Longest run of one attempt.
    pub time_limit: Option<Duration>,
    pub retry: RetryPolicy,
    /// Labels for people and queries.
    pub labels: BTreeMap<String, String>,
    /// Labels that a node must carry.
    pub node_labels: BTreeMap<String, String>,
    /// Time for which output is retained; `None`: the pool's setting.
    pub output_retention: Option<Duration>,
    /// Submitted on hold.
    pub held: bool,
    /// Host resources that each worker with a program needs besides its slices.
    pub host: HostRequest,
    /// Least number of virtual cards that it starts with; `None`: `gang`.
    pub gang_min: Option<u32>,
    /// Having run so long with fewer virtual cards than `gang`, it may be started again with more when there is room;
    /// `None`: it stays as it began.
    pub grow_after: Option<Duration>,
    /// It is not preempted before it has run so long.
    pub min_runtime: Duration,
    /// Placement preferences and constraints of its workers.
    pub affinity: Affinity,
    /// Distribution of its virtual cards over the pool; `None`: as its queue or the pool says.
    pub packing: Option<Packing>,
    /// Times at which the job may run, as `tessera-calendar` reads them; empty: any time.
    pub windows: Vec<String>,
}

impl JobSpec {
    /// A job that runs a program on one virtual card. Everything else is as for a job whose submitter says no more:
    /// this is where each field has its default.
    #[must_use]
    pub fn new(command: Vec<String>, virtual_card: VirtualCardRequest) -> Self {
        Self {
            name: String::new(),
            queue: DEFAULT_QUEUE.to_owned(),
            command,
            environment: BTreeMap::new(),
            working_directory: String::new(),
            script: String::new(),
            gang: 1,
            virtual_card,
            priority: DEFAULT_PRIORITY,
            preemptible: true,
            checkpoint: CheckpointPolicy::default(),
            on_disconnect: OnDisconnect::default(),
            time_limit: None,
            retry: RetryPolicy::default(),
            labels: BTreeMap::new(),
            node_labels: BTreeMap::new(),
            output_retention: None,
            held: false,
            host: HostRequest::ZERO,
            gang_min: None,
            grow_after: None,
            min_runtime: Duration::ZERO,
            affinity: Affinity::default(),
            packing: None,
            windows: Vec::new(),
        }
    }

    /// Fills in what follows from how its program uses its virtual card: a device of PyTorch needs nodes that serve
    /// devices, and cards of kinds that PyTorch has; one over several nodes the same PyTorch on each, and some memory
    /// of each card.
    #[must_use]
    pub fn with_needs_of_its_access(mut self) -> Self {
        if self.virtual_card.access.is_device() {
            let (key, value) = DEVICE_LABEL;
            self.node_labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
            if self.virtual_card.kinds.is_empty() {
                self.virtual_card.kinds = DEVICE_KINDS.into();
            }
        }
        if self.virtual_card.serves_across_nodes() {
            let memory = &mut self.virtual_card.slice_memory;
            *memory = (*memory).max(Mebibytes(1));
            if self.affinity.together.is_empty() {
                DEVICE_VERSION_LABEL.clone_into(&mut self.affinity.together);
            }
        }
        self
    }

    /// Fills in what follows from how it is saved, where its submitter says nothing: a program that is dumped needs a
    /// node that can. Only for jobs that are submitted: one that the log has without stays as it is.
    #[must_use]
    pub fn with_needs_of_its_mode(mut self) -> Self {
        if self.checkpoint.mode == CheckpointMode::Transparent {
            let (key, value) = TRANSPARENT_LABEL;
            self.node_labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        self
    }

    /// Returns whether the job is to be saved when it is told to stop in order to resume later. The stop itself shows
    /// whether it was saved.
    #[must_use]
    pub fn is_saved(&self) -> bool {
        let (key, value) = TRANSPARENT_LABEL;
        match self.checkpoint.mode {
            CheckpointMode::Cooperative => true,
            CheckpointMode::Transparent => self.node_labels.get(key).is_some_and(|has| has == value),
            CheckpointMode::Requeue => false,
        }
    }

    /// Numbers of virtual cards with which it may start: `gang_min..=gang`.
    #[must_use]
    pub fn gang_sizes(&self) -> RangeInclusive<u32> {
        self.gang_min.unwrap_or(self.gang)..=self.gang
    }

    /// Cost of the job in the memory of a member, in bytes, as budgets count it: its text, something for each entry of
    /// its lists, and a fixed amount for being there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        // Not counted is what takes no memory of its own, and the name of a signal, which is never long.
        let Self {
            name,
            queue,
            command,
            environment,
            working_directory,
            script,
            gang: _,
            virtual_card,
            priority: _,
            preemptible: _,
            checkpoint: _,
            on_disconnect: _,
            time_limit: _,
            retry: _,
            labels,
            node_labels,
            output_retention: _,
            held: _,
            host: _,
            gang_min: _,
            grow_after: _,
            min_runtime: _,
            affinity: Affinity { preferred, together, spread, avoid, data },
            packing: _,
            windows,
        } = self;
        let VirtualCardRequest {
            compute: _,
            memory: _,
            precision: _,
            span: _,
            kinds: _,
            mixed: _,
            isolation: _,
            vendors,
            models,
            whole_cards: _,
            slice_memory: _,
            access: _,
            elastic: _,
        } = virtual_card;
        let single = [name, queue, working_directory, script, together, spread];
        let lists = command.iter().chain(vendors).chain(models).chain(data).chain(windows);
        let maps = [environment, labels, node_labels, avoid];
        let pairs = maps.into_iter().flatten().map(|(key, value)| key.len() + value.len());
        let preferred = preferred.iter().map(|label| label.key.len() + label.value.len());
        let entries = lists.map(String::len).chain(pairs).chain(preferred);
        let text: usize = single.into_iter().map(String::len).sum();
        entries.fold(JOB_BYTES + text as u64, |sum, length| sum + ENTRY_BYTES + length as u64)
    }

    /// Refuses a job that no ledger may hold.
    ///
    /// # Errors
    /// [`Rejection::Invalid`] with the path of the first field that is not acceptable.
    pub fn check(&self) -> Result<(), Rejection> {
        // What is not checked here is acceptable whatever it is: texts are bounded by the budget for jobs.
        let Self {
            name,
            queue,
            command,
            environment: _,
            working_directory: _,
            script,
            gang,
            virtual_card,
            priority,
            preemptible: _,
            checkpoint: CheckpointPolicy { mode, signal: _, grace, every, keep, fallback },
            on_disconnect: _,
            time_limit,
            retry: RetryPolicy { max_retries: _, backoff, max_backoff },
            labels: _,
            node_labels,
            output_retention,
            held: _,
            host,
            gang_min,
            grow_after,
            min_runtime,
            affinity,
            packing: _,
            windows,
        } = self;
        check_name("spec.queue", queue)?;
        if name.len() > NAME_LIMIT {
            return Err(Rejection::invalid("spec.name", format!("must have at most {NAME_LIMIT} bytes")));
        }
        let has_program = command.first().is_some_and(|program| !program.is_empty()) || !script.is_empty();
        let problem = match (virtual_card.access, has_program) {
            (Access::Worker | Access::Device, true) | (Access::Remote, false) => None,
            (Access::Remote, true) => Some("must be empty when access is remote, and so must the script"),
            (Access::Worker | Access::Device, false) => Some("must name a program, or a script must be given"),
        };
        if let Some(problem) = problem {
            return Err(Rejection::invalid("spec.command", problem));
        }
        if virtual_card.access == Access::Remote && *gang != 1 {
            return Err(Rejection::invalid("spec.gang", "must be 1 when access is remote"));
        }
        if *gang == 0 || *gang > GANG_LIMIT {
            return Err(Rejection::invalid("spec.gang", format!("must be 1 to {GANG_LIMIT}")));
        }
        if *priority > PRIORITY_LIMIT {
            return Err(Rejection::invalid("spec.priority", format!("must be 0 to {PRIORITY_LIMIT}")));
        }
        if virtual_card.compute == MilliTflops::ZERO {
            return Err(Rejection::invalid("spec.virtual_card.milli_tflops", "must be more than zero"));
        }
        virtual_card.check_access(node_labels)?;
        if keep.is_some_and(|keep| !(1..=MOST_CHECKPOINTS).contains(&keep)) {
            let problem = format!("must be 1 to {MOST_CHECKPOINTS}");
            return Err(Rejection::invalid("spec.checkpoint.keep", problem));
        }
        if !fallback.is_one_for(*mode) {
            let problem = "must be cooperative or requeue, and is for mode transparent";
            return Err(Rejection::invalid("spec.checkpoint.fallback", problem));
        }
        let times = [
            ("spec.checkpoint.grace", *grace),
            ("spec.checkpoint.every", every.unwrap_or_default()),
            ("spec.time_limit", time_limit.unwrap_or_default()),
            ("spec.retry.backoff", *backoff),
            ("spec.retry.max_backoff", *max_backoff),
            ("spec.output_retention", output_retention.unwrap_or_default()),
            ("spec.grow_after", grow_after.unwrap_or_default()),
            ("spec.min_runtime", *min_runtime),
        ];
        for (field, time) in times {
            if time > LONGEST {
                return Err(Rejection::invalid(field, "must be at most ten years"));
            }
        }
        if gang_min.is_some_and(|least| least == 0 || least > *gang) {
            return Err(Rejection::invalid("spec.gang_min", format!("must be 1 to {gang}, the gang")));
        }
        check_host("spec.host", *host)?;
        check_windows("spec.windows", windows)?;
        affinity.check()
    }
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
