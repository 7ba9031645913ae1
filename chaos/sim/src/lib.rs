//! Deterministic simulation of whole Tessera pools.
#![cfg_attr(clippy, deny(warnings))]

#[cfg(not(tokio_unstable))]
compile_error!(
    "build this with `--cfg tokio_unstable` (.cargo/config.toml of the repository has it): without it tokio's order of \
     tasks is not decided by the seed"
);

pub mod agent;
pub mod client;
pub mod corpus;
pub mod fault;
pub mod faults;
pub mod hardware;
pub mod history;
pub mod interruptions;
pub mod journal;
pub mod links;
pub mod machine;
pub mod many;
pub mod member;
pub mod network;
pub mod node;
pub mod operator;
pub mod oracle;
pub mod process;
pub mod proof;
pub mod report;
pub mod scenario;
pub mod script;
pub mod setup;
pub mod shelf;
pub mod simulation;
pub mod single;
pub mod story;
pub mod stranger;
pub mod supervised;
pub mod watcher;
pub mod workload;
pub mod world;
