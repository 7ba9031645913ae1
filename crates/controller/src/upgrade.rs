//! The upgrade actor of the leader: raises the release level as soon as every member can apply a higher one (law L7).
//!
//! Each member is asked, voters and learners, every time before it is raised: one that does not answer may be of any
//! release. An operator can hold the level where it is (`hold_level` in the pool's settings); the ledger keeps to
//! that too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tessera_consensus::MemberId;
use tessera_ledger::{Command, Level, Request};
use tokio::time::{Instant, sleep};

use crate::leader::Reign;
use crate::pool::PoolHandle;

/// Name of the actor in logs and metrics, and of who proposes.
pub(crate) const NAME: &str = "upgrade";
/// Pause between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// The time limit for the answers of members.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the actor until the reign ends.
pub(crate) async fn run(pool: PoolHandle, reign: Arc<Reign>) {
    let watch = async {
        loop {
            look(&pool).await;
            sleep(LOOK).await;
        }
    };
    reign.end.run_until_cancelled(watch).await;
}

async fn look(pool: &PoolHandle) {
    let state = pool.view().current();
    let in_force = state.level();
    if in_force >= pool.config().highest_level || state.config().hold_level {
        return;
    }
    let announced = pool.consensus().announced_levels(Instant::now() + PATIENCE).await;
    let Some(to) = next(in_force, &announced) else {
        tracing::debug!(%in_force, ?announced, "the release level stays: not every member can apply a higher one");
        return;
    };
    let request = Request { key: None, actor: NAME.to_owned(), command: Command::RaiseLevel { to } };
    match pool.propose(request, Instant::now() + pool.config().timings.propose).await {
        Ok(committed) => {
            tracing::info!(%in_force, %to, outcome = ?committed.outcome, "every member can apply a higher release level")
        }
        Err(error) => tracing::info!(%error, %to, "the release level could not be raised; it is tried again"),
    }
}

/// The level to be raised to, if every member has announced that it can apply it.
fn next(in_force: Level, announced: &BTreeMap<MemberId, Option<u32>>) -> Option<Level> {
    let announced: Option<Vec<u32>> = announced.values().copied().collect();
    let lowest = announced?.into_iter().min()?;
    Level::up_to(lowest).filter(|to| *to > in_force)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announced(levels: &[Option<u32>]) -> BTreeMap<MemberId, Option<u32>> {
        (1..).map(MemberId).zip(levels.iter().copied()).collect()
    }

    #[test]
    fn it_takes_every_member() {
        let drill = Some(Level::Drill.number());
        assert_eq!(next(Level::One, &announced(&[drill, drill, drill])), Some(Level::Drill));
        assert_eq!(next(Level::One, &announced(&[drill, Some(1), drill])), None, "one is old");
        assert_eq!(next(Level::One, &announced(&[drill, None, drill])), None, "one does not say");
        assert_eq!(next(Level::One, &announced(&[])), None, "nobody was asked");
    }

    #[test]
    fn it_goes_as_far_as_the_oldest_member_and_never_back() {
        assert_eq!(next(Level::One, &announced(&[Some(5_000)])), Some(Level::Drill), "as far as this release knows");
        assert_eq!(next(Level::Drill, &announced(&[Some(1)])), None);
        assert_eq!(next(Level::One, &announced(&[Some(5)])), None, "a level of which this release knows nothing");
    }
}
