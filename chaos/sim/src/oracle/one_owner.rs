//! L2 as seen at the workers: no two live programs ever compute on one block, and no job runs twice at once.
//!
//! Within a card blocks are a share, not places, and the ledger renumbers them freely while work goes on. So what is held
//! against the world is this: whoever computes is known to the ledger as the owner of blocks, and together those who compute on
//! a card have no more than it has. As long as both hold, blocks that the ledger calls free are free.

use std::collections::BTreeMap;

use tessera_ledger::{CardId, NodeId, WorkerState};

use super::{Oracle, View};

/// See the module.
pub struct OneOwner;

impl Oracle for OneOwner {
    fn name(&self) -> &'static str {
        "one owner (L2)"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        if let Some(twice) = view.world.twice().first() {
            return Err(twice.clone());
        }
        let Some(newest) = view.newest() else { return Ok(()) };
        let mut used: BTreeMap<CardId, u32> = BTreeMap::new();
        for live in view.world.live() {
            let grant = newest.allocation(live.worker.allocation).filter(|grant| grant.epoch == live.worker.epoch);
            let worker = grant.and_then(|grant| grant.worker(live.worker.rank));
            // The leader that committed the grant may be gone before any other member knows that it is committed. Once they
            // are as far, they must know the grant.
            let ahead = live.worker.epoch.0 > newest.revision().0;
            if !ahead && worker.is_none_or(|worker| worker.state == WorkerState::Stopped) {
                let stands = if grant.is_some() { "takes it for stopped" } else { "does not know its grant any more" };
                return Err(format!(
                    "worker {} of job {} computes on {} since {:?}, and the ledger at revision {} {stands}",
                    live.worker,
                    live.job,
                    live.machine,
                    live.began,
                    newest.revision().0
                ));
            }
            for (node, index, _, blocks) in live.blocks {
                *used.entry(CardId { node: NodeId(node), index }).or_default() += blocks;
            }
        }
        for (card, used) in used {
            let there = newest.card(card).map_or(0, |card| card.blocks.0);
            if used > there {
                return Err(format!("live workers compute on {used} blocks of {card}, which has {there}"));
            }
        }
        Ok(())
    }
}
