//! The checks of the members.

use std::collections::BTreeSet;

use crate::doctor::facts::{ClusterFacts, Facts, MemberFacts};
use crate::doctor::finding::{Check, Finding};

const REACHED: Check = Check("members.answer", "each member that is down is one that may not fail any more");
const WRITABLE: Check = Check("members.quorum", "without a leader and a quorum nothing can be submitted or changed");
const SPARE: Check = Check("members.voters", "an odd number of at least three survives a failure");
const VERSIONS: Check =
    Check("members.versions", "members of two releases work together, for as long as an upgrade takes");
const LEVEL: Check = Check("members.level", "what a release adds is written once every member can apply it");
const LAG: Check =
    Check("members.lag", "a member that lags behind answers with old data, and cannot take over at once");
const CLOCK: Check = Check("members.clock", "a member whose clock is off hands leadership over");
const CERTIFICATES: Check =
    Check("certificates", "connections are neither encrypted nor authenticated in this release");
/// Entries by which a member may lag behind before it is said.
const LARGE_LAG: u64 = 10_000;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    let cluster = &facts.cluster;
    let mut found: Vec<Finding> = cluster.members.iter().map(judge_answer).collect();
    let good: Vec<&MemberFacts> = cluster.members.iter().filter(|member| member.error.is_none()).collect();
    if good.is_empty() {
        found.push(WRITABLE.failure("no member answers", "start them, or name the right ones with --server"));
    } else {
        found.push(judge_quorum(cluster));
        found.push(judge_voters(cluster));
        found.push(judge_versions(&good));
        found.push(judge_level(cluster, &good));
        found.extend(good.iter().map(|member| judge_lag(member, &good)));
        found.extend(good.iter().filter_map(|member| judge_clock(member)));
    }
    let seen = "there are none: keep members, agents and clients in a network of their own";
    found.push(CERTIFICATES.not_applicable(seen));
    found
}

fn judge_answer(member: &MemberFacts) -> Finding {
    let finding = match &member.error {
        None => REACHED.ok(format!("{}, release {}", member.role, member.version)),
        Some(error) => REACHED.failure(
            format!("it does not answer: {error}"),
            "start it; if its disk is lost, replace it (docs/operations.md, Members)",
        ),
    };
    finding.of(member.address.clone())
}

fn judge_quorum(cluster: &ClusterFacts) -> Finding {
    if cluster.writable {
        return WRITABLE.ok("a leader with a quorum accepts changes");
    }
    WRITABLE.failure("no member accepts changes", "start members until most of them run (runbook TesseraQuorumLost)")
}

fn judge_voters(cluster: &ClusterFacts) -> Finding {
    let next = "add members with `tessera cluster member add --promote`, until there are three or five";
    match cluster.voters {
        0 => SPARE.warning("there is no cluster yet", "create it: `tessera cluster init`"),
        1 => SPARE.warning("one voter: its failure stops the pool", next),
        even if even % 2 == 0 => SPARE.warning(format!("{even} voters survive no more than {}", even - 1), next),
        odd => SPARE.ok(format!("{odd} voters")),
    }
}

fn judge_versions(good: &[&MemberFacts]) -> Finding {
    let own = env!("CARGO_PKG_VERSION");
    let versions: BTreeSet<&str> = good.iter().map(|member| member.version.as_str()).collect();
    let seen: Vec<&str> = versions.iter().copied().collect();
    let seen = format!("members run {}, this program is {own}", seen.join(" and "));
    if versions.len() > 1 {
        return VERSIONS.warning(seen, "finish the upgrade, or go back (docs/operations.md, Upgrades)");
    }
    if !versions.contains(own) {
        return VERSIONS.warning(seen, "use the release of the members, or upgrade them");
    }
    VERSIONS.ok(seen)
}

fn judge_level(cluster: &ClusterFacts, good: &[&MemberFacts]) -> Finding {
    let possible = good.iter().map(|member| member.highest_level).min().unwrap_or_default();
    let seen = format!("level {} is in force, {possible} could be", cluster.level);
    if cluster.level < possible {
        return LEVEL.warning(seen, "`tessera cluster status` says what keeps it from being raised");
    }
    LEVEL.ok(seen)
}

fn judge_lag(member: &MemberFacts, good: &[&MemberFacts]) -> Finding {
    let newest = good.iter().map(|member| member.committed_index).max().unwrap_or_default();
    let lag = newest.saturating_sub(member.applied_index);
    let seen = format!("{lag} entries behind");
    let finding = if lag > LARGE_LAG {
        LAG.warning(seen, "look at its disk and its network (runbook TesseraReplicationLag)")
    } else {
        LAG.ok(seen)
    };
    finding.of(member.address.clone())
}

fn judge_clock(member: &MemberFacts) -> Option<Finding> {
    let seen = format!("{:+.3} s against the others", member.clock_offset_seconds?);
    let finding = if member.clock_off {
        CLOCK.failure(seen, "set its clock right (runbook TesseraClockOff)")
    } else {
        CLOCK.ok(seen)
    };
    Some(finding.of(member.address.clone()))
}
