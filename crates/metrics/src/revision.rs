//! The revision of the source that a process was built from. Only the binary knows it, and sets it when it starts.

use std::sync::OnceLock;

static REVISION: OnceLock<&'static str> = OnceLock::new();

/// Says which source this binary was built from; said again, the first word holds.
pub fn set(revision: &'static str) {
    // Whoever came first has said the same: there is one binary.
    let _ = REVISION.set(revision);
}

/// The revision of the source; `unknown` in tests, and where the build did not say.
#[must_use]
pub fn get() -> &'static str {
    REVISION.get().copied().unwrap_or("unknown")
}
