//! `tessera cluster`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::client::ClientArgs;
use super::pool::BlockArgs;
use super::values::duration;

/// `tessera cluster`.
#[derive(Debug, Args)]
pub struct ClusterCommand {
    /// Whom to talk to and how to print.
    #[command(flatten)]
    pub client: ClientArgs,
    /// What to do.
    #[command(subcommand)]
    pub verb: ClusterVerb,
}

/// What can be done with the control plane.
#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Creates the cluster out of running servers with empty data folders; done once
    Init(InitArgs),
    /// Asks every member how it sees the cluster; exit code 5 when no mutation would be accepted
    Status,
    /// Shows and changes the members
    #[command(subcommand)]
    Member(MemberVerb),
    /// Hands leadership to another member
    TransferLeader {
        /// Id of the member; the one that has caught up best when not given
        #[arg(long = "to", value_name = "ID")]
        member: Option<u64>,
    },
}

/// `tessera cluster init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// First members: one, three or five, as HOST:PORT or NAME=HOST:PORT; those of --server when not given
    #[arg(long = "member", value_name = "MEMBER", value_delimiter = ',')]
    pub members: Vec<String>,
    /// Identity of the cluster; made up when not given
    #[arg(long, value_name = "ID", default_value = "")]
    pub cluster_id: String,
    /// What the blocks of its pool are.
    #[command(flatten)]
    pub blocks: BlockArgs,
    /// For how long leases are granted.
    #[command(flatten)]
    pub leases: LeaseArgs,
}

/// For how long agents may let work run without hearing from the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
pub struct LeaseArgs {
    /// How often agents send heartbeats; 2s in a new pool
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub lease_heartbeat: Option<Duration>,
    /// Age of a lease at which workers are told to stop; at least three heartbeats; 9s in a new pool
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub lease_stop_after: Option<Duration>,
    /// Age of a lease by which workers are killed; at least half a heartbeat later; 12s in a new pool
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub lease_kill_after: Option<Duration>,
    /// Silence after which a node is lost and its blocks are granted again; at least a quarter longer; 20s in a new
    /// pool
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub lease_regrant_after: Option<Duration>,
}

/// What can be done with members.
#[derive(Debug, Subcommand)]
pub enum MemberVerb {
    /// Lists the members
    #[command(visible_alias = "ls")]
    List,
    /// Adds a running server with an empty data folder as a member without a vote
    Add(AddMemberArgs),
    /// Gives a member that has caught up a vote
    Promote {
        /// Id of the member
        member: u64,
    },
    /// Removes a member, alive or dead; its id is never used again
    Remove {
        /// Id of the member
        member: u64,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// `tessera cluster member add`.
#[derive(Debug, Args)]
pub struct AddMemberArgs {
    /// Where the server listens
    #[arg(value_name = "HOST:PORT")]
    pub address: String,
    /// Its name for people
    #[arg(long, default_value = "")]
    pub name: String,
    /// Give it a vote as soon as it has caught up
    #[arg(long)]
    pub promote: bool,
}
