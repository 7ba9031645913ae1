//! The link between a program and the slice server that computes for it: addresses, the handshake, frames, bulk data,
//! and the gate.
//!
//! A program issues operations ahead of their results; they travel as *frames* on one connection, in order, and the
//! server answers only where the program waits. Tensors go beside the frames as *bulk data*: through memory that both
//! map when they are on one host (`ring.rs`), on the connection itself otherwise. Nothing here knows what an operation
//! is, and nothing here needs PyTorch: `crates/torch` holds the device, and binds this crate to Python and C++.

pub mod address;
pub mod attendance;
pub mod connection;
mod error;
pub mod gate;
pub mod handshake;
pub mod listener;
mod neighbours;
mod owner;
mod ring;
mod silence;
mod turn;

pub use address::Address;
pub use attendance::Attendance;
pub use connection::{Connection, Interrupter, Received};
pub use error::Error;
pub use gate::{Card, Gate};
pub use listener::{Admits, Listener};
pub use owner::{Coming, Program};

/// The protocol of operations that this build speaks. Raised with every change of a command, a reply or the handshake.
pub const PROTOCOL: u32 = 7;

/// Most bytes of one frame. Tensors are no part of frames, so that a frame holds at most some thousand operations.
pub const LARGEST_FRAME: usize = 16 << 20;
