//! The stream that a watcher reads: what waits for it, then why it was cut.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures::{FutureExt, Stream};
use tessera_ledger::State;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::services::StreamPermit;

use super::WatchSettings;
use super::follower::{End, Follower, Topic, Waiting};
use super::meter::WatchMeters;
use super::pace::{MessageRoom, Pace};
use super::start::Begin;

/// Starts watches. Clones start them for the same member.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub settings: WatchSettings,
    pub meters: WatchMeters,
    pub pace: Pace,
    pub states: watch::Receiver<Arc<State>>,
    pub end: CancellationToken,
}

impl Watch {
    /// Starts a watch and answers what its watcher reads. Its place is free again when the watch is over.
    pub(crate) fn start<T: Topic>(
        &self,
        topic: T,
        begin: Begin,
        watch_permit: StreamPermit,
    ) -> WatchStream<T::Message> {
        let (messages, waiting) = mpsc::channel(self.settings.buffer);
        let (cut, end) = oneshot::channel();
        let follower = Follower {
            topic,
            settings: self.settings,
            states: self.states.clone(),
            pace: self.pace.clone(),
            messages,
            large: Arc::new(Semaphore::new(1)),
            place: begin.place,
            listed: begin.listed,
            end: self.end.clone(),
            open: self.meters.open(T::NAME),
        };
        tokio::spawn(async move {
            let _open = watch_permit;
            if let End::Cut(status) = follower.run().await {
                // Nobody hears it when the watcher has left in the meantime.
                let _ = cut.send(status);
            }
        });
        WatchStream { waiting, room: None, end: Some(end) }
    }
}

/// The messages of a watch and, when it was cut, the error at their end.
#[derive(Debug)]
pub struct WatchStream<M> {
    waiting: mpsc::Receiver<Waiting<M>>,
    /// The room of the previous message. It is given back when the next one is asked for, because the previous one was
    /// read then.
    room: Option<(MessageRoom, OwnedSemaphorePermit)>,
    end: Option<oneshot::Receiver<Status>>,
}

impl<M> Stream for WatchStream<M> {
    type Item = Result<M, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.room = None;
        if let Some(Waiting { message, room }) = ready!(self.waiting.poll_recv(cx)) {
            self.room = room;
            return Poll::Ready(Some(Ok(message)));
        }
        let Some(end) = self.end.as_mut() else { return Poll::Ready(None) };
        let cut = ready!(end.poll_unpin(cx));
        self.end = None;
        Poll::Ready(cut.ok().map(Err))
    }
}
