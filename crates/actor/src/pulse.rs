//! Signs of life of a process: its main loops give them, and whoever tells the service manager of the host passes them
//! on. No sign means that nothing was answered, not that nothing was asked for.

use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The interval at which a loop is asked for a sign of life.
const PERIOD: Duration = Duration::from_secs(1);

/// The signs of life of a process. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Pulse(watch::Sender<u64>);

impl Pulse {
    /// The main loops turned just now, and what the process serves is served.
    pub fn beat(&self) {
        self.0.send_modify(|beats| *beats += 1);
    }

    /// The number of signs so far, updated with each further one; 0 until the process serves.
    #[must_use]
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    /// Beats whenever `ask` says that the loop behind it answered, until `end`. It is asked at once and then every
    /// second, and not again before it has answered: give it a deadline.
    pub async fn keep<F>(self, mut ask: impl FnMut() -> F, end: CancellationToken)
    where
        F: Future<Output = bool>,
    {
        let mut period = tokio::time::interval(PERIOD);
        let beating = async {
            loop {
                period.tick().await;
                if ask().await {
                    self.beat();
                }
            }
        };
        end.run_until_cancelled(beating).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_does_not_answer_gives_no_sign_of_life() {
        let (pulse, end, answers) = (Pulse::default(), CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let beats = pulse.follow();
        let asked = Arc::clone(&answers);
        let ask = move || std::future::ready(asked.load(Ordering::Relaxed));
        let keeping = tokio::spawn(pulse.keep(ask, end.clone()));
        tokio::time::sleep(PERIOD * 10).await;
        assert_eq!(*beats.borrow(), 0, "nothing is served yet");
        answers.store(true, Ordering::Relaxed);
        tokio::time::sleep(PERIOD * 10).await;
        let alive = *beats.borrow();
        assert!(alive >= 9, "{alive} signs in ten seconds");
        answers.store(false, Ordering::Relaxed);
        tokio::time::sleep(PERIOD * 10).await;
        assert_eq!(*beats.borrow(), alive, "it hangs");
        end.cancel();
        keeping.await.expect("it ends");
    }
}
