//! Checking the ledger's laws on a live pool.
//!
//! A check goes over the whole state and may take a core for a while, so that there is one at a time, and whoever asked
//! before it began gets its answer: a crowd that asks at once costs as much as one that asks twice.

use std::sync::Arc;

use tessera_api::pool_view::block_counts;
use tessera_api::v1;
use tessera_consensus::try_blocking;
use tessera_ledger::{BlockCounts, Revision, State, laws};
use tokio::sync::{Mutex, Semaphore};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::limits::{LimitMeters, Limited, MemberLimits};
use crate::services::{Desk, refusal};

/// The result of a check.
#[derive(Clone, Debug)]
struct Verdict {
    revision: Revision,
    digest: u128,
    violations: Vec<v1::LawViolation>,
    blocks: BlockCounts,
}

/// Checks the laws, one check at a time. Clones are the same.
#[derive(Clone, Debug)]
pub(in crate::services) struct Verifier {
    /// The newest verdict; whoever holds the lock checks.
    newest: Arc<Mutex<Option<Arc<Verdict>>>>,
    waiting: Arc<Semaphore>,
    meters: LimitMeters,
}

impl Verifier {
    pub(in crate::services) fn new(limits: &MemberLimits, meters: LimitMeters) -> Self {
        let waiting = Arc::new(Semaphore::new(limits.verifications));
        Self { newest: Arc::default(), waiting, meters }
    }

    /// A verdict on a state that is at least as new as `least`; `newest` is asked for the state when a check begins.
    async fn verdict(
        &self,
        least: Revision,
        newest: impl FnOnce() -> Arc<State> + Send,
        deadline: Instant,
    ) -> Result<Arc<Verdict>, Status> {
        let Ok(_waits) = self.waiting.try_acquire() else {
            return Err(self.meters.refuse(Limited::Verifications));
        };
        let _counted = self.meters.one(Limited::Verifications);
        let checking = async {
            let mut place = Arc::clone(&self.newest).lock_owned().await;
            if let Some(known) = place.as_ref().filter(|known| known.revision >= least) {
                return Ok(Arc::clone(known));
            }
            let state = newest();
            // The lock goes along, so that the check is the only one until its end, whether or not its caller waits
            // for it.
            try_blocking(move || Arc::clone(place.insert(Arc::new(check(&state))))).await
        };
        match timeout_at(deadline, checking).await {
            Ok(Ok(verdict)) => Ok(verdict),
            Ok(Err(error)) => {
                let sentence = format!("the laws could not be checked: {error}; report it");
                Err(refusal::because(v1::ErrorReason::Internal, sentence))
            }
            Err(_) => Err(refusal::too_late()),
        }
    }
}

/// Checks every law against the whole state of this member (law L1), away from the threads that serve calls.
pub(super) async fn answer(
    desk: &Desk,
    deadline: Instant,
    request: &v1::VerifyPoolRequest,
) -> Result<v1::VerifyPoolResponse, Status> {
    let reading = desk.read(request.consistency, deadline).await?;
    let newest = || desk.pool.view().current();
    let verdict = desk.verifier.verdict(reading.state.revision(), newest, deadline).await?;
    Ok(v1::VerifyPoolResponse {
        violations: verdict.violations.clone(),
        blocks: Some(block_counts(verdict.blocks)),
        digest: format!("{:032x}", verdict.digest),
        read: reading.read_state().map(|read| v1::ReadState { revision: verdict.revision.0, ..read }),
    })
}

fn check(state: &State) -> Verdict {
    let broken = laws::check(state);
    for violation in &broken {
        tracing::error!(law = violation.law, problem = violation.problem, "a law of the ledger does not hold");
    }
    let violations = broken
        .into_iter()
        .map(|violation| v1::LawViolation { law: violation.law.to_owned(), sentence: violation.problem })
        .collect();
    Verdict { revision: state.revision(), digest: state.digest(), violations, blocks: counted(state) }
}

/// All blocks by state, extent by extent.
fn counted(state: &State) -> BlockCounts {
    let mut counts = BlockCounts::default();
    for extent in state.cards().flat_map(|(_, card)| card.extents.as_slice()) {
        counts.count(extent.state, extent.length, false);
    }
    counts
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tessera_api::error::reason_of;
    use tokio::time::Duration;

    use super::*;

    fn verifier(verifications: usize) -> Verifier {
        let limits = MemberLimits { verifications, ..MemberLimits::default() };
        Verifier::new(&limits, LimitMeters::new(limits))
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(30)
    }

    #[tokio::test]
    async fn callers_that_wait_share_one_check() {
        let (verifier, checks) = (verifier(8), AtomicUsize::new(0));
        let newest = || {
            checks.fetch_add(1, Ordering::Relaxed);
            Arc::new(State::new())
        };
        let asked = (0..8).map(|_| verifier.verdict(Revision(0), newest, soon()));
        let verdicts = join_all(asked).await;
        assert!(verdicts.iter().all(|verdict| verdict.as_ref().is_ok_and(|found| found.violations.is_empty())));
        assert_eq!(checks.load(Ordering::Relaxed), 1, "one check serves all");
    }

    #[tokio::test]
    async fn more_callers_than_may_wait_are_refused_with_the_limit() {
        let verifier = verifier(1);
        let lock = verifier.newest.lock().await;
        let first = verifier.verdict(Revision(0), || Arc::new(State::new()), soon());
        let second = async {
            let refused = verifier.verdict(Revision(0), || Arc::new(State::new()), soon()).await;
            drop(lock);
            refused.expect_err("one may wait")
        };
        let (first, refused) = tokio::join!(first, second);
        assert_eq!(reason_of(&refused), Some(v1::ErrorReason::TooManyVerifications));
        assert_eq!(first.expect("it waited").digest, State::new().digest());
    }
}
