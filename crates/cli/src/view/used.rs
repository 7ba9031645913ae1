//! What a job uses of what it holds.

use serde::Serialize;
use tessera_api::v1;

use super::shown::Shown;

/// What a job uses of what it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UseView {
    /// Blocks that it holds.
    pub blocks: u64,
    /// Share of what it may compute on them that it computed; 1 is all of it.
    pub utilization: f64,
    /// Card memory that it holds.
    pub memory_held_mib: u64,
    /// Card memory that it has in use.
    pub memory_used_mib: u64,
    /// Processors of hosts that it keeps busy.
    pub processors: f64,
    /// Memory of hosts that it uses.
    pub host_memory_mib: u64,
    /// Its workers that are not over.
    pub workers: u32,
    /// Those of them of which there is a reading.
    pub measured_workers: u32,
    /// Age of the oldest reading; absent when there is none.
    pub age_seconds: Option<f64>,
    /// What the slice servers of those of its workers do that have one; absent when no worker has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Shown<v1::DeviceUse>>,
    /// Its workers by rank, where that was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_worker: Vec<WorkerUseView>,
}

/// What a worker uses of what it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WorkerUseView {
    /// The worker.
    pub rank: u32,
    /// Its node.
    pub node: String,
    /// Whether there is a reading of it.
    pub measured: bool,
    /// Processors of the host that it keeps busy.
    pub processors: f64,
    /// Memory of the host that it uses.
    pub host_memory_mib: u64,
    /// Of each card.
    pub slices: Vec<SliceUseView>,
}

/// What a worker uses of a card.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SliceUseView {
    /// Index of the card.
    pub card: u32,
    /// Blocks that it holds.
    pub blocks: u64,
    /// Share of what it may compute there that it computed.
    pub utilization: f64,
    /// Memory that it holds.
    pub memory_held_mib: u64,
    /// Memory that it has in use.
    pub memory_used_mib: u64,
    /// What its slice server does there; absent when it has none, or several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<Shown<v1::DeviceUse>>,
}

/// Whole mebibytes, rounded.
const fn mebibytes(bytes: u64) -> u64 {
    bytes.saturating_add(1 << 19) >> 20
}

impl From<v1::JobUse> for UseView {
    fn from(used: v1::JobUse) -> Self {
        let age = used.age.map(|age| age.seconds as f64 + f64::from(age.nanos) / 1e9);
        Self {
            blocks: used.blocks,
            utilization: used.utilization_ratio,
            memory_held_mib: mebibytes(used.memory_held_bytes),
            memory_used_mib: mebibytes(used.memory_used_bytes),
            processors: used.processors,
            host_memory_mib: mebibytes(used.host_memory_bytes),
            workers: used.workers,
            measured_workers: used.measured_workers,
            age_seconds: age,
            device: used.device.map(Shown::from),
            by_worker: used.by_worker.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<v1::WorkerUse> for WorkerUseView {
    fn from(used: v1::WorkerUse) -> Self {
        let slice = |slice: v1::SliceUse| SliceUseView {
            card: slice.card_index,
            blocks: slice.blocks,
            utilization: slice.utilization_ratio,
            memory_held_mib: mebibytes(slice.memory_held_bytes),
            memory_used_mib: mebibytes(slice.memory_used_bytes),
            device: slice.device.map(Shown::from),
        };
        Self {
            rank: used.rank,
            node: used.node_name,
            measured: used.measured,
            processors: used.processors,
            host_memory_mib: mebibytes(used.host_memory_bytes),
            slices: used.slices.into_iter().map(slice).collect(),
        }
    }
}

impl UseView {
    /// What it computes of what it may, in percent.
    #[must_use]
    pub fn percent(&self) -> String {
        format!("{:.0} %", self.utilization * 100.0)
    }

    /// Operations that its slice servers execute in a second, bytes that travel, and how long they wait for their turn.
    #[must_use]
    pub fn of_device(&self) -> Option<[String; 3]> {
        let device = self.device.as_ref()?;
        Some([
            format!("{:.0}", device.operations_per_second),
            format!("{:.1} MiB/s", device.bytes_per_second / f64::from(1 << 20)),
            format!("{:.0} %", device.gate_wait_ratio * 100.0),
        ])
    }

    /// In a line: `94 % of 5 blocks, 300 of 1024 MiB, 0.1 processors and 12 MiB of hosts`.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { blocks, memory_used_mib, memory_held_mib, processors, host_memory_mib, .. } = self;
        let missing = match self.workers.saturating_sub(self.measured_workers) {
            0 => String::new(),
            missing => format!("; of {missing} of {} workers there is no reading", self.workers),
        };
        let device = self.of_device().map_or_else(String::new, |[operations, bytes, waits]| {
            let queued = self.device.as_ref().map_or(0, |device| device.queued_bytes);
            format!(
                "; {operations} operations and {bytes}, {waits} of the time waiting for a turn, {queued} bytes queued"
            )
        });
        format!(
            "{} of {blocks} blocks, {memory_used_mib} of {memory_held_mib} MiB, {processors:.1} processors and \
             {host_memory_mib} MiB of hosts{device}{missing}",
            self.percent()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_measured_counts_as_nothing_and_is_said() {
        let used = v1::JobUse {
            blocks: 5,
            utilization_ratio: 0.944,
            memory_held_bytes: 1 << 30,
            memory_used_bytes: 300 << 20,
            processors: 0.14,
            host_memory_bytes: (12 << 20) + 5,
            workers: 2,
            measured_workers: 2,
            ..v1::JobUse::default()
        };
        let text = UseView::from(used.clone()).text();
        assert_eq!(text, "94 % of 5 blocks, 300 of 1024 MiB, 0.1 processors and 12 MiB of hosts");
        let device = v1::DeviceUse {
            operations_per_second: 1234.4,
            bytes_per_second: 3e6,
            gate_wait_ratio: 0.256,
            queued_bytes: 77,
        };
        let text = UseView::from(v1::JobUse { device: Some(device), ..used.clone() }).text();
        let told = "; 1234 operations and 2.9 MiB/s, 26 % of the time waiting for a turn, 77 bytes queued";
        assert!(text.ends_with(told), "{text}");
        let text = UseView::from(v1::JobUse { measured_workers: 1, ..used }).text();
        assert!(text.ends_with("; of 1 of 2 workers there is no reading"), "{text}");
    }
}
