//! Benchmarks of Tessera with faults on real processes, beside etcd.
//!
//! Everything here starts real binaries on loopback, loads them as users would, kills some of them with SIGKILL, and
//! writes down what it saw. The figures in `docs/benchmarks.md` come from here, and anybody can make them again.
//!
//! How it is put together: [`process`] starts and ends processes by pid; [`tessera`] and [`etcd`] are three members
//! each, behind one trait ([`trio::Trio`]), and take writes behind another ([`writer::Writer`]), so that both systems
//! are measured by the same code: [`stream`] starts one write every few milliseconds whatever happened to those before,
//! [`load`] has a number of clients write one after the other. [`mod@bench`] holds the benchmarks, [`readback`] the
//! check that nothing acknowledged is lost or doubled, [`witness`] the check that no worker was disturbed. [`quiet`]
//! and [`machine`] write down what the machine was; [`report`] prints.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a developer runs by hand prints for its developer"
)]

pub mod bench;
pub mod distribution;
pub mod effort;
pub mod etcd;
pub mod hosts;
pub mod load;
pub mod machine;
pub mod neighbours;
pub mod options;
pub mod poll;
pub mod ports;
pub mod process;
pub mod quiet;
pub mod readback;
pub mod report;
pub mod stream;
pub mod tessera;
pub mod trio;
pub mod witness;
pub mod writer;
