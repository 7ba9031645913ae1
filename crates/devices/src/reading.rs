//! The values that readings may have: kinds of errors, and numbers that stand for none.
//!
//! Libraries of vendors answer what they cannot tell with numbers that no card can have: all bits of an integer, 2^47,
//! or what is near the largest integer. Such a blank is left out here, once for every mechanism, before anybody draws
//! it.

use serde::Deserialize;
use tessera_ledger::Mebibytes;

use crate::backend::Sample;

/// A kind of fault of a card, as far as a mechanism counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Bits of memory that were corrected.
    EccCorrected,
    /// Bits of memory that were not.
    EccUncorrected,
    /// Faults that the driver told of: XIDs of NVIDIA's, RAS events of AMD's, error codes of Ascend's.
    Driver,
    /// Faults of the bus or of links to other cards.
    Link,
    /// Times that the card slowed itself down because of heat or power.
    Throttled,
    /// Rows of memory that were taken out of use.
    RowsRetired,
}

impl ErrorKind {
    /// As metrics write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EccCorrected => "ecc_corrected",
            Self::EccUncorrected => "ecc_uncorrected",
            Self::Driver => "driver",
            Self::Link => "link",
            Self::Throttled => "throttled",
            Self::RowsRetired => "rows_retired",
        }
    }
}

/// Above this no number of joules is one: a card of a kilowatt draws 10^14 in three thousand years.
const MOST_JOULES: f64 = 1e14;
/// Above this no count is one: blanks of 32 bits begin just below 2^31.
const MOST_ERRORS: u64 = (1 << 31) - 16;
/// Watts that no card draws.
const MOST_WATTS: f64 = 100_000.0;
/// The range of temperatures that a card can have.
const CELSIUS: std::ops::RangeInclusive<f64> = -60.0..=250.0;

impl Sample {
    /// The reading without what is no number of a card with that memory; nothing when neither its utilisation nor its
    /// memory is one.
    #[must_use]
    pub fn without_blanks(mut self, memory: Mebibytes) -> Option<Self> {
        let most = memory.0.saturating_mul(2 << 20);
        if !(0.0..=1.5).contains(&self.utilization) || self.memory_used_bytes > most {
            return None;
        }
        self.temperature_celsius = self.temperature_celsius.filter(|celsius| CELSIUS.contains(celsius));
        self.power_watts = self.power_watts.filter(|watts| (0.0..=MOST_WATTS).contains(watts));
        self.energy_joules = self.energy_joules.filter(|joules| (0.0..=MOST_JOULES).contains(joules));
        self.errors.retain(|_, count| *count < MOST_ERRORS);
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Numbers that libraries return in place of one that they do not have.
    const BLANKS: [f64; 6] =
        [9_223_372_036_854_775_792.0, 140_737_488_355_328.0, 2_147_483_632.0, -1.0, f64::NAN, f64::MAX];

    fn reading() -> Sample {
        Sample {
            card_index: 3,
            utilization: 0.5,
            memory_used_bytes: 1 << 30,
            temperature_celsius: Some(70.0),
            power_watts: Some(350.0),
            energy_joules: Some(8.6e9),
            errors: BTreeMap::from([(ErrorKind::EccCorrected, 12), (ErrorKind::Driver, 0)]),
        }
    }

    #[test]
    fn what_is_a_number_of_a_card_stays() {
        assert_eq!(reading().without_blanks(Mebibytes(80 << 10)), Some(reading()));
    }

    #[test]
    fn blanks_are_left_out_one_by_one() {
        for blank in BLANKS {
            let sample = Sample {
                // A degree below zero is one.
                temperature_celsius: Some(blank).filter(|blank| *blank != -1.0),
                power_watts: Some(blank),
                energy_joules: Some(blank).filter(|blank| *blank != 2_147_483_632.0),
                ..reading()
            };
            let shown = sample.without_blanks(Mebibytes(80 << 10)).expect("the rest is a reading");
            let left = (shown.temperature_celsius, shown.power_watts, shown.energy_joules);
            assert_eq!(left, (None, None, None), "{blank}");
            assert_eq!(Sample { utilization: blank, ..reading() }.without_blanks(Mebibytes(1)), None, "{blank}");
        }
        let counted = |count| Sample { errors: BTreeMap::from([(ErrorKind::Driver, count)]), ..reading() };
        for blank in [u64::MAX, u64::from(u32::MAX), 0x7fff_fff0, 0x7fff_ffff_ffff_fff0] {
            assert!(
                counted(blank).without_blanks(Mebibytes(80 << 10)).expect("a reading").errors.is_empty(),
                "{blank}"
            );
            assert_eq!(Sample { memory_used_bytes: blank << 8, ..reading() }.without_blanks(Mebibytes(80)), None);
        }
    }
}
