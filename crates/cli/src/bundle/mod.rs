//! `tessera operator debug`: everything that somebody who helps from afar wants to see, in one file.
//!
//! Nothing secret goes in, by construction and not by care: of configuration files only the fields on a list
//! ([`redact`]) keep their values, of processes neither the environment nor the arguments are read, and of jobs only
//! numbers, states and events are asked for, never what was submitted. Whatever could not be had is named in the
//! manifest with the reason, so that a bundle of half a pool is a bundle all the same.

pub mod archive;
mod collect;
mod http;
mod parts;
mod processes;
pub mod redact;

pub use collect::{Wanted, collect};
pub use parts::{Missing, Parts};
