//! Signals by which a command is told to end, taken in from its start on: one that comes before its work has begun is
//! for that, too.

use std::fs;

use futures::future::select_all;
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::Exit;
use crate::failure::Failure;

/// Hears signals.
#[derive(Debug)]
pub struct Told {
    heard: Vec<(Signal, Stream)>,
}

impl Told {
    /// Begins to hear some signals, but for those that this process was started to ignore, as by `nohup`.
    ///
    /// # Errors
    /// A [`Failure`] when signals cannot be received.
    pub fn by(signals: &[Signal]) -> Result<Self, Failure> {
        let ignored = ignored();
        let wanted = signals.iter().filter(|signal| ignored >> (**signal as i32 - 1) & 1 == 0);
        let heard = wanted.map(|wanted| Ok((*wanted, signal(SignalKind::from_raw(*wanted as i32))?)));
        let heard = heard.collect::<std::io::Result<Vec<_>>>();
        let heard = heard.map_err(|error| Failure::from_error(Exit::Failed, "signals cannot be received", &error))?;
        Ok(Self { heard })
    }

    /// The next one; loses none when it is dropped before.
    pub async fn next(&mut self) -> Signal {
        let each = self.heard.iter_mut().map(|(signal, stream)| {
            Box::pin(async move {
                stream.recv().await;
                *signal
            })
        });
        let each: Vec<_> = each.collect();
        match each.is_empty() {
            true => std::future::pending().await,
            false => select_all(each).await.0,
        }
    }
}

/// Signals that this process ignores, as bits from that of signal 1 on.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
