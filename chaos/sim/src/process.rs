//! A simulated process: a tokio runtime of its own whose clock stands still unless we move it.
//!
//! It can be stopped and continued like a real one (SIGSTOP, SIGCONT): while it is stopped nothing in it runs, and when
//! it goes on its clocks have leapt and everything that fell due meanwhile is due at once. It can be killed at any
//! moment. Its clock may run faster or slower than the world's.

use std::time::Duration;

use tokio::runtime::{Builder, RngSeed, Runtime, UnhandledPanic};
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, sleep_until};

use crate::machine::{mix, now};

/// The deviation of a clock's rate from the world's, in millionths above or below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift(pub i32);

impl Drift {
    /// The time that such a clock shows after `real`.
    pub fn shown(self, real: Duration) -> Duration {
        let nanos = i128::try_from(real.as_nanos()).unwrap_or(i128::MAX);
        let shown = nanos + nanos * i128::from(self.0) / 1_000_000;
        Duration::from_nanos(u64::try_from(shown).unwrap_or(0))
    }
}

/// A process. Dropping it kills it.
pub struct Process {
    runtime: Option<Runtime>,
    main: JoinHandle<String>,
    began: Duration,
    base: Instant,
    drift: Drift,
    stopped: bool,
}

impl Process {
    /// Starts a process; `main` answers, at its end, why it ended.
    pub fn start(seed: u64, drift: Drift, main: impl Future<Output = String> + Send + 'static) -> Self {
        let mut bytes = [0; 32];
        for (n, chunk) in (0u64..).zip(bytes.chunks_mut(8)) {
            chunk.copy_from_slice(&mix(seed ^ n).to_le_bytes());
        }
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .rng_seed(RngSeed::from_bytes(&bytes))
            .unhandled_panic(UnhandledPanic::ShutdownRuntime)
            .build()
            .expect("a runtime without I/O needs nothing that could be missing");
        let base = runtime.block_on(async { Instant::now() });
        let main = runtime.spawn(main);
        Self { runtime: Some(runtime), main, began: now(), base, drift, stopped: false }
    }

    /// Lets it run until the world's present time; answers why it ended, when it did.
    pub fn tick(&mut self) -> Option<String> {
        if self.stopped {
            return None;
        }
        let runtime = self.runtime.as_ref()?;
        let until = self.base + self.drift.shown(now().saturating_sub(self.began));
        runtime.block_on(async { sleep_until(until).await });
        if !self.main.is_finished() {
            return None;
        }
        let why = runtime.block_on(&mut self.main);
        self.kill();
        Some(why.unwrap_or_else(|error| format!("its first task did not end in order: {error}")))
    }

    /// Stops it as it stands.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Lets it go on: its clock leaps to the present before anything in it runs.
    pub fn go_on(&mut self) {
        if !std::mem::take(&mut self.stopped) {
            return;
        }
        let Some(runtime) = self.runtime.as_ref() else { return };
        let present = self.base + self.drift.shown(now().saturating_sub(self.began));
        runtime.block_on(async {
            let missed = present.saturating_duration_since(Instant::now());
            advance(missed).await;
        });
    }

    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns whether it is there, running or stopped.
    pub fn is_there(&self) -> bool {
        self.runtime.is_some()
    }

    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
