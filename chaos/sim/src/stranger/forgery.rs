//! Forged messages: in the name of a member to another one, and in the name of an agent to the leader.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tessera_api::v1::agent_service_client::AgentServiceClient;
use tessera_api::v1::session_request::Message;
use tessera_api::v1::{Hello, SessionRequest};
use tessera_connection::{Outbound, Terms};
use tessera_consensus::messages::install_snapshot_request::Part;
use tessera_consensus::messages::raft_service_client::RaftServiceClient;
use tessera_consensus::messages::{
    AppendRequest, DigestsRequest, Header, InstallSnapshotRequest, InstallSnapshotStart, LineAnswer, LineOpening,
    LineUse, LogId, LogRecord, SnapshotHead, Vote, line_answer,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::Channel;

use super::{FAR, OWN, Stranger};
use crate::machine::{mix, now};
use crate::member::Member;
use crate::network::PORT;
use crate::oracle::sights::{ENTRY_REFUSED, HELLO_REFUSED, SNAPSHOT_REFUSED, START_HEARD};
use crate::process::{Drift, Process};
use crate::simulation::Simulation;

/// Bytes that are no message of this release.
const GARBLED: Bytes = Bytes::from_static(b"\xff\xff\xff");
/// An answer that refuses nothing.
const TAKEN: &str = "taken";
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A forged message. Members are given by their place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// A word of another start of a member, to another one.
    Start { of: usize, to: usize },
    /// An entry that cannot be read, in the name of the leader.
    Entry { to: usize },
    /// A snapshot that cannot be read, in the name of the leader.
    Snapshot { to: usize },
    /// The hello of an agent, as if it had been started far too often, to the leader.
    Hello,
}

impl Forgery {
    /// Names what its answer must say, and the sight that this is.
    const fn answer(&self) -> (&'static str, &'static str) {
        match self {
            Self::Start { .. } => (TAKEN, START_HEARD),
            Self::Entry { .. } => ("says that it was not its own", ENTRY_REFUSED),
            Self::Snapshot { .. } => ("says that it was not its own", SNAPSHOT_REFUSED),
            Self::Hello => ("is implausible after", HELLO_REFUSED),
        }
    }

    /// Puts it into words, for the member with this name; `None` when what it takes is not known.
    fn words(&self, pool: &Simulation, stranger: &Stranger) -> Option<(String, Words)> {
        let leader = pool.members.iter().find(|member| member.leads().is_some());
        let member = |place: usize| pool.members.get(place);
        Some(match self {
            Self::Start { of, to } => {
                let header = header(member(*of)?, member(*to)?, mix(stranger.seed ^ *of as u64))?;
                (member(*to)?.name.clone(), Words::Digests(DigestsRequest { header: Some(header) }))
            }
            Self::Entry { to } => {
                (member(*to)?.name.clone(), Words::Append(opening(leader?, member(*to)?)?, entry(leader?)?))
            }
            Self::Snapshot { to } => (member(*to)?.name.clone(), Words::Install(snapshot(leader?, member(*to)?)?)),
            Self::Hello => {
                let hello = stranger.notes.with(|noted| noted.hello.clone())?;
                (leader?.name.clone(), Words::Hello(Hello { incarnation: FAR, ..hello }))
            }
        })
    }
}

/// A message, as it is sent.
enum Words {
    Digests(DigestsRequest),
    Append(LineOpening, AppendRequest),
    Install(InstallSnapshotRequest),
    Hello(Hello),
}

impl Words {
    async fn say(self, outbound: Outbound, address: &str) -> Result<(), Status> {
        let connected = async || {
            let channel = outbound.connect(address, &Terms::default()).await;
            channel.map_err(|error| Status::unavailable(error.to_string()))
        };
        let members = async || connected().await.map(RaftServiceClient::<Channel>::new);
        match self {
            Self::Digests(request) => members().await?.digests(request).await.map(drop),
            Self::Append(opening, append) => say_on_line(&outbound, address, &opening, &append).await,
            Self::Install(start) => members().await?.install_snapshot(futures::stream::iter([start])).await.map(drop),
            Self::Hello(hello) => {
                let hello = SessionRequest { message: Some(Message::Hello(hello)) };
                // What is left open is not taken for the end of the session.
                let said = futures::StreamExt::chain(futures::stream::iter([hello]), futures::stream::pending());
                let answers = AgentServiceClient::new(connected().await?).session(said).await;
                answers?.into_inner().message().await.map(drop)
            }
        }
    }
}

/// Opens a line, sends one append on it and reads the answer.
async fn say_on_line(
    outbound: &Outbound,
    address: &str,
    opening: &LineOpening,
    append: &AppendRequest,
) -> Result<(), Status> {
    let unavailable = |error: std::io::Error| Status::unavailable(error.to_string());
    let mut line = outbound.bare(address, &Terms::default()).await.map_err(unavailable)?;
    // The byte that no HTTP begins with, then each message behind its length.
    let mut words = vec![0];
    for message in [opening.encode_to_vec(), append.encode_to_vec()] {
        words.extend(u32::try_from(message.len()).expect("it is short").to_be_bytes());
        words.extend(message);
    }
    line.write_all(&words).await.map_err(unavailable)?;
    let mut answer = vec![0; line.read_u32().await.map_err(unavailable)? as usize];
    line.read_exact(&mut answer).await.map_err(unavailable)?;
    match LineAnswer::decode(&answer[..]).map(|answer| answer.answer) {
        Ok(Some(line_answer::Answer::Refusal(refusal))) => Err(Status::unavailable(refusal.message)),
        Ok(_) => Ok(()),
        Err(error) => Err(Status::unavailable(error.to_string())),
    }
}

/// A header in the name of a member; `start`: 0 says none.
fn header(of: &Member, to: &Member, start: u64) -> Option<Header> {
    let identity = |member: &Member| Some(member.pool()?.consensus().identity().clone());
    let (of, to) = (identity(of)?, identity(to)?);
    Some(Header { version: 1, cluster_id: of.cluster.as_str().to_owned(), from: of.member.0, to: to.member.0, start })
}

/// The vote of a leader and its last entry, which are no secrets.
fn standing(leader: &Member) -> Option<(Vote, LogId)> {
    let status = leader.pool()?.status().borrow().clone();
    let vote = Vote { version: 1, term: status.term.0, voted_for: status.id.0, granted: true };
    Some((vote, LogId { term: status.term.0, index: status.last.0 }))
}

/// The first message of a line for appends, in the name of the leader.
fn opening(leader: &Member, to: &Member) -> Option<LineOpening> {
    Some(LineOpening { header: Some(header(leader, to, 0)?), r#use: LineUse::Append.into(), nonce: FAR })
}

fn entry(leader: &Member) -> Option<AppendRequest> {
    let (vote, last) = standing(leader)?;
    let entry = LogRecord { id: Some(LogId { index: last.index + 1, ..last }), payload: GARBLED };
    Some(AppendRequest { vote: Some(vote), previous: Some(last), entries: vec![entry], leader_commit: None })
}

fn snapshot(leader: &Member, to: &Member) -> Option<InstallSnapshotRequest> {
    let (vote, last) = standing(leader)?;
    let head = SnapshotHead {
        last: Some(LogId { index: last.index + 1, ..last }),
        description: GARBLED,
        chunks: 1,
        bytes: 1,
        hash: Bytes::from_static(&[0; 16]),
    };
    let header = Some(header(leader, to, 0)?);
    let start = InstallSnapshotStart { header, vote: Some(vote), head: Some(head), nonce: FAR };
    Some(InstallSnapshotRequest { part: Some(Part::Start(start)) })
}

/// The stranger sends a forged message, if it knows enough for it.
pub fn forge(pool: &mut Simulation, forgery: &Forgery) {
    let Some(stranger) = &pool.stranger else { return };
    let Some((to, words)) = forgery.words(pool, stranger) else { return };
    let (plug, notes, story) = (stranger.plug.clone(), stranger.notes.clone(), stranger.story.clone());
    let (expected, sight) = forgery.answer();
    let what = format!("{forgery:?}");
    let saying = async move {
        let address = format!("{to}:{PORT}");
        let said = timeout(PATIENCE, async { words.say(plug.outbound(), &address).await });
        let answer = match said.await {
            Ok(Ok(())) => TAKEN.to_owned(),
            Ok(Err(refusal)) => refusal.message().to_owned(),
            Err(_) => "no answer in time".to_owned(),
        };
        story.tell(OWN, format!("{what} to {to} was answered: {answer:?}"));
        if answer.contains(expected) {
            notes.see(sight);
        }
        answer
    };
    let process = Process::start(stranger.seed, Drift::default(), saying);
    pool.clients.push(process);
    if let Some(stranger) = &mut pool.stranger {
        stranger.spoke_at = now();
    }
}
