//! Queues as they would be with a larger guarantee: what that would change is asked of them.

use tessera_ledger::QueueAmount;

use super::Queues;

/// A guarantee that a grant would exceed.
#[derive(Clone, Debug)]
pub(crate) struct Exceeded {
    /// The queue.
    pub(crate) queue: String,
    /// What it is guaranteed.
    pub(crate) guaranteed: QueueAmount,
    /// What it holds.
    pub(crate) holds: QueueAmount,
    /// All queues as they would be if that was enough.
    pub(crate) raised: Queues,
}

impl Queues {
    /// The guarantees of a queue and of those above it, lowest first, that a grant of `least` would exceed.
    pub(crate) fn exceeded(&self, name: &str, least: QueueAmount) -> impl Iterator<Item = Exceeded> {
        self.line(name).filter_map(move |id| {
            let queue = &self.entries[id];
            let (guaranteed, holds) = (queue.whole.guaranteed, queue.whole.standing);
            let more = holds.plus(least).minus(guaranteed);
            let is_one = guaranteed != QueueAmount::default() && more != QueueAmount::default();
            is_one.then(|| {
                let mut raised = self.clone();
                raised.entries[id].whole.guaranteed = guaranteed.plus(more);
                if let Some(parent) = queue.parent {
                    let below = &mut raised.entries[parent].below;
                    below.guaranteed = below.guaranteed.plus(more);
                }
                Exceeded { queue: queue.name.clone(), guaranteed, holds, raised }
            })
        })
    }
}
