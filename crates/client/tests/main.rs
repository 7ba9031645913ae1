//! The client against members that misbehave: calls, streams and submissions. One executable, because linking costs more than
//! running.

mod calls;
mod streams;
mod submissions;
mod support;
