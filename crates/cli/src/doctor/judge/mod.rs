//! The checks: pure functions from what was seen to findings.

mod clock;
mod cluster;
mod devices;
mod disk;
mod kernel;
mod network;
mod resources;

use super::facts::Facts;
use super::finding::{Check, Finding};

const CONFIGURATION: Check = Check("configuration", "a service with an unusable file does not start");

/// All findings, check by check.
#[must_use]
pub fn judge(facts: &Facts) -> Vec<Finding> {
    let unusable = facts.unusable.iter();
    let configuration = unusable.map(|(path, why)| {
        CONFIGURATION
            .failure(why.clone(), "mend the file; docs/configuration.md describes every field")
            .of(path.clone())
    });
    let parts = [
        configuration.collect(),
        clock::judge(facts),
        disk::judge(facts),
        network::judge(facts),
        cluster::judge(facts),
        kernel::judge(facts),
        resources::judge(facts),
        devices::judge(facts),
    ];
    parts.concat()
}

#[cfg(test)]
#[path = "../judge_tests.rs"]
mod tests;
