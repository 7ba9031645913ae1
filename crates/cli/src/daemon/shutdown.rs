//! The requests to end of a long-running process: SIGTERM, SIGINT, or the end of its standard input.

use std::io::Read;

use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::failure::Failure;

/// A token that is cancelled by the first SIGTERM or SIGINT; the second SIGINT ends the process on the spot.
///
/// # Errors
/// A [`Failure`] when signals cannot be received.
pub fn on_signals() -> Result<CancellationToken, Failure> {
    let failed = |error: std::io::Error| Failure::from_error(Exit::Failed, "signals cannot be received", &error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
            _ = interrupt.recv() => tracing::info!("SIGINT: ending; once more to end at once"),
        }
        told.cancel();
        interrupt.recv().await;
        Exit::Signalled(Signal::SIGINT).end_on_the_spot();
    });
    Ok(token)
}

/// Cancels `token` when standard input ends, that is when the process at its other end is gone.
pub fn with_stdin(token: &CancellationToken) {
    let token = token.clone();
    // A thread of its own: it may block for ever, and must not keep the runtime from ending.
    std::thread::spawn(move || {
        let mut sink = [0; 256];
        let mut stdin = std::io::stdin().lock();
        while matches!(stdin.read(&mut sink), Ok(count) if count > 0) {}
        token.cancel();
    });
}
