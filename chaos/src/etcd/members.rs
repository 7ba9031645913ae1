//! Three members of etcd on loopback.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use serde::Serialize;
use tokio::time::{Duration, timeout};

use super::client::channel;
use super::wire::maintenance_client::MaintenanceClient;
use super::wire::{StatusRequest, StatusResponse};
use crate::hosts::Hosts;
use crate::process::Program;
use crate::trio::{MEMBERS, Seat, Seats, Trio};
use crate::{poll, ports};

/// Most log entries by which a member may be behind the newest one before the cluster counts as unhealthy.
const LAG: u64 = 1_000;

/// The two times that decide how fast etcd notices a dead leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Times {
    /// `--heartbeat-interval`, in milliseconds.
    pub heartbeat_ms: u32,
    /// `--election-timeout`, in milliseconds; a follower waits for once to twice that.
    pub election_ms: u32,
}

impl Times {
    /// etcd's own defaults.
    pub const DEFAULT: Self = Self { heartbeat_ms: 100, election_ms: 1000 };
}

/// Three members.
#[derive(Debug)]
pub struct Etcd {
    seats: Seats,
    clients: Vec<String>,
    status: Vec<MaintenanceClient<tonic::transport::Channel>>,
}

impl Etcd {
    /// Starts three members with empty folders below `folder`, on hosts of their own if there are some.
    ///
    /// # Errors
    /// They cannot be started, or do not come to agree on a leader.
    pub async fn start(binary: &Path, folder: &Path, times: Times, hosts: Option<Hosts>) -> Result<Self> {
        let addresses = match &hosts {
            Some(hosts) => {
                let clients: Vec<SocketAddr> = (0..MEMBERS).map(|seat| hosts.address(seat)).collect();
                let peers = clients.iter().map(|client| SocketAddr::new(client.ip(), client.port() + 1));
                clients.iter().copied().chain(peers).collect()
            }
            None => ports::free(2 * MEMBERS)?,
        };
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let (clients, peers) = addresses.split_at(MEMBERS);
        let programs: Vec<Program> = (0..MEMBERS)
            .map(|seat| Program {
                binary: PathBuf::from(binary),
                arguments: arguments(seat, &folder.join(format!("etcd-{seat}")), clients, peers, times),
                environment: Vec::new(),
                log: folder.join(format!("etcd-{seat}.log")),
                network: None,
            })
            .collect();
        let seats = Seats::start(programs, hosts)?;
        let status = clients.iter().map(|at| Ok(MaintenanceClient::new(channel(at)?))).collect::<Result<_>>()?;
        let mut members = Self { seats, clients: clients.to_vec(), status };
        members.healthy().await?;
        Ok(members)
    }

    /// `host:port` of each member.
    #[must_use]
    pub fn addresses(&self) -> &[String] {
        &self.clients
    }

    /// Ends all members.
    ///
    /// # Errors
    /// One is not gone.
    pub async fn stop(self) -> Result<()> {
        self.seats.stop().await
    }

    async fn leader(&self) -> Result<Seat> {
        let answers = try_join_all(self.status.iter().map(|status| async {
            let mut status = status.clone();
            let answer = timeout(Duration::from_secs(1), status.status(StatusRequest {})).await;
            anyhow::Ok(answer.context("a member does not answer")??.into_inner())
        }))
        .await?;
        agreed_leader(&answers)
    }
}

/// Returns the leader if all members name the same one and all have nearly all of the log.
fn agreed_leader(answers: &[StatusResponse]) -> Result<Seat> {
    let leader = answers.first().map_or(0, |answer| answer.leader);
    ensure!(leader != 0 && answers.iter().all(|answer| answer.leader == leader), "the members do not agree who leads");
    let newest = answers.iter().map(|answer| answer.raft_index).max().unwrap_or_default();
    ensure!(answers.iter().all(|answer| answer.raft_index + LAG >= newest), "a member is behind");
    let id = |answer: &StatusResponse| answer.header.as_ref().map_or(0, |header| header.member_id);
    match answers.iter().position(|answer| id(answer) == leader) {
        Some(seat) => Ok(Seat(seat)),
        None => bail!("the leader is none of the members"),
    }
}

impl Trio for Etcd {
    async fn healthy(&mut self) -> Result<Seat> {
        self.seats.check_alive()?;
        let every = Duration::from_millis(20);
        poll::until("etcd to be healthy", Duration::from_secs(30), every, || self.leader()).await
    }

    fn seats(&self) -> &Seats {
        &self.seats
    }

    fn seats_mut(&mut self) -> &mut Seats {
        &mut self.seats
    }
}

fn arguments(seat: usize, data: &Path, clients: &[String], peers: &[String], times: Times) -> Vec<OsString> {
    let cluster: Vec<String> = peers.iter().enumerate().map(|(at, peer)| format!("m{at}=http://{peer}")).collect();
    let client = format!("http://{}", clients[seat]);
    let peer = format!("http://{}", peers[seat]);
    let options: [(&str, OsString); 12] = [
        ("--name", format!("m{seat}").into()),
        ("--data-dir", data.into()),
        ("--listen-client-urls", client.clone().into()),
        ("--advertise-client-urls", client.into()),
        ("--listen-peer-urls", peer.clone().into()),
        ("--initial-advertise-peer-urls", peer.into()),
        ("--initial-cluster", cluster.join(",").into()),
        ("--initial-cluster-state", "new".into()),
        ("--heartbeat-interval", times.heartbeat_ms.to_string().into()),
        ("--election-timeout", times.election_ms.to_string().into()),
        ("--log-level", "error".into()),
        ("--quota-backend-bytes", "8000000000".into()),
    ];
    options.into_iter().flat_map(|(name, value)| [name.into(), value]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::wire::ResponseHeader;

    fn answer(member_id: u64, leader: u64, raft_index: u64) -> StatusResponse {
        let header = Some(ResponseHeader { member_id, ..ResponseHeader::default() });
        StatusResponse { header, leader, raft_index, ..StatusResponse::default() }
    }

    #[test]
    fn a_leader_leads_when_all_say_so() {
        let healthy = [answer(11, 12, 500), answer(12, 12, 501), answer(13, 12, 400)];
        assert_eq!(agreed_leader(&healthy).expect("agreed"), Seat(1));
        let split = [answer(11, 12, 5), answer(12, 12, 5), answer(13, 13, 5)];
        assert!(agreed_leader(&split).is_err());
        let behind = [answer(11, 12, 5), answer(12, 12, 5000), answer(13, 12, 5000)];
        assert!(agreed_leader(&behind).is_err());
        assert!(agreed_leader(&[answer(1, 0, 0), answer(2, 0, 0), answer(3, 0, 0)]).is_err());
    }
}
