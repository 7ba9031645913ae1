//! What the ledger accepts: the last line of checks, independent of whoever built the command. Services check the same
//! and more beforehand, with the names of their own fields.

use std::time::Duration;

use crate::card::{CardDescription, CardKind, Isolation};
use crate::config::{PoolConfig, PoolLimits};
use crate::host::{HostCapacity, HostRequest};
use crate::job::{Affinity, JobSpec, VirtualCardRequest};
use crate::node::NodeDescription;
use crate::rejection::Rejection;
use crate::units::{Mebibytes, MilliCpus, MilliTflops, Percent};

/// Most virtual cards in a gang.
pub const GANG_LIMIT: u32 = 4096;
/// Highest priority.
pub const PRIORITY_LIMIT: u32 = 100;
/// Longest name in bytes.
pub const NAME_LIMIT: usize = 253;
/// Most cards of one node.
pub const CARD_LIMIT: usize = 1024;
/// Most blocks of one card.
pub const BLOCK_LIMIT: u32 = 1_000_000;
/// Most processor time of one host: a million processors.
pub const CPU_LIMIT: MilliCpus = MilliCpus(1_000_000_000);
/// Most memory of one host or card, in MiB: 4 PiB.
pub const MEMORY_LIMIT: u64 = 1 << 32;
/// Most labels that a job names, and most data that it will read.
pub const LABEL_LIMIT: usize = 64;
/// Most data on a node's disks.
pub const CACHED_LIMIT: usize = 10_000;
/// Highest weight of a preferred label.
pub const WEIGHT_LIMIT: u32 = 100;
/// Most that cards may be oversubscribed.
pub const OVERSUBSCRIPTION_LIMIT: Percent = Percent(1000);
/// What a job costs beside what its submitter wrote: its record, its history and its places in the indexes of members,
/// in bytes. Part of what replays of a log must agree on, so that it never changes (law L8).
const JOB_BYTES: u64 = 2048;
/// What one entry of a list or map costs beside its text, in bytes. It never changes either.
const ENTRY_BYTES: u64 = 48;
/// Longest time that any setting can hold.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

impl VirtualCardRequest {
    /// The memory that it needs of a card that backs it alone.
    #[must_use]
    pub fn memory_on_one_card(&self) -> Mebibytes {
        self.memory.max(self.slice_memory)
    }

    /// Whether such a card may back the virtual card.
    #[must_use]
    pub fn accepts(&self, kind: CardKind, vendor: &str, model: &str, isolation: Isolation) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && (self.vendors.is_empty() || self.vendors.contains(vendor))
            && (self.models.is_empty() || self.models.contains(model))
            && self.isolation <= isolation
    }
}

impl JobSpec {
    /// What the job costs in the memory of a member, in bytes, as budgets count it: its text, something for each entry
    /// of its lists, and a fixed amount for being there.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let (card, affinity) = (&self.virtual_card, &self.affinity);
        let single =
            [&self.name, &self.queue, &self.working_directory, &self.script, &affinity.together, &affinity.spread];
        let lists = self.command.iter().chain(&card.vendors).chain(&card.models).chain(&affinity.data);
        let maps = [&self.environment, &self.labels, &self.node_labels, &affinity.avoid];
        let pairs = maps.into_iter().flatten().map(|(key, value)| key.len() + value.len());
        let preferred = affinity.preferred.iter().map(|label| label.key.len() + label.value.len());
        let entries = lists.map(String::len).chain(pairs).chain(preferred);
        let text: usize = single.into_iter().map(String::len).sum();
        entries.fold(JOB_BYTES + text as u64, |sum, length| sum + ENTRY_BYTES + length as u64)
    }

    /// Refuses a job that no ledger may hold.
    ///
    /// # Errors
    /// [`Rejection::Invalid`] with the path of the first field that is not acceptable.
    pub fn check(&self) -> Result<(), Rejection> {
        check_name("spec.queue", &self.queue)?;
        if self.name.len() > NAME_LIMIT {
            return Err(Rejection::invalid("spec.name", format!("must have at most {NAME_LIMIT} bytes")));
        }
        if self.command.first().is_none_or(String::is_empty) && self.script.is_empty() {
            return Err(Rejection::invalid("spec.command", "must name a program, or a script must be given"));
        }
        if self.gang == 0 || self.gang > GANG_LIMIT {
            return Err(Rejection::invalid("spec.gang", format!("must be 1 to {GANG_LIMIT}")));
        }
        if self.priority > PRIORITY_LIMIT {
            return Err(Rejection::invalid("spec.priority", format!("must be 0 to {PRIORITY_LIMIT}")));
        }
        if self.virtual_card.compute == MilliTflops::ZERO {
            return Err(Rejection::invalid("spec.virtual_card.tflops", "must be more than zero"));
        }
        let times = [
            ("spec.checkpoint.grace", self.checkpoint.grace),
            ("spec.time_limit", self.time_limit.unwrap_or_default()),
            ("spec.retry.backoff", self.retry.backoff),
            ("spec.retry.max_backoff", self.retry.max_backoff),
            ("spec.output_retention", self.output_retention.unwrap_or_default()),
            ("spec.min_runtime", self.min_runtime),
        ];
        for (field, time) in times {
            if time > LONGEST {
                return Err(Rejection::invalid(field, "must be at most ten years"));
            }
        }
        if self.gang_min.is_some_and(|least| least == 0 || least > self.gang) {
            return Err(Rejection::invalid("spec.gang_min", format!("must be 1 to {}, the gang", self.gang)));
        }
        check_host("spec.host", self.host)?;
        self.affinity.check()
    }
}

impl Affinity {
    fn check(&self) -> Result<(), Rejection> {
        let counts = [
            ("spec.affinity.preferred", self.preferred.len()),
            ("spec.affinity.avoid", self.avoid.len()),
            ("spec.affinity.data", self.data.len()),
        ];
        for (field, count) in counts {
            if count > LABEL_LIMIT {
                return Err(Rejection::invalid(field, format!("must be at most {LABEL_LIMIT}")));
            }
        }
        for (place, label) in self.preferred.iter().enumerate() {
            check_name(&format!("spec.affinity.preferred[{place}].key"), &label.key)?;
            if label.weight == 0 || label.weight > WEIGHT_LIMIT {
                let field = format!("spec.affinity.preferred[{place}].weight");
                return Err(Rejection::invalid(field, format!("must be 1 to {WEIGHT_LIMIT}")));
            }
        }
        for (field, key) in [("spec.affinity.together", &self.together), ("spec.affinity.spread", &self.spread)] {
            if !key.is_empty() {
                check_name(field, key)?;
            }
        }
        if !self.together.is_empty() && self.together == self.spread {
            return Err(Rejection::invalid("spec.affinity.spread", "must be another key than spec.affinity.together"));
        }
        self.avoid.keys().try_for_each(|key| check_name("spec.affinity.avoid", key))?;
        self.data.iter().try_for_each(|name| check_data_name("spec.affinity.data", name))
    }
}

/// Refuses amounts that no host could have.
fn check_host(field: &str, host: HostRequest) -> Result<(), Rejection> {
    if host.cpu > CPU_LIMIT {
        return Err(Rejection::invalid(format!("{field}.milli_cpus"), format!("must be at most {}", CPU_LIMIT.0)));
    }
    if host.memory.0 > MEMORY_LIMIT {
        return Err(Rejection::invalid(format!("{field}.memory_mib"), "must be at most 4 PiB"));
    }
    Ok(())
}

/// Refuses names of data that could not be a file's name on one line.
fn check_data_name(field: &str, name: &str) -> Result<(), Rejection> {
    if name.is_empty() || name.len() > NAME_LIMIT || name.contains(char::is_control) {
        return Err(Rejection::invalid(field, format!("must be 1 to {NAME_LIMIT} bytes on one line, not {name:?}")));
    }
    Ok(())
}

/// Refuses what an agent says of the data on its disks when it is absurd.
pub(crate) fn check_cached(cached: &std::collections::BTreeSet<String>) -> Result<(), Rejection> {
    if cached.len() > CACHED_LIMIT {
        return Err(Rejection::invalid("node.cached", format!("must be at most {CACHED_LIMIT} names")));
    }
    cached.iter().try_for_each(|name| check_data_name("node.cached", name))
}

/// Refuses names that could not be written in a path, a label or a command line.
pub(crate) fn check_name(field: &str, name: &str) -> Result<(), Rejection> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if name.is_empty() || name.len() > NAME_LIMIT || !name.chars().all(allowed) {
        let problem = format!("must be 1 to {NAME_LIMIT} letters, digits, '-', '_', '.' or '/', not {name:?}");
        return Err(Rejection::invalid(field, problem));
    }
    Ok(())
}

/// Refuses a node that cannot be named or told apart.
pub(crate) fn check_node(node: &NodeDescription) -> Result<(), Rejection> {
    check_name("node.name", &node.name)?;
    if node.uid.is_empty() || node.uid.len() > NAME_LIMIT {
        return Err(Rejection::invalid("node.uid", format!("must have 1 to {NAME_LIMIT} bytes")));
    }
    if let Some(HostCapacity { cpu, memory }) = node.host {
        check_host("node.host", HostRequest { cpu, memory })?;
    }
    check_cached(&node.cached)
}

/// Refuses cards that are not numbered from 0 in the order of kinds (P2), or whose sizes are absurd.
pub(crate) fn check_cards(cards: &[CardDescription]) -> Result<(), Rejection> {
    if cards.len() > CARD_LIMIT {
        return Err(Rejection::invalid("node.cards", format!("must be at most {CARD_LIMIT}")));
    }
    for (place, card) in cards.iter().enumerate() {
        let field = |name: &str| format!("node.cards[{place}].{name}");
        if card.index as usize != place {
            return Err(Rejection::invalid(field("index"), "must count up from 0"));
        }
        if place > 0 && cards[place - 1].kind > card.kind {
            return Err(Rejection::invalid(field("kind"), "must be in the order gpu, npu, fpga, cpu"));
        }
        let limit = MilliTflops::from_tflops(u64::from(BLOCK_LIMIT));
        if card.rated.values().chain(card.measured.values()).any(|rate| *rate > limit) {
            return Err(Rejection::invalid(field("rated"), format!("must be at most {limit}")));
        }
        if card.memory.0 > MEMORY_LIMIT {
            return Err(Rejection::invalid(field("memory_mib"), "must be at most 4 PiB"));
        }
    }
    Ok(())
}

/// Refuses settings with which a pool could not work.
pub(crate) fn check_config(config: &PoolConfig) -> Result<(), Rejection> {
    if config.block_size == MilliTflops::ZERO {
        return Err(Rejection::invalid("config.block_size", "must be more than zero"));
    }
    if config.event_limit == 0 || config.job_limit == 0 || config.request_limit == 0 {
        return Err(Rejection::invalid("config.limits", "must be at least 1"));
    }
    let PoolLimits { spec_bytes, queues, nodes, cards, events } = config.limits;
    let limits = [
        ("config.limits.spec_bytes", spec_bytes),
        ("config.limits.queues", queues),
        ("config.limits.nodes", nodes),
        ("config.limits.cards", cards),
        ("config.limits.events", events),
    ];
    if let Some((field, _)) = limits.iter().find(|(_, limit)| *limit == 0) {
        return Err(Rejection::invalid(*field, "must be at least 1"));
    }
    if config.master_ports == 0 || config.first_master_port.checked_add(config.master_ports - 1).is_none() {
        return Err(Rejection::invalid("config.master_ports", "must be a range of ports below 65536"));
    }
    if config.first_master_port < 1024 {
        return Err(Rejection::invalid("config.first_master_port", "must be at least 1024"));
    }
    for (field, time) in [
        ("config.request_retention", config.request_retention),
        ("config.job_retention", config.job_retention),
        ("config.output_retention", config.output_retention),
        ("config.fair_share_half_life", config.fair_share_half_life),
    ] {
        if time > LONGEST {
            return Err(Rejection::invalid(field, "must be at most ten years"));
        }
    }
    if config.fair_share_half_life.is_zero() {
        return Err(Rejection::invalid("config.fair_share_half_life", "must be more than zero"));
    }
    for (kind, percent) in &config.oversubscription {
        if *percent < Percent::WHOLE || *percent > OVERSUBSCRIPTION_LIMIT {
            let field = format!("config.oversubscription[{}]", kind.name());
            return Err(Rejection::invalid(field, format!("must be 100 to {OVERSUBSCRIPTION_LIMIT}, is {percent}")));
        }
    }
    if config.compaction.threshold > Percent::WHOLE {
        return Err(Rejection::invalid("config.compaction.threshold", "must be at most 100 %"));
    }
    config.leases.check()
}
