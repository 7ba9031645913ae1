//! The views that commands print, as plain data with stable names: the shape of `-o json`, and the rows of the tables.
//!
//! Fields are only ever added. Times are RFC 3339 in UTC, durations are seconds, compute is TFLOPS, memory is MiB. What
//! is unknown is `null`. Messages of the API are printed by what they declare (`shown`), and where programs know their
//! fields otherwise, by that (`known`).

mod answer;
mod backup;
mod blocks;
mod card;
mod change;
mod checkpoint;
mod cluster;
mod compaction;
mod config;
mod job;
mod job_page;
mod job_use;
mod known;
mod node;
mod pool;
mod queue;
mod shown;
mod spec;
mod time;
mod usage;
pub mod usage_parquet;
mod used;
mod what_if;
mod wishes;
pub mod words;

pub use answer::{MutationView, PlanView, SubmissionView, WhyView};
pub use backup::{BackupView, BegunView, KeptView, SurvivorView};
pub use blocks::{BlocksView, CardBlocksView};
pub use card::{CardDetailView, CardView, busy_share};
pub use change::{JobChangeView, JobUpdateView, PoolUpdateView};
pub use cluster::{ClusterView, InitializedView, LeaderView, MemberStatusView, MemberView};
pub use compaction::{CompactionPlanView, CompactionStatusView, MoveAnswerView};
pub use config::ConfigView;
pub use job::JobView;
pub use job_use::{CardUseView, JobUseView};
pub use node::{NodeDetailView, NodeView};
pub use pool::{MemberVerdictView, PoolView, VerifyView};
pub use queue::QueueView;
pub use spec::SpecView;
pub use time::{Clock, text};
pub use usage::UsageView;
pub use used::UseView;
pub use what_if::WhatIfView;
pub use wishes::HostView;
pub use words::{block_state, job_state, kind};
