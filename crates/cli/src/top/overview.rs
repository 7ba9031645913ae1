//! The pool at a glance: who leads, how much is used, and what somebody should look at.

use serde::Serialize;

use crate::view::{ClusterView, PoolView};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Overview {
    pub pool: PoolView,
    /// The control plane.
    pub cluster: ClusterView,
    /// The problems that need attention, worst first.
    pub warnings: Vec<String>,
}

impl Overview {
    /// Puts both together, and says what is not as it should be.
    #[must_use]
    pub fn of(pool: PoolView, cluster: ClusterView) -> Self {
        let warnings = warnings(&pool, &cluster);
        Self { pool, cluster, warnings }
    }

    /// `m0 (10.0.0.1:7400)`, or that there is none.
    #[must_use]
    pub fn leader(&self) -> String {
        match &self.cluster.leader {
            Some(leader) if leader.name.is_empty() => format!("{} ({})", leader.id, leader.address),
            Some(leader) => format!("{} ({})", leader.name, leader.address),
            None => "none".to_owned(),
        }
    }
}

fn warnings(pool: &PoolView, cluster: &ClusterView) -> Vec<String> {
    let mut found = Vec::new();
    if !cluster.writable {
        found.push("nothing can be changed: no leader with a quorum".to_owned());
    }
    let silent: Vec<&str> =
        cluster.members.iter().filter(|of| of.error.is_some()).map(|of| of.address.as_str()).collect();
    if !silent.is_empty() {
        found.push(format!("members do not answer: {}", silent.join(", ")));
    }
    for member in cluster.members.iter().filter(|of| of.status.clock_off) {
        let by = member.clock_offset().unwrap_or_default();
        found.push(format!("the clock of member {} is off by {by:.1} s", member.status.member_id));
    }
    let lost = pool.nodes.get("lost").copied().unwrap_or_default();
    if lost > 0 {
        found.push(format!("nodes are lost: {lost}"));
    }
    let blocks = pool.blocks();
    if blocks.lost > 0 {
        found.push(format!("blocks are quarantined (lost): {}", blocks.lost));
    }
    if blocks.offline > 0 {
        found.push(format!("blocks are offline: {}", blocks.offline));
    }
    let pending = pool.jobs.get("pending").copied().unwrap_or_default();
    if pending > 0 && blocks.free > 0 {
        found.push(format!("jobs wait: {pending}, beside free blocks: {}", blocks.free));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::state::tests::{cluster, pool};

    #[test]
    fn a_healthy_pool_has_nothing_to_say() {
        assert_eq!(Overview::of(pool(), cluster()).warnings, Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_said_worst_first() {
        let (mut pool, mut cluster) = (pool(), cluster());
        cluster.writable = false;
        cluster.members[1].error = Some("refused".to_owned());
        cluster.members[0].status.clock_off = true;
        cluster.members[0].status.clock_offset = Some(prost_types::Duration { seconds: -12, nanos: -500_000_000 });
        pool.nodes.insert("lost".to_owned(), 2);
        let blocks = pool.pool.blocks.get_or_insert_default();
        (blocks.lost, blocks.offline) = (9, 4);
        pool.jobs.insert("pending".to_owned(), 3);
        assert_eq!(
            Overview::of(pool, cluster).warnings,
            [
                "nothing can be changed: no leader with a quorum",
                "members do not answer: 10.0.0.2:7400",
                "the clock of member 1 is off by -12.5 s",
                "nodes are lost: 2",
                "blocks are quarantined (lost): 9",
                "blocks are offline: 4",
                "jobs wait: 3, beside free blocks: 112",
            ]
        );
    }
}
