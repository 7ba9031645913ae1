//! Models of the protocols in which the ledger takes part, around the real [`tessera_ledger::State`]: every order of
//! what can happen is explored, at small sizes.
//!
//! * `world`: everything there is, and what the checker sees of it;
//! * `agent`: a node's agent, its workers as they really are, and its session with a leader;
//! * `steps`: what can happen, and what comes of it;
//! * `promises`: what must hold in every state;
//! * `grants`: grant, confirm, release and preempt under loss, repetition and a change of leader;
//! * `moves`: the steps of a move.
//!
//! Real: the state and every command that is applied to it; debug builds check every law after each of them. Modelled
//! after the code: agents, sessions and the leader's actors. Abstracted, and why that hides nothing:
//!
//! * time: a node's lease is valid or over. When a leader may know that it is over is explored by the agent's own
//!   model; here a node is condemned only while it is over. The ledger's clock stands still: backoffs are zero;
//! * placement: the first job that fits, on the first nodes. Where work goes does not matter here, that it is decided
//!   against a state that is out of date by the time of the commit does;
//! * the log: what a leader proposed is committed in its term or never. Followers only repeat what the leader applies;
//! * a session: orders and reports in order, one message each way under way, lost when the session breaks; a report
//!   that is in the log and not acknowledged is sent again. One message under way can be as out of date as many. An
//!   agent that has left a deposed leader does not come back to it: that is a case of having stayed;
//! * epochs and log indices are left out of what tells states apart: they only ever go up, and an allocation has one.

mod agent;
mod grants;
mod moves;
mod promises;
mod steps;
mod world;
