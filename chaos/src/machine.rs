//! Description of the machine: figures mean nothing without it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::distribution::{Distribution, Percentiles};

/// Appends of the disk's probe, and their size.
const APPENDS: usize = 300;
const APPEND_BYTES: usize = 4096;

/// The machine and its disk.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the first processor.
    pub processor: String,
    pub processors: usize,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// Duration of one durable append of 4 KiB where the members keep their data.
    pub fdatasync: Percentiles,
}

impl Machine {
    /// Looks at the machine, and at the disk that `folder` is on.
    ///
    /// # Errors
    /// `/proc` cannot be read or the folder cannot be written.
    pub fn inspect(folder: &Path) -> Result<Self> {
        let processors = read("/proc/cpuinfo")?;
        let models: Vec<&str> = values(&processors, "model name").collect();
        let memory = read("/proc/meminfo")?;
        let kib = values(&memory, "MemTotal").next().and_then(|text| text.strip_suffix("kB")?.trim().parse().ok());
        Ok(Self {
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            processor: models.first().copied().unwrap_or("unknown").to_owned(),
            processors: std::thread::available_parallelism().map_or(models.len(), usize::from),
            memory_gib: kib.unwrap_or(0.0_f64) / f64::from(1 << 20),
            fdatasync: fdatasync(folder)?,
        })
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
}

/// The values of `name: value` lines.
fn values<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| Some(line.strip_prefix(name)?.trim_start().strip_prefix(':')?.trim()))
}

fn fdatasync(folder: &Path) -> Result<Percentiles> {
    let path = folder.join("fdatasync.probe");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write in {}", folder.display()))?;
    let mut costs = Vec::with_capacity(APPENDS);
    for _ in 0..APPENDS {
        file.write_all(&[b'x'; APPEND_BYTES]).context("cannot append")?;
        let began = Instant::now();
        file.sync_data().context("cannot sync")?;
        costs.push(began.elapsed());
    }
    fs::remove_file(&path).context("cannot remove the probe")?;
    Ok(Distribution::of(costs).percentiles().unwrap_or_else(|| Percentiles::of_one(Duration::ZERO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "model\t: 3\nmodel name\t: Fast One\nmodel name\t: Fast Two\n";
        assert_eq!(values(text, "model name").collect::<Vec<_>>(), ["Fast One", "Fast Two"]);
    }

    #[test]
    fn this_machine_can_be_described() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = Machine::inspect(folder.path()).expect("described");
        assert!(machine.processors > 0 && machine.memory_gib > 0.0);
        assert_eq!(machine.fdatasync.count, APPENDS);
    }
}
