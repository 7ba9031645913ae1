//! `tessera operator doctor`: whether this host, and the control plane as seen from it, are fit to run Tessera.
//!
//! [`gather`] looks, and decides nothing: what it finds is plain data ([`facts::Facts`]), every look has a bound in
//! time, and what cannot be seen is a fact as well. [`judge`] decides, and looks at nothing: each check is a pure
//! function from facts to [`Finding`]s, tested with recorded facts. What an agent tries when it starts is tried here by
//! the agent's own code, so that no rule is said twice.

pub mod facts;
pub mod finding;
pub mod gather;
pub mod judge;

pub use finding::{Finding, Report, Verdict};
