//! The loop of a node: it waits for events and performs the effects that the state machine decides.
//!
//! It never waits for a disk, a process or the network: each worker has a task of its own, the term is kept by another,
//! and what the leader should hear goes into a channel that is given up when it is full. So heartbeats are on time
//! whatever else is slow.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_actor::{Address, Mailbox, Reply, Supervisor};
use tessera_api::v1 as wire;
use tessera_api::v1::session_request::Message as ToLeader;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::boot::unix_millis;
use crate::host::{Host, Line, Wanted, tell_node};
use crate::metrics::View;
use crate::node::{Effect, Event, LaunchOrder, Node, WorkerRecord};
use crate::session::Opened;
use crate::supervisor::status::Status;
use crate::trace;
use crate::turns::holders::Holders;
use crate::worker::{Measurable, Term, WorkerId};

/// Heartbeats before a leader has said how often it wants them.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// The longest wait of a task for room in the node's mailbox.
const PATIENCE: Duration = Duration::from_secs(60);

/// An input of the node's loop.
#[derive(Debug)]
pub enum Input {
    Event(Event),
    /// The leader is looked for: what is to be said to it?
    HelloWanted(Reply<wire::Hello>),
    Opened(Opened),
    /// Somebody wants to look at the node.
    Look(Reply<View>),
    /// Asks which workers can be measured.
    Measurable(Reply<Vec<Measurable>>),
    /// Asks which workers compute, and on which blocks.
    Holders(Reply<Holders>),
}

/// The shell around the state of a node.
pub struct Shell<H> {
    node: Node,
    host: H,
    address: Address<Input>,
    tasks: Supervisor,
    end: CancellationToken,
    links: BTreeMap<WorkerId, watch::Sender<Wanted>>,
    session: Option<Opened>,
    greeting: Option<Reply<wire::Hello>>,
    sessions: u64,
}

impl<H: Host> Shell<H> {
    /// A shell without workers and without a session.
    pub const fn new(node: Node, host: H, address: Address<Input>, tasks: Supervisor, end: CancellationToken) -> Self {
        Self { node, host, address, tasks, end, links: BTreeMap::new(), session: None, greeting: None, sessions: 0 }
    }

    /// Takes inputs until the end.
    pub async fn run(&mut self, mut inbox: Mailbox<Input>) {
        let end = self.end.clone();
        let mut heartbeat = every(HEARTBEAT);
        loop {
            let interval = tokio::select! {
                () = end.cancelled() => return,
                _ = heartbeat.tick() => self.heartbeat(),
                delivery = inbox.next() => match delivery {
                    Some(delivery) => delivery.handle(|input| self.take(input)),
                    None => return,
                },
            };
            if let Some(interval) = interval.filter(|interval| *interval != heartbeat.period()) {
                heartbeat = every(interval);
            }
        }
    }

    /// The checkpoints that are kept are looked at just before, so that none is missing that was reported.
    fn heartbeat(&mut self) -> Option<Duration> {
        if let Some(readings) = self.host.measured() {
            self.happen(Event::Measured(Box::new(readings)));
        }
        let kept = self.host.kept().and_then(|kept| self.happen(Event::Kept(kept)));
        self.happen(Event::HeartbeatDue).or(kept)
    }

    /// Takes an input; returns the heartbeat interval if it was set.
    fn take(&mut self, input: Input) -> Option<Duration> {
        match input {
            Input::Event(event) => return self.happen(event),
            Input::HelloWanted(reply) => {
                self.greeting = Some(reply);
                return self.happen(Event::HelloWanted);
            }
            Input::Opened(opened) => {
                self.session = Some(opened);
                self.sessions += 1;
            }
            Input::Look(reply) => reply.send(View::of(&self.node, self.sessions, self.host.now())),
            Input::Measurable(reply) => reply.send(self.node.measurable()),
            Input::Holders(reply) => reply.send(self.node.holders()),
        }
        None
    }

    fn happen(&mut self, event: Event) -> Option<Duration> {
        if matches!(event, Event::SessionClosed) {
            self.session = None;
        }
        if let Event::WorkerStatus(status) = &event
            && let Some(record) = self.node.worker(status.worker)
        {
            trace::changed(record, status, self.host.node_name());
        }
        let mut interval = None;
        for effect in self.node.on(self.host.now(), event) {
            match effect {
                Effect::HeartbeatEvery(every) => interval = Some(every),
                other => self.perform(other),
            }
        }
        interval
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            // Taken by `happen`, which sets the clock of heartbeats.
            Effect::HeartbeatEvery(_) => {}
            Effect::SayHello(hello) => {
                if let Some(reply) = self.greeting.take() {
                    reply.send(*hello);
                }
            }
            Effect::Send(mut message) => {
                if let Some(ToLeader::Heartbeat(beat)) = &mut message.message {
                    beat.sent_at_unix_ms = unix_millis();
                }
                let full = self.session.as_ref().is_some_and(|session| session.outgoing.try_send(*message).is_err());
                if full {
                    self.close_session("the leader does not read");
                }
            }
            Effect::CloseSession(reason) => self.close_session(&reason),
            Effect::LeaveLeader(reason) => {
                if let Some(session) = &self.session {
                    session.silent.cancel();
                }
                self.close_session(&reason);
            }
            Effect::Warn(what) => tracing::warn!("{what}"),
            Effect::KeepTerm { term, cluster_id } => self.keep_term(term, cluster_id),
            Effect::Launch(order) => self.launch(*order),
            Effect::Renew { worker, fence, lease } => {
                self.want(worker, |wanted| wanted.renew = Some((fence, lease)));
            }
            Effect::Stop { worker, fence, policy, cause } => {
                tracing::info!(%worker, term = %fence.term, %cause, "stopping a worker");
                self.want(worker, |wanted| wanted.stop = Some((fence, policy, cause)));
            }
            Effect::SaveAtEnd { worker, save } => self.want(worker, |wanted| wanted.save_at_end = Some(save)),
            Effect::Tend(orders) => {
                self.tasks.once("checkpoints", self.host.tend(*orders));
            }
            Effect::LookFor(missed) => self.look_for(missed),
            Effect::Readdress { worker, order } => {
                self.tasks.once("addressing", self.host.readdress(worker, order));
            }
            Effect::Forget { worker, retention } => self.forget(worker, retention),
            Effect::KeepOutput(retention) => self.host.keep_output(retention),
        }
    }

    fn close_session(&mut self, reason: &str) {
        tracing::warn!(reason, "ending the session");
        if let Some(session) = self.session.take() {
            session.close.cancel();
        }
    }

    fn want(&self, worker: WorkerId, change: impl FnOnce(&mut Wanted)) {
        if let Some(link) = self.links.get(&worker) {
            link.send_modify(change);
        }
    }

    /// Keeps the term on disk, however long that takes, and says so.
    fn keep_term(&self, term: Term, cluster_id: String) {
        let (kept, address, end) = (self.host.keep_term(term, cluster_id), self.address.clone(), self.end.clone());
        self.tasks.once("term", async move {
            tokio::select! {
                () = end.cancelled() => return,
                () = kept => {}
            }
            // The node is gone only when the agent ends.
            let _ = address.tell(Input::Event(Event::TermKept(term)), Instant::now() + PATIENCE).await;
        });
    }

    /// Looks for checkpoints, however long the disk takes, and says which are not there.
    fn look_for(&self, missed: Vec<wire::CheckpointSource>) {
        let (looked, address, end) = (self.host.look_for(missed), self.address.clone(), self.end.clone());
        self.tasks.once("looking", async move {
            let absent = tokio::select! {
                () = end.cancelled() => return,
                absent = looked => absent,
            };
            tell_node(&address, Event::Absent(absent)).await;
        });
    }

    fn launch(&mut self, order: LaunchOrder) {
        let LaunchOrder { worker, fence, .. } = order;
        let job = order.order.job_id;
        let status = Status::new(worker, job, fence, self.host.boot_id().to_owned());
        let line = self.line(status);
        let span = tracing::info_span!(
            "worker",
            %worker,
            job,
            node = self.host.node_name(),
            term = %fence.term,
            epoch = fence.epoch.0,
            rank = worker.rank.0,
        );
        let (launched, end) = (self.host.launch(line, order).instrument(span), self.end.clone());
        self.tasks.critical("worker", async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = launched => {}
            }
        });
    }

    /// Takes over a worker of an earlier agent; one that is over needs no task.
    pub fn adopt(&mut self, record: WorkerRecord) {
        if record.status.is_final() {
            return trace::found_ended(&record, self.host.node_name());
        }
        tracing::info!(worker = %record.status.worker, job = record.status.job, "adopting a worker");
        let line = self.line(record.status);
        let (adopted, end) = (self.host.adopt(line), self.end.clone());
        self.tasks.critical("worker", async move {
            tokio::select! {
                () = end.cancelled() => {}
                () = adopted => {}
            }
        });
    }

    fn line(&mut self, status: Status) -> Line {
        let (sender, wanted) = watch::channel(Wanted::default());
        self.links.insert(status.worker, sender);
        Line { status, wanted: wanted.into(), node: self.address.clone() }
    }

    fn forget(&mut self, worker: WorkerId, retention: Option<Duration>) {
        self.links.remove(&worker);
        self.tasks.once("forgetting", self.host.forget(worker, retention));
    }
}

fn every(interval: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + interval, interval);
    // A heartbeat that is late is sent once, not made up for.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
