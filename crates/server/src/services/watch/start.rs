//! The beginning of a watch.

use std::sync::Arc;

use planted::Bug;
use tessera_api::error::Refusal;
use tessera_api::resume::WatchPlace;
use tessera_api::v1::ErrorReason;
use tessera_ledger::wire::FieldError;
use tessera_ledger::{Revision, State};
use tokio::time::Instant;
use tonic::Status;

use crate::services::refusal;
use tessera_controller::pool::{Consistency, PoolHandle};

/// The place at which a watcher wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// With a list of what there is now.
    List,
    /// At the place at which a watch before this one was cut.
    Resume(WatchPlace),
    /// With the events after this revision.
    After(Revision),
    /// With the oldest event that is remembered.
    Oldest,
}

/// The place at which a watch begins.
#[derive(Clone, Debug)]
pub(crate) struct Begin {
    /// Events before this place are not sent.
    pub place: WatchPlace,
    /// The state whose content is listed first, if it is.
    pub listed: Option<Arc<State>>,
}

impl Start {
    /// Finds the place. A list shows everything that was acknowledged before the watch was asked for; a place that no
    /// member can have reached yet is refused rather than waited for.
    pub(crate) async fn begin(self, pool: &PoolHandle, deadline: Instant) -> Result<Begin, Status> {
        let place = match self {
            Self::List => {
                let state = current(pool, deadline).await?;
                return Ok(Begin { place: WatchPlace::after(state.revision()), listed: Some(state) });
            }
            Self::Oldest => WatchPlace::after(pool.view().current().compacted()),
            Self::After(revision) => WatchPlace::after(revision),
            Self::Resume(_) if planted::is(Bug::WatchSkips) => WatchPlace::after(pool.view().current().revision()),
            Self::Resume(place) => place,
        };
        if place.revision > pool.view().current().revision()
            && place.revision > current(pool, deadline).await?.revision()
        {
            return Err(self.not_reached().into());
        }
        Ok(Begin { place, listed: None })
    }

    fn not_reached(self) -> Refusal {
        match self {
            Self::After(revision) => {
                let problem = format!("must be a revision that the pool has reached, is {revision}");
                Refusal::from(FieldError::invalid("after_revision", problem))
            }
            _ => {
                let sentence = "resume_token: is of a revision that the pool has not reached, so of another pool, or of one \
                                before it was restored; start the watch anew";
                Refusal::new(ErrorReason::ResumeTokenInvalid, sentence)
            }
        }
    }
}

async fn current(pool: &PoolHandle, deadline: Instant) -> Result<Arc<State>, Status> {
    let read = pool.read(Consistency::Linearizable, deadline).await;
    Ok(read.map_err(|error| refusal::of_read(pool, &error))?.0)
}
