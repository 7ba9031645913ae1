//! Messages of strangers: whoever reaches a member's port may say anything, in the name of any member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tessera_consensus::StopReason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::Endpoint;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::harness::{BOUND, Cluster, config, soon};
use crate::register::command;

#[derive(Clone, PartialEq, Message)]
struct Header {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(string, tag = "2")]
    cluster_id: String,
    #[prost(uint64, tag = "3")]
    from: u64,
    #[prost(uint64, tag = "4")]
    to: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Vote {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(uint64, tag = "3")]
    voted_for: u64,
    #[prost(bool, tag = "4")]
    granted: bool,
}

#[derive(Clone, PartialEq, Message)]
struct LogId {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(message, optional, tag = "1")]
    last: Option<LogId>,
    #[prost(bytes = "bytes", tag = "2")]
    description: Bytes,
    #[prost(uint32, tag = "3")]
    chunks: u32,
    #[prost(uint64, tag = "4")]
    bytes: u64,
    #[prost(bytes = "bytes", tag = "5")]
    hash: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Description {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(message, optional, tag = "2")]
    last: Option<LogId>,
    #[prost(message, optional, tag = "3")]
    membership_at: Option<LogId>,
    #[prost(message, optional, tag = "4")]
    membership: Option<Membership>,
    #[prost(uint64, tag = "5")]
    highest_member_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Membership {
    #[prost(message, repeated, tag = "1")]
    voter_sets: Vec<VoterSet>,
    #[prost(message, repeated, tag = "2")]
    members: Vec<Place>,
}

#[derive(Clone, PartialEq, Message)]
struct VoterSet {
    #[prost(uint64, repeated, tag = "1")]
    member_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct Place {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(string, tag = "3")]
    address: String,
}

#[derive(Clone, PartialEq, Message)]
struct Start {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(message, optional, tag = "2")]
    vote: Option<Vote>,
    #[prost(message, optional, tag = "3")]
    head: Option<Head>,
    #[prost(fixed64, tag = "4")]
    nonce: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Chunk {
    #[prost(uint32, tag = "1")]
    number: u32,
    #[prost(fixed64, tag = "2")]
    hash: u64,
    #[prost(bytes = "bytes", tag = "3")]
    data: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Install {
    #[prost(message, optional, tag = "1")]
    start: Option<Start>,
    #[prost(message, optional, tag = "2")]
    chunk: Option<Chunk>,
}

#[derive(Clone, PartialEq, Message)]
struct Append {
    #[prost(message, optional, tag = "1")]
    vote: Option<Vote>,
    #[prost(message, optional, tag = "2")]
    previous: Option<LogId>,
    #[prost(message, repeated, tag = "3")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(message, optional, tag = "1")]
    id: Option<LogId>,
    #[prost(bytes = "bytes", tag = "2")]
    payload: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct Opening {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(int32, tag = "2")]
    what_for: i32,
    #[prost(fixed64, tag = "3")]
    nonce: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

/// Bytes that are no message of this release.
const GARBLED: Bytes = Bytes::from_static(b"\xff\xff\xff");

/// The words of a stranger about itself, in the name of a leader.
struct Lie {
    header: Header,
    vote: Vote,
}

impl Lie {
    fn to(&self, member: u64) -> (Option<Header>, Option<Vote>) {
        (Some(Header { to: member, ..self.header.clone() }), Some(self.vote.clone()))
    }
}

async fn install(address: &str, parts: Vec<Install>) -> Result<(), Status> {
    let channel = Endpoint::try_from(format!("http://{address}")).expect("an address").connect().await;
    let mut client = tonic::client::Grpc::new(channel.expect("the member listens"));
    client.ready().await.expect("it is connected");
    let path = "/tessera.raft.v1.RaftService/InstallSnapshot".parse().expect("a path");
    let codec = ProstCodec::<Install, Nothing>::default();
    let request = Request::new(futures::stream::iter(parts));
    timeout(BOUND, client.client_streaming(request, path, codec)).await.expect("it answers").map(drop)
}

/// A snapshot with this description and content.
fn snapshot(lie: &Lie, to: u64, last: LogId, description: Bytes, content: Bytes) -> Vec<Install> {
    let (header, vote) = lie.to(to);
    let hash = Bytes::copy_from_slice(&xxh3_128(&content).to_be_bytes());
    let head = Head { last: Some(last), description, chunks: 1, bytes: content.len() as u64, hash };
    let start = Start { header, vote, head: Some(head), nonce: 77 };
    let chunk = Chunk { number: 0, hash: xxh3_64(&content), data: content };
    vec![Install { start: Some(start), chunk: None }, Install { start: None, chunk: Some(chunk) }]
}

/// Sends an entry that nobody can read on a line; answers with what the member says before it closes it.
async fn append(address: &str, lie: &Lie, to: u64, previous: LogId) -> String {
    let mut line = TcpStream::connect(address).await.expect("the member listens");
    let (header, vote) = lie.to(to);
    let opening = Opening { header, what_for: 1, nonce: 78 };
    let id = Some(LogId { index: previous.index + 1, ..previous });
    let append = Append { vote, previous: Some(previous), entries: vec![Entry { id, payload: GARBLED }] };
    let mut said = vec![0];
    for message in [opening.encode_to_vec(), append.encode_to_vec()] {
        said.extend((message.len() as u32).to_be_bytes());
        said.extend(message);
    }
    line.write_all(&said).await.expect("it takes what comes");
    let mut answered = Vec::new();
    timeout(BOUND, line.read_to_end(&mut answered)).await.expect("it closes the line").expect("in order");
    String::from_utf8_lossy(&answered).into_owned()
}

/// Clients that submit at the leader, one submission after the other.
struct Load {
    over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<u64>>>,
}

impl Load {
    const CLIENTS: u64 = 2;

    fn on(cluster: &Cluster, leader: u64) -> Self {
        let (over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |first: u64| {
            let consensus = cluster.nodes[&leader].consensus.clone();
            let (over, acknowledged) = (Arc::clone(&over), Arc::clone(&acknowledged));
            tokio::spawn(async move {
                let mut own = Vec::new();
                for serial in (first..).step_by(usize::try_from(Self::CLIENTS).expect("few")) {
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                    let applied = consensus.propose(command(serial, 0), soon()).await;
                    applied.expect("whoever leads goes on to");
                    own.push(serial);
                    acknowledged.fetch_add(1, Ordering::AcqRel);
                }
                own
            })
        };
        let clients = (0..Self::CLIENTS).map(client).collect();
        Self { over, acknowledged, clients }
    }

    /// Waits until something more was acknowledged.
    async fn goes_on(&self) {
        let before = self.acknowledged.load(Ordering::Acquire);
        let more = async {
            while self.acknowledged.load(Ordering::Acquire) == before {
                tokio::task::yield_now().await;
            }
        };
        timeout(BOUND, more).await.expect("submissions are taken");
    }

    /// Ends it, and gives all that was acknowledged.
    async fn end(self) -> BTreeSet<u64> {
        self.over.store(true, Ordering::Release);
        let mut all = BTreeSet::new();
        for client in self.clients {
            all.extend(client.await.expect("each submission was acknowledged"));
        }
        all
    }
}

/// A cluster under load, and what is known of it outside.
struct Known {
    cluster: Cluster,
    leader: u64,
    terms: BTreeMap<u64, u64>,
    lies: Vec<Lie>,
    load: Load,
}

fn terms(cluster: &Cluster) -> BTreeMap<u64, u64> {
    cluster.nodes.iter().map(|(id, node)| (*id, node.status().term.0)).collect()
}

impl Known {
    async fn of(members: u64) -> Self {
        let cluster = Cluster::founded(members, config()).await;
        let leader = cluster.leader().await;
        let term = cluster.nodes[&leader].status().term.0;
        for node in cluster.nodes.values() {
            node.until("the term of the leader", |status| status.term.0 == term).await;
        }
        let lie = |from, term| Lie {
            header: Header { version: 1, cluster_id: "test".to_owned(), from, to: 0 },
            vote: Vote { version: 1, term, voted_for: from, granted: true },
        };
        let lies = vec![lie(leader, term), lie(999, term), lie(999, term + 1), lie(leader, term + 1)];
        let load = Load::on(&cluster, leader);
        Self { terms: terms(&cluster), cluster, leader, lies, load }
    }

    /// The last entry of the leader by now; waits until there is a new one.
    async fn last(&self) -> LogId {
        self.load.goes_on().await;
        let status = self.cluster.nodes[&self.leader].status();
        LogId { term: status.term.0, index: status.last.0 }
    }

    /// Nobody has stopped, nobody was elected, and all that was acknowledged is there, once.
    async fn ends_unharmed(self) {
        self.load.goes_on().await;
        let acknowledged = self.load.end().await;
        let applied = self.cluster.converged().await;
        assert_eq!(applied.len(), acknowledged.len(), "each is there once, and nothing else");
        assert_eq!(applied.into_iter().collect::<BTreeSet<_>>(), acknowledged);
        assert_eq!(terms(&self.cluster), self.terms, "nobody has seen an election");
        self.cluster.shutdown().await;
    }
}

async fn no_snapshot_is_taken_by(members: u64) {
    let known = Known::of(members).await;
    let last = known.last().await;
    // Nothing that is written meanwhile comes so far.
    let later = LogId { index: last.index + (1 << 32), ..last };
    let seats = known.cluster.seats.values().map(|seat| seat.member.clone());
    let places = seats.map(|member| Place { id: member.id.0, name: member.name, address: member.address }).collect();
    let membership = Membership { voter_sets: vec![VoterSet { member_ids: (1..=members).collect() }], members: places };
    let readable = Description {
        version: 1,
        last: Some(later.clone()),
        membership_at: Some(LogId { term: 0, index: 0 }),
        membership: Some(membership),
        highest_member_id: members,
    };
    for description in [GARBLED, Bytes::from(readable.encode_to_vec())] {
        for lie in &known.lies {
            for (id, seat) in &known.cluster.seats {
                known.load.goes_on().await;
                let parts = snapshot(lie, *id, later.clone(), description.clone(), GARBLED);
                let refused = install(&seat.member.address, parts).await.expect_err("it is refused");
                assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
            }
        }
    }
    known.ends_unharmed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_snapshot_of_a_stranger_ends_a_member_or_takes_the_place_of_its_state() {
    no_snapshot_is_taken_by(3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_snapshot_of_a_stranger_is_taken_by_a_member_that_has_nobody_to_ask() {
    no_snapshot_is_taken_by(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_entry_of_a_stranger_that_cannot_be_read_ends_a_member() {
    let known = Known::of(3).await;
    // With a term of its own a stranger would be followed: that is not what is tried here.
    for lie in &known.lies[..1] {
        for (id, seat) in &known.cluster.seats {
            let said = append(&seat.member.address, lie, *id, known.last().await).await;
            assert!(said.contains("says that it was not its own"), "{said}");
        }
    }
    known.ends_unharmed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_of_the_leader_that_cannot_be_read_stops_the_member() {
    let cluster = Cluster::founded(3, config()).await;
    let (leader, follower) = (cluster.leader().await, cluster.follower().await);
    // One byte before the command stands its length: with another one the entry has no end.
    let marked = command(0x6d61_726b_6564_2121, 0);
    cluster.wires.garble(leader, &cluster.seats[&follower].member.address, marked.clone());
    let proposed =
        cluster.nodes[&leader].consensus.propose(marked, tokio::time::Instant::now() + Duration::from_secs(9));
    proposed.await.expect("the other two are a majority");
    let stopped = timeout(BOUND, cluster.nodes[&follower].consensus.stopped()).await.expect("it stops");
    assert!(matches!(stopped, StopReason::Unreadable(_)), "{stopped}");
    cluster.shutdown().await;
}
