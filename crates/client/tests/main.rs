//! Tests of the client against members that misbehave: calls, streams and submissions.

mod calls;
mod streams;
mod submissions;
mod support;
