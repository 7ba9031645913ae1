//! The cost of going on elsewhere or later.

use std::str::FromStr;

/// Time for which a job holds its cards without progress whenever it resumes or was moved, in milliseconds, by the
/// number of its cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuspendCost {
    /// With at most one card.
    pub one_ms: u64,
    /// With two to eight.
    pub few_ms: u64,
    /// With more.
    pub many_ms: u64,
}

impl SuspendCost {
    pub(super) const fn of(self, cards: u64) -> u64 {
        match cards {
            0 | 1 => self.one_ms,
            2..=8 => self.few_ms,
            _ => self.many_ms,
        }
    }
}

/// A text that is no cost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no cost: it takes seconds for one card, for up to eight and for more, such as 7/30/60")]
pub struct InvalidCost(String);

impl FromStr for SuspendCost {
    type Err = InvalidCost;

    /// Reads seconds for one card, up to eight, and more, such as `7/30/60`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let seconds: Option<Vec<u32>> = text.split('/').map(|part| part.trim().parse().ok()).collect();
        let Some(&[one, few, many]) = seconds.as_deref() else {
            return Err(InvalidCost(text.to_owned()));
        };
        let [one_ms, few_ms, many_ms] = [one, few, many].map(|seconds| u64::from(seconds) * 1000);
        Ok(Self { one_ms, few_ms, many_ms })
    }
}
