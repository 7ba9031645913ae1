//! Limits of processes, and the host's memory.

use crate::daemon::connections_for;
use crate::doctor::facts::{Facts, LimitFacts, MemoryFacts};
use crate::doctor::finding::{Check, Finding};

const FILES: Check = Check("limits.open_files", "every connection is an open file; a member that can open none stops");
const PROCESSES: Check = Check("limits.processes", "a worker is several processes, and each of its threads counts");
const LOCKED: Check = Check("limits.locked_memory", "drivers lock memory that devices read and write by themselves");
const SWAP: Check = Check("memory.swap", "a member that waits for swap answers late, and loses leadership");
const HUGE_PAGES: Check =
    Check("memory.huge_pages", "huge pages behind small pieces cost a member a fifth of its time");
/// Files below which no part of Tessera is at ease.
const FEW_FILES: u64 = 1_024;
/// Processes below which a node may start no work.
const FEW_PROCESSES: u64 = 4_096;
/// Share of the memory in swap above which it is said, in percent.
const MUCH_SWAP: u64 = 5;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let mut found = match &facts.limits {
        Ok(limits) => judge_limits(facts, limits),
        Err(error) => vec![FILES.warning(format!("limits cannot be read: {error}"), "mount /proc")],
    };
    found.push(match &facts.memory {
        Ok(memory) => judge_swap(facts, memory),
        Err(error) => SWAP.warning(format!("memory cannot be read: {error}"), "mount /proc"),
    });
    let huge = facts.kernel.as_ref().ok().and_then(|kernel| kernel.huge_pages.clone());
    found.push(match huge {
        Some(choice) => HUGE_PAGES.ok(format!("`{choice}` on this host; members turn them off for themselves")),
        None => HUGE_PAGES.not_applicable("the kernel has none"),
    });
    found
}

fn text(limit: Option<u64>) -> String {
    limit.map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
}

fn judge_limits(facts: &Facts, limits: &LimitFacts) -> Vec<Finding> {
    let next = "raise LimitNOFILE of the unit, or `ulimit -n`";
    let files = limits.open_files.unwrap_or(u64::MAX);
    let seen = format!("{} ({})", text(limits.open_files), limits.of);
    let open = match &facts.member {
        _ if files < FEW_FILES => FILES.failure(seen, next),
        Some(member) if connections_for(files) < member.connections => FILES.warning(
            format!("{seen}: {} connections of clients instead of {}", connections_for(files), member.connections),
            next,
        ),
        _ => FILES.ok(seen),
    };
    let mut found = vec![open];
    if facts.agent.is_some() {
        let seen = format!("{} ({})", text(limits.processes), limits.of);
        found.push(if limits.processes.is_some_and(|most| most < FEW_PROCESSES) {
            PROCESSES.warning(seen, "raise LimitNPROC and TasksMax of the agent's unit, or `ulimit -u`")
        } else {
            PROCESSES.ok(seen)
        });
        let accelerators = facts.devices.as_ref().is_ok_and(|devices| !devices.accelerators.is_empty());
        let seen = format!("{} bytes ({})", text(limits.locked_bytes), limits.of);
        found.push(match limits.locked_bytes {
            _ if !accelerators => LOCKED.not_applicable("no accelerator is there"),
            Some(_) => LOCKED.warning(seen, "set LimitMEMLOCK=infinity in the agent's unit"),
            None => LOCKED.ok(seen),
        });
    }
    found
}

fn judge_swap(facts: &Facts, memory: &MemoryFacts) -> Finding {
    let seen = format!("{} MiB of {} MiB swap in use", memory.swap_used_kib >> 10, memory.swap_kib >> 10);
    let much = memory.swap_used_kib.saturating_mul(100) > memory.total_kib.saturating_mul(MUCH_SWAP);
    match (&facts.member, memory.swap_kib) {
        (_, 0) => SWAP.ok("there is none"),
        (Some(_), _) if much => SWAP.warning(seen, "give the host more memory, or move work away from it"),
        _ => SWAP.ok(seen),
    }
}
