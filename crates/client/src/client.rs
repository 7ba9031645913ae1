//! The client: a set of members, and one call that finds its way to an answer.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tessera_connection::BadAddress;
use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use crate::address::Address;
use crate::entropy::Entropy;
use crate::error::{ApiError, ClientError};
use crate::retry::{Next, Tries, is_final, may_have_been_made};
use crate::routes::{Routes, Target};
use crate::settings::Settings;

/// The longest wait of a refusal for the other copy of its call, as a multiple of the silence after which that copy was
/// sent.
const OTHER: u32 = 20;

/// The future of one try.
pub(crate) type Try<A> = Pin<Box<dyn Future<Output = Result<Response<A>, Status>> + Send>>;

/// The policy for sending a slow call to a second member as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hedging {
    /// The second copy is sent when the first member is silent.
    WhenSilent,
    /// Never: the call takes long by its nature, or is meant for one member.
    Never,
}

/// A client of a control plane. Cheap to clone; clones share connections and what was learned about members.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    settings: Arc<Settings>,
}

#[derive(Debug)]
struct Shared {
    routes: Mutex<Routes>,
    entropy: Entropy,
    told: Vec<Address>,
}

impl Client {
    /// A client that knows `members` (one that answers is enough). Connections are opened when they are needed.
    ///
    /// # Errors
    /// [`ClientError::NoMembers`] when `members` is empty.
    pub fn new(members: &[Address], settings: Settings) -> Result<Self, ClientError> {
        let mut targets: Vec<Target> = Vec::with_capacity(members.len());
        for address in members {
            if targets.iter().all(|target| target.address != *address) {
                let channel = connect(&settings, address).map_err(|_| ClientError::NoMembers)?;
                targets.push(Target { address: address.clone(), channel });
            }
        }
        if targets.is_empty() {
            return Err(ClientError::NoMembers);
        }
        let told = targets.iter().map(|target| target.address.clone()).collect();
        let shared = Shared { routes: Mutex::new(Routes::new(targets)), entropy: Entropy::new(settings.seed), told };
        Ok(Self { shared: Arc::new(shared), settings: Arc::new(settings) })
    }

    /// The same client with another deadline for each call.
    #[must_use]
    pub fn with_deadline(&self, deadline: Duration) -> Self {
        let settings = Settings { deadline, ..(*self.settings).clone() };
        Self { shared: self.shared.clone(), settings: Arc::new(settings) }
    }

    /// A client that talks to `member` only, such as for asking each member how it sees the cluster.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn only(&self, member: &Address) -> Result<Self, ClientError> {
        Self::new(std::slice::from_ref(member), (*self.settings).clone())
    }

    #[must_use]
    pub fn members(&self) -> &[Address] {
        &self.shared.told
    }

    /// The member that would be asked now.
    #[must_use]
    pub fn current_member(&self) -> Address {
        self.routes().current().address
    }

    /// A fresh request id, for callers that want to know it before the call.
    #[must_use]
    pub fn new_request_id(&self) -> String {
        self.shared.entropy.request_id()
    }

    pub(crate) fn routes(&self) -> MutexGuard<'_, Routes> {
        // Each change of the routes is one assignment: a panic of another holder cannot leave them half changed.
        self.shared.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn entropy(&self) -> &Entropy {
        &self.shared.entropy
    }

    pub(crate) fn connect(&self, address: &Address) -> Result<Channel, BadAddress> {
        connect(&self.settings, address)
    }

    /// A request that carries the caller's headers and tells the member how long the answer is waited for.
    pub(crate) fn request<Q>(&self, message: Q, deadline: Instant) -> Request<Q> {
        let mut request = Request::new(message);
        request.set_timeout(deadline.saturating_duration_since(Instant::now()));
        self.settings.headers.add_to(request.metadata_mut());
        request
    }

    /// Calls until it is answered, refused for good, or the deadline has passed.
    pub(crate) async fn unary<Q, A, F>(
        &self,
        message: Q,
        request_id: Option<String>,
        hedging: Hedging,
        rpc: F,
    ) -> Result<A, ClientError>
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> Try<A>,
    {
        let changes = request_id.is_some();
        let mut tries = Tries::new(self, self.settings.deadline, request_id);
        loop {
            let one = self.one_try(&message, tries.deadline(), hedging, changes, &rpc);
            let Ok((from, result, beside)) = timeout_at(tries.deadline(), one).await else {
                return Err(tries.out_of_time());
            };
            let status = match result {
                Ok(answer) => {
                    self.routes().answered(&from, Instant::now());
                    return Ok(answer);
                }
                Err(status) => status,
            };
            for (from, status) in &beside {
                tries.failed_beside(self, from, status);
            }
            match tries.failed(self, &from, &status) {
                Next::Now => {}
                Next::After(wait) => tokio::time::sleep(wait).await,
                Next::GiveUp(error) => return Err(error),
            }
        }
    }

    /// One try at the current member, joined by a second one elsewhere when the first member is silent. Ends with the
    /// first good answer, a refusal, or the last of the failures, and with what became of the others
    /// that failed.
    ///
    /// Of two copies of a change that are under way at once, one may be refused and the other be carried out a moment
    /// later. So a refusal waits for what becomes of the other, if that is told soon.
    async fn one_try<Q, A, F>(
        &self,
        message: &Q,
        deadline: Instant,
        hedging: Hedging,
        changes: bool,
        rpc: &F,
    ) -> (Address, Result<A, Status>, Vec<(Address, Status)>)
    where
        Q: Clone,
        F: Fn(Channel, Request<Q>) -> Try<A>,
    {
        let start = |target: Target| {
            let running = rpc(target.channel, self.request(message.clone(), deadline));
            async move { (target.address, running.await.map(Response::into_inner)) }
        };
        let first = self.routes().current();
        let asked = first.address.clone();
        let mut sent = Instant::now();
        let mut may_hedge = hedging == Hedging::WhenSilent;
        let mut running = FuturesUnordered::new();
        let mut beside = Vec::new();
        let mut refusal: Option<(Instant, Address, Status)> = None;
        running.push(start(first));
        loop {
            let silent_at = sent + self.settings.hedge_after;
            let told_at =
                refusal.as_ref().map_or(deadline, |(refused, ..)| *refused + self.settings.hedge_after * OTHER);
            tokio::select! {
                biased;
                Some((from, result)) = running.next() => match result {
                    Err(status) if refusal.is_none() && is_final(&status) && changes && !running.is_empty() => {
                        may_hedge = false;
                        refusal = Some((Instant::now(), from, status));
                    }
                    Err(status) if !is_final(&status) && !running.is_empty() => {
                        self.routes().failed(&from, Instant::now());
                        beside.push((from, status));
                    }
                    Err(status) if running.is_empty() => match refusal {
                        // Asked again, it is told whether it was made.
                        Some((_, by, refusal)) if !may_have_been_made(&ApiError::from(&status)) => {
                            return (by, Err(refusal), beside);
                        }
                        _ => return (from, Err(status), beside),
                    },
                    decided => return (from, decided, beside),
                },
                () = sleep_until(told_at), if refusal.is_some() => {
                    if let Some((_, from, refusal)) = refusal {
                        return (from, Err(refusal), beside);
                    }
                }
                () = sleep_until(silent_at), if may_hedge => {
                    let mut routes = self.routes();
                    if routes.heard_since(&asked, sent) {
                        // It is alive and works on other calls: wait another while.
                        sent = Instant::now();
                    } else {
                        may_hedge = false;
                        let second = routes.beside(&asked);
                        routes.failed(&asked, Instant::now());
                        running.extend(second.map(&start));
                    }
                }
            }
        }
    }
}

fn connect(settings: &Settings, address: &Address) -> Result<Channel, BadAddress> {
    settings.outbound.lazily(address.as_str(), &settings.terms())
}
