//! Checks of nodes, cards and settings in the ledger: the last line of checks, independent of whoever built the
//! command. Services check the same and more beforehand, with the names of their own fields. Jobs are checked where
//! they are declared, in [`JobSpec`](crate::JobSpec).

use std::time::Duration;

use crate::card::CardDescription;
use crate::config::{PoolConfig, PoolLimits};
use crate::host::{HostCapacity, HostRequest};
use crate::ids::REQUEST_AHEAD;
use crate::node::NodeDescription;
use crate::rejection::Rejection;
use crate::units::{MilliCpus, MilliTflops, Percent};

/// Most virtual cards in a gang.
pub const GANG_LIMIT: u32 = 4096;
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
/// Most time windows of a queue or job.
pub const WINDOW_LIMIT: usize = 16;
/// Highest weight of a preferred label.
pub const WEIGHT_LIMIT: u32 = 100;
/// Most that cards may be oversubscribed.
pub const OVERSUBSCRIPTION_LIMIT: Percent = Percent(1000);
/// Longest time that any setting can hold.
pub(crate) const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// Refuses amounts that no host could have.
pub(crate) fn check_host(field: &str, host: HostRequest) -> Result<(), Rejection> {
    if host.cpu > CPU_LIMIT {
        return Err(Rejection::invalid(format!("{field}.milli_cpus"), format!("must be at most {}", CPU_LIMIT.0)));
    }
    if host.memory.0 > MEMORY_LIMIT {
        return Err(Rejection::invalid(format!("{field}.memory_mib"), "must be at most 4 PiB"));
    }
    Ok(())
}

/// Refuses names of data that could not be a file's name on one line.
pub(crate) fn check_data_name(field: &str, name: &str) -> Result<(), Rejection> {
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

/// Refuses windows that nobody could have meant. Whether they can be read, services check: the rules of time zones are
/// not the ledger's (law L8).
pub(crate) fn check_windows(field: &str, windows: &[String]) -> Result<(), Rejection> {
    if windows.len() > WINDOW_LIMIT {
        return Err(Rejection::invalid(field, format!("must be at most {WINDOW_LIMIT}")));
    }
    match windows.iter().position(|window| window.is_empty() || window.len() > NAME_LIMIT) {
        Some(place) => {
            Err(Rejection::invalid(format!("{field}[{place}]"), format!("must have 1 to {NAME_LIMIT} bytes")))
        }
        None => Ok(()),
    }
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

/// Refuses a time for which ids are remembered that is shorter than what clocks of clients differ by.
pub(crate) fn check_request_retention(config: &PoolConfig) -> Result<(), Rejection> {
    if config.request_retention < REQUEST_AHEAD {
        return Err(Rejection::invalid("config.request_retention", "must be at least two minutes"));
    }
    Ok(())
}

/// Refuses settings with which a pool could not work.
pub(crate) fn check_config(config: &PoolConfig) -> Result<(), Rejection> {
    if config.block_size == MilliTflops::ZERO {
        return Err(Rejection::invalid("config.block_milli_tflops", "must be more than zero"));
    }
    let PoolLimits { spec_bytes, queues, nodes, cards, events } = config.limits;
    let limits = [
        ("config.event_limit", config.event_limit),
        ("config.job_limit", config.job_limit),
        ("config.request_limit", config.request_limit),
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
        return Err(Rejection::invalid("config.compaction.threshold_percent", "must be at most 100 %"));
    }
    config.leases.check()
}
