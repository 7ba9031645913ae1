//! Watches that go on: over broken connections, restarted members and leader changes, without gap and without doubling.
//!
//! The members give a resume token with every message; a watch that breaks is opened again, anywhere, after the last
//! one. Should a member send an event again, it is dropped here by its place (revision, ordinal). When the events after
//! the token are no longer remembered the watch begins anew with a list and says so ([`Update::Relisting`]): what was
//! known before is to be thrown away then. A watch that brings nothing for
//! [`Settings::watch_silence`](crate::Settings), not even progress, is taken for broken.

use std::collections::VecDeque;
use std::time::Duration;

use futures::future::BoxFuture;
use tessera_api::v1::job_service_client::JobServiceClient;
use tessera_api::v1::pool_service_client::PoolServiceClient;
use tessera_api::v1::{
    Card, ErrorReason, Job, JobEvent, JobFilter, Node, PoolEvent, WatchJobsRequest, WatchJobsResponse,
    WatchPoolRequest, WatchPoolResponse, watch_jobs_request, watch_jobs_response, watch_pool_request,
    watch_pool_response,
};
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use crate::address::Address;
use crate::client::Client;
use crate::error::{ApiError, ClientError};
use crate::retry::{Next, Tries, turn};

/// The place at which a watch begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// With a list of what is there now.
    #[default]
    List,
    /// After the message that carried this token.
    After(String),
    /// With the events after this revision.
    AfterRevision(u64),
    /// With the oldest event that is remembered.
    Oldest,
}

/// A message of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum Update<L, E> {
    Listed(L),
    /// The list, or what had happened before, is complete up to this revision.
    Synced {
        revision: u64,
    },
    Event(E),
    /// Nothing up to this revision concerns the watch.
    Progress {
        revision: u64,
    },
    /// The watch begins anew with a list: what was known is to be forgotten. Events may have been missed between.
    Relisting {
        /// True if the members have forgotten the events in between; false if only the list was interrupted.
        compacted: bool,
    },
}

/// A message that was read: what it says, and the token after it.
type Read<L, E> = (Option<Update<L, E>>, String);
/// Place of an event among all events of the pool.
type Place = (u64, u32);

/// The differences between the watches. Implemented here for [`Jobs`] and [`Pool`] only.
pub trait Kind: Clone + Send + sealed::Sealed {
    type Listed;
    type Event;
    /// The message on the wire.
    #[doc(hidden)]
    type Message: Send;
    #[doc(hidden)]
    fn open(&self, channel: Channel, start: Start, limit: usize, prepare: Prepare<'_>) -> Opening<Self::Message>;
    #[doc(hidden)]
    fn read(message: Self::Message) -> Read<Self::Listed, Self::Event>;
    #[doc(hidden)]
    fn place(event: &Self::Event) -> Place;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Jobs {}
    impl Sealed for super::Pool {}
}

/// Adds the caller's headers.
type Prepare<'a> = &'a dyn Fn(&mut tonic::metadata::MetadataMap);
/// A stream being opened.
type Opening<M> = BoxFuture<'static, Result<Response<Streaming<M>>, Status>>;

/// A watch of jobs.
#[derive(Clone, Debug, Default)]
pub struct Jobs {
    pub filter: JobFilter,
}

/// A watch of nodes, cards, queues and settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pool;

/// A thing of the pool's list.
#[derive(Clone, Debug, PartialEq)]
pub enum ListedPart {
    Node(Box<Node>),
    Card(Box<Card>),
}

impl Kind for Jobs {
    type Listed = Box<Job>;
    type Event = JobEvent;
    type Message = WatchJobsResponse;

    fn open(&self, channel: Channel, start: Start, limit: usize, prepare: Prepare<'_>) -> Opening<WatchJobsResponse> {
        use watch_jobs_request::Start as Wire;
        let start = match start {
            Start::List => None,
            Start::After(token) => Some(Wire::ResumeToken(token)),
            Start::AfterRevision(revision) => Some(Wire::AfterRevision(revision)),
            Start::Oldest => Some(Wire::Oldest(true)),
        };
        let mut request =
            Request::new(WatchJobsRequest { filter: Some(self.filter.clone()), start, progress_only: false });
        prepare(request.metadata_mut());
        Box::pin(
            async move { JobServiceClient::new(channel).max_decoding_message_size(limit).watch_jobs(request).await },
        )
    }

    fn read(message: WatchJobsResponse) -> Read<Box<Job>, JobEvent> {
        use watch_jobs_response::Message as M;
        let update = message.message.map(|message| match message {
            M::Listed(job) => Update::Listed(Box::new(job)),
            M::Synced(synced) => Update::Synced { revision: synced.revision },
            M::Event(event) => Update::Event(event),
            M::Progress(progress) => Update::Progress { revision: progress.revision },
        });
        (update, message.resume_token)
    }

    fn place(event: &JobEvent) -> Place {
        (event.revision, event.ordinal)
    }
}

impl Kind for Pool {
    type Listed = ListedPart;
    type Event = PoolEvent;
    type Message = WatchPoolResponse;

    fn open(&self, channel: Channel, start: Start, limit: usize, prepare: Prepare<'_>) -> Opening<WatchPoolResponse> {
        use watch_pool_request::Start as Wire;
        let start = match start {
            Start::List => None,
            Start::After(token) => Some(Wire::ResumeToken(token)),
            Start::AfterRevision(revision) => Some(Wire::AfterRevision(revision)),
            Start::Oldest => Some(Wire::Oldest(true)),
        };
        let mut request = Request::new(WatchPoolRequest { start, progress_only: false });
        prepare(request.metadata_mut());
        Box::pin(
            async move { PoolServiceClient::new(channel).max_decoding_message_size(limit).watch_pool(request).await },
        )
    }

    fn read(message: WatchPoolResponse) -> Read<ListedPart, PoolEvent> {
        use watch_pool_response::Message as M;
        let update = message.message.map(|message| match message {
            M::ListedNode(node) => Update::Listed(ListedPart::Node(Box::new(node))),
            M::ListedCard(card) => Update::Listed(ListedPart::Card(Box::new(card))),
            M::Synced(synced) => Update::Synced { revision: synced.revision },
            M::Event(event) => Update::Event(event),
            M::Progress(progress) => Update::Progress { revision: progress.revision },
        });
        (update, message.resume_token)
    }

    fn place(event: &PoolEvent) -> Place {
        (event.revision, event.ordinal)
    }
}

/// A watch. Read it with [`Watch::next`]; dropping it ends it.
pub struct Watch<K: Kind> {
    client: Client,
    kind: K,
    start: Start,
    last: Option<Place>,
    listing: bool,
    synced: bool,
    interrupted: bool,
    stream: Option<(Address, Streaming<K::Message>)>,
    pending: VecDeque<Update<K::Listed, K::Event>>,
}

impl Client {
    #[must_use]
    pub fn watch_jobs(&self, filter: JobFilter, start: Start) -> Watch<Jobs> {
        Watch::new(self.clone(), Jobs { filter }, start)
    }

    /// Watches nodes, cards, queues and settings.
    #[must_use]
    pub fn watch_pool(&self, start: Start) -> Watch<Pool> {
        Watch::new(self.clone(), Pool, start)
    }
}

impl<K: Kind> Watch<K> {
    fn new(client: Client, kind: K, start: Start) -> Self {
        Self {
            client,
            kind,
            start,
            last: None,
            listing: false,
            synced: false,
            interrupted: false,
            stream: None,
            pending: VecDeque::new(),
        }
    }

    /// Has members that do not answer given up after `patience` from now on, instead of the client's deadline.
    pub fn within(&mut self, patience: Duration) -> &mut Self {
        self.client = self.client.with_deadline(patience);
        self
    }

    /// A token that goes on after everything that was returned so far; `None` while the first list is being read.
    #[must_use]
    pub fn resume_token(&self) -> Option<&str> {
        match &self.start {
            Start::After(token) => Some(token),
            Start::List | Start::AfterRevision(_) | Start::Oldest => None,
        }
    }

    /// The next update. Waits for as long as nothing happens.
    ///
    /// # Errors
    /// [`ClientError::Refused`] when the watch cannot go on (a filter that is not allowed, a damaged token);
    /// [`ClientError::Unavailable`] when no member served it for the client's deadline: call again to go on trying.
    pub async fn next(&mut self) -> Result<Update<K::Listed, K::Event>, ClientError> {
        let mut tries: Option<Tries> = None;
        loop {
            if let Some(update) = self.pending.pop_front() {
                return Ok(update);
            }
            let (from, status) = match self.advance(tries.as_ref()).await {
                Ok(Some(update)) => return Ok(update),
                Ok(None) => continue,
                Err(broken) => broken,
            };
            self.stream = None;
            if ApiError::from(&status).reason == Some(ErrorReason::WatchCompacted) {
                self.begin_anew(true);
                continue;
            }
            self.interrupted |= self.listing;
            let tries = tries.get_or_insert_with(|| Tries::new(&self.client, self.client.settings().deadline, None));
            match tries.failed(&self.client, &from, &status) {
                Next::Now => {}
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::GiveUp(error) => return Err(error),
            }
        }
    }

    /// Opens the stream if there is none, and takes one message from it; `None` when there is nothing to say about it.
    async fn advance(
        &mut self,
        tries: Option<&Tries>,
    ) -> Result<Option<Update<K::Listed, K::Event>>, (Address, Status)> {
        let silence = self.client.settings().watch_silence;
        if self.stream.is_none() {
            let opened = self.open(silence.min(turn(tries, silence))).await?;
            self.stream = Some(opened);
            if std::mem::take(&mut self.interrupted) {
                self.begin_listing(false);
            }
            return Ok(None);
        }
        let Some((address, stream)) = self.stream.as_mut() else { return Ok(None) };
        let message = match timeout(silence, stream.message()).await {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return Err((address.clone(), Status::unavailable("the member ended the watch"))),
            Ok(Err(status)) => return Err((address.clone(), status)),
            Err(_elapsed) => {
                return Err((address.clone(), Status::unavailable("the watch brought nothing for too long")));
            }
        };
        let (update, token) = K::read(message);
        if !token.is_empty() {
            self.start = Start::After(token);
        }
        Ok(update.and_then(|update| self.take(update)))
    }

    async fn open(&self, patience: Duration) -> Result<(Address, Streaming<K::Message>), (Address, Status)> {
        let target = self.client.routes().current();
        let address = target.address.clone();
        let settings = self.client.settings();
        let prepare = |headers: &mut tonic::metadata::MetadataMap| settings.headers.add_to(headers);
        let opening = self.kind.open(target.channel, self.start.clone(), settings.max_message_bytes, &prepare);
        match timeout(patience, opening).await {
            Ok(Ok(response)) => {
                self.client.routes().answered(&address, tokio::time::Instant::now());
                Ok((address, response.into_inner()))
            }
            Ok(Err(status)) => Err((address, status)),
            Err(_elapsed) => Err((address, Status::unavailable("the watch could not be opened in time"))),
        }
    }

    /// Drops what was returned before: an event, or the word that the watch has caught up.
    fn take(&mut self, update: Update<K::Listed, K::Event>) -> Option<Update<K::Listed, K::Event>> {
        match &update {
            Update::Event(event) => {
                let place = K::place(event);
                if self.last.is_some_and(|last| place <= last) {
                    return None;
                }
                self.last = Some(place);
            }
            Update::Synced { .. } => {
                self.listing = false;
                if std::mem::replace(&mut self.synced, true) {
                    return None;
                }
            }
            Update::Listed(_) => self.listing = true,
            Update::Progress { .. } | Update::Relisting { .. } => {}
        }
        Some(update)
    }

    fn begin_anew(&mut self, compacted: bool) {
        self.start = Start::List;
        self.interrupted = false;
        self.begin_listing(compacted);
    }

    fn begin_listing(&mut self, compacted: bool) {
        self.listing = false;
        self.synced = false;
        self.last = None;
        self.pending.push_back(Update::Relisting { compacted });
    }
}
