//! What queues may still take, counted through everything that one plan grants.

use std::collections::BTreeMap;

use tessera_ledger::{Mebibytes, MilliTflops, QueueAmount, State};

/// Most queues above one another; the ledger allows no more.
const DEPTH: usize = 16;

/// A queue as placement sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    parent: String,
    maximum: Option<QueueAmount>,
    used: QueueAmount,
}

/// A queue that a grant would take above its maximum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OverMaximum {
    /// Its name.
    pub(crate) queue: String,
    /// What its jobs hold.
    pub(crate) used: QueueAmount,
    /// What they may hold.
    pub(crate) maximum: QueueAmount,
}

/// All queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Queues {
    entries: BTreeMap<String, Entry>,
    /// Whether a plan that the ledger has not answered is counted in.
    stale: bool,
    limited: bool,
}

impl Queues {
    /// Reads all queues; answers whether any may take more than before.
    pub(crate) fn read(&mut self, state: &State) -> bool {
        let fresh: BTreeMap<String, Entry> = state
            .queues()
            .map(|queue| {
                let settings = &queue.settings;
                let (parent, maximum) = (settings.parent.clone(), settings.maximum);
                (settings.name.clone(), Entry { parent, maximum, used: queue.used })
            })
            .collect();
        let more = fresh.iter().any(|(name, queue)| {
            self.entries.get(name).is_none_or(|known| {
                known.maximum != queue.maximum
                    || known.parent != queue.parent
                    || queue.used.compute < known.used.compute
                    || queue.used.memory < known.used.memory
            })
        });
        self.limited = fresh.values().any(|queue| queue.maximum.is_some());
        self.entries = fresh;
        self.stale = false;
        more
    }

    /// Reads the queues again if a plan is counted in; answers whether any may take more than before.
    pub(crate) fn read_stale(&mut self, state: &State) -> bool {
        self.stale && self.read(state)
    }

    fn line(&self, name: &str) -> impl Iterator<Item = (&str, &Entry)> {
        let first = self.entries.get_key_value(name);
        let line = std::iter::successors(first, |(_, queue)| self.entries.get_key_value(&queue.parent));
        line.take(DEPTH).map(|(name, queue)| (name.as_str(), queue))
    }

    /// What `back` (by queue) and `amount` do to the queue and those above it.
    ///
    /// # Errors
    /// The lowest queue that would exceed its maximum.
    pub(crate) fn admit(
        &self,
        name: &str,
        amount: QueueAmount,
        back: &[(String, QueueAmount)],
    ) -> Result<(), OverMaximum> {
        if !self.limited {
            return Ok(());
        }
        for (name, queue) in self.line(name) {
            let Some(maximum) = queue.maximum else { continue };
            let returned = back.iter().filter(|(giver, _)| self.line(giver).any(|(above, _)| above == name));
            let used = returned.fold(queue.used, |used, (_, amount)| used.minus(*amount));
            if !used.plus(amount).within(maximum) {
                return Err(OverMaximum { queue: name.to_owned(), used: queue.used, maximum });
            }
        }
        Ok(())
    }

    /// Counts a grant in.
    pub(crate) fn charge(&mut self, name: &str, amount: QueueAmount) {
        self.stale = true;
        if !self.limited {
            return;
        }
        let names: Vec<String> = self.line(name).map(|(name, _)| name.to_owned()).collect();
        for name in names {
            if let Some(queue) = self.entries.get_mut(&name) {
                queue.used = queue.used.plus(amount);
            }
        }
    }
}

/// What blocks and memory count for in a queue.
pub(crate) fn amount(blocks: u64, memory: Mebibytes, block_size: MilliTflops) -> QueueAmount {
    QueueAmount { compute: MilliTflops(blocks.saturating_mul(block_size.0)), memory }
}
