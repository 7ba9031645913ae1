//! L2, as the log tells it: blocks are granted only on nodes that take work at that very point of the log.

use std::collections::BTreeMap;

use tessera_ledger::{Eligibility, Event, NodeId, NodeState, WorkerState};

use super::Oracle;
use crate::journal::Applied;

#[derive(Default)]
pub struct Grants {
    nodes: BTreeMap<NodeId, (NodeState, Eligibility)>,
}

impl Oracle for Grants {
    fn name(&self) -> &'static str {
        "grants only where work is taken (L2)"
    }

    fn learn(&mut self, entry: &Applied) -> Result<(), String> {
        for event in entry.events.iter() {
            match event {
                Event::Node { node, state, eligibility } => {
                    self.nodes.insert(*node, (*state, *eligibility));
                }
                Event::Worker { node, state: WorkerState::Held, job, .. } => {
                    let takes = self.nodes.get(node);
                    if takes != Some(&(NodeState::Ready, Eligibility::Eligible)) {
                        return Err(format!(
                            "revision {} grants blocks of {node} to job {job}, and the node is {takes:?}",
                            entry.at.revision
                        ));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}
