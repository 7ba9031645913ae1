//! The growth actor of the leader: starts gangs again that run with fewer virtual cards than they would like, once
//! there is room for more ([`growth`] says for whom).

use std::sync::Arc;
use std::time::Duration;

use tessera_foresight::{Growth, Look, growth};
use tessera_ledger::{AllocationId, Command, LogTime, Request, Revision, State};
use tokio::time::{Instant, sleep};

use crate::leader::Reign;
use crate::pool::PoolHandle;

/// Name of the actor in logs and metrics, and of who proposes.
pub(crate) const NAME: &str = "growth";
/// Pause between two looks: a gang waits at least this long anyway, and playing a pool through takes a while.
const LOOK: Duration = Duration::from_secs(5);

/// The results of earlier looks.
#[derive(Default)]
struct Seen {
    /// The last allocation that was played through.
    last: Option<AllocationId>,
    /// A revision at which nobody could grow, and until when that holds.
    nobody: Option<(Revision, LogTime)>,
}

/// Runs the actor until the reign ends.
pub(crate) async fn run(pool: PoolHandle, reign: Arc<Reign>) {
    let mut seen = Seen::default();
    let watch = async {
        loop {
            sleep(LOOK).await;
            look(&pool, &mut seen).await;
        }
    };
    reign.end.run_until_cancelled(watch).await;
}

async fn look(pool: &PoolHandle, seen: &mut Seen) {
    let (state, now) = (pool.view().current(), pool.log_time());
    let revision = state.revision();
    if seen.nobody.is_some_and(|(at, until)| at == revision && now < until) {
        return;
    }
    let (until, behind) = (next(&state, now), seen.last);
    let Look { growth, last, whole } = match tessera_consensus::try_blocking(move || growth(&state, now, behind)).await
    {
        Ok(look) => look,
        Err(error) => return tracing::error!(%error, "which gangs could grow could not be found out"),
    };
    seen.last = last;
    let Some(Growth { job, allocation, from, to }) = growth else {
        seen.nobody = whole.then_some((revision, until));
        return;
    };
    tracing::info!(%job, from, to, "a gang is started again with more virtual cards");
    let request = Request { key: None, actor: NAME.to_owned(), command: Command::GrowJob { job, allocation } };
    match pool.propose(request, Instant::now() + pool.config().timings.propose).await {
        Ok(committed) => tracing::debug!(%job, outcome = ?committed.outcome, "the ledger was told"),
        Err(error) => tracing::info!(%error, %job, "a gang could not be told to grow; it is looked at again"),
    }
}

/// The next time at which a gang has run long enough to grow; the latest possible time if there is none.
fn next(state: &State, now: LogTime) -> LogTime {
    let far = LogTime(u64::MAX);
    let times = state.allocations().filter_map(|held| state.may_grow_since(held, far)).filter(|since| *since > now);
    times.min().unwrap_or(far)
}
