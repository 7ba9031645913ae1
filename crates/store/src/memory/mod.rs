//! The in-memory twin: the same store over a modelled disk, for simulation and for tests.
//!
//! A [`MemoryDisk`] outlives the stores opened on it, as a real disk outlives processes. It knows the difference
//! between what was handed to it and what it has *flushed*: with [`Flushing::WhenTold`] nothing is durable, and
//! nothing is answered, before [`MemoryDisk::flush`], and [`MemoryDisk::crash`] loses what was not flushed, in the
//! ways a real disk does. It can be full ([`MemoryDisk::set_capacity`]) and it can be damaged
//! ([`MemoryDisk::flip_bit`], [`MemoryDisk::lose`]).
//!
//! It has no threads, no clock and no randomness: everything happens inside the call that causes it, in one order. A
//! simulation that wants a flush to take time asks to be told about pending requests ([`MemoryDisk::on_pending`]) and
//! calls [`MemoryDisk::flush_first`] when its own clock says so.
//!
//! Records are encoded exactly as on a real disk, and what is flushed is always read back through its checksum.

mod disk;
mod faults;
mod image;
mod pending;
mod state;

pub use disk::{Flushing, MemoryDisk};
pub use faults::{Crash, Place};
#[cfg(test)]
pub(crate) use image::Image;
