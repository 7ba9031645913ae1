//! The backup actor of the leader: saves the ledger into a folder or a bucket every so often, and removes what is too
//! old.
//!
//! The folder is meant to be the same one on every member, on a file system that outlives them. What is there decides
//! when the next backup is due, so a change of leader makes none too many and none too few.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tessera_objects::Location;
use tokio::time::{Instant, sleep};

use super::kept::{Kept, SUFFIX, in_background, kept, publish, remove, remove_abandoned, workshop};
use super::{Encoder, Partial};
use crate::leader::Reign;
use crate::pool::{Consistency, PoolHandle};

/// Name of the actor in logs and metrics.
pub(crate) const NAME: &str = "backup";
/// Pause before a backup that failed is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// After each piece its writer rests so many times as long as the piece took: other work comes first.
const REST: u32 = 4;

/// The schedule of backups: their place, their interval and their retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPlan {
    /// The folder, which must be there, or where in a bucket.
    pub place: Location,
    /// Time from one backup to the next.
    pub interval: Duration,
    /// Number of backups of this cluster that are retained; the oldest are removed first.
    pub keep: usize,
    /// Age from which backups of this cluster are removed, but for the newest one; `None`: only their number counts.
    pub max_age: Option<Duration>,
}

impl BackupPlan {
    /// Shortest time from one backup to the next.
    pub const SHORTEST: Duration = Duration::from_secs(1);

    /// Every hour to a place, and the last two days are kept.
    #[must_use]
    pub const fn new(place: Location) -> Self {
        Self { place, interval: Duration::from_secs(3600), keep: 48, max_age: None }
    }
}

/// Runs the actor until the reign ends.
pub(crate) async fn run(pool: PoolHandle, plan: BackupPlan, reign: Arc<Reign>) {
    reign.end.run_until_cancelled(keep_saving(&pool, &plan)).await;
    pool.metrics().backups_are_elsewhere();
}

async fn keep_saving(pool: &PoolHandle, plan: &BackupPlan) {
    let cluster = pool.consensus().identity().cluster.as_str().to_owned();
    loop {
        let newest = match of_cluster(plan, &cluster).await {
            Ok(saved) => saved.last().map(|saved| saved.header.taken_at_ms),
            Err(error) => {
                failed(pool, plan, &error);
                sleep(RETRY.min(plan.interval)).await;
                continue;
            }
        };
        if let Some(taken_at_ms) = newest {
            pool.metrics().backup_is_from(taken_at_ms);
            let age = Duration::from_millis(pool.right_time().0.saturating_sub(taken_at_ms));
            sleep(plan.interval.saturating_sub(age)).await;
        }
        let began = Instant::now();
        match save(pool, plan, &cluster).await {
            Ok((name, bytes)) => {
                tracing::info!(place = %plan.place, name, bytes, "a backup was saved");
                pool.metrics().backup_saved(bytes, began.elapsed());
            }
            Err(error) => {
                failed(pool, plan, &error);
                sleep(RETRY.min(plan.interval)).await;
            }
        }
    }
}

fn failed(pool: &PoolHandle, plan: &BackupPlan, error: &io::Error) {
    pool.metrics().backup_failed();
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    let why = causes.map(ToString::to_string).fold(error.to_string(), |why, cause| {
        // Some say their causes themselves.
        if why.contains(&cause) { why } else { format!("{why}: {cause}") }
    });
    tracing::error!(place = %plan.place, error = why, "no backup could be saved; it is tried again");
}

/// Saves the ledger as it is now, and removes what is too old.
async fn save(pool: &PoolHandle, plan: &BackupPlan, cluster: &str) -> io::Result<(String, u64)> {
    let deadline = Instant::now() + pool.config().timings.propose;
    let (state, _) = pool.read(Consistency::Linearizable, deadline).await.map_err(io::Error::other)?;
    let taken_at_ms = pool.right_time().0;
    let name = format!("{cluster}-{}-r{}{SUFFIX}", stamp(taken_at_ms), state.revision());
    let path = workshop(&plan.place).join(&name);
    let mut writing = (Encoder::of(state, pool), Partial::create(&path)?, 0);
    loop {
        let began = Instant::now();
        let (written, more) = in_background(move || step(writing)).await?;
        writing = written;
        if !more {
            break;
        }
        sleep(began.elapsed() * REST).await;
    }
    let (_, partial, bytes) = writing;
    publish(&plan.place, partial, &name).await?;
    for gone in too_old(&of_cluster(plan, cluster).await?, plan, taken_at_ms) {
        remove(&plan.place, &gone.name).await?;
    }
    remove_abandoned(&plan.place).await?;
    Ok((name, bytes))
}

/// The backups of a cluster that are kept, the oldest first.
async fn of_cluster(plan: &BackupPlan, cluster: &str) -> io::Result<Vec<Kept>> {
    let mut saved = kept(&plan.place).await?;
    saved.retain(|backup| backup.header.cluster_id == cluster);
    Ok(saved)
}

type Writing = (Encoder, Partial, u64);

/// Writes the next piece; false when there is none.
fn step((mut encoder, mut partial, bytes): Writing) -> io::Result<(Writing, bool)> {
    let Some(piece) = encoder.next() else { return Ok(((encoder, partial, bytes), false)) };
    partial.write(&piece)?;
    Ok(((encoder, partial, bytes + piece.len() as u64), true))
}

/// A time as file names say it.
fn stamp(millis: u64) -> String {
    let time = i64::try_from(millis).ok().and_then(|millis| jiff::Timestamp::from_millisecond(millis).ok());
    time.map_or_else(|| millis.to_string(), |time| time.strftime("%Y%m%dT%H%M%SZ").to_string())
}

/// The backups that are too many or too old, never the newest.
fn too_old<'a>(saved: &'a [Kept], plan: &BackupPlan, now_ms: u64) -> Vec<&'a Kept> {
    let count = saved.len();
    let by_number = |place: usize| count - place > plan.keep.max(1);
    let by_age = |saved: &Kept| {
        let age = Duration::from_millis(now_ms.saturating_sub(saved.header.taken_at_ms));
        plan.max_age.is_some_and(|most| age > most)
    };
    let old = saved.iter().enumerate().take(count.saturating_sub(1));
    old.filter(|(place, saved)| by_number(*place) || by_age(saved)).map(|(_, saved)| saved).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Counts, Header};
    use super::*;

    fn saved(taken: &[u64]) -> Vec<Kept> {
        let header = |taken_at_ms| Header {
            cluster_id: "c".to_owned(),
            release: "0.1.0".to_owned(),
            level: 1,
            revision: 5,
            term: 2,
            log_time_ms: 1_000,
            taken_at_ms,
            counts: Counts::default(),
        };
        taken.iter().map(|taken| Kept { name: taken.to_string(), header: header(*taken), bytes: 1 }).collect()
    }

    fn gone(taken: &[u64], plan: &BackupPlan, now_ms: u64) -> Vec<u64> {
        too_old(&saved(taken), plan, now_ms).into_iter().map(|saved| saved.header.taken_at_ms).collect()
    }

    #[test]
    fn the_oldest_go_by_number_and_by_age_and_the_newest_never() {
        let plan = BackupPlan { keep: 2, ..BackupPlan::new(Location::Local("/backups".into())) };
        assert_eq!(gone(&[1, 2, 3, 4], &plan, 5), [1, 2]);
        assert_eq!(gone(&[3, 4], &plan, 5), [0; 0]);
        let aged = BackupPlan { keep: 9, max_age: Some(Duration::from_millis(10)), ..plan.clone() };
        assert_eq!(gone(&[1, 5, 9], &aged, 16), [1, 5]);
        assert_eq!(gone(&[1, 5, 9], &aged, 1_000), [1, 5], "one backup that is old is better than none");
        assert_eq!(gone(&[7], &BackupPlan { keep: 0, ..aged }, 1_000), [0; 0]);
    }

    #[test]
    fn names_say_when_a_backup_was_taken() {
        assert_eq!(stamp(1_795_409_100_000), "20261123T044500Z");
    }
}
