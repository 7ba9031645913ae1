//! `tessera pool`, `tessera node` and `tessera card`.

use clap::{Args, Subcommand};

use super::client::ClientArgs;
use super::job::KindChoice;
use super::values::CardRef;

/// `tessera pool`.
#[derive(Debug, Args)]
pub struct PoolCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: PoolVerb,
}

/// What can be done with the pool.
#[derive(Debug, Subcommand)]
pub enum PoolVerb {
    /// Shows the pool in numbers
    Show,
    /// Draws every block with its number, its state and the job that holds it
    Map(MapArgs),
    /// Checks the laws of the ledger on every member and compares their states; exit code 1 when one does not hold
    Verify,
}

/// `tessera pool map`.
#[derive(Debug, Args)]
pub struct MapArgs {
    /// Only this node
    #[arg(long)]
    pub node: Option<String>,
    /// Only cards of these kinds
    #[arg(long, value_enum, value_delimiter = ',')]
    pub kind: Vec<KindChoice>,
}

/// `tessera node`.
#[derive(Debug, Args)]
pub struct NodeCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: NodeVerb,
}

/// What can be done with nodes.
#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Lists nodes
    #[command(visible_alias = "ls")]
    List {
        /// Go on with every change
        #[arg(short, long)]
        watch: bool,
    },
    /// Shows a node with its cards
    Show {
        /// The node
        node: String,
    },
    /// No new work for a node, and what runs there leaves it
    Drain {
        /// The node
        node: String,
        /// Why, for people
        #[arg(short, long, default_value = "")]
        reason: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// No new work for a node; what runs goes on
    Cordon {
        /// The node
        node: String,
        /// Why, for people
        #[arg(short, long, default_value = "")]
        reason: String,
    },
    /// New work may go to a node again
    Uncordon {
        /// The node
        node: String,
    },
    /// Declares a node dead by your word: whatever ran there is over, its blocks are gone, its name is free
    Forget {
        /// The node
        node: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
    /// Declares by your word that workers of a node whose stop could not be confirmed are gone
    ConfirmStopped {
        /// The node
        node: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// `tessera card`.
#[derive(Debug, Args)]
pub struct CardCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: CardVerb,
}

/// What can be done with cards.
#[derive(Debug, Subcommand)]
pub enum CardVerb {
    /// Lists cards
    #[command(visible_alias = "ls")]
    List {
        /// Only cards of this node
        #[arg(long)]
        node: Option<String>,
        /// Only cards of these kinds
        #[arg(long, value_enum, value_delimiter = ',')]
        kind: Vec<KindChoice>,
    },
    /// Shows a card with its blocks
    Show {
        /// The card, as NODE/INDEX
        card: CardRef,
    },
}
