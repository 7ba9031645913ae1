//! Finds the silent nodes and those that may be declared lost, and decides when the leader suspects itself instead.

use std::time::Duration;

use tessera_ledger::{Eligibility, Epoch, LogTime, NodeId, NodeState, State};
use tokio::time::Instant;

use super::leases::Leases;
use crate::config::MassLoss;

/// The result of a look at all nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Finding {
    /// Nodes that were not heard in time.
    pub silent: usize,
    /// True if too many are silent or newly lost at once: of these, only draining nodes are then newly condemned.
    pub suspected: bool,
    /// Nodes that are now condemned, with the epoch they are judged by.
    pub condemned: Vec<(NodeId, Epoch)>,
}

/// Looks at all nodes. A node counts as silent long before its lease is over, so that nodes that fall silent together
/// are counted together; those that were lost just now still count.
pub(super) fn look(
    state: &State,
    leases: &mut Leases,
    now: Instant,
    log_now: LogTime,
    silent_after: Duration,
    policy: &MassLoss,
) -> Finding {
    let (mut ready, mut lately_lost, mut silent) = (0usize, 0usize, Vec::new());
    let mut condemned = Vec::new();
    for node in state.nodes() {
        match node.state {
            NodeState::Ready => {
                ready += 1;
                if leases.condemned_in(node.id).is_some_and(|epoch| epoch < node.epoch) {
                    leases.spare(node.id);
                }
                if leases.condemned_in(node.id).is_some() {
                    // Its loss may be in the log already: no way back.
                    condemned.push((node.id, node.epoch));
                    silent.push(node);
                } else if now.saturating_duration_since(leases.last_heard(node.id)) >= silent_after {
                    silent.push(node);
                }
            }
            NodeState::Lost if log_now.since(node.changed_at) < policy.window => lately_lost += 1,
            NodeState::Lost | NodeState::Forgotten => {}
        }
    }
    let suspected = silent.len() + lately_lost > policy.allowed(ready + lately_lost) && !silent.is_empty();
    for node in &silent {
        // A leader that suspects itself believes an operator: a node that is drained and silent is given up all
        // the same.
        let believed = !suspected || node.eligibility == Eligibility::Draining;
        let known = leases.condemned_in(node.id).is_some();
        if believed && !known && leases.condemn(node.id, node.epoch, now, state) {
            condemned.push((node.id, node.epoch));
        }
    }
    Finding { silent: silent.len(), suspected, condemned }
}

#[cfg(test)]
mod tests {
    use tessera_ledger::Command;

    use super::*;
    use crate::fixture::Ledger;

    const SILENT: Duration = Duration::from_secs(9);

    struct Stage {
        ledger: Ledger,
        leases: Leases,
        nodes: Vec<NodeId>,
        began: Instant,
        mass_loss: MassLoss,
    }

    impl Stage {
        fn new(nodes: usize) -> Self {
            let mut ledger = Ledger::default();
            let nodes = (0..nodes).map(|number| ledger.node(&format!("n{number}"), &[10])).collect();
            let began = Instant::now();
            let leases = Leases::new(began, &ledger.state);
            Self { ledger, leases, nodes, began, mass_loss: MassLoss::default() }
        }

        fn hear(&mut self, nodes: &[usize], seconds: u64) {
            for node in nodes {
                self.leases.heard(self.nodes[*node], self.began + Duration::from_secs(seconds));
            }
        }

        fn look(&mut self, seconds: u64) -> Finding {
            let now = self.began + Duration::from_secs(seconds);
            look(&self.ledger.state, &mut self.leases, now, self.ledger.now(), SILENT, &self.mass_loss)
        }

        fn condemned(&mut self, seconds: u64) -> Vec<NodeId> {
            self.look(seconds).condemned.into_iter().map(|(node, _)| node).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_node_is_condemned_when_its_lease_is_over_and_not_before() {
        let mut stage = Stage::new(4);
        stage.hear(&[0, 1, 2, 3], 4);
        stage.hear(&[0, 1, 2], 22);
        assert_eq!(stage.look(23), Finding { silent: 1, suspected: false, condemned: Vec::new() });
        let lost = stage.nodes[3];
        assert_eq!(stage.condemned(24), [lost]);
        stage.hear(&[3], 25);
        assert_eq!(stage.condemned(25), [lost], "it stays condemned until the ledger has answered");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_condemns_nobody_before_the_full_time() {
        let mut stage = Stage::new(1);
        assert_eq!(stage.condemned(19), []);
        assert_eq!(stage.condemned(20), [stage.nodes[0]], "one node may always be lost, even the only one");
    }

    #[tokio::test(start_paused = true)]
    async fn when_too_many_are_silent_the_leader_suspects_itself() {
        let mut stage = Stage::new(6);
        stage.hear(&[0, 1, 2], 30);
        assert_eq!(stage.look(30), Finding { silent: 3, suspected: true, condemned: Vec::new() });
        stage.hear(&[3, 4], 31);
        assert_eq!(stage.condemned(31), [stage.nodes[5]], "two came back: it was not all of the network");
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_fail_one_after_the_other_count_together() {
        let mut stage = Stage::new(3);
        stage.hear(&[1, 2], 20);
        assert_eq!(stage.condemned(20), [stage.nodes[0]]);
        let first = stage.nodes[0];
        stage.ledger.lose(first);
        stage.leases.spare(first);
        stage.hear(&[2], 45);
        let finding = stage.look(45);
        assert!(finding.suspected, "two of three within a minute: {finding:?}");
        assert_eq!(finding.condemned, []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_share_of_nodes_that_may_fail_at_once_is_set() {
        for (share_percent, suspected) in [(33, true), (50, false)] {
            let mut stage = Stage::new(6);
            stage.mass_loss.share_percent = share_percent;
            stage.hear(&[0, 1, 2, 3], 30);
            let finding = stage.look(30);
            assert_eq!((finding.silent, finding.suspected), (2, suspected), "{share_percent} %");
            assert_eq!(finding.condemned.is_empty(), suspected, "{share_percent} %");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_node_counts_beside_silent_ones_for_the_time_that_is_set() {
        for (seconds, suspected) in [(60, true), (5, false)] {
            let mut stage = Stage::new(3);
            stage.mass_loss.window = Duration::from_secs(seconds);
            stage.hear(&[1, 2], 20);
            let first = stage.nodes[0];
            assert_eq!(stage.condemned(20), [first]);
            stage.ledger.lose(first);
            stage.leases.spare(first);
            // Each entry of the log is a second after the one before.
            (0..10).for_each(|_| drop(stage.ledger.apply(Command::Tick)));
            stage.hear(&[2], 45);
            assert_eq!(stage.look(45).suspected, suspected, "{seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_registered_since_it_was_condemned_is_judged_anew() {
        let mut stage = Stage::new(1);
        assert_eq!(stage.condemned(20), [stage.nodes[0]]);
        stage.hear(&[0], 21);
        stage.ledger.node("n0", &[10]);
        assert_eq!(stage.look(21), Finding::default(), "the ledger refuses the loss of an older epoch");
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_lost_already_is_not_condemned_again() {
        let mut stage = Stage::new(2);
        let first = stage.nodes[0];
        stage.ledger.lose(first);
        stage.hear(&[1], 20);
        assert_eq!(stage.look(20), Finding { silent: 0, suspected: false, condemned: Vec::new() });
    }
}
