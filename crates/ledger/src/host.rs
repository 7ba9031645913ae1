//! Host resources besides slices: the needs of workers, and the capacity and use of hosts.

use crate::units::{Mebibytes, MilliCpus};

/// Host resources that one worker with a program needs, or that several need together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRequest {
    pub cpu: MilliCpus,
    pub memory: Mebibytes,
}

impl HostRequest {
    pub const ZERO: Self = Self { cpu: MilliCpus::ZERO, memory: Mebibytes::ZERO };

    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu.saturating_add(other.cpu), memory: self.memory.saturating_add(other.memory) }
    }

    /// The difference of both, never below zero.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { cpu: self.cpu.saturating_sub(other.cpu), memory: self.memory.saturating_sub(other.memory) }
    }

    /// The resources that `workers` such workers need.
    #[must_use]
    pub fn times(self, workers: u32) -> Self {
        Self { cpu: self.cpu.saturating_mul(workers), memory: self.memory.saturating_mul(workers) }
    }

    /// Returns whether both resources are at most those of `room`.
    #[must_use]
    pub fn fits_in(self, room: Self) -> bool {
        self.cpu <= room.cpu && self.memory <= room.memory
    }
}

/// Resources that a host offers to workers besides its cards: its own less those that its agent reserves for the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostCapacity {
    pub cpu: MilliCpus,
    pub memory: Mebibytes,
}

impl HostCapacity {
    #[must_use]
    pub const fn whole(self) -> HostRequest {
        HostRequest { cpu: self.cpu, memory: self.memory }
    }
}

/// Resources of a host that workers hold, or were promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HostUse {
    /// By workers that are not over.
    pub used: HostRequest,
    /// The part of `used` that lost workers hold: nobody knows whether it comes back.
    pub lost: HostRequest,
    /// Promised to workers of allocations that wait for preempted workers to stop.
    pub promised: HostRequest,
}

impl HostUse {
    #[must_use]
    pub fn left_of(self, capacity: HostCapacity) -> HostRequest {
        capacity.whole().minus(self.used.plus(self.promised))
    }

    #[must_use]
    pub fn is_zero(self) -> bool {
        self.used.is_zero() && self.promised.is_zero()
    }
}
