//! The measured rating, kept as long as the processors are the same: a rating that differs at every start would re-rate
//! the card in the ledger each time.

use std::fs;

use serde::{Deserialize, Serialize};
use tessera_ledger::MilliTflops;

use super::benchmark::{Instructions, measure};
use crate::error::DeviceError;
use crate::host::HostRoot;

/// Name of the file in the data folder.
const FILE: &str = "cpu-rating.toml";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    model: String,
    cores: u64,
    instructions: String,
    milli_tflops: u64,
}

/// The rate that was measured on these processors before, or else a new measurement.
///
/// # Errors
/// When the result cannot be kept.
pub fn measured_or_cached(host: &HostRoot, model: &str, cores: u64) -> Result<MilliTflops, DeviceError> {
    let best = Instructions::best();
    // A file that cannot be read or understood is measured anew and replaced.
    let kept: Option<Kept> = fs::read_to_string(host.data_file(FILE)).ok().and_then(|text| toml::from_str(&text).ok());
    let same = kept.filter(|kept| kept.model == model && kept.cores == cores && kept.instructions == best.name());
    if let Some(kept) = same.filter(|kept| kept.milli_tflops > 0) {
        return Ok(MilliTflops(kept.milli_tflops));
    }
    // Very slow processors still compute something: a card of nothing could never be used.
    let rate = measure(best, cores).max(MilliTflops(1));
    tracing::info!(%rate, cores, instructions = best.name(), "measured the processors");
    let kept = Kept { model: model.to_owned(), cores, instructions: best.name().to_owned(), milli_tflops: rate.0 };
    let text = toml::to_string(&kept).expect("a table of texts and numbers is TOML");
    host.keep(FILE, &text)?;
    Ok(rate)
}
