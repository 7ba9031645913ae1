//! Signals by which a command is told to end, taken in from its start on: one that comes before its work has begun is
//! for that, too.

use std::fs;

use futures::future::select_all;
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tokio::sync::watch;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::remark_beside;

/// Hears signals.
#[derive(Debug)]
pub struct Signals {
    heard: Vec<(Signal, Stream)>,
}

impl Signals {
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

/// Hears signals for a command that stays with a job. The first is handed on: the job is to be cancelled. Ends with it
/// at an interrupt after that: the job is to be left. Others after the first say nothing new, for `timeout` and
/// terminals that close send theirs twice.
pub async fn until_left(mut next: impl AsyncFnMut() -> Signal, first: &watch::Sender<Option<Signal>>) -> Signal {
    loop {
        let (heard, before) = (next().await, *first.borrow());
        match before {
            None => {
                first.send_replace(Some(heard));
                remark_beside("[cancelling the job; interrupt again to leave it]".to_owned());
            }
            Some(first) if heard == Signal::SIGINT => return first,
            Some(_) => {}
        }
    }
}

/// The first signal, once it was heard.
pub async fn first(told: &mut watch::Receiver<Option<Signal>>) -> Signal {
    match told.wait_for(Option::is_some).await.map(|first| *first) {
        Ok(Some(first)) => first,
        // Nobody hears any more.
        _ => std::future::pending().await,
    }
}

/// Signals that this process ignores, as bits from that of signal 1 on.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// The end of a command that hears these, and the signal that it hands on.
    fn hears(signals: &[Signal]) -> (Option<Signal>, Option<Signal>) {
        let (first, told) = watch::channel(None);
        let mut signals = signals.iter();
        let next = async || match signals.next() {
            Some(signal) => *signal,
            None => std::future::pending().await,
        };
        let left = until_left(next, &first).now_or_never();
        (left, *told.borrow())
    }

    #[tokio::test]
    async fn only_an_interrupt_after_another_signal_leaves_the_job() {
        use Signal::{SIGHUP, SIGINT, SIGTERM};
        assert_eq!(hears(&[]), (None, None));
        assert_eq!(hears(&[SIGTERM, SIGTERM, SIGHUP]), (None, Some(SIGTERM)), "a doubled one cancels it once");
        assert_eq!(hears(&[SIGINT, SIGTERM]), (None, Some(SIGINT)));
        assert_eq!(hears(&[SIGINT, SIGTERM, SIGINT]), (Some(SIGINT), Some(SIGINT)));
        assert_eq!(hears(&[SIGHUP, SIGINT]), (Some(SIGHUP), Some(SIGHUP)));
    }
}
