//! Simulation: how good placement is, measured on traces of real clusters and on the pool's own past.
//!
//! Nothing of the ledger or of placement is re-implemented here. The [`engine`] drives the real
//! [`State`](tessera_ledger::State) and the real [`Pool`](tessera_placement::Pool) by the commands that members apply,
//! with time that is set and agents that obey at once. Around it:
//!
//! * [`trace`] reads lists of nodes and jobs: Alibaba `openb`, Philly, and our own.
//! * [`plain`] is an independent model of nodes and cards. The judge of every experiment keeps its books on it and
//!   believes nothing that it is told; the policies from the literature ([`policy`]) decide on it.
//! * [`saturate`] fills a cluster until work is turned away; [`timeline`] plays jobs that come and go; [`cards`] counts
//!   the cards that sharing saves; [`report`] draws runs; [`online`] lets any judge drive any placer.
//! * [`replay`] makes the past decisions of a live pool again, from its log.
//!
//! What is modelled and what is not is said in docs/simulate.md. Start reading at [`saturate::run`], then [`engine`].

pub mod cards;
pub mod engine;
pub mod online;
pub mod placer;
pub mod plain;
pub mod policy;
pub mod replay;
pub mod report;
pub mod saturate;
pub mod stats;
pub mod timeline;
pub mod trace;
