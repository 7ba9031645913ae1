//! The images of a program that is dumped while it runs: the times at which they are made, and their handling. An image
//! is packed while the program continues, and then removed. The next one is not made before that packing has ended.
//! Each has a folder of its own: an agent that is started meanwhile can mistake none for another.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use super::asking::periods;
use super::saver::Saving;
use crate::boot::unix_millis;
use crate::supervisor::image::Snapshot;

/// Images of one worker that are made while it runs.
pub(super) struct Dumped {
    every: Option<Duration>,
    /// The newest that was asked for.
    asked: u64,
    /// The time of that request, or the end of the last period before this agent came.
    asked_at: Instant,
    /// The newest that was heard of.
    heard: u64,
    packing: Option<AbortOnDropHandle<()>>,
}

impl Dumped {
    /// `kept`: the newest that is kept. `started`: when the worker started, if an agent before this one started it, in
    /// milliseconds since the Unix epoch.
    pub fn new(every: Option<Duration>, kept: u64, started: Option<u64>) -> Self {
        let into_period = every.zip(started).map_or(Duration::ZERO, |(every, started)| since(started, every).1);
        let asked_at = Instant::now().checked_sub(into_period).unwrap_or_else(Instant::now);
        Self { every, asked: kept, asked_at, heard: kept, packing: None }
    }

    /// Waits until an image is to be made; answers its number, which is that of its period since the worker started, or
    /// the next that is free: the time of day may be set meanwhile, and only numbers follow it.
    pub async fn due(&self, started: Option<u64>) -> u64 {
        let Some((every, started)) = self.every.zip(started) else { return std::future::pending().await };
        sleep(every.saturating_sub(self.asked_at.elapsed())).await;
        since(started, every).0.max(self.asked + 1)
    }

    /// Makes room for an image; answers whether it may be made now.
    pub async fn may_ask(&mut self, number: u64, saving: &Saving) -> bool {
        (self.asked, self.asked_at) = (number, Instant::now());
        if self.packing.as_ref().is_some_and(|packing| !packing.is_finished()) {
            return false;
        }
        let folder = saving.folder().clone();
        let made = tokio::task::spawn_blocking(move || folder.make_snapshot_folder(number)).await;
        match made.map_err(std::io::Error::other).flatten() {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(worker = %saving.worker(), %error, "there is no room for an image of a worker");
                false
            }
        }
    }

    /// Waits until what was made is kept, or cannot be.
    pub async fn are_packed(self) {
        if let Some(packing) = self.packing {
            // Whatever became of it was told.
            let _ = packing.await;
        }
    }

    /// The supervisor says that one was made, or why not.
    pub fn heard_of(&mut self, snapshot: &Snapshot, saving: &Saving) {
        if snapshot.number <= self.heard {
            return;
        }
        // An agent before this one may have asked for it.
        self.asked = self.asked.max(snapshot.number);
        self.heard = snapshot.number;
        let (Snapshot { number, image, why }, worker, saving) = (snapshot.clone(), saving.worker(), saving.clone());
        let keep = async move {
            let kept = match image {
                Some(image) => saving.keep_snapshot(number, image).await.map_err(|error| error.to_string()),
                None => Err(why),
            };
            if let Err(why) = &kept {
                tracing::warn!(%worker, number, why, "no image is kept of a program that runs on; the one before stands");
            }
            saving.tell_of_snapshot(kept.err()).await;
            saving.remove_snapshots_to(number).await;
        };
        self.packing = Some(AbortOnDropHandle::new(tokio::spawn(keep)));
    }
}

/// Whole periods since a moment of the time of day, and how far the present one has come.
fn since(started: u64, every: Duration) -> (u64, Duration) {
    let ran = Duration::from_millis(unix_millis().saturating_sub(started));
    let whole = periods(ran, every);
    (whole, ran.saturating_sub(every.saturating_mul(u32::try_from(whole).unwrap_or(u32::MAX))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_secs(10);

    /// In how many seconds an image is due, and its number.
    async fn due(dumped: &Dumped, started: u64) -> (u64, u64) {
        let since = Instant::now();
        let number = dumped.due(Some(started)).await;
        (since.elapsed().as_secs(), number)
    }

    #[tokio::test(start_paused = true)]
    async fn images_are_made_at_every_period_whatever_the_time_of_day_is_set_to() {
        let started = unix_millis();
        let mut dumped = Dumped::new(Some(EVERY), 0, None);
        assert_eq!(due(&dumped, started).await, (10, 1));
        (dumped.asked, dumped.asked_at) = (1, Instant::now());
        let an_hour = 3_600_000;
        assert_eq!(due(&dumped, started + an_hour).await, (10, 2), "it was set back by an hour");
        assert_eq!(due(&dumped, started - an_hour).await.1, 360, "or forward");
        (dumped.asked, dumped.asked_at) = (360, Instant::now());
        assert_eq!(due(&dumped, started).await, (10, 361), "and back again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_adopts_a_worker_counts_on() {
        let started = unix_millis() - 34_000;
        let (wait, number) = due(&Dumped::new(Some(EVERY), 2, Some(started)), started).await;
        assert!(wait <= 6 && number == 3, "{wait} s, {number}");
    }
}
