//! The idle actor of the leader: tells the ledger of jobs that compute next to nothing with what they hold
//! ([`tessera_ledger::idle`] says what follows), by what agents measure. Who is idle since when is its own memory: a
//! new leader has seen nothing yet and begins to count anew, so that nobody is taken for idle at a time of which
//! nobody knows what it did.

mod judge;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tessera_ledger::{Command, Job, Request};
use tokio::time::{Instant, sleep};

use crate::job_use::JobUse;
use crate::leader::Reign;
use crate::pool::PoolHandle;
use judge::{Judge, Look, Reading};

/// Name of the actor in logs and metrics, and of who proposes.
pub(crate) const NAME: &str = "idle";
/// Pause between two looks: agents measure every two seconds, and none of what they measure is to be missed.
const LOOK: Duration = Duration::from_secs(1);
/// A reading that is older says nothing of now, whatever the heartbeat is.
const STALE: Duration = Duration::from_secs(10);

/// Runs the actor until the reign ends.
pub(crate) async fn run(pool: PoolHandle, reign: Arc<Reign>) {
    let mut judge = Judge::default();
    let watch = async {
        loop {
            sleep(LOOK).await;
            look(&pool, &mut judge).await;
        }
    };
    reign.end.run_until_cancelled(watch).await;
}

async fn look(pool: &PoolHandle, judge: &mut Judge) {
    let state = pool.view().current();
    if !state.reclaims_idle() && state.idle_jobs().next().is_none() {
        *judge = Judge::default();
        return;
    }
    let (now, log_now) = (Instant::now(), pool.log_time());
    let fresh = STALE.max(state.config().leases.heartbeat.saturating_mul(3));
    let read = |job: &Job| {
        let used = JobUse::of(&state, pool.telemetry(), job)?;
        Some(Reading { at: used.known_at(now, fresh)?, utilization_ratio: used.utilization_ratio() })
    };
    let due = judge.due(&state, Look { now, log_now }, read);
    join_all(due.into_iter().map(|command| tell(pool, command))).await;
}

async fn tell(pool: &PoolHandle, command: Command) {
    let Command::NoteIdle { job, step, .. } = command else { return };
    let request = Request { key: None, actor: NAME.to_owned(), command };
    match pool.propose(request, Instant::now() + pool.config().timings.propose).await {
        Ok(committed) => {
            tracing::info!(%job, ?step, outcome = ?committed.outcome, "what a job uses has changed its lot")
        }
        Err(error) => {
            tracing::info!(%error, %job, ?step, "the ledger could not be told of an idle job; it is looked at again")
        }
    }
}
