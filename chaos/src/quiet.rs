//! Waiting until the machine is quiet, and writing down how quiet it was: a figure taken beside somebody else's
//! compiler is worth nothing.

use std::fs;

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::time::{Duration, Instant, sleep};

/// Length of one look at the machine.
const WINDOW: Duration = Duration::from_secs(4);

/// The quietness that the machine must reach before a section begins.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Least share of idle time, in percent.
    pub idle_percent: f64,
    /// Longest wait; then the section begins all the same, and its record says so.
    pub patience: Duration,
}

/// The state of the machine before a section.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quietness {
    /// True if the machine was as quiet as wanted.
    pub quiet: bool,
    /// Share of idle time over the last four seconds, in percent.
    pub idle_percent: f64,
    /// Share of time that the hypervisor gave to others, in percent.
    pub steal_percent: f64,
    pub waited_seconds: f64,
}

/// Processor time since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    total: u64,
    idle: u64,
    steal: u64,
}

impl Ticks {
    fn now() -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        Self::parse(&stat).context("/proc/stat is not as expected")
    }

    /// `cpu user nice system idle iowait irq softirq steal ..`; waiting for the disk is idleness too.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let fields: Vec<u64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        let [idle, waiting] = [*fields.get(3)?, *fields.get(4)?];
        Some(Self { total: fields.iter().take(8).sum(), idle: idle + waiting, steal: *fields.get(7)? })
    }

    /// Shares of idle and stolen time between `self` and `later`, in percent.
    fn shares(self, later: Self) -> (f64, f64) {
        let total = later.total.saturating_sub(self.total).max(1) as f64;
        let percent = |from: u64, to: u64| 100.0 * to.saturating_sub(from) as f64 / total;
        (percent(self.idle, later.idle), percent(self.steal, later.steal))
    }
}

/// Waits until the machine is quiet.
///
/// # Errors
/// The kernel's statistics cannot be read.
pub async fn wait(wanted: Wanted) -> Result<Quietness> {
    let began = Instant::now();
    loop {
        let before = Ticks::now()?;
        sleep(WINDOW).await;
        let (idle_percent, steal_percent) = before.shares(Ticks::now()?);
        let waited = began.elapsed();
        let quiet = idle_percent >= wanted.idle_percent;
        if quiet || waited >= wanted.patience {
            return Ok(Quietness { quiet, idle_percent, steal_percent, waited_seconds: waited.as_secs_f64() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between() {
        let before = Ticks::parse("cpu  100 0 100 700 100 0 0 0 9 9\ncpu0 1").expect("parses");
        let after = Ticks::parse("cpu  110 0 110 770 105 0 0 5 9 9\n").expect("parses");
        assert_eq!(before, Ticks { total: 1000, idle: 800, steal: 0 });
        assert_eq!(before.shares(after), (75.0, 5.0));
        assert_eq!(Ticks::parse("intr 1 2"), None);
    }
}
