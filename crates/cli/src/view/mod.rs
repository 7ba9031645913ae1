//! What commands print, as plain data with stable names: the shape of `-o json`, and the rows of the tables.
//!
//! Fields are only ever added. Times are RFC 3339 in UTC, durations are seconds, compute is TFLOPS, memory is MiB. What
//! is unknown is `null`.

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
mod words;

pub use answer::{ExplanationView, MutationView, PlanView, SubmissionView, WhyView};
pub use backup::{BackupView, BegunView, KeptView, SurvivorView};
pub use blocks::{CardBlocksView, OwnerView, RunView};
pub use card::{CardDetailView, CardView};
pub use change::{JobUpdateView, PoolUpdateView};
pub use cluster::{ClusterView, InitializedView, LeaderView, MemberStatusView, MemberView};
pub use compaction::{CompactionPlanView, CompactionStatusView, MoveAnswerView};
pub use config::ConfigView;
pub use job::{AttemptView, JobView, WorkerView};
pub use job_use::{CardUseView, JobUseView};
pub use node::{NodeDetailView, NodeView};
pub use pool::{BlocksView, KindView, MemberVerdictView, PoolView, VerifyView};
pub use queue::QueueView;
pub use spec::SpecView;
pub use time::Clock;
pub use usage::UsageView;
pub use used::UseView;
pub use what_if::WhatIfView;
pub use wishes::HostView;
pub use words::{job_state, kind};

/// A reason as it is shown: a code for machines, a sentence for people.
pub type ReasonView = shown::Shown<tessera_api::v1::Reason>;
