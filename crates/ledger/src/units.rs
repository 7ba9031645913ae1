//! Quantities with their units, so that no bare integer is a TFLOPS, a MiB, a block or a time.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty), $suffix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl $name {
            pub const ZERO: Self = Self(0);

            /// The sum, or the largest value when it would not fit.
            #[must_use]
            pub fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// The difference, or zero when it would be negative.
            #[must_use]
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// The product with a plain count, or the largest value when it would not fit.
            #[must_use]
            pub fn saturating_mul(self, times: u32) -> Self {
                Self(self.0.saturating_mul(<$inner>::from(times)))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
                iter.fold(Self::ZERO, Self::saturating_add)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $suffix), self.0)
            }
        }
    };
}

quantity!(
    /// Memory in MiB.
    Mebibytes(u64), " MiB"
);
quantity!(
    /// A number of blocks (P2).
    BlockCount(u32), " blocks"
);
quantity!(
    /// Processor time in thousandths of a processor (hardware thread).
    MilliCpus(u64), " milli-CPUs"
);

/// A share in hundredths; more than 100 where the context says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percent(pub u32);

impl Percent {
    pub const WHOLE: Self = Self(100);

    /// This share of an amount, rounded down; the largest value when it would not fit.
    #[must_use]
    pub fn of(self, amount: u64) -> u64 {
        u64::try_from(u128::from(amount) * u128::from(self.0) / 100).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// A computing rate in thousandths of a TFLOPS, at a precision that the context names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliTflops(pub u64);

impl MilliTflops {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn from_tflops(tflops: u64) -> Self {
        Self(tflops.saturating_mul(1000))
    }

    /// The sum, or the largest value when it would not fit.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The product with a plain count, or the largest value when it would not fit.
    #[must_use]
    pub fn saturating_mul(self, times: u32) -> Self {
        Self(self.0.saturating_mul(u64::from(times)))
    }
}

impl fmt::Display for MilliTflops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, thousandths) = (self.0 / 1000, self.0 % 1000);
        if thousandths == 0 {
            write!(f, "{whole} TFLOPS")
        } else {
            let fraction = format!("{thousandths:03}");
            write!(f, "{whole}.{} TFLOPS", fraction.trim_end_matches('0'))
        }
    }
}

/// Position of a block on its card, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockIndex(pub u32);

/// The pool-wide number of a block, from 1: an address for people (P2, P8, P9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(pub u64);

impl fmt::Display for BlockNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Milliseconds since the Unix epoch as the proposing leader read them. The ledger knows no other clock (law L8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogTime(pub u64);

impl LogTime {
    #[must_use]
    pub fn after(self, duration: std::time::Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// The time from `earlier` to `self`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The state after the log entry of that index: what watches resume from and plans are made against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The index of the log entry that made an allocation: fences everything older (architecture section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tflops_are_printed_without_needless_digits() {
        assert_eq!(MilliTflops(50_000).to_string(), "50 TFLOPS");
        assert_eq!(MilliTflops(1_250).to_string(), "1.25 TFLOPS");
        assert_eq!(MilliTflops(5).to_string(), "0.005 TFLOPS");
    }

    #[test]
    fn absurd_sizes_saturate() {
        assert_eq!(MilliTflops(u64::MAX).saturating_mul(3), MilliTflops(u64::MAX));
        assert_eq!(Mebibytes(1).saturating_sub(Mebibytes(2)), Mebibytes::ZERO);
    }
}
