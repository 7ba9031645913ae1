//! Tessera as it is measured: three members and some agents with simulated cards, all of them real processes, used
//! through the client that everybody uses.

mod agents;
mod consoles;
mod jobs;
mod members;
mod nodes;
mod pool;
mod residents;
mod streams;

pub use agents::{Agents, Cards, node_name};
pub use consoles::{Consoles, get};
pub use jobs::{Job, Submitter, read_back};
pub use members::Members;
pub use nodes::{Nodes, Ordered};
pub use pool::Pool;
pub use residents::Residents;
pub use streams::stream;
