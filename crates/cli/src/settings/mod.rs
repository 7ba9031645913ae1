//! The choice of the control plane that a command talks to: flags, then environment, then the chosen context, then the
//! default.

mod connection;
mod contexts;

pub use connection::{Connection, Origin, Resolved, Wishes, connect};
pub use contexts::{Context, Contexts, ContextsError};
