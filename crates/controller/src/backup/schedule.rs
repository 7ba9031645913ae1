//! The backup actor of the leader: saves the ledger into a folder every so often, and removes what is too old.
//!
//! The folder is meant to be the same one on every member, on a file system that outlives them. What is there decides
//! when the next backup is due, so a change of leader makes none too many and none too few.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tessera_consensus::try_blocking;
use tokio::time::{Instant, sleep};

use super::partial::PREFIX;
use super::{Backup, Encoder, Partial};
use crate::leader::Reign;
use crate::pool::{Consistency, PoolHandle};

/// Name of the actor in logs and metrics.
pub(crate) const NAME: &str = "backup";
/// How the names of backups end.
const SUFFIX: &str = ".tessera-backup";
/// Pause before a backup that failed is tried again.
const RETRY: Duration = Duration::from_secs(60);
/// After each piece its writer rests so many times as long as the piece took: other work comes first.
const REST: u32 = 4;
/// Age from which a file that is not whole belongs to nobody any more.
const ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// What is saved when, and kept for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPlan {
    /// The folder; must be there.
    pub dir: PathBuf,
    /// Time from one backup to the next.
    pub interval: Duration,
    /// How many backups of this cluster are kept; the oldest go first.
    pub keep: usize,
    /// Age from which backups of this cluster are removed, but for the newest one; `None`: only their number counts.
    pub max_age: Option<Duration>,
}

impl BackupPlan {
    /// Shortest time from one backup to the next.
    pub const SHORTEST: Duration = Duration::from_secs(1);

    /// Every hour into a folder, and the last two days are kept.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), interval: Duration::from_secs(3600), keep: 48, max_age: None }
    }
}

/// A backup that is in the folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Saved {
    taken_at_ms: u64,
    path: PathBuf,
}

/// Runs the actor until the reign ends.
pub(crate) async fn run(pool: PoolHandle, plan: BackupPlan, reign: Arc<Reign>) {
    tokio::select! {
        () = reign.end.cancelled() => {}
        () = keep_saving(&pool, &plan) => {}
    }
    pool.metrics().backups_are_elsewhere();
}

async fn keep_saving(pool: &PoolHandle, plan: &BackupPlan) {
    let cluster = pool.consensus().identity().cluster.as_str().to_owned();
    loop {
        let (dir, of) = (plan.dir.clone(), cluster.clone());
        let newest = match in_background(move || list(&dir, &of)).await {
            Ok(saved) => saved.last().map(|saved| saved.taken_at_ms),
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
            Ok((path, bytes)) => {
                tracing::info!(path = %path.display(), bytes, "a backup was saved");
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
    tracing::error!(dir = %plan.dir.display(), %error, "no backup could be saved; it is tried again");
}

/// Saves the ledger as it is now, and removes what is too old.
async fn save(pool: &PoolHandle, plan: &BackupPlan, cluster: &str) -> io::Result<(PathBuf, u64)> {
    let deadline = Instant::now() + pool.config().timings.propose;
    let (state, _) = pool.read(Consistency::Linearizable, deadline).await.map_err(io::Error::other)?;
    let taken_at_ms = pool.right_time().0;
    let path = plan.dir.join(format!("{cluster}-{}-r{}{SUFFIX}", stamp(taken_at_ms), state.revision()));
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
    let (plan, cluster) = (plan.clone(), cluster.to_owned());
    in_background(move || {
        Backup::open(partial.written()).and_then(Backup::verify).map_err(io::Error::other)?;
        partial.publish()?;
        remove_old(&plan, &cluster, taken_at_ms)
    })
    .await?;
    Ok((path, bytes))
}

async fn in_background<R: Send + 'static>(work: impl FnOnce() -> io::Result<R> + Send + 'static) -> io::Result<R> {
    try_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
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

/// The backups of a cluster, the oldest first. What cannot be read as one is left alone.
fn list(dir: &Path, cluster: &str) -> io::Result<Vec<Saved>> {
    let mut saved = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if !path.to_string_lossy().ends_with(SUFFIX) {
            continue;
        }
        match Backup::open(&path) {
            Ok(backup) if backup.header().cluster_id == cluster => {
                saved.push(Saved { taken_at_ms: backup.header().taken_at_ms, path });
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "a file among the backups is left alone"),
        }
    }
    saved.sort();
    Ok(saved)
}

/// Removes the backups that are too many or too old, never the newest, and what writers that died left.
fn remove_old(plan: &BackupPlan, cluster: &str, now_ms: u64) -> io::Result<()> {
    let saved = list(&plan.dir, cluster)?;
    for gone in too_old(&saved, plan, now_ms) {
        fs::remove_file(&gone.path)?;
    }
    for entry in fs::read_dir(&plan.dir)? {
        let entry = entry?;
        let abandoned = entry.metadata()?.modified()?.elapsed().is_ok_and(|age| age > ABANDONED);
        if abandoned && entry.file_name().to_string_lossy().starts_with(PREFIX) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn too_old<'a>(saved: &'a [Saved], plan: &BackupPlan, now_ms: u64) -> Vec<&'a Saved> {
    let count = saved.len();
    let by_number = |place: usize| count - place > plan.keep.max(1);
    let by_age = |saved: &Saved| {
        let age = Duration::from_millis(now_ms.saturating_sub(saved.taken_at_ms));
        plan.max_age.is_some_and(|most| age > most)
    };
    let old = saved.iter().enumerate().take(count.saturating_sub(1));
    old.filter(|(place, saved)| by_number(*place) || by_age(saved)).map(|(_, saved)| saved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(taken: &[u64]) -> Vec<Saved> {
        taken.iter().map(|taken_at_ms| Saved { taken_at_ms: *taken_at_ms, path: PathBuf::new() }).collect()
    }

    fn gone(taken: &[u64], plan: &BackupPlan, now_ms: u64) -> Vec<u64> {
        too_old(&saved(taken), plan, now_ms).into_iter().map(|saved| saved.taken_at_ms).collect()
    }

    #[test]
    fn the_oldest_go_by_number_and_by_age_and_the_newest_never() {
        let plan = BackupPlan { keep: 2, ..BackupPlan::new("/backups") };
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
