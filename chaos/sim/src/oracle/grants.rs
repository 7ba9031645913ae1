//! L2, as the log tells it: blocks are granted only on nodes that take work at that very point of the log.

use std::collections::BTreeMap;

use tessera_ledger::{Eligibility, Event, NodeId, NodeState, Revision, WorkerState};

use super::{Oracle, View};

/// See the module.
#[derive(Default)]
pub struct Grants {
    known: Revision,
    nodes: BTreeMap<NodeId, (NodeState, Eligibility)>,
}

impl Oracle for Grants {
    fn name(&self) -> &'static str {
        "grants only where work is taken (L2)"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(newest) = view.newest().filter(|state| state.revision() > self.known) else { return Ok(()) };
        for entry in newest.events_after(self.known).into_iter().flatten() {
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
                                entry.revision
                            ));
                        }
                    }
                    _ => {}
                }
            }
        }
        self.known = newest.revision();
        Ok(())
    }
}
