//! Names of the gRPC metadata (HTTP headers) that calls carry beside their messages.

/// The caller, for the history of jobs: a name for people. Tessera does not check it.
pub const ACTOR: &str = "tessera-actor";
/// Set by a member that passes a call on to the leader: its own id. A call that carries it is never passed on again.
pub const FORWARDED_BY: &str = "tessera-forwarded-by";
/// W3C trace context.
pub const TRACEPARENT: &str = "traceparent";
