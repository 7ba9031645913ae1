//! The resources that the host offers to workers beside its cards: its processors and its memory, less the part that it
//! keeps for itself.

use std::fs;
use std::io;

use tessera_ledger::{HostCapacity, Mebibytes, MilliCpus};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostOffer {
    /// Processor time offered; `None`: all that there is, less `reserved_cpu`.
    pub cpu: Option<MilliCpus>,
    /// Memory offered; `None`: all that there is, less `reserved_memory` and what a processor card offers of it.
    pub memory: Option<Mebibytes>,
    /// Processor time kept for the host itself.
    pub reserved_cpu: MilliCpus,
    /// Memory kept for the host itself.
    pub reserved_memory: Mebibytes,
}

impl Default for HostOffer {
    fn default() -> Self {
        Self { cpu: None, memory: None, reserved_cpu: MilliCpus(500), reserved_memory: Mebibytes(1024) }
    }
}

impl HostOffer {
    /// The capacity that this host offers; `card_memory` is the part of its memory that its processors offer as a card.
    ///
    /// # Errors
    /// When the system does not say how much memory there is.
    pub fn capacity(&self, card_memory: Mebibytes) -> io::Result<HostCapacity> {
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let total = match self.memory {
            Some(_) => Mebibytes::ZERO,
            None => total_memory(&fs::read_to_string("/proc/meminfo")?)?,
        };
        Ok(self.of(MilliCpus(processors.saturating_mul(1000)), total, card_memory))
    }

    fn of(&self, processors: MilliCpus, total: Mebibytes, card_memory: Mebibytes) -> HostCapacity {
        let rest = total.saturating_sub(self.reserved_memory).saturating_sub(card_memory);
        HostCapacity {
            cpu: self.cpu.unwrap_or(processors.saturating_sub(self.reserved_cpu)),
            memory: self.memory.unwrap_or(rest),
        }
    }
}

/// The line `MemTotal` of `/proc/meminfo`.
fn total_memory(meminfo: &str) -> io::Result<Mebibytes> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo has no line `MemTotal`");
    kib.map(|kib| Mebibytes(kib / 1024)).ok_or_else(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_keeps_something_for_itself() {
        let total = total_memory("MemTotal:       16384000 kB\nMemFree: 1 kB\n").expect("it is there");
        assert_eq!(total, Mebibytes(16_000));
        let offer = HostOffer::default();
        let capacity = |offer: HostOffer, card| offer.of(MilliCpus(8_000), total, Mebibytes(card));
        assert_eq!(capacity(offer, 0), HostCapacity { cpu: MilliCpus(7_500), memory: Mebibytes(14_976) });
        assert_eq!(capacity(offer, 14_400).memory, Mebibytes(576), "what a card offers is not offered twice");
        assert_eq!(capacity(offer, 1 << 20).memory, Mebibytes::ZERO);
        let set = HostOffer { cpu: Some(MilliCpus(2_000)), memory: Some(Mebibytes(64)), ..offer };
        assert_eq!(capacity(set, 0), HostCapacity { cpu: MilliCpus(2_000), memory: Mebibytes(64) });
        let kept = HostOffer { reserved_cpu: MilliCpus(3_000), reserved_memory: Mebibytes(6_000), ..offer };
        assert_eq!(capacity(kept, 0), HostCapacity { cpu: MilliCpus(5_000), memory: Mebibytes(10_000) });
        assert!(total_memory("MemFree: 1 kB\n").is_err());
    }

    #[test]
    fn this_host_offers_something() {
        let offer = HostOffer { reserved_cpu: MilliCpus::ZERO, reserved_memory: Mebibytes::ZERO, ..Default::default() };
        let capacity = offer.capacity(Mebibytes::ZERO).expect("Linux says how much memory there is");
        assert!(capacity.cpu >= MilliCpus(1_000) && capacity.memory > Mebibytes::ZERO, "{capacity:?}");
    }
}
