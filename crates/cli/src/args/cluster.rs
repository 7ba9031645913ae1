//! `tessera cluster`.

use std::path::PathBuf;
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
    /// Saves the whole ledger to a file, looks into such a file, and lets a pool begin anew from one
    #[command(subcommand)]
    Snapshot(SnapshotVerb),
    /// Lets a pool begin anew from the data folder of a stopped member, when the majority is lost for good; without
    /// --into, only shows what the folders have
    Recover(RecoverArgs),
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

/// What can be done with backups.
#[derive(Debug, Subcommand)]
pub enum SnapshotVerb {
    /// Saves the whole ledger, as it is when the command begins, to a file that appears only when it is whole
    Save {
        /// The file, or s3://BUCKET/NAME; one that is there is replaced
        file: String,
    },
    /// Shows the backups that are kept in a folder or bucket, the oldest first; talks to no control plane
    List {
        /// The folder, or s3://BUCKET/PREFIX
        place: String,
    },
    /// Says what is in a backup and whether it is whole; talks to no control plane
    Inspect {
        /// The backup: a file, or s3://BUCKET/NAME
        file: String,
    },
    /// Makes the data folder of the first member of a new cluster out of a backup; talks to no control plane
    Restore {
        /// The backup: a file, or s3://BUCKET/NAME
        file: String,
        /// The new member.
        #[command(flatten)]
        founder: FounderArgs,
        /// Data folder of the new member; must not be there yet, or be empty
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// Do not ask: the old control plane is stopped and will never be started again
        #[arg(short, long)]
        yes: bool,
    },
}

/// The first member of a cluster that begins anew.
#[derive(Debug, Args)]
pub struct FounderArgs {
    /// Where the new member will be reached by members, agents and clients
    #[arg(long, value_name = "HOST:PORT", default_value = "")]
    pub address: String,
    /// Its name for people
    #[arg(long, value_name = "NAME", default_value = "")]
    pub name: String,
    /// Identity of the new cluster, never that of the old one; made up when not given
    #[arg(long, value_name = "ID", default_value = "")]
    pub cluster_id: String,
}

/// `tessera cluster recover`.
#[derive(Debug, Args)]
pub struct RecoverArgs {
    /// Data folders of stopped members, or copies of them; nothing in them is changed
    #[arg(long = "from", value_name = "DIR", required = true)]
    pub from: Vec<PathBuf>,
    /// Data folder of the new cluster's first member; must not be there yet, or be empty
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// The new member.
    #[command(flatten)]
    pub founder: FounderArgs,
    /// What the lost majority acknowledged and these folders do not have is lost, and no member of the old cluster will
    /// ever be started again
    #[arg(long)]
    pub accept_loss: bool,
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
        /// The voters that must answer.
        #[command(flatten)]
        majority: MajorityArgs,
    },
    /// Removes a member, alive or dead; its id is never used again
    Remove {
        /// Id of the member
        member: u64,
        /// The voters that must answer.
        #[command(flatten)]
        majority: MajorityArgs,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// The word of somebody who knows that silent voters come back.
#[derive(Clone, Copy, Debug, Args)]
pub struct MajorityArgs {
    /// Begin although no majority of the voters that would be left answers: until one does, nothing can be written, and
    /// the change cannot be taken back
    #[arg(long)]
    pub without_majority: bool,
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
