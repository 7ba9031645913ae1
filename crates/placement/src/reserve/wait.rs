//! How long it takes until something is free.

use tessera_ledger::{HostRequest, LogTime};

use crate::index::schedule::{NEVER, Schedule};

/// How long it takes; less is sooner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    /// How much of it jobs without a time limit must give back, in millionths of what is needed.
    pub(crate) endless: u64,
    /// When everything else of it is free; nobody knows when the rest is.
    pub(crate) at: LogTime,
}

/// Nothing is missing.
pub(crate) const NONE: Wait = Wait { endless: 0, at: LogTime(0) };

impl Wait {
    /// Until `at`; [`NEVER`] counts as something that a job without a time limit holds.
    pub(crate) fn until(at: LogTime) -> Self {
        if at == NEVER { Self { endless: 1_000_000, at: NONE.at } } else { Self { endless: 0, at } }
    }

    /// By when everything is free, if that is known.
    pub(crate) fn over(self) -> Option<LogTime> {
        (self.endless == 0).then_some(self.at)
    }
}

/// In millionths, rounded up, so that only nothing is zero.
pub(crate) fn millionths(part: u64, whole: u64) -> u64 {
    let share = (u128::from(part) * 1_000_000).div_ceil(u128::from(whole.max(1)));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// How long it takes until a host has room for so many workers; `None` when the whole of it is too small for them.
pub(crate) fn for_host(whole: HostRequest, schedule: &Schedule, workers: HostRequest) -> Option<Wait> {
    if !workers.fits_in(whole) {
        return None;
    }
    let mut held = schedule.host.iter().fold(HostRequest::ZERO, |sum, (_, request)| sum.plus(*request));
    let mut wait = NONE;
    for (at, request) in schedule.host.iter().filter(|(at, _)| *at != NEVER) {
        if held.plus(workers).fits_in(whole) {
            return Some(wait);
        }
        held = held.minus(*request);
        wait.at = *at;
    }
    let missing = held.plus(workers).minus(whole);
    wait.endless =
        millionths(missing.cpu.0, workers.cpu.0).saturating_add(millionths(missing.memory.0, workers.memory.0));
    Some(wait)
}
