//! The blocks of a card as they are shown (patent statements P2 and P4).

use tessera_api::v1;

use super::shown::Shown;

/// The blocks of a card: runs of neighbouring blocks in one state with one owner, in order, without gap.
pub type CardBlocksView = Shown<v1::CardBlocks>;

/// Blocks by state (law L1), and how many there are.
pub type BlocksView = Shown<v1::BlockCounts>;

impl BlocksView {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        let v1::BlockCounts { free, held, running, draining, lost, offline } = **self;
        free + held + running + draining + lost + offline
    }

    pub(super) fn cells(&self) -> Vec<String> {
        [self.total(), self.free, self.held, self.running, self.draining, self.lost, self.offline]
            .map(|count| count.to_string())
            .to_vec()
    }
}
