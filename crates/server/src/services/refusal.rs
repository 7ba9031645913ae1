//! Refusals of calls: errors of consensus, of placement and of watches in the API's words.

use std::error::Error;

use tessera_actor::AskError;
use tessera_api::error::Refusal;
use tessera_api::limits;
use tessera_api::v1::ErrorReason;
use tessera_consensus::{Leadership, Member, MembershipError};
use tessera_ledger::{JobId, Outcome, Rejection, Revision};
use tonic::Status;

use tessera_controller::pool::{PoolHandle, ProposeError, ReadError};

/// A refusal of this reason with a sentence.
pub(crate) fn because(reason: ErrorReason, sentence: impl Into<String>) -> Status {
    Refusal::new(reason, sentence).into()
}

pub(crate) fn of_rejection(rejection: &Rejection) -> Status {
    Refusal::from(rejection).into()
}

/// The refusal of a command that consensus, or the disk, did not take.
pub(crate) fn of_propose(pool: &PoolHandle, error: &ProposeError) -> Status {
    match error {
        ProposeError::Consensus(error) => of_consensus(pool, error),
        ProposeError::StorageFull { .. } => because(ErrorReason::StorageFull, error.to_string()),
    }
}

fn of_consensus(pool: &PoolHandle, error: &tessera_consensus::ProposeError) -> Status {
    use tessera_consensus::ProposeError as E;
    match error {
        E::NotLeader { leader } => not_leader(pool, leader.as_ref()),
        E::Unavailable => because(ErrorReason::NoQuorum, error.to_string()),
        E::OutcomeUnknown => because(ErrorReason::OutcomeUnknown, error.to_string()),
        E::Overloaded => because(ErrorReason::Overloaded, error.to_string()),
        E::TooLarge { .. } => because(ErrorReason::RequestTooLarge, error.to_string()),
        E::Stopped(reason) => because(ErrorReason::MemberStopped, format!("{error}: {reason}; ask another member")),
    }
}

/// A read that cannot be answered as asked.
pub(crate) fn of_read(pool: &PoolHandle, error: &ReadError) -> Status {
    use tessera_consensus::ReadError as E;
    match error {
        ReadError::Consensus(E::NotLeader { leader }) => not_leader(pool, leader.as_ref()),
        ReadError::Consensus(E::Stopped(reason)) => {
            because(ErrorReason::MemberStopped, format!("{error}: {reason}; ask another member"))
        }
        ReadError::Consensus(E::Unavailable) | ReadError::NotReached(_) => {
            because(ErrorReason::NoQuorum, error.to_string())
        }
    }
}

/// A change of the membership that was not made.
pub(crate) fn of_membership(pool: &PoolHandle, error: &MembershipError) -> Status {
    use MembershipError as E;
    let reason = match error {
        E::NotLeader { leader } => return not_leader(pool, leader.as_ref()),
        E::AlreadyInitialized => ErrorReason::AlreadyInitialized,
        E::BadFounders { .. } => ErrorReason::InvalidField,
        E::IdUsed { .. } => ErrorReason::MemberIdUsed,
        E::NoSuchMember { .. } => ErrorReason::MemberUnknown,
        E::NotAdmitted { .. }
        | E::WrongRole { .. }
        | E::LastVoter { .. }
        | E::SilentMajority { .. }
        | E::InProgress
        | E::Lagging { .. }
        | E::NotElected { .. } => ErrorReason::MembershipRefused,
        E::Unavailable => ErrorReason::NoQuorum,
        E::OutcomeUnknown => ErrorReason::OutcomeUnknown,
        E::Stopped(_) => ErrorReason::MemberStopped,
    };
    because(reason, error.to_string())
}

/// Placement did not answer. A leader that was just elected has no placement yet; whoever brought the call here
/// asks again.
pub(crate) fn of_placement(pool: &PoolHandle, error: &AskError) -> Status {
    if matches!(error, AskError::TooLate { .. }) {
        return because(ErrorReason::DeadlineExceeded, error.to_string());
    }
    match &*pool.leadership().borrow() {
        Leadership::Following { leader } => not_leader(pool, leader.as_ref()),
        Leadership::Leading { .. } => {
            because(ErrorReason::NotLeader, "this member was elected and does not decide yet; try again")
        }
    }
}

pub(crate) fn not_leader(pool: &PoolHandle, leader: Option<&Member>) -> Status {
    let term = pool.status().borrow().term.0;
    Refusal::not_leader(leader.map(|leader| (leader.address.as_str(), term))).into()
}

/// Nobody could be found who answers the call before its deadline.
pub(crate) fn gave_up(perhaps_done: bool) -> Status {
    if perhaps_done {
        let sentence =
            "the leader was lost before it answered: the mutation may have been made; retry with the same request id";
        because(ErrorReason::OutcomeUnknown, sentence)
    } else {
        because(ErrorReason::NoQuorum, "no leader with a quorum was found in time; nothing was changed; retry")
    }
}

/// The leader's address cannot be dialled.
pub(crate) fn leader_unreachable(error: &dyn Error) -> Status {
    because(ErrorReason::NoQuorum, format!("the leader cannot be reached: {error}; correct the member's address"))
}

pub(crate) fn request_too_large() -> Status {
    let sentence =
        format!("the request is larger than {} bytes; put long input into files of the node", limits::REQUEST);
    because(ErrorReason::RequestTooLarge, sentence)
}

/// A request that broke off.
pub(crate) fn broken_request(error: &dyn Error) -> Status {
    because(ErrorReason::ProtocolViolation, format!("the request broke off: {error}"))
}

/// A read that took longer than its caller allows.
pub(crate) fn too_late() -> Status {
    because(ErrorReason::DeadlineExceeded, "the call was not answered before its deadline; allow it more time")
}

/// A request whose end did not come.
pub(crate) fn request_came_too_slowly() -> Status {
    Refusal::arrived_too_slowly().into()
}

/// A watch whose place is not remembered any more.
pub(crate) fn watch_compacted(oldest: Revision) -> Status {
    Refusal::compacted(oldest).into()
}

/// A watcher that does not read.
pub(crate) fn watch_too_slow() -> Status {
    let sentence = "the watch was read too slowly and was cut; go on with the last resume token, with a narrower filter if \
                    this happens again";
    because(ErrorReason::WatchTooSlow, sentence)
}

/// More callers wait for something to be played through than a member lets wait.
pub(crate) fn too_many_rehearsals() -> Status {
    let sentence = "too many plans and predictions wait to be played through on this member; back off and retry";
    because(ErrorReason::Overloaded, sentence)
}

/// More backups are read from this member than it keeps states for.
pub(crate) fn too_many_saves() -> Status {
    because(ErrorReason::Overloaded, "too many backups are being saved from this member; wait for them and retry")
}

pub(crate) fn member_stopping() -> Refusal {
    Refusal::new(ErrorReason::MemberStopped, "this member is stopping; go on at another one")
}

pub(crate) fn job_unknown(job: JobId) -> Status {
    of_rejection(&Rejection::UnknownJob(job))
}

/// An answer of the ledger that does not belong to the command.
pub(crate) fn unexpected(outcome: &Outcome) -> Status {
    because(ErrorReason::Internal, format!("the ledger answered {outcome:?}, which is a defect of Tessera; report it"))
}
