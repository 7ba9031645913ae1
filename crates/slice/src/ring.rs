//! Memory that a program and a slice server of one host share: bulk data goes through it in pieces, without a system
//! call each.
//!
//! One mapping holds two rings, one for each direction. A ring is a header of two counters and a run of bytes; the
//! writer alone moves `written`, the reader alone moves `read`. Neither side believes the other: counters are
//! checked against the ring's size, and the length of the memory is sealed, so that nobody can shrink it under the
//! other's feet.
#![allow(unsafe_code)] // Mapped memory is reached through pointers.

use std::{
    ffi::c_void,
    io,
    num::NonZeroUsize,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::{
        memfd::{MFdFlags, memfd_create},
        mman::{MapFlags, ProtFlags, mmap, munmap},
        stat::fstat,
    },
    unistd::ftruncate,
};

use crate::Error;

const HEADER: usize = 4096;
const RING: usize = 16 << 20;
const TOTAL: usize = 2 * (HEADER + RING);
/// At most this much at once, so that one side copies out while the other copies in.
const PIECE: usize = 1 << 20;

/// Both rings of a connection, mapped.
pub(crate) struct Rings {
    base: NonNull<c_void>,
}

// SAFETY: the mapping lives as long as the value, and each counter is written by one side only.
unsafe impl Send for Rings {}

/// The direction of a ring, which tells the two apart.
#[derive(Clone, Copy)]
pub(crate) enum Direction {
    ToServer,
    ToProgram,
}

struct Ring<'a> {
    written: &'a AtomicU64,
    read: &'a AtomicU64,
    bytes: NonNull<u8>,
}

impl Rings {
    /// New memory, and the descriptor that the other side maps.
    pub(crate) fn create() -> Result<(Self, OwnedFd), Error> {
        let make = || -> nix::Result<OwnedFd> {
            let fd = memfd_create("tessera-bulk", MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC)?;
            ftruncate(&fd, TOTAL as i64)?;
            fcntl(&fd, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL))?;
            Ok(fd)
        };
        let fd = make().map_err(|error| Error::Memory(error.into()))?;
        Ok((Self::map(&fd)?, fd))
    }

    /// Maps what the other side made.
    pub(crate) fn map(fd: &impl AsFd) -> Result<Self, Error> {
        let fail = |error: nix::Error| Error::Memory(error.into());
        if fstat(fd).map_err(fail)?.st_size != TOTAL as i64 {
            return Err(Error::Memory(io::Error::other("it has another size than this version uses")));
        }
        let length = NonZeroUsize::MIN.saturating_add(TOTAL - 1);
        // SAFETY: a new mapping of a file of this size; sealed, so that it stays that large.
        let base =
            unsafe { mmap(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_SHARED, fd, 0) }
                .map_err(fail)?;
        Ok(Self { base })
    }

    fn ring(&self, direction: Direction) -> Ring<'_> {
        let at = match direction {
            Direction::ToServer => 0,
            Direction::ToProgram => HEADER + RING,
        };
        // SAFETY: within the mapping; the counters are aligned, since headers are whole pages, and each has a cache
        // line of its own.
        unsafe {
            let start = self.base.as_ptr().cast::<u8>().add(at);
            Ring {
                written: &*start.cast::<AtomicU64>(),
                read: &*start.add(128).cast::<AtomicU64>(),
                bytes: NonNull::new_unchecked(start.add(HEADER)),
            }
        }
    }

    /// Writes all of `bytes`; waits for room. `alive` is asked from time to time, and ends the wait.
    pub(crate) fn write(&self, direction: Direction, mut bytes: &[u8], alive: impl Fn() -> bool) -> io::Result<()> {
        let ring = self.ring(direction);
        let mut at = ring.written.load(Ordering::Relaxed);
        while !bytes.is_empty() {
            let used = wait(&alive, || {
                let used = at.wrapping_sub(ring.read.load(Ordering::Acquire));
                (used != RING as u64).then_some(used)
            })?;
            let room = (RING as u64).checked_sub(used).ok_or_else(counters)? as usize;
            let start = at as usize % RING;
            let length = bytes.len().min(room).min(PIECE).min(RING - start);
            // SAFETY: `start + length` lies within the ring, and the reader does not read here before `written`
            // has moved.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), ring.bytes.as_ptr().add(start), length) };
            at = at.wrapping_add(length as u64);
            ring.written.store(at, Ordering::Release);
            bytes = &bytes[length..];
        }
        Ok(())
    }

    /// Fills all of `bytes`; waits for the writer.
    ///
    /// # Safety
    /// `to` must be good for writing `length` bytes.
    pub(crate) unsafe fn read(
        &self,
        direction: Direction,
        mut to: *mut u8,
        mut length: usize,
        alive: impl Fn() -> bool,
    ) -> io::Result<()> {
        let ring = self.ring(direction);
        let mut at = ring.read.load(Ordering::Relaxed);
        while length > 0 {
            let there = wait(&alive, || {
                let there = ring.written.load(Ordering::Acquire).wrapping_sub(at);
                (there > 0).then_some(there)
            })?;
            if there > RING as u64 {
                return Err(counters());
            }
            let start = at as usize % RING;
            let piece = length.min(there as usize).min(PIECE).min(RING - start);
            // SAFETY: `start + piece` lies within the ring, `to` has room as the caller says.
            unsafe {
                std::ptr::copy_nonoverlapping(ring.bytes.as_ptr().add(start), to, piece);
                to = to.add(piece);
            }
            at = at.wrapping_add(piece as u64);
            ring.read.store(at, Ordering::Release);
            length -= piece;
        }
        Ok(())
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and nothing borrows it any more.
        let _ = unsafe { munmap(self.base, TOTAL) };
    }
}

fn counters() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "counters of shared memory that cannot be")
}

/// Waits, first eagerly, then in short sleeps.
fn wait<T>(alive: &impl Fn() -> bool, ready: impl Fn() -> Option<T>) -> io::Result<T> {
    for turn in 0_u32.. {
        if let Some(found) = ready() {
            return Ok(found);
        }
        match turn {
            0..200 => std::hint::spin_loop(),
            200..260 => std::thread::yield_now(),
            _ => {
                std::thread::sleep(Duration::from_micros(50));
                if turn % 100 == 0 && !alive() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_ring_holds_goes_through_it_unchanged() {
        let (writer, fd) = Rings::create().unwrap();
        let reader = Rings::map(&fd).unwrap();
        let sent: Vec<u8> = (0..2 * RING + 12345).map(|at| (at % 251) as u8).collect();
        let (mut got, bytes) = (vec![0_u8; sent.len()], &sent);
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write(Direction::ToServer, bytes, || true).unwrap());
            // SAFETY: `got` is as long as that.
            unsafe { reader.read(Direction::ToServer, got.as_mut_ptr(), got.len(), || true).unwrap() };
        });
        assert!(sent == got);
    }

    #[test]
    fn a_wait_ends_when_the_other_side_is_gone() {
        let (rings, _fd) = Rings::create().unwrap();
        let mut byte = 0;
        // SAFETY: one byte.
        let waited = unsafe { rings.read(Direction::ToProgram, &raw mut byte, 1, || false) };
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn counters_that_lie_are_found_out() {
        let (rings, _fd) = Rings::create().unwrap();
        rings.ring(Direction::ToProgram).written.store(u64::MAX / 2, Ordering::Release);
        let mut byte = 0;
        // SAFETY: one byte.
        let read = unsafe { rings.read(Direction::ToProgram, &raw mut byte, 1, || true) };
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn the_other_side_cannot_shrink_the_memory() {
        let (_rings, fd) = Rings::create().unwrap();
        assert!(ftruncate(&fd, 0).is_err());
    }
}
