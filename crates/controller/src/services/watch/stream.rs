//! The stream that a watcher reads: what waits for it, then why it was cut.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::{FutureExt, Stream};
use tessera_ledger::State;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::WatchSettings;
use super::follower::{End, Follower, Topic};
use super::meter::WatchMeters;
use super::start::Begin;

/// Starts watches. Clones start them for the same member.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub settings: WatchSettings,
    pub meters: WatchMeters,
    pub states: watch::Receiver<Arc<State>>,
    pub end: CancellationToken,
}

impl Watch {
    /// Starts a watch and answers what its watcher reads. The permit is given back when the watch is over.
    pub(crate) fn start<T: Topic>(
        &self,
        topic: T,
        begin: Begin,
        permit: OwnedSemaphorePermit,
    ) -> WatchStream<T::Message> {
        let (messages, waiting) = mpsc::channel(self.settings.buffer);
        let (cut, end) = oneshot::channel();
        let follower = Follower {
            topic,
            settings: self.settings,
            states: self.states.clone(),
            messages,
            place: begin.place,
            listed: begin.listed,
            end: self.end.clone(),
            open: self.meters.open(T::NAME),
        };
        tokio::spawn(async move {
            let _open = permit;
            if let End::Cut(status) = follower.run().await {
                // Nobody hears it when the watcher has left in the meantime.
                let _ = cut.send(status);
            }
        });
        WatchStream { waiting, end: Some(end) }
    }
}

/// The messages of a watch and, when it was cut, the error at their end.
#[derive(Debug)]
pub struct WatchStream<M> {
    waiting: mpsc::Receiver<M>,
    end: Option<oneshot::Receiver<Status>>,
}

impl<M> Stream for WatchStream<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(message) = ready!(self.waiting.poll_recv(cx)) {
            return Poll::Ready(Some(Ok(message)));
        }
        let Some(end) = self.end.as_mut() else { return Poll::Ready(None) };
        let cut = ready!(end.poll_unpin(cx));
        self.end = None;
        Poll::Ready(cut.ok().map(Err))
    }
}
