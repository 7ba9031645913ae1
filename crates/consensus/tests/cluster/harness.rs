//! Members in one process: real gRPC over loopback, modelled disks, connections that can be cut.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tessera_connection::Inbound;
use tessera_consensus::{
    Applied, Clock, ClusterId, Consensus, ConsensusConfig, Environment, Identity, Leadership, LogIndex, LogTime,
    Member, MemberId, ProposeError, Role, StartError, Status, SystemClock, raft_service,
};
use tessera_store::MemoryDisk;
use tessera_store::memory::{Crash, Flushing};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::register::{Faults, Register, View, command};
use crate::wires::{Closer, Cuttable, Wires};

/// The longest time that anything may take before a test fails.
pub const BOUND: Duration = Duration::from_secs(30);

pub fn soon() -> Instant {
    Instant::now() + BOUND
}

/// Settings for tests: elections that a machine busy with many tests does not start by itself, compaction and
/// comparison after a handful of entries.
pub fn config() -> ConsensusConfig {
    ConsensusConfig {
        heartbeat: Duration::from_millis(80),
        election_timeout_min: Duration::from_millis(400),
        election_timeout_max: Duration::from_millis(700),
        digest_interval: 10,
        digest_period: Duration::from_millis(50),
        snapshot_entries: 1_000_000,
        keep_entries: 0,
        ..ConsensusConfig::default()
    }
}

/// A disk that flushes by itself until it is told to stop.
pub fn stoppable() -> (MemoryDisk, Arc<AtomicBool>) {
    let disk = MemoryDisk::new(Flushing::WhenTold);
    let flushes = Arc::new(AtomicBool::new(true));
    let gate = Arc::clone(&flushes);
    disk.on_pending(move |disk| {
        if gate.load(Ordering::Acquire) {
            disk.flush();
        }
    });
    (disk, flushes)
}

/// One running member.
pub struct Node {
    pub member: Member,
    pub consensus: Consensus<Register>,
    pub view: Arc<Mutex<View>>,
    pub faults: Faults,
    pub closer: Closer,
    cut: CancellationToken,
    server: tokio::task::JoinHandle<()>,
}

/// A wall clock that can be set wrong.
#[derive(Clone, Debug, Default)]
pub struct Wall {
    ahead_ms: Arc<AtomicI64>,
}

impl Wall {
    /// From now on it is so far ahead of the right time; negative: behind.
    pub fn set_ahead(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Ordering::Relaxed);
    }
}

impl Clock for Wall {
    fn now(&self) -> LogTime {
        LogTime(SystemClock.now().0.saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed)))
    }
}

/// The disk, the clock and the address of a member, running or not.
pub struct Seat {
    pub disk: MemoryDisk,
    pub wall: Wall,
    pub member: Member,
}

/// A cluster under test.
pub struct Cluster {
    pub wires: Wires,
    pub config: ConsensusConfig,
    pub cluster: ClusterId,
    pub seats: BTreeMap<u64, Seat>,
    pub nodes: BTreeMap<u64, Node>,
}

impl Node {
    pub fn view(&self) -> View {
        self.view.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn status(&self) -> Status {
        self.consensus.status().borrow().clone()
    }

    /// The number of times that this member has given up its lease.
    pub fn leases_given_up(&self) -> u64 {
        let (mut registry, mut page) = (Registry::default(), String::new());
        self.consensus.register_metrics(&mut registry);
        encode(&mut page, &registry).expect("writing to a string");
        let line = page.lines().find_map(|line| line.strip_prefix("tessera_raft_leases_given_up_total "));
        line.and_then(|count| count.parse().ok()).expect("it is counted")
    }

    pub async fn propose(&self, serial: u64) -> Result<Applied<u64>, ProposeError> {
        self.consensus.propose(command(serial, 0), soon()).await
    }

    /// Waits until the status is as wanted. It is looked at as a copy: what looks at metrics too would otherwise read
    /// the status a second time while a writer waits between, and none of them would go on.
    pub async fn until(&self, what: &str, mut wanted: impl FnMut(&Status) -> bool) -> Status {
        let mut status = self.consensus.status();
        let reached = async {
            loop {
                let now = status.borrow_and_update().clone();
                if wanted(&now) {
                    return now;
                }
                status.changed().await.expect("the observer lives as long as the member");
            }
        };
        let reached = timeout(BOUND, reached).await;
        reached
            .unwrap_or_else(|_| panic!("member {} never came to: {what}; it is at {:?}", self.member.id, self.status()))
    }

    /// Waits until this member has applied an entry.
    pub async fn applied(&self, index: LogIndex) {
        self.consensus.wait_applied(index, soon()).await.expect("must be applied in time");
    }
}

impl Cluster {
    pub fn new(config: ConsensusConfig) -> Self {
        Cluster {
            wires: Wires::default(),
            config,
            cluster: ClusterId::new("test").expect("a legal id"),
            seats: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// A founded cluster of members 1 to `n`, with a leader that is ready.
    pub async fn founded(n: u64, config: ConsensusConfig) -> Self {
        let mut cluster = Cluster::new(config);
        for id in 1..=n {
            cluster.add_seat(id).await;
            cluster.start(id).await.expect("a new member must start");
        }
        cluster.found().await;
        cluster
    }

    pub async fn found(&self) {
        let founders = self.seats.values().map(|seat| seat.member.clone()).collect();
        self.nodes[&1].consensus.initialize(founders, soon()).await.expect("must be founded");
        self.leader().await;
    }

    /// Gives a member a disk and an address.
    pub async fn add_seat(&mut self, id: u64) -> Member {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let member = Member { id: MemberId(id), name: format!("m{id}"), address };
        self.seats.insert(
            id,
            Seat { disk: MemoryDisk::new(Flushing::AtOnce), wall: Wall::default(), member: member.clone() },
        );
        member
    }

    /// Starts a member on its seat.
    pub async fn start(&mut self, id: u64) -> Result<(), StartError> {
        self.start_as(id, self.cluster.clone()).await
    }

    pub async fn start_as(&mut self, id: u64, cluster: ClusterId) -> Result<(), StartError> {
        let seat = &self.seats[&id];
        let (view, faults) = (Arc::default(), Faults::default());
        let environment = Environment {
            store: seat.disk.open()?,
            outbound: self.wires.outbound(id),
            clock: Arc::new(seat.wall.clone()),
            seed: id,
        };
        let identity = Identity { cluster, member: MemberId(id) };
        let machine = Register::new(Arc::clone(&view), faults.clone());
        let consensus = Consensus::start(self.config.clone(), identity, environment, machine).await?;
        let listener = TcpListener::bind(&seat.member.address).await.expect("the address was free a moment ago");
        let cut = CancellationToken::new();
        let (cuttable, closer) = Cuttable::new(listener, cut.clone());
        let server = tokio::spawn(serve(consensus.clone(), cuttable, cut.clone()));
        let member = seat.member.clone();
        self.nodes.insert(id, Node { member, consensus, view, faults, closer, cut, server });
        Ok(())
    }

    /// Ends a member as `kill -9` would: nobody listens at its address any more, its connections break, and what its
    /// disk had not flushed is gone.
    pub async fn kill(&mut self, id: u64) {
        self.nodes[&id].closer.close().await;
        self.sever(id);
        let node = self.nodes.remove(&id).expect("only a running member is killed");
        self.seats[&id].disk.crash(Crash::LosePending);
        node.consensus.shutdown().await;
        // Until then its address is in use.
        timeout(BOUND, node.server).await.expect("the server must end").expect("it does not panic");
        self.wires.heal();
    }

    /// Breaks the connections of a member, both ways, and lets none be made until [`Wires::heal`].
    pub fn sever(&self, id: u64) {
        self.nodes[&id].cut.cancel();
        self.isolate(id);
    }

    /// Cuts a member off from the others, both ways, until [`Wires::heal`].
    pub fn isolate(&self, id: u64) {
        let address = &self.seats[&id].member.address;
        for (other, seat) in self.seats.iter().filter(|(other, _)| **other != id) {
            self.wires.cut(id, &seat.member.address);
            self.wires.cut(*other, address);
        }
    }

    /// The member that leads and is ready; waits for one.
    pub async fn leader(&self) -> u64 {
        let watches = self.nodes.iter().map(|(id, node)| async move {
            let mut leadership = node.consensus.leadership();
            let leads = leadership.wait_for(|now| matches!(now, Leadership::Leading { ready: true, .. })).await;
            leads.is_ok().then_some(*id)
        });
        let first = futures::stream::iter(watches).buffer_unordered(16).filter_map(|leads| async move { leads });
        let found = timeout(BOUND, std::pin::pin!(first).next()).await;
        found.expect("a leader must be elected").expect("some member must lead")
    }

    /// A voter that does not lead.
    pub async fn follower(&self) -> u64 {
        let leader = self.leader().await;
        *self.nodes.keys().find(|id| **id != leader).expect("there is more than one member")
    }

    /// Makes sure that a member does not lead.
    pub async fn leave_the_lead(&self, id: u64) {
        if self.leader().await == id {
            let node = &self.nodes[&id];
            node.consensus.transfer_leadership(None, soon()).await.expect("someone else can lead");
            node.until("following", |status| !leads(status)).await;
        }
    }

    /// Proposes at whoever leads until it is applied: what a client does.
    pub async fn propose_somewhere(&self, serial: u64) -> Applied<u64> {
        let deadline = soon();
        while Instant::now() < deadline {
            let leader = self.leader().await;
            match self.nodes[&leader].propose(serial).await {
                Ok(applied) => return applied,
                Err(ProposeError::OutcomeUnknown) => panic!("serial {serial}: the outcome is unknown"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
        panic!("serial {serial} was never applied")
    }

    /// Waits until all running members have applied the same entries and answers them.
    pub async fn converged(&self) -> Vec<u64> {
        let leader = self.leader().await;
        let barrier = self.nodes[&leader].consensus.read_barrier(soon()).await.expect("a leader must confirm itself");
        for node in self.nodes.values() {
            node.applied(barrier.index).await;
        }
        let serials = self.nodes[&leader].view().serials;
        for node in self.nodes.values() {
            assert_eq!(node.view().serials[..serials.len()], serials[..], "member {} differs", node.member.id);
        }
        serials
    }

    pub async fn shutdown(self) {
        for node in self.nodes.into_values() {
            node.consensus.shutdown().await;
            node.cut.cancel();
        }
    }
}

/// Serves a member as its process does.
async fn serve(consensus: Consensus<Register>, listener: Cuttable, cut: CancellationToken) {
    let service = raft_service(&consensus);
    let inbound = Inbound::new(Arc::new(listener));
    let begun = inbound.incoming().map(|accepted| async {
        let mut accepted = accepted.ok()?;
        let first = poll_fn(|cx| accepted.poll_first_byte(cx)).await.ok()??;
        Some((first, accepted))
    });
    let incoming = begun.buffer_unordered(usize::MAX).filter_map(std::future::ready).filter_map(move |(first, it)| {
        let web = if Consensus::<Register>::is_line(first) {
            tokio::spawn(consensus.serve_line(it, || ()));
            None
        } else {
            Some(Ok::<_, std::io::Error>(it))
        };
        std::future::ready(web)
    });
    let served = tonic::transport::Server::builder()
        .accept_http1(true)
        .add_service(service)
        .serve_with_incoming_shutdown(incoming, cut.cancelled_owned())
        .await;
    served.expect("the server must end in order");
}

/// Returns whether a member leads.
pub fn leads(status: &Status) -> bool {
    status.role == Role::Leader
}
