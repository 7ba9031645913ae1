//! The requests to end of a long-running process: SIGTERM, SIGHUP, SIGINT, or the end of its standard input.

use std::io::Read;

use nix::sys::signal::Signal;
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::signals::Signals;

/// A token that is cancelled by the first SIGTERM, SIGHUP or SIGINT, but for those that the process was started to
/// ignore; a SIGINT after that ends the process on the spot. A terminal that is closed sends SIGHUP: what was started
/// in it ends in order, too.
///
/// # Errors
/// A [`Failure`] when signals cannot be received.
pub fn on_signals() -> Result<CancellationToken, Failure> {
    let mut signals = Signals::by(&[Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM])?;
    let token = CancellationToken::new();
    let told = token.clone();
    tokio::spawn(async move {
        let signal = signals.next().await;
        tracing::info!("{signal}: ending; a SIGINT after that ends at once");
        told.cancel();
        while signals.next().await != Signal::SIGINT {}
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
