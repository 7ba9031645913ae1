//! The common parts of end-to-end tests: a pool of real processes ([`pool`]), jobs in it ([`jobs`]), a collector of
//! what they tell ([`collector`]), their pages ([`page`]), what commands print ([`command`]), libraries in the place of
//! others ([`library`]), runbooks to follow ([`runbook`]), disks that fill ([`small_disk`]), ways to servers that are
//! cut ([`link`]), commands that stay ([`stayer`]), programs that go as far as they are let ([`paced`]), one of them
//! whose result can be compared ([`trainer`]), one that knows nothing of all that ([`unaware`]), pools that dump
//! programs ([`dumping`]), and waiting on conditions ([`wait`]).

#![expect(clippy::print_stderr, reason = "what tests share prints for their developer")]
#![expect(clippy::panic, reason = "a test fails by a panic")]

pub mod collector;
pub mod command;
pub mod dumping;
pub mod jobs;
pub mod library;
pub mod link;
pub mod paced;
pub mod page;
pub mod pool;
pub mod process;
pub mod runbook;
pub mod small_disk;
pub mod stayer;
pub mod trainer;
pub mod unaware;
pub mod wait;
