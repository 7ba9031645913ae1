//! Reports to the service manager that started the process, if it asked for them (`NOTIFY_SOCKET`, as systemd sets it
//! for units of `Type=notify`): that the process serves, that its main loops live, that it ends. A process whose loops
//! hang goes silent, and is ended and started again by a unit with `WatchdogSec`.

use std::io;

use sd_notify::NotifyState;
use tessera_actor::Pulse;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// The service manager, which is told for as long as this is kept.
pub struct ServiceManager {
    telling: AbortOnDropHandle<()>,
    shutdown: CancellationToken,
}

impl ServiceManager {
    /// Passes the signs of life of `pulse` on until the process ends, and says so when `shutdown` is cancelled.
    pub fn told(pulse: &Pulse, shutdown: &CancellationToken) -> Self {
        let watched = sd_notify::watchdog_enabled().is_some();
        let telling = tell(pulse.follow(), shutdown.clone(), watched, |state| sd_notify::notify(&[state]));
        Self { telling: AbortOnDropHandle::new(tokio::spawn(telling)), shutdown: shutdown.clone() }
    }

    /// Waits until the manager knows that the process ends, when somebody wanted that.
    pub async fn finish(self) {
        if self.shutdown.is_cancelled() {
            // A panic there has been printed.
            let _ = self.telling.await;
        }
    }
}

async fn tell(
    mut beats: watch::Receiver<u64>,
    shutdown: CancellationToken,
    watched: bool,
    say: impl Fn(NotifyState<'static>) -> io::Result<()>,
) {
    let said = |state: NotifyState<'static>| {
        if let Err(error) = say(state) {
            tracing::warn!(%error, "the service manager cannot be told; it may end this process for being silent");
        }
    };
    let mut ready = false;
    while matches!(shutdown.run_until_cancelled(beats.changed()).await, Some(Ok(()))) {
        if !ready {
            said(NotifyState::Ready);
            ready = true;
        }
        if watched {
            said(NotifyState::Watchdog);
        }
    }
    if shutdown.is_cancelled() {
        said(NotifyState::Stopping);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn the_watchdog_is_fed_by_signs_of_life_alone() {
        let (pulse, end) = (Pulse::default(), CancellationToken::new());
        let (heard, mut hears) = mpsc::channel(8);
        let telling = tokio::spawn(tell(pulse.follow(), end.clone(), true, move |state| {
            heard.try_send(state.to_string()).map_err(io::Error::other)
        }));
        tokio::task::yield_now().await;
        assert!(hears.try_recv().is_err(), "nothing is served yet");
        for expected in [&["READY=1", "WATCHDOG=1"][..], &["WATCHDOG=1"], &["WATCHDOG=1"]] {
            pulse.beat();
            for expected in expected {
                assert_eq!(hears.recv().await.as_deref(), Some(*expected));
            }
        }
        assert!(hears.try_recv().is_err(), "no beat, no food");
        end.cancel();
        assert_eq!(hears.recv().await.as_deref(), Some("STOPPING=1"));
        telling.await.expect("it ends");
    }

    #[tokio::test]
    async fn a_process_that_ends_before_it_served_never_says_that_it_is_ready() {
        let (pulse, end) = (Pulse::default(), CancellationToken::new());
        let (heard, mut hears) = mpsc::channel(8);
        end.cancel();
        tell(pulse.follow(), end, true, move |state| heard.try_send(state.to_string()).map_err(io::Error::other)).await;
        assert_eq!(hears.recv().await.as_deref(), Some("STOPPING=1"));
        assert_eq!(hears.recv().await, None);
    }
}
