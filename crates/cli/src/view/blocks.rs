//! The blocks of a card as they are shown (patent statements P2 and P4).

use serde::Serialize;
use tessera_api::v1;

use super::shown::Shown;
use super::words;

/// The blocks of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CardBlocksView {
    /// Its node.
    pub node: String,
    /// Its place on the node.
    pub index: u32,
    /// Its kind.
    pub kind: String,
    /// Its model.
    pub model: String,
    /// Runs of neighbouring blocks, in order, without gap.
    pub runs: Vec<RunView>,
}

/// Neighbouring blocks in one state with one owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunView {
    /// Pool-wide number of the first block.
    pub first_block: u64,
    /// Pool-wide number of the last block.
    pub last_block: u64,
    /// How many.
    pub blocks: u32,
    /// Their state.
    pub state: String,
    /// Who holds them.
    pub owner: Option<OwnerView>,
    /// Who gets them next.
    pub next: Option<OwnerView>,
}

/// Who holds blocks.
pub type OwnerView = Shown<v1::BlockOwner>;

impl From<v1::CardBlocks> for CardBlocksView {
    fn from(card: v1::CardBlocks) -> Self {
        Self {
            node: card.node_name,
            index: card.card_index,
            kind: words::kind(card.kind),
            model: card.model,
            runs: card.runs.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::BlockRun> for RunView {
    fn from(run: v1::BlockRun) -> Self {
        Self {
            first_block: run.first_block_number,
            last_block: run.last_block_number,
            blocks: run.blocks,
            state: words::block_state(run.state),
            owner: run.owner.map(Into::into),
            next: run.next.map(Into::into),
        }
    }
}
