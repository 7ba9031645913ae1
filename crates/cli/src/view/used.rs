//! The use that a job makes of its allocation.

use tessera_api::v1;

use super::shown::Shown;

/// The use that a job makes of its allocation.
pub type UseView = Shown<v1::JobUse>;

/// A share in percent.
pub(super) fn share(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}

/// Whole mebibytes, rounded.
pub(super) const fn mebibytes(bytes: u64) -> u64 {
    bytes.saturating_add(1 << 19) >> 20
}

impl UseView {
    /// The share of its compute that it uses, in percent.
    #[must_use]
    pub fn percent(&self) -> String {
        share(self.utilization_ratio)
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
        let v1::JobUse { blocks, processors, .. } = &**self;
        let [used, held, of_hosts] =
            [self.memory_used_bytes, self.memory_held_bytes, self.host_memory_bytes].map(mebibytes);
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
            "{} of {blocks} blocks, {used} of {held} MiB, {processors:.1} processors and {of_hosts} MiB of \
             hosts{device}{missing}",
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
