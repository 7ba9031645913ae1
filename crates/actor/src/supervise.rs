//! The consequence of a panic: for an actor whose memory must never be wrong, the end of the process; for an actor at
//! the edge, another start after a pause.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tracing::Instrument as _;

use crate::meters::ActorMeters;

/// Pauses between attempts at what keeps failing, such as an actor that panics again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause; doubled for each further one.
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::from_millis(100), longest: Duration::from_secs(10) }
    }
}

impl Backoff {
    /// From the first to the longest, and the longest without end.
    pub fn pauses(self) -> impl Iterator<Item = Duration> + Send {
        let doubled =
            ExponentialBuilder::new().with_factor(2.0).with_min_delay(self.first).with_max_delay(self.longest);
        doubled.without_max_times().build().chain(std::iter::repeat(self.longest))
    }
}

/// Ends the process after a panic of an actor that must not be restarted in place.
type Doom = Arc<dyn Fn(&'static str) + Send + Sync>;

/// Starts actors under a name, counts their panics, and waits for all of them at the end. Clones supervise together.
#[derive(Clone)]
pub struct Supervisor {
    tasks: TaskTracker,
    meters: ActorMeters,
    doom: Doom,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("actors", &self.tasks.len()).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// A supervisor that aborts the process when a critical actor panics.
    #[must_use]
    pub fn new(meters: ActorMeters) -> Self {
        Self::with_doom(meters, |_| std::process::abort())
    }

    /// A supervisor that does something else when a critical actor panics; simulations end one simulated host.
    #[must_use]
    pub fn with_doom(meters: ActorMeters, doom: impl Fn(&'static str) + Send + Sync + 'static) -> Self {
        Self { tasks: TaskTracker::new(), meters, doom: Arc::new(doom) }
    }

    /// Runs an actor that must never restart in place: if it panics, what it holds may be wrong, and the process ends.
    pub fn critical(&self, actor: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let (meters, doom) = (self.meters.clone(), Arc::clone(&self.doom));
        self.tasks.spawn(async move {
            if let Err(error) = contained(actor, run).await
                && error.is_panic()
            {
                meters.panicked(actor);
                tracing::error!(actor, "a critical actor panicked: the process ends, its memory can not be trusted");
                doom(actor);
            }
        });
    }

    /// Runs an actor that keeps nothing that cannot be rebuilt: if it panics, `start` makes another one after a pause,
    /// until `end` is cancelled. An actor that returns is not started again.
    pub fn restarting<F>(
        &self,
        actor: &'static str,
        backoff: Backoff,
        end: CancellationToken,
        mut start: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let meters = self.meters.clone();
        self.tasks.spawn(async move {
            for (panics, pause) in (1u64..).zip(backoff.pauses()) {
                if end.is_cancelled() {
                    return;
                }
                match contained(actor, start()).await {
                    Err(error) if error.is_panic() => {}
                    Ok(()) | Err(_) => return,
                }
                meters.panicked(actor);
                tracing::error!(actor, panics, ?pause, "an actor panicked; it starts anew after a pause");
                tokio::select! {
                    () = end.cancelled() => return,
                    () = tokio::time::sleep(pause) => {}
                }
            }
        });
    }

    /// Runs an actor that serves one partner, such as one connection: if it panics, it is gone and its partner
    /// comes back.
    pub fn once(&self, actor: &'static str, run: impl Future<Output = ()> + Send + 'static) {
        let meters = self.meters.clone();
        self.tasks.spawn(async move {
            if let Err(error) = contained(actor, run).await
                && error.is_panic()
            {
                meters.panicked(actor);
                tracing::error!(actor, "an actor panicked and is gone");
            }
        });
    }

    /// Waits until every actor has ended. Tell them to first.
    pub async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Runs a future so that its panic ends only itself; dropping this ends it too.
async fn contained(actor: &'static str, run: impl Future<Output = ()> + Send + 'static) -> Result<(), JoinError> {
    AbortOnDropHandle::new(tokio::spawn(run.instrument(tracing::info_span!("actor", name = actor)))).await
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_panic_of_a_critical_actor_ends_the_process() {
        let doomed = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&doomed);
        let doom = move |actor| seen.lock().expect("nobody panics while holding it").push(actor);
        let supervisor = Supervisor::with_doom(ActorMeters::default(), doom);
        supervisor.critical("good", async {});
        supervisor.critical("bad", async { panic!("on purpose") });
        supervisor.ended().await;
        assert_eq!(*doomed.lock().expect("nobody panics while holding it"), ["bad"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_actor_at_the_edge_starts_anew_after_growing_pauses() {
        let supervisor = Supervisor::with_doom(ActorMeters::default(), |_| {});
        let backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(3) };
        let starts = Arc::new(AtomicU32::new(0));
        let (counted, began) = (Arc::clone(&starts), Instant::now());
        supervisor.restarting("clumsy", backoff, CancellationToken::new(), move || {
            let start = counted.fetch_add(1, Ordering::SeqCst);
            async move { assert!(start == 4, "on purpose") }
        });
        supervisor.ended().await;
        assert_eq!(starts.load(Ordering::SeqCst), 5);
        assert_eq!(began.elapsed(), Duration::from_secs(1 + 2 + 3 + 3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_actor_is_not_started_again() {
        let supervisor = Supervisor::with_doom(ActorMeters::default(), |_| {});
        let end = CancellationToken::new();
        let pause = Backoff { first: Duration::from_secs(3600), longest: Duration::from_secs(3600) };
        supervisor.restarting("clumsy", pause, end.clone(), || async { panic!("on purpose") });
        end.cancel();
        supervisor.ended().await;
    }
}
