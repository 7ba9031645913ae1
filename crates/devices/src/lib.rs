//! The hardware abstraction layer (P1): what a card is, what it can do, how it feels, and how a share of it is handed
//! to a worker. One module per mechanism behind one trait, [`Backend`]; the agent knows no other.
//!
//! Three mechanisms exist so far:
//! * [`accelerators`]: the GPUs and NPUs of the host that PyTorch computes on, real: measured by it, shares enforced by
//!   slice servers;
//! * [`cpu`]: the processors of the host, real: measured by a short benchmark, shares enforced by control groups;
//! * [`simulated`]: cards declared by an inventory file, which compute nothing but carry readings, faults and slices
//!   like real ones, so that a whole pool can be tried on one machine.
//!
//! What a card can do is said honestly by [`Caps`]; nothing above promises more. Files of the host are read through
//! [`HostRoot`], so that every reader is tested on fixtures.

pub mod accelerators;
mod backend;
mod caps;
pub mod cpu;
mod error;
mod host;
mod node;
mod reading;
pub mod simulated;
mod slices;

pub use backend::{Backend, Hardware, HealthReport, HostUse, Probe, Sample, SliceSample};
pub use caps::{Caps, MemoryControl, Migration, ShareControl, Suspension, TimeSlicing};
pub use error::DeviceError;
pub use host::HostRoot;
pub use node::NodeDevices;
pub use reading::ErrorKind;
pub use simulated::inventory;
pub use slices::{Attach, GrantedSlice, HostLimits, Share, TorchDevice, WorkerSlices};
