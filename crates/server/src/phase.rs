//! The phase of a process of the control plane: what its pages say before there is a pool to ask, and afterwards.

use std::time::Duration;

use tessera_api::Refusal;
use tessera_api::v1::ErrorReason;
use tessera_consensus::Identity;
use tessera_controller::pool::PoolHandle;
use tokio::time::Instant;

use crate::services::readiness::{NotReady, Readiness};
use crate::services::refusal;

/// The phase that a process is in.
#[derive(Clone, Debug, Default)]
pub enum Phase {
    /// It reads its data folder: nobody knows yet whether it is a member.
    #[default]
    Starting,
    /// Its data folder is new: it waits to be made a member. Others may call it as one that it was.
    Nobody(Option<TakenFor>),
    /// It is a member, until it ends.
    Member(PoolHandle),
}

/// The member that others take a process for.
#[derive(Clone, Debug)]
pub struct TakenFor {
    pub member: Identity,
    /// The time of the newest call for it.
    pub heard: Instant,
}

/// The time for which such a call counts: others ask every few seconds for as long as they know the member.
const FRESH: Duration = Duration::from_secs(30);

impl TakenFor {
    pub(crate) fn is_fresh(&self) -> bool {
        self.heard.elapsed() < FRESH
    }
}

impl Phase {
    /// The pool of the member that it is.
    #[must_use]
    pub const fn pool(&self) -> Option<&PoolHandle> {
        match self {
            Self::Starting | Self::Nobody(_) => None,
            Self::Member(pool) => Some(pool),
        }
    }

    /// Judges whether calls should be sent to the process.
    ///
    /// # Errors
    /// [`NotReady`] says why not.
    pub fn readiness(&self) -> Result<(), NotReady> {
        match self {
            Self::Starting => Err(NotReady::Starting),
            Self::Nobody(_) => Err(self.lost_folder().unwrap_or(NotReady::NotAdmitted)),
            Self::Member(pool) => Readiness::of(pool.clone()).check(),
        }
    }

    /// The word of a process that others take for a member, though its data folder is empty: as long as they do.
    pub(crate) fn lost_folder(&self) -> Option<NotReady> {
        match self {
            Self::Nobody(Some(taken)) if taken.is_fresh() => {
                Some(NotReady::FolderLost { taken_for: taken.member.clone() })
            }
            _ => None,
        }
    }

    /// The answer to a question that nobody is there to answer. Only who waits to be made a member advises that: from a
    /// member that is starting it would found a second cluster.
    pub(crate) fn refusal(&self) -> Refusal {
        if let Some(lost) = self.lost_folder() {
            return Refusal::new(ErrorReason::NotInitialized, lost.to_string());
        }
        match self {
            Self::Nobody(_) => {
                let sentence = "this process is no member yet; create the cluster with tessera cluster init, or add \
                                the process to it with tessera cluster member add";
                Refusal::new(ErrorReason::NotInitialized, sentence)
            }
            Self::Member(pool) if pool.is_stopping() => refusal::member_stopping(),
            Self::Starting | Self::Member(_) => {
                let sentence = "this process is starting and reads its data folder; ask another member, or again soon";
                Refusal::new(ErrorReason::MemberStarting, sentence)
            }
        }
    }
}
