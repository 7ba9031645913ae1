//! The task behind a stream: sends the list, then follows the published states.

use std::sync::Arc;

use prost::Message;
use tessera_ledger::{EntryEvents, Event, Revision, State};
use tokio::sync::mpsc::Sender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::WatchSettings;
use super::cursor::{Step, step};
use super::meter::OpenWatch;
use super::pace::{MessageRoom, Pace};
use crate::services::refusal;
use tessera_api::resume::WatchPlace;

/// The subject of a watch.
pub(crate) trait Topic: Send + Sync + 'static {
    /// A message of the stream.
    type Message: Message + Send + 'static;
    /// A change, as the API shows it.
    type Change: Send;
    /// The progress of the list at the beginning.
    type Listing: Default + Send;

    /// Its name in meters.
    const NAME: &'static str;

    /// Returns whether the watcher wants only the progress of the pool, and no event.
    fn progress_only(&self) -> bool;

    /// The next few messages of the list at the beginning, or none yet; `None` when it is complete.
    fn list(&self, state: &State, listing: &mut Self::Listing) -> Option<Vec<Self::Message>>;

    /// The change that an event is to the watcher; `None` when it does not concern it.
    fn change(&self, state: &State, entry: &EntryEvents, ordinal: u32, event: &Event) -> Option<Self::Change>;

    /// The message that says what `word` says, with the token of the place after it.
    fn message(&self, word: Word<Self::Change>, token: String) -> Self::Message;

    fn token(&self, place: WatchPlace) -> String;
}

/// The content of a message after the list.
#[derive(Debug)]
pub(crate) enum Word<C> {
    /// The list, or what had happened when the watch began, is complete.
    Synced(Revision),
    Changed(C),
    /// The watch is alive and has sent everything up to here.
    Progress(Revision),
}

/// A message that waits for its watcher, with the room that it takes when it is large.
#[derive(Debug)]
pub(super) struct Waiting<M> {
    pub message: M,
    pub room: Option<(MessageRoom, OwnedSemaphorePermit)>,
}

/// The reason for which a task ended.
pub(super) enum End {
    /// The watcher has gone.
    Left,
    /// The watch is cut, with this error.
    Cut(Status),
}

/// The task of one stream.
pub(super) struct Follower<T: Topic> {
    pub topic: T,
    pub settings: WatchSettings,
    pub states: watch::Receiver<Arc<State>>,
    pub pace: Pace,
    pub messages: Sender<Waiting<T::Message>>,
    /// The turn of a large message: one at a time waits for the watcher.
    pub large: Arc<Semaphore>,
    pub place: WatchPlace,
    /// The state whose content is listed first, if it is.
    pub listed: Option<Arc<State>>,
    pub end: CancellationToken,
    pub open: OpenWatch,
}

impl<T: Topic> Follower<T> {
    /// Runs until the watcher leaves or is cut.
    pub(super) async fn run(mut self) -> End {
        let end = self.end.clone();
        let ended = tokio::select! {
            ended = self.follow() => ended,
            () = end.cancelled() => Err(self.cut("stopping", refusal::member_stopping().into())),
        };
        ended.map_or_else(|end| end, |()| End::Left)
    }

    async fn follow(&mut self) -> Result<(), End> {
        let listed = self.listed.take();
        if let Some(state) = &listed {
            self.send_list(state).await?;
        }
        if self.topic.progress_only() {
            return self.tell_progress().await;
        }
        // A list is complete before the first event; a watch that goes on from a place has caught up after those that
        // it missed.
        let mut synced = listed.is_some();
        drop(listed);
        if synced {
            self.say(Word::Synced(self.place.revision)).await?;
        }
        let period = self.settings.progress;
        let mut progress = interval_at(Instant::now() + period, period);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let state = self.states.borrow_and_update().clone();
            self.open.behind(state.revision().0.saturating_sub(self.place.revision.0));
            self.send_changes(&state).await?;
            drop(state);
            if !synced {
                synced = true;
                self.say(Word::Synced(self.place.revision)).await?;
            }
            self.gather().await?;
            tokio::select! {
                changed = self.states.changed() => {
                    if changed.is_err() {
                        return Err(self.cut("stopping", refusal::member_stopping().into()));
                    }
                }
                _ = progress.tick() => self.say(Word::Progress(self.place.revision)).await?,
                () = self.messages.closed() => return Err(End::Left),
            }
        }
    }

    /// Rests while more happens, the longer the more watch.
    async fn gather(&self) -> Result<(), End> {
        let WatchSettings { gather, gather_at_most, .. } = self.settings;
        let rest = gather.saturating_mul(self.open.others()).min(gather_at_most);
        if rest.is_zero() {
            return Ok(());
        }
        tokio::select! {
            () = self.messages.closed() => Err(End::Left),
            () = sleep(rest) => Ok(()),
        }
    }

    /// Follows without looking at the history: it costs the same however much happens.
    async fn tell_progress(&mut self) -> Result<(), End> {
        self.place = self.place.max(WatchPlace::after(self.states.borrow_and_update().revision()));
        self.say(Word::Synced(self.place.revision)).await?;
        let settings = self.settings;
        loop {
            tokio::select! {
                () = self.messages.closed() => return Err(End::Left),
                () = sleep(settings.rest) => {}
            }
            tokio::select! {
                changed = timeout(settings.progress, self.states.changed()) => {
                    if let Ok(Err(_)) = changed {
                        return Err(self.cut("stopping", refusal::member_stopping().into()));
                    }
                }
                () = self.messages.closed() => return Err(End::Left),
            }
            self.place = self.place.max(WatchPlace::after(self.states.borrow_and_update().revision()));
            self.say(Word::Progress(self.place.revision)).await?;
        }
    }

    async fn send_list(&self, state: &State) -> Result<(), End> {
        let mut listing = T::Listing::default();
        loop {
            let turn = self.pace.step().await;
            let listed = self.topic.list(state, &mut listing);
            drop(turn);
            let Some(messages) = listed else { return Ok(()) };
            for message in messages {
                self.send(message).await?;
            }
            tokio::task::yield_now().await;
        }
    }

    async fn send_changes(&mut self, state: &State) -> Result<(), End> {
        loop {
            let topic = &self.topic;
            let pick = |entry: &EntryEvents, ordinal, event: &Event| topic.change(state, entry, ordinal, event);
            let turn = self.pace.step().await;
            let stepped = step(&mut self.place, state, pick);
            drop(turn);
            match stepped {
                Step::Current => return Ok(()),
                Step::Lost { oldest } => return Err(self.cut("compacted", refusal::watch_compacted(oldest))),
                Step::Events(events) => {
                    for (change, place) in events {
                        let token = self.topic.token(place);
                        self.send(self.topic.message(Word::Changed(change), token)).await?;
                    }
                }
            }
            tokio::task::yield_now().await;
        }
    }

    async fn say(&self, word: Word<T::Change>) -> Result<(), End> {
        self.send(self.topic.message(word, self.topic.token(self.place))).await
    }

    async fn send(&self, message: T::Message) -> Result<(), End> {
        let sending = async {
            let room = match self.pace.is_large(message.encoded_len()) {
                Some(bytes) => {
                    let turn = Arc::clone(&self.large).acquire_owned().await.ok();
                    self.pace.room(bytes).await.zip(turn)
                }
                None => None,
            };
            self.messages.send(Waiting { message, room }).await
        };
        match timeout(self.settings.patience, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Left),
            Err(_) => Err(self.cut("too_slow", refusal::watch_too_slow())),
        }
    }

    fn cut(&self, reason: &'static str, status: Status) -> End {
        self.open.cut(reason);
        End::Cut(status)
    }
}
