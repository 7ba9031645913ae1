//! Who else computes on the card just now: a small file that the slice servers of one card map.
//!
//! One place for each server: who it is, its share, and when it last computed. Places of servers that ended without
//! leaving are taken over; a place that has not computed for a moment counts as idle. Servers are ours and trust each
//! other; programs never see the file.
#![allow(unsafe_code)] // Mapped memory is reached through pointers.

use std::{
    ffi::c_void,
    fs::OpenOptions,
    num::NonZeroUsize,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    ptr::NonNull,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use nix::{
    sys::mman::{MapFlags, ProtFlags, mmap, munmap},
    time::{ClockId, clock_gettime},
};

use crate::Error;

const PLACES: usize = 64;
/// Longer than a round trip of a program that waits for each result, short enough that what it leaves is used.
const IDLE: Duration = Duration::from_millis(25);

#[repr(C, align(64))]
struct Place {
    process: AtomicU32,
    generation: AtomicU32,
    share: AtomicU64,
    active: AtomicU64,
}

const LENGTH: usize = PLACES * size_of::<Place>();

/// The file, and the own place in it.
pub(crate) struct Neighbours {
    base: NonNull<c_void>,
    own: usize,
}

// SAFETY: everything behind the pointer is atomic.
unsafe impl Send for Neighbours {}

impl Neighbours {
    pub(crate) fn join(path: &Path, share: f64) -> Result<Self, Error> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(Error::Memory)?;
        if file.metadata().map_err(Error::Memory)?.len() < LENGTH as u64 {
            file.set_len(LENGTH as u64).map_err(Error::Memory)?;
        }
        let length = NonZeroUsize::MIN.saturating_add(LENGTH - 1);
        // SAFETY: a new mapping of a file that is that long.
        let base =
            unsafe { mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, &file, 0) }
                .map_err(|error| Error::Memory(error.into()))?;
        let mut joined = Self { base, own: PLACES };
        joined.own = joined.take_place().ok_or_else(|| {
            Error::Memory(std::io::Error::other(format!("{} already has {PLACES} slices", path.display())))
        })?;
        let place = &joined.places()[joined.own];
        place.share.store(share.to_bits(), Ordering::Relaxed);
        place.active.store(0, Ordering::Release);
        Ok(joined)
    }

    fn places(&self) -> &[Place; PLACES] {
        // SAFETY: the mapping is that long, aligned to a page, and all of it is atomic.
        unsafe { &*self.base.as_ptr().cast::<[Place; PLACES]>() }
    }

    fn take_place(&self) -> Option<usize> {
        let own = std::process::id();
        self.places().iter().position(|place| {
            let holder = place.process.load(Ordering::Acquire);
            let free = holder == 0 || !Path::new(&format!("/proc/{holder}")).exists();
            free && place.process.compare_exchange(holder, own, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })
    }

    pub(crate) fn tell_active(&self) {
        self.places()[self.own].active.store(now(), Ordering::Release);
    }

    /// Sum of the shares of those that computed a moment ago, the own one always among them.
    pub(crate) fn active_shares(&self) -> f64 {
        let since = now().saturating_sub(IDLE.as_nanos() as u64);
        let active = |(at, place): &(usize, &Place)| {
            *at == self.own
                || (place.process.load(Ordering::Relaxed) != 0 && place.active.load(Ordering::Acquire) > since)
        };
        let shares = self.places().iter().enumerate().filter(active);
        shares.map(|(_, place)| f64::from_bits(place.share.load(Ordering::Relaxed)).clamp(0.0, 1.0)).sum()
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        if let Some(place) = self.places().get(self.own) {
            place.active.store(0, Ordering::Release);
            place.process.store(0, Ordering::Release);
        }
        // SAFETY: mapped by `join` with this length, and nothing borrows it any more.
        let _ = unsafe { munmap(self.base, LENGTH) };
    }
}

/// The same clock in all processes of the host.
fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
