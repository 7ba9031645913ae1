//! The decision after a failed try: another member at once, a wait, or the end.
//!
//! [`Tries`] is the account of one call. It goes round all members before it waits; the waits grow and jitter;
//! RetryInfo of the members is respected; nothing is waited for that lies beyond the deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tessera_api::v1::ErrorReason;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::address::Address;
use crate::client::Client;
use crate::error::{ApiError, ClientError, Connection, Trouble, Unavailable};

/// The growth factor of the waits between rounds. It is small: an election takes about 200 ms, and the part of a wait
/// that lies after its end is lost.
const BACKOFF_FACTOR: f32 = 1.3;

/// The next step after a failed try.
#[derive(Debug)]
pub(crate) enum Next {
    /// Ask the routes' current member.
    Now,
    /// Wait, then ask the routes' current member.
    After(Duration),
    /// Tell the caller.
    GiveUp(ClientError),
}

/// The consequence of an error for the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// The same call would be refused again anywhere.
    Final,
    /// Another member may be able to answer.
    Elsewhere,
    /// It passes by itself; the same member may be asked again.
    Busy,
}

/// The account of one call.
#[derive(Debug)]
pub(crate) struct Tries {
    started: Instant,
    deadline: Instant,
    unreachable_at: Instant,
    backoff: ExponentialBackoff,
    round: BTreeSet<Address>,
    asked_to_wait: Option<Duration>,
    said: BTreeMap<Address, ApiError>,
    heard: bool,
    request_id: Option<String>,
    maybe_made: bool,
}

impl Tries {
    /// A call that may take `patience`; `request_id` makes it a mutation.
    pub(crate) fn new(client: &Client, patience: Duration, request_id: Option<String>) -> Self {
        let settings = client.settings();
        let started = Instant::now();
        let backoff = ExponentialBuilder::new()
            .with_min_delay(settings.backoff_min)
            .with_max_delay(settings.backoff_max)
            .with_factor(BACKOFF_FACTOR)
            .without_max_times()
            .with_jitter()
            .with_jitter_seed(client.entropy().jitter_seed())
            .build();
        Self {
            started,
            deadline: started + patience,
            unreachable_at: started + patience.min(settings.unreachable_after),
            backoff,
            round: BTreeSet::new(),
            asked_to_wait: None,
            said: BTreeMap::new(),
            heard: false,
            request_id,
            maybe_made: false,
        }
    }

    /// The time at which the call is given up.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The last try at `from` ended in `status`.
    pub(crate) fn failed(&mut self, client: &Client, from: &Address, status: &Status) -> Next {
        let now = Instant::now();
        let error = ApiError::from(status);
        let meaning = meaning(&error);
        if meaning == Meaning::Final {
            client.routes().heard(from, now);
            if !self.maybe_made || says_what_became(&error) {
                return Next::GiveUp(ClientError::Refused(Box::new(error)));
            }
            self.said.insert(from.clone(), error);
            return Next::GiveUp(self.give_up(None));
        }
        self.note(client, from, error, meaning, now);
        self.next(client, meaning, now)
    }

    /// Records the failure of a try that ran beside the last one and was not refused.
    pub(crate) fn failed_beside(&mut self, client: &Client, from: &Address, status: &Status) {
        let error = ApiError::from(status);
        let meaning = meaning(&error);
        self.note(client, from, error, meaning, Instant::now());
    }

    /// The deadline passed with a try still unanswered.
    pub(crate) fn out_of_time(&mut self) -> ClientError {
        self.maybe_made = self.request_id.is_some();
        self.give_up(Some(Trouble::Deadline))
    }

    fn note(&mut self, client: &Client, from: &Address, error: ApiError, meaning: Meaning, now: Instant) {
        tracing::debug!(member = %from, reason = error.reason_name(), "a try failed: {}", error.message);
        self.heard |= error.connection == Connection::Answered;
        self.maybe_made |= self.request_id.is_some() && may_have_been_made(&error);
        self.round.insert(from.clone());
        // The first member of the round that can be asked again ends the wait.
        self.asked_to_wait = [self.asked_to_wait, error.retry_after].into_iter().flatten().min();
        let mut routes = client.routes();
        if error.connection == Connection::Answered {
            routes.heard(from, now);
        }
        if meaning == Meaning::Elsewhere {
            routes.failed(from, now);
            if let Some(leader) = error.leader() {
                routes.hinted(&leader, error.leader_term(), now, |address| client.connect(address).ok());
            }
        }
        drop(routes);
        self.said.insert(from.clone(), error);
    }

    fn next(&mut self, client: &Client, meaning: Meaning, now: Instant) -> Next {
        if now >= self.deadline || (!self.heard && now >= self.unreachable_at) {
            return Next::GiveUp(self.give_up(None));
        }
        if meaning == Meaning::Elsewhere && !self.round.contains(&client.routes().current().address) {
            return Next::Now;
        }
        if let Some(refusal) = self.refused_by_all(client) {
            return Next::GiveUp(refusal);
        }
        let wait = self.backoff.next().unwrap_or(client.settings().backoff_max);
        let wait = wait.max(self.asked_to_wait.take().unwrap_or_default());
        self.round.clear();
        if now + wait >= self.deadline {
            return Next::GiveUp(self.give_up(None));
        }
        Next::After(wait)
    }

    /// A cluster that does not exist will not come to exist by asking, nor will accounts that nobody keeps: every
    /// member that the client knows said so, and not only those that came first. A change that may have been made was
    /// not refused: a member that is only now joining says so too.
    fn refused_by_all(&self, client: &Client) -> Option<ClientError> {
        if self.maybe_made || client.routes().addresses().any(|member| !self.said.contains_key(member)) {
            return None;
        }
        let first = self.said.values().next()?;
        let lasts = matches!(first.reason, Some(ErrorReason::NotInitialized | ErrorReason::UsageNotKept));
        let all = lasts && self.said.values().all(|error| error.reason == first.reason);
        all.then(|| ClientError::Refused(Box::new(first.clone())))
    }

    fn give_up(&self, trouble: Option<Trouble>) -> ClientError {
        let lasting = self.said.values().find(|error| error.reason == Some(ErrorReason::NodeUnreachable));
        if let Some(error) = lasting {
            return ClientError::Refused(Box::new(error.clone()));
        }
        let busy = |error: &ApiError| meaning(error) == Meaning::Busy;
        let trouble = match trouble {
            _ if !self.heard && !self.said.is_empty() => Trouble::Unreachable,
            Some(trouble) => trouble,
            None if self.said.values().any(busy) => Trouble::Overloaded,
            None => Trouble::NoQuorum,
        };
        ClientError::Unavailable(Box::new(Unavailable {
            trouble,
            elapsed: self.started.elapsed(),
            members: self.said.clone().into_iter().collect(),
            request_id: self.request_id.clone(),
            outcome_unknown: self.maybe_made,
        }))
    }
}

/// Tells whether a refusal of a change that may have been made before also settles the outcome of that change. It does
/// not when no member has looked the change up, or the member that did reports nothing about it.
fn says_what_became(error: &ApiError) -> bool {
    use ErrorReason as R;
    error.reason.is_some_and(|reason| {
        !matches!(
            reason,
            R::UnknownName
                | R::ReadOnlyAddress
                | R::AskedByWebPage
                | R::Internal
                | R::ProtocolViolation
                | R::NotSupported
        )
    })
}

/// Tells whether any other member would answer `status` too, at any time.
pub(crate) fn is_final(status: &Status) -> bool {
    meaning(&ApiError::from(status)) == Meaning::Final
}

fn meaning(error: &ApiError) -> Meaning {
    use ErrorReason as R;
    match error.reason {
        Some(
            R::NotLeader | R::TermStale | R::NoQuorum | R::OutcomeUnknown | R::MemberStopped | R::DeadlineExceeded,
        ) => Meaning::Elsewhere,
        Some(R::MemberStarting | R::NotInitialized | R::UsageNotKept) => Meaning::Elsewhere,
        Some(R::Overloaded | R::StorageFull | R::NodeUnreachable | R::WatchTooSlow) => Meaning::Busy,
        // A limit of this member: another may have room.
        Some(R::TooManyConnections | R::TooManyWatches | R::TooManyLogStreams | R::TooManySubmissionStreams) => {
            Meaning::Elsewhere
        }
        Some(R::TooManyRequests | R::TooManyRequestBytes | R::TooManyVerifications) => Meaning::Busy,
        Some(_) => Meaning::Final,
        None if error.connection != Connection::Answered => Meaning::Elsewhere,
        None => match error.code {
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded => Meaning::Elsewhere,
            // No member says so without a reason: its answer broke off on the way.
            Code::Internal | Code::Unknown => Meaning::Elsewhere,
            Code::ResourceExhausted => Meaning::Busy,
            _ => Meaning::Final,
        },
    }
}

/// Tells whether a mutation that ended in `error` may be in the log.
pub(crate) fn may_have_been_made(error: &ApiError) -> bool {
    use ErrorReason as R;
    match error.reason {
        Some(R::OutcomeUnknown | R::DeadlineExceeded) => true,
        Some(_) => false,
        None => error.connection != Connection::NeverMade,
    }
}
/// The longest time that one member may take to open a stream: a fifth of the time left to `tries`, or of `all` without
/// tries, so that several members get their turn; at least 200 ms.
pub(crate) fn turn(tries: Option<&Tries>, all: Duration) -> Duration {
    (tries.map_or(all, Tries::left) / 5).max(Duration::from_millis(200))
}
