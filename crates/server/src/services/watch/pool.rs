//! Watching the pool: nodes, cards, queues and settings.

use tessera_api::event_view::pool_event;
use tessera_api::resume::{ResumeTokens, WatchPlace};
use tessera_api::v1::watch_pool_response::Message;
use tessera_api::v1::{self, watch_pool_request};
use tessera_api::{Refusal, pool_view};
use tessera_ledger::{EntryEvents, Event, NodeId, Revision, State};

use super::follower::{Topic, Word};
use super::start::Start;

/// Nodes whose cards are listed in one step.
const LISTED: usize = 8;

/// The whole pool.
#[derive(Debug)]
pub(crate) struct PoolTopic {
    tokens: ResumeTokens,
    progress_only: bool,
}

/// The progress of the list of nodes and cards: the node that comes next.
#[derive(Debug, Default)]
pub(crate) struct NextNode(u32);

impl PoolTopic {
    /// Reads from where a request wants to watch.
    pub(crate) fn of(request: &v1::WatchPoolRequest) -> Result<(Self, Start), Refusal> {
        let topic = Self { tokens: ResumeTokens::of_pool(), progress_only: request.progress_only };
        let start = match &request.start {
            None | Some(watch_pool_request::Start::Oldest(false)) => Start::List,
            Some(watch_pool_request::Start::Oldest(true)) => Start::Oldest,
            Some(watch_pool_request::Start::AfterRevision(revision)) => Start::After(Revision(*revision)),
            Some(watch_pool_request::Start::ResumeToken(token)) => Start::Resume(topic.tokens.read(token)?),
        };
        Ok((topic, start))
    }
}

fn listed(message: Message) -> v1::WatchPoolResponse {
    v1::WatchPoolResponse { message: Some(message), resume_token: String::new() }
}

impl Topic for PoolTopic {
    type Message = v1::WatchPoolResponse;
    type Change = v1::PoolEvent;
    type Listing = NextNode;

    const NAME: &'static str = "pool";

    fn progress_only(&self) -> bool {
        self.progress_only
    }

    fn list(&self, state: &State, next: &mut NextNode) -> Option<Vec<v1::WatchPoolResponse>> {
        let mut messages = Vec::new();
        // Nodes are numbered without gap, forgotten ones included.
        for _ in 0..LISTED {
            let id = NodeId(next.0);
            let Some(node) = state.node(id) else { break };
            next.0 = next.0.saturating_add(1);
            messages.push(listed(Message::ListedNode(pool_view::node(state, node))));
            let cards = state.cards_of(id).map(|(id, card)| pool_view::card(state, id, card));
            messages.extend(cards.map(|card| listed(Message::ListedCard(card))));
        }
        (!messages.is_empty()).then_some(messages)
    }

    fn change(&self, state: &State, entry: &EntryEvents, ordinal: u32, _: &Event) -> Option<v1::PoolEvent> {
        pool_event(state, entry, ordinal)
    }

    fn message(&self, word: Word<v1::PoolEvent>, resume_token: String) -> v1::WatchPoolResponse {
        let message = match word {
            Word::Synced(revision) => Message::Synced(v1::WatchSynced { revision: revision.0 }),
            Word::Changed(event) => Message::Event(event),
            Word::Progress(revision) => Message::Progress(v1::WatchProgress { revision: revision.0 }),
        };
        v1::WatchPoolResponse { message: Some(message), resume_token }
    }

    fn token(&self, place: WatchPlace) -> String {
        self.tokens.make(place)
    }
}
