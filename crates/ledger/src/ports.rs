//! The ports that workers meet at (MASTER_PORT), by node, kept as runs of neighbours: the lowest free one is the one
//! behind a run, however many are taken.

use crate::ids::NodeId;
use crate::state::PersistentMap;

/// Ports taken on each node: the first of each run and the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MeetingPorts(PersistentMap<(NodeId, u16), u16>);

impl MeetingPorts {
    /// The lowest port of a node, from `first` on, that is not taken; `None` when all up to the last are.
    pub fn lowest_free(&self, node: NodeId, first: u16) -> Option<u16> {
        match self.run_at(node, first) {
            Some((_, last)) => last.checked_add(1),
            None => Some(first),
        }
    }

    /// Takes a port; one that is taken stays so.
    pub fn take(&mut self, node: NodeId, port: u16) {
        if self.run_at(node, port).is_some() {
            return;
        }
        let before = port.checked_sub(1).and_then(|port| self.run_at(node, port));
        let after = port.checked_add(1).and_then(|port| self.run_at(node, port));
        if let Some((start, _)) = after {
            self.0.remove_cow(&(node, start));
        }
        let start = before.map_or(port, |(start, _)| start);
        let last = after.map_or(port, |(_, last)| last);
        self.0.insert_cow((node, start), last);
    }

    pub fn give_back(&mut self, node: NodeId, port: u16) {
        let Some((start, last)) = self.run_at(node, port) else { return };
        self.0.remove_cow(&(node, start));
        if start < port {
            self.0.insert_cow((node, start), port - 1);
        }
        if port < last {
            self.0.insert_cow((node, port + 1), last);
        }
    }

    fn run_at(&self, node: NodeId, port: u16) -> Option<(u16, u16)> {
        let ((_, start), last) = self.0.range((node, 0)..=(node, port)).next_back()?;
        (port <= *last).then_some((*start, *last))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_lowest_free_port_is_that_of_a_search(changes in proptest::collection::vec((0u32..2, 0u16..24, any::<bool>()), 1..80)) {
            let (mut ports, mut taken) = (MeetingPorts::default(), BTreeSet::new());
            for (node, port, take) in changes {
                // The last ports there are, so that the end is met too.
                let (node, port) = (NodeId(node), u16::MAX - port);
                if take {
                    ports.take(node, port);
                    taken.insert((node, port));
                } else {
                    ports.give_back(node, port);
                    taken.remove(&(node, port));
                }
                for first in u16::MAX - 24..=u16::MAX {
                    let lowest = (first..=u16::MAX).find(|port| !taken.contains(&(node, *port)));
                    prop_assert_eq!(ports.lowest_free(node, first), lowest);
                }
            }
            let mut same = MeetingPorts::default();
            taken.iter().for_each(|(node, port)| same.take(*node, *port));
            prop_assert_eq!(same, ports);
        }
    }
}
