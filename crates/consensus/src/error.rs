//! Errors that consensus returns when it cannot do as requested.

use std::sync::Arc;

use tessera_store::StoreError;

use crate::config::BadConfig;
use crate::ids::{Identity, Member, MemberId};
use crate::machine::{LogIndex, Unreadable};

/// The reason for which this member's consensus ended. After anything but [`StopReason::Shutdown`] the process must
/// exit: its memory may be ahead of, or behind, the state on its disk.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StopReason {
    /// Someone asked for it.
    #[error("it was shut down")]
    Shutdown,
    /// The disk failed, is full, or holds a damaged record.
    #[error("its store failed")]
    Storage(#[source] StoreError),
    /// An entry, a vote or a snapshot is in a format this release does not know (law L7).
    #[error("it cannot read its log")]
    Unreadable(#[source] Arc<Unreadable>),
    /// Its state differs from what a majority computed from the same log (law L8).
    #[error(
        "its state after entry {} differs from what {} other members computed; \
         remove this member, empty its data folder and add it under a new id", at.0, against.len()
    )]
    Diverged {
        /// Entry after which the states differ.
        at: LogIndex,
        /// Members that agree with each other and not with this one.
        against: Vec<MemberId>,
    },
    /// The raft core ended by itself.
    #[error("its raft core ended: {what}")]
    Core { what: String },
}

/// The reason for which a command was not applied, or its outcome is unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ProposeError {
    /// This member does not lead. Nothing was proposed: ask the leader.
    #[error("this member is not the leader{}", hint(.leader.as_ref()))]
    NotLeader {
        /// The leader this member follows, if it knows one.
        leader: Option<Member>,
    },
    /// No quorum answered in time. Nothing was proposed: retry, here or elsewhere.
    #[error("no quorum of members answered in time; the command was not proposed; retry")]
    Unavailable,
    /// The command was handed in, and its fate was not learned before the deadline or before leadership was lost. It
    /// may be applied later or never: retry with the same request id.
    #[error("the outcome is unknown: the command may or may not be applied; retry with the same request id")]
    OutcomeUnknown,
    /// Too many commands wait. Nothing was proposed: back off.
    #[error("too many commands wait to be proposed; back off and retry")]
    Overloaded,
    /// The command is larger than an entry may be. Nothing was proposed.
    #[error("the command has {bytes} bytes; an entry holds at most {limit}")]
    TooLarge {
        bytes: usize,
        /// In bytes.
        limit: usize,
    },
    /// This member's consensus has ended. Nothing was proposed: ask another member.
    #[error("this member has stopped")]
    Stopped(#[source] StopReason),
}

/// The reason for which a read cannot be made linearizable, or a leadership not be confirmed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// This member does not lead (only [`confirm_leadership`](crate::Consensus::confirm_leadership) needs that).
    #[error("this member is not the leader{}", hint(.leader.as_ref()))]
    NotLeader {
        /// The leader this member follows, if it knows one.
        leader: Option<Member>,
    },
    /// No leader with a quorum answered, or this member did not catch up, before the deadline.
    #[error("no leader with a quorum answered in time; retry, or read stale")]
    Unavailable,
    /// This member's consensus has ended.
    #[error("this member has stopped")]
    Stopped(#[source] StopReason),
}

/// The reason for which a member could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings do not fit together.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// The data folder belongs to another member.
    #[error("the data folder belongs to {found}, not to {expected}; start it with its own folder and settings")]
    OtherIdentity {
        /// The identity that the settings name.
        expected: Identity,
        /// The identity that the folder names.
        found: Identity,
    },
    /// The store failed or is damaged.
    #[error("the store cannot be read")]
    Storage(#[from] StoreError),
    /// Something in the store is in a format this release does not know.
    #[error("the store holds something unreadable")]
    Unreadable(#[from] Unreadable),
    /// The raft core refused to start.
    #[error("raft cannot start: {what}")]
    Core { what: String },
}

/// The reason for which the membership was not changed, or for which it is unknown whether it was.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MembershipError {
    /// The cluster exists already; it is created once.
    #[error("the cluster is already initialized; add members instead")]
    AlreadyInitialized,
    /// A list of founding members that cannot be right.
    #[error("the founding members are wrong: {why}")]
    BadFounders { why: String },
    #[error("{member} could not be admitted: {why}")]
    NotAdmitted { member: Member, why: String },
    /// The id is in use or was used before (ids are never used again).
    #[error("member id {id} is or was in use; the next free id is {next}")]
    IdUsed {
        id: MemberId,
        /// The next free id.
        next: MemberId,
    },
    #[error("there is no member {id}")]
    NoSuchMember { id: MemberId },
    /// The member is not a learner that can be promoted, or not a voter that can lead.
    #[error("member {id} {why}")]
    WrongRole {
        id: MemberId,
        /// The mismatch, as the predicate of the message: "has a vote already".
        why: &'static str,
    },
    /// The last voter cannot be removed.
    #[error("member {id} is the only voter; promote another one first")]
    LastVoter { id: MemberId },
    /// No majority of the voters that would be left answers.
    #[error(
        "of the {voters} voters that there would be, no majority answers: nothing could be written, and not even this \
         change taken back; start or remove first: {}; only whoever knows that enough of them come back begins it \
         all the same (`--without-majority`, `without_majority` in the API)",
        names(.silent)
    )]
    SilentMajority {
        /// The voters that do not answer.
        silent: Vec<Member>,
        /// The number of voters that there would be.
        voters: usize,
    },
    /// Another change is under way; one at a time.
    #[error("another change of the membership is under way; retry when it has ended")]
    InProgress,
    /// A member lags too far behind to be promoted or to take the lead before the deadline.
    #[error("member {id} did not catch up in time; retry later")]
    Lagging { id: MemberId },
    /// Leadership was to be handed over, and another member was elected, or the one that it came from once more.
    #[error("member {id} was to lead and was not elected{}; see whether it runs, and retry", instead(.leader.as_ref()))]
    NotElected {
        id: MemberId,
        /// The member that leads now.
        leader: Option<Member>,
    },
    /// This member does not lead: ask the leader.
    #[error("this member is not the leader{}", hint(.leader.as_ref()))]
    NotLeader {
        /// The leader this member follows, if it knows one.
        leader: Option<Member>,
    },
    /// No quorum answered in time; nothing was changed.
    #[error("no quorum of members answered in time; retry")]
    Unavailable,
    /// The change was handed in and its fate was not learned; look at the members before retrying.
    #[error("the outcome is unknown: look at the member list before retrying")]
    OutcomeUnknown,
    /// This member's consensus has ended.
    #[error("this member has stopped")]
    Stopped(#[source] StopReason),
}

fn names(members: &[Member]) -> String {
    members.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn instead(leader: Option<&Member>) -> String {
    leader.map_or_else(String::new, |leader| format!(": {leader} leads now"))
}

fn hint(leader: Option<&Member>) -> String {
    match leader {
        Some(leader) => format!("; ask {leader}"),
        None => "; no leader is known at the moment, try another member or retry".to_owned(),
    }
}
