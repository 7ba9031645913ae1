//! The servers that compute on the card just now: a small file that the slice servers of one card map.
//!
//! One place for each server: its share, and when it last computed; and whose turn it is. A server has its place for
//! as long as it holds a lock on it, which the kernel takes back from one that ends, whatever namespaces it was in. A
//! place that has not computed for a moment counts as idle. Whoever can write the file can hold its servers up, and end
//! them by making it shorter: it is for servers that trust each other.
#![allow(unsafe_code)] // Mapped memory is reached through pointers.

use std::{
    ffi::c_void,
    fs::{File, OpenOptions},
    num::NonZeroUsize,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::Path,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{FcntlArg, fcntl, posix_fallocate},
    libc,
    sys::mman::{MapFlags, ProtFlags, mmap, munmap},
    time::{ClockId, clock_gettime},
};

use crate::{Error, turn::Turn};

const PLACES: u8 = 250;
/// Longer than a round trip of a program that waits for each result, short enough that what it leaves is used.
const IDLE: Duration = Duration::from_millis(25);

#[repr(C, align(64))]
struct Place {
    share: AtomicU64,
    active: AtomicU64,
}

#[repr(C)]
struct Table {
    turn: Turn,
    places: [Place; PLACES as usize],
}

const LENGTH: usize = size_of::<Table>();

/// The file, and the own place in it.
pub(crate) struct Neighbours {
    base: NonNull<c_void>,
    own: u8,
    /// Holds the lock on the place.
    _file: File,
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
        // With blocks of the disk below it: a mapping has no other way to say that the disk is full than to end the
        // process.
        posix_fallocate(&file, 0, LENGTH as i64).map_err(|error| Error::Memory(error.into()))?;
        let own = take_place(&file).map_err(|error| Error::Memory(error.into()))?.ok_or_else(|| {
            Error::Memory(std::io::Error::other(format!("{} already has {PLACES} slices", path.display())))
        })?;
        let length = NonZeroUsize::MIN.saturating_add(LENGTH - 1);
        // SAFETY: a new mapping of a file that is that long.
        let base =
            unsafe { mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, &file, 0) }
                .map_err(|error| Error::Memory(error.into()))?;
        let joined = Self { base, own, _file: file };
        let place = joined.place();
        place.share.store(share.to_bits(), Ordering::Relaxed);
        place.active.store(0, Ordering::Release);
        Ok(joined)
    }

    fn table(&self) -> &Table {
        // SAFETY: the mapping is that long, aligned to a page, and all of it is atomic.
        unsafe { self.base.cast::<Table>().as_ref() }
    }

    fn place(&self) -> &Place {
        &self.table().places[usize::from(self.own)]
    }

    /// The turn of the card, and the number by which this server takes it.
    pub(crate) fn turn(&self) -> (&Turn, u8) {
        (&self.table().turn, self.own)
    }

    pub(crate) fn tell_active(&self) {
        self.place().active.store(now(), Ordering::Release);
    }

    /// Sum of the shares of those that computed a moment ago, the own one always among them.
    pub(crate) fn active_shares(&self) -> f64 {
        let now = now();
        // The file may be older than the boot: what lies ahead of now was of another one.
        let recent = now.saturating_sub(IDLE.as_nanos() as u64)..=now;
        let own = std::ptr::from_ref(self.place());
        let active =
            |place: &&Place| std::ptr::eq(*place, own) || recent.contains(&place.active.load(Ordering::Acquire));
        let shares = self.table().places.iter().filter(active);
        shares.map(|place| f64::from_bits(place.share.load(Ordering::Relaxed)).clamp(0.0, 1.0)).sum()
    }
}

/// The first place that nobody has; it is the own one then.
fn take_place(file: &File) -> Result<Option<u8>, Errno> {
    for number in 0..PLACES {
        let lock = libc::flock {
            l_type: libc::F_WRLCK as i16,
            l_whence: libc::SEEK_SET as i16,
            l_start: i64::from(number),
            l_len: 1,
            l_pid: 0,
        };
        match fcntl(file.as_fd(), FcntlArg::F_OFD_SETLK(&lock)) {
            Ok(_) => return Ok(Some(number)),
            Err(Errno::EAGAIN | Errno::EACCES) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(None)
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.place().active.store(0, Ordering::Release);
        // SAFETY: mapped by `join` with this length, and nothing borrows it any more.
        let _ = unsafe { munmap(self.base, LENGTH) };
    }
}

/// The same clock in all processes of the host.
fn now() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
