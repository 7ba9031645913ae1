//! Errors between Tessera and hardware.

use std::path::PathBuf;

use tessera_ledger::CardKind;

use crate::inventory::InventoryError;

/// A card could not be found, read or handed out.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// A file of the host cannot be read.
    #[error("{} cannot be read; is /proc mounted, and may the agent read it?", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// A file of the host does not say what it should.
    #[error("{} does not hold {expected}; this host cannot offer its processors as a card", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The content that was expected.
        expected: &'static str,
    },
    /// The inventory file cannot be used.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// The inventory says nothing of this node.
    #[error("the inventory {} has no node `{node}`; it declares: {declared}", path.display())]
    NodeNotDeclared {
        /// The file.
        path: PathBuf,
        /// The node.
        node: String,
        /// Names that are declared.
        declared: String,
    },
    /// A slice is of a card that the node does not have.
    #[error("the node has no card {index}; it has {count} cards")]
    NoSuchCard {
        /// The card asked for.
        index: u32,
        /// Cards of the node.
        count: usize,
    },
    /// The interpreter with PyTorch did not say which accelerators it finds.
    #[error(
        "{} does not say which accelerators this host has: {reason}; what it needs is PyTorch for them and the wheel \
         `tessera` (docs/device.md)",
        python.display()
    )]
    NotAsked {
        /// The interpreter.
        python: PathBuf,
        /// Its last words, or the system's.
        reason: String,
    },
    /// Another agent of this host offers a card.
    #[error(
        "another agent of this host offers the card {card} already ({} is its); two would grant the same blocks: \
         run one agent with `cards = \"accelerators\"` on a host",
        path.display()
    )]
    CardClaimed {
        /// The card.
        card: String,
        /// The file that it has locked.
        path: PathBuf,
    },
    /// The file that records the cards cannot be understood.
    #[error(
        "{} cannot be understood ({problem}); it names the cards of this host: bring back an older copy, or remove it \
         to have all of them found and measured anew",
        path.display()
    )]
    Kept {
        /// The file.
        path: PathBuf,
        /// The problem with the file.
        problem: String,
    },
    /// The benchmark could not run.
    #[error("the {kind} card could not be measured: {reason}", kind = kind.name())]
    NotMeasured {
        /// The kind of card.
        kind: CardKind,
        /// The reason.
        reason: String,
    },
    /// The measured rating cannot be kept.
    #[error("the measured rating cannot be kept in {}; is the data folder writable?", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
}
