//! The platform of an agent: the clock, the disk, and the place where its workers run.
//!
//! The behaviour of an agent ([`crate::node`]), its loop and its session know nothing else of the machine they run on.
//! A real agent stands on processes, control groups and files (`ProcessHost`); a simulated one on a model of them.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tessera_actor::{Address, TellError};
use tessera_api::v1 as wire;
use tessera_ledger::PartKey;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::boot::BootTime;
use crate::config::Limits;
use crate::identity::TermKeeper;
use crate::node::{CheckpointNews, Event, LaunchOrder, Readings};
use crate::shell::Input;
use crate::supervisor::message::Request;
use crate::supervisor::status::{Cause, Status};
use crate::worker::launch::Launcher;
use crate::worker::link::Link;
use crate::worker::{Ended, Fence, Lease, StopPolicy, Term, WorkerId};

/// The longest time that a start waits for room to be made.
const MAKING_ROOM: Duration = Duration::from_millis(200);
/// Wait before a node that had no room for a status is told again.
const AGAIN: Duration = Duration::from_millis(500);

/// The platform of an agent. The futures that it returns are driven by the agent and dropped when the agent ends:
/// workers go on.
pub trait Host: Send + 'static {
    /// The clock that leases are counted on.
    fn now(&self) -> BootTime;
    /// Name of the node, for people.
    fn node_name(&self) -> &str;
    fn boot_id(&self) -> &str;
    /// Puts the term and the pool's id on disk; ends once they are there, however long that takes.
    fn keep_term(&self, term: Term, cluster_id: String) -> BoxFuture<'static, ()>;
    /// Starts a worker and stays with it to its end.
    fn launch(&self, line: Line, order: LaunchOrder) -> BoxFuture<'static, ()>;
    /// Takes over a worker that an earlier agent started, and stays with it to its end.
    fn adopt(&self, line: Line) -> BoxFuture<'static, ()>;
    /// Brings the file of a worker's virtual card up to date with its newest order.
    fn readdress(&self, worker: WorkerId, order: Arc<wire::WorkerOrder>) -> BoxFuture<'static, ()>;
    /// The checkpoints that this node keeps; `None` while that is not known.
    fn kept(&self) -> Option<BTreeSet<PartKey>>;
    /// The readings of cards and workers, if no other task takes them and reports them to the node.
    fn measured(&self) -> Option<Readings> {
        None
    }
    /// Removes and fetches checkpoints as the leader wants, unless it is doing so already: the leader says it again.
    fn tend(&self, orders: wire::CheckpointOrders) -> BoxFuture<'static, ()>;
    /// Looks for checkpoints that the leader missed; answers which of them are not there. One that cannot be looked for
    /// now is not among them: the leader asks again.
    fn look_for(&self, missed: Vec<wire::CheckpointSource>) -> BoxFuture<'static, Vec<PartKey>>;
    /// Notes that a worker is settled: its output is kept for `retention`, or as long as is usual here. Then nothing of
    /// it is needed any more.
    fn forget(&self, worker: WorkerId, retention: Option<Duration>) -> BoxFuture<'static, ()>;
    /// Notes how long the pool has the output of jobs kept that do not say.
    fn keep_output(&self, retention: Duration);
}

/// The demands of the node on a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The newest lease, and by whose word.
    pub renew: Option<(Fence, Lease)>,
    /// The newest stop.
    pub stop: Option<(Fence, StopPolicy, Cause)>,
    /// True if the data that the worker has written when it ends is to be kept, false if it is not needed; `None`: the
    /// leader has not said it.
    pub save_at_end: Option<bool>,
}

impl Wanted {
    /// The requests to the worker's supervisor that are new since `told`, the older word first: what a leader wanted
    /// while the worker could not be reached still counts when the next leader has spoken, and a supervisor that had
    /// heard the newer word would refuse it.
    #[must_use]
    pub fn news(self, told: Self) -> Vec<Request> {
        let renew = self.renew.filter(|renew| told.renew != Some(*renew));
        let stop = self.stop.filter(|stop| told.stop != Some(*stop));
        let stop_is_older = matches!((renew, stop), (Some((renew, _)), Some((stop, ..))) if renew.refuses(stop));
        let renew = renew.map(|(fence, lease)| Request::Renew { fence, lease });
        let save = self.save_at_end == Some(true);
        let stop = stop.map(|(fence, policy, cause)| Request::Stop { fence, policy, cause, save });
        let (first, second) = if stop_is_older { (stop, renew) } else { (renew, stop) };
        first.into_iter().chain(second).collect()
    }
}

/// The wishes of the node for one worker, as the task beside the worker hears them.
///
/// A node that has forgotten a worker wants nothing of it any more, and that is all it means: whoever stays with the
/// worker still has to see it, and its supervisor, to their ends. The end of the agent is told by its own token.
#[derive(Clone, Debug)]
pub struct Wishes(watch::Receiver<Wanted>);

impl From<watch::Receiver<Wanted>> for Wishes {
    fn from(wanted: watch::Receiver<Wanted>) -> Self {
        Self(wanted)
    }
}

impl Wishes {
    /// Returns what is wanted at present.
    #[must_use]
    pub fn newest(&self) -> Wanted {
        *self.0.borrow()
    }

    /// Lets what is wanted at present be heard as if it were new.
    pub fn again(&mut self) {
        self.0.mark_changed();
    }

    /// Waits for a newer word; for ever when there will be none.
    pub async fn next(&mut self) -> Wanted {
        match self.0.changed().await {
            Ok(()) => *self.0.borrow_and_update(),
            Err(_) => std::future::pending().await,
        }
    }

    /// Waits until what is wanted fits; for ever when it will not.
    pub async fn until(&mut self, fits: impl Fn(Wanted) -> bool) -> Wanted {
        if let Ok(wanted) = self.0.wait_for(|wanted| fits(*wanted)).await {
            return *wanted;
        }
        std::future::pending().await
    }
}

/// The line between the node and one worker.
///
/// What is wanted of the worker is held in a watch, not in a queue: the newest lease and the newest stop count, so a
/// node never waits for a worker, and a worker that was out of reach hears everything that still matters.
#[derive(Debug)]
pub struct Line {
    /// The status of the worker as far as it is known.
    pub status: Status,
    pub wanted: Wishes,
    /// The address to which the status is reported.
    pub(crate) node: Address<Input>,
}

impl Line {
    /// Tells the node how the worker stands.
    pub async fn tell(&self) {
        tell_node(&self.node, Event::WorkerStatus(Box::new(self.status.clone()))).await;
    }

    /// Tells the node what came of the worker's checkpoints.
    pub async fn tell_of_checkpoint(&self, news: CheckpointNews) {
        tell_node(&self.node, Event::Checkpoint(self.status.worker, news)).await;
    }
}

/// Tells the node of something that happened, as soon as it has room.
pub(crate) async fn tell_node(node: &Address<Input>, event: Event) {
    loop {
        match node.tell(Input::Event(event.clone()), Instant::now() + AGAIN).await {
            Err(TellError::Full { .. }) => {}
            // The node is gone only when the agent ends.
            Ok(()) | Err(TellError::Gone { .. }) => return,
        }
    }
}

/// A real machine: processes, control groups, files.
#[derive(Clone)]
pub(crate) struct ProcessHost {
    pub launcher: Launcher,
    pub keeper: TermKeeper,
    pub ended: Ended,
    pub boot_id: String,
    /// The time for which the pool has output kept; `None`: no leader has said it yet.
    pub output_retention: watch::Sender<Option<Duration>>,
}

impl ProcessHost {
    fn link(&self, line: Line) -> Link {
        let Limits { kill_confirmation, .. } = self.launcher.bounds;
        let worker = line.status.worker;
        self.launcher.addresses.stay_with(worker);
        let cgroup = self.launcher.group_of(worker);
        Link { folder: self.launcher.folders.of(worker), cgroup, line, patience: kill_confirmation, saver: None }
    }
}

impl Host for ProcessHost {
    fn now(&self) -> BootTime {
        BootTime::now()
    }

    fn node_name(&self) -> &str {
        &self.launcher.node
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn keep_term(&self, term: Term, cluster_id: String) -> BoxFuture<'static, ()> {
        let keeper = self.keeper.clone();
        Box::pin(async move { keeper.keep(term, cluster_id).await })
    }

    fn launch(&self, line: Line, order: LaunchOrder) -> BoxFuture<'static, ()> {
        let (link, launcher, ended) = (self.link(line), self.launcher.clone(), self.ended.clone());
        Box::pin(async move {
            // Before the worker finds none. It is told elsewhere when that cannot be, and goes on where it takes long.
            let _ = timeout(MAKING_ROOM, tokio::task::spawn_blocking(move || ended.make_room())).await;
            Box::pin(link.launch(launcher, order)).await;
        })
    }

    fn adopt(&self, line: Line) -> BoxFuture<'static, ()> {
        Box::pin(self.link(line).adopt(self.launcher.clone()))
    }

    fn readdress(&self, worker: WorkerId, order: Arc<wire::WorkerOrder>) -> BoxFuture<'static, ()> {
        // The order of the calls is the order of the orders.
        static ORDERS: AtomicU64 = AtomicU64::new(1);
        let (launcher, number) = (self.launcher.clone(), ORDERS.fetch_add(1, Ordering::Relaxed));
        Box::pin(async move { launcher.readdress(worker, order, number).await })
    }

    fn kept(&self) -> Option<BTreeSet<PartKey>> {
        Some(self.launcher.shelf.kept())
    }

    fn tend(&self, orders: wire::CheckpointOrders) -> BoxFuture<'static, ()> {
        let shelf = self.launcher.shelf.clone();
        Box::pin(async move { shelf.tend(orders).await })
    }

    fn look_for(&self, missed: Vec<wire::CheckpointSource>) -> BoxFuture<'static, Vec<PartKey>> {
        let shelf = self.launcher.shelf.clone();
        Box::pin(async move { shelf.look_for(&missed).await })
    }

    fn forget(&self, worker: WorkerId, retention: Option<Duration>) -> BoxFuture<'static, ()> {
        let ended = self.ended.clone();
        Box::pin(async move {
            let settled = tokio::task::spawn_blocking(move || ended.settle(worker, retention)).await;
            if let Err(error) = settled.map_err(io::Error::other).flatten() {
                tracing::warn!(%worker, %error, "a worker's end cannot be noted; it will be reported again");
            }
        })
    }

    fn keep_output(&self, retention: Duration) {
        // With every lease it is said again.
        self.output_retention.send_if_modified(|known| known.replace(retention) != Some(retention));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tessera_ledger::Epoch;

    use super::*;
    use crate::worker::StopSignal;

    fn fence(term: u64) -> Fence {
        Fence { term: Term(term), epoch: Epoch(7) }
    }

    fn wanted(renewed_in: u64, stopped_in: u64) -> Wanted {
        let lease = Lease { stop_at: BootTime(1), kill_at: BootTime(2) };
        let policy = StopPolicy { signal: StopSignal::default(), grace: Duration::from_secs(1) };
        Wanted {
            renew: Some((fence(renewed_in), lease)),
            stop: Some((fence(stopped_in), policy, Cause::Ordered)),
            save_at_end: None,
        }
    }

    #[test]
    fn an_older_stop_is_told_before_a_newer_lease_and_the_other_way_round() {
        let terms = |wanted: Wanted| -> Vec<u64> {
            let news = wanted.news(Wanted::default());
            let term = |request: &Request| match request {
                Request::Renew { fence, .. } | Request::Stop { fence, .. } => fence.term.0,
                Request::Begin | Request::Snapshot { .. } | Request::Rest { .. } | Request::GoOn | Request::Status => 0,
            };
            news.iter().map(term).collect()
        };
        assert_eq!(terms(wanted(2, 1)), [1, 2]);
        assert_eq!(terms(wanted(1, 2)), [1, 2]);
        assert_eq!(wanted(2, 1).news(wanted(2, 1)), []);
    }

    #[test]
    fn a_node_that_has_forgotten_a_worker_says_nothing_by_it() {
        let (node, heard) = watch::channel(Wanted::default());
        let mut wishes = Wishes::from(heard);
        node.send_replace(wanted(2, 1));
        drop(node);
        assert_eq!(wishes.next().now_or_never(), Some(wanted(2, 1)), "what it wanted before counts");
        assert_eq!(wishes.next().now_or_never(), None);
        assert_eq!(wishes.until(|wanted| wanted.stop.is_none()).now_or_never(), None);
    }
}
