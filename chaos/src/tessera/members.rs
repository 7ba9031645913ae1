//! Three members of Tessera's control plane on loopback.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tessera_api::v1::{GetClusterStatusRequest, GetClusterStatusResponse, InitializeClusterRequest, NewMember};
use tessera_client::{Address, Client, Settings};
use tokio::time::Duration;

use crate::hosts::Hosts;
use crate::process::Program;
use crate::trio::{MEMBERS, Seat, Seats, Trio};
use crate::{poll, ports};

/// Log entries by which a member may lag behind the newest commit and still count as healthy.
const LAG: u64 = 1_000;
/// Longest wait for members to be up, and the interval between two requests to them.
const UP: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Time for one question about a member's status.
const STATUS: Duration = Duration::from_millis(500);

/// Three members with fsync, as they are shipped.
#[derive(Debug)]
pub struct Members {
    seats: Seats,
    addresses: Vec<Address>,
    /// Addresses of the members' pages: on loopback only.
    pages: Vec<SocketAddr>,
    client: Client,
}

impl Members {
    /// Starts three members with empty folders below `folder` and makes a cluster of them. `config` is their
    /// configuration file; they live on hosts of their own if there are some.
    ///
    /// # Errors
    /// They cannot be started, or do not become a cluster.
    pub async fn start(binary: &Path, folder: &Path, config: &str, hosts: Option<Hosts>) -> Result<Self> {
        fs::create_dir_all(folder).context("cannot make a folder")?;
        let file = folder.join("member.toml");
        fs::write(&file, config).context("cannot write a configuration file")?;
        let (listening, pages) = match &hosts {
            Some(hosts) => ((0..MEMBERS).map(|seat| hosts.address(seat)).collect(), Vec::new()),
            None => {
                let mut listening = ports::free(2 * MEMBERS)?;
                let pages = listening.split_off(MEMBERS);
                (listening, pages)
            }
        };
        let addresses: Vec<Address> = listening.iter().map(|at| at.to_string().parse()).collect::<Result<_, _>>()?;
        let programs: Vec<Program> = addresses
            .iter()
            .enumerate()
            .map(|(seat, at)| program(binary, folder, &file, seat, (at, pages.get(seat))))
            .collect();
        let seats = Seats::start(programs, hosts)?;
        let client = Client::new(&addresses, Settings::default())?;
        let mut members = Self { seats, addresses, pages, client };
        members.found().await?;
        members.healthy().await?;
        Ok(members)
    }

    /// `host:port` of each.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// `host:port` of a member's pages.
    ///
    /// # Errors
    /// It has none: it lives on a host of its own.
    pub fn page(&self, seat: Seat) -> Result<String> {
        Ok(self.pages.get(seat.0).context("the member serves no pages")?.to_string())
    }

    /// A client that knows all of them.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// A client that knows one of them only.
    ///
    /// # Errors
    /// There is no such seat.
    pub fn client_of(&self, seat: Seat) -> Result<Client> {
        Ok(self.client.only(self.addresses.get(seat.0).context("no such member")?)?)
    }

    /// Ends all members.
    ///
    /// # Errors
    /// One is not gone.
    pub async fn stop(self) -> Result<()> {
        self.seats.stop().await
    }

    async fn found(&mut self) -> Result<()> {
        let members: Vec<NewMember> = self
            .addresses
            .iter()
            .enumerate()
            .map(|(seat, at)| NewMember { name: format!("m{seat}"), address: at.to_string() })
            .collect();
        for seat in Seat::ALL {
            let client = self.client_of(seat)?.with_deadline(STATUS);
            let status = || async { Ok(client.get_cluster_status(GetClusterStatusRequest {}).await?) };
            poll::until("a member to listen", UP, ASK_EVERY, status).await?;
        }
        let first = self.client_of(Seat(0))?.with_deadline(Duration::from_secs(10));
        let request_id = first.new_request_id();
        poll::until("the cluster to be made", UP, ASK_EVERY, || async {
            let request = InitializeClusterRequest {
                request_id: request_id.clone(),
                cluster_id: "bench".to_owned(),
                members: members.clone(),
                pool: None,
            };
            Ok(first.initialize_cluster(request).await?)
        })
        .await?;
        self.seats.check_alive()
    }

    async fn leader(&self) -> Result<Seat> {
        let answers = try_join_all(Seat::ALL.iter().map(|seat| async {
            let client = self.client_of(*seat)?.with_deadline(STATUS);
            anyhow::Ok(client.get_cluster_status(GetClusterStatusRequest {}).await?)
        }))
        .await?;
        agreed_leader(&answers)
    }
}

/// Returns the leader if all members name the same one, it can write, and all have nearly all of the log.
fn agreed_leader(answers: &[GetClusterStatusResponse]) -> Result<Seat> {
    let leader = answers.first().and_then(|answer| answer.leader.as_ref()).map_or(0, |leader| leader.id);
    let agree = |answer: &GetClusterStatusResponse| answer.leader.as_ref().is_some_and(|known| known.id == leader);
    ensure!(leader != 0 && answers.iter().all(agree), "the members do not agree who leads");
    let newest = answers.iter().map(|answer| answer.committed_index).max().unwrap_or_default();
    ensure!(answers.iter().all(|answer| answer.applied_index + LAG >= newest), "a member is behind");
    let seat = answers.iter().position(|answer| answer.member_id == leader).context("the leader is no member")?;
    ensure!(answers[seat].writable, "the leader has no quorum");
    Ok(Seat(seat))
}

impl Trio for Members {
    async fn healthy(&mut self) -> Result<Seat> {
        self.seats.check_alive()?;
        poll::until("the members to be healthy", UP, ASK_EVERY, || self.leader()).await
    }

    fn seats(&self) -> &Seats {
        &self.seats
    }

    fn seats_mut(&mut self) -> &mut Seats {
        &mut self.seats
    }
}

fn program(
    binary: &Path,
    folder: &Path,
    config: &Path,
    seat: usize,
    (listen, page): (&Address, Option<&SocketAddr>),
) -> Program {
    let data = folder.join(format!("member-{seat}"));
    let arguments: [OsString; 11] = [
        "server".into(),
        "--config".into(),
        config.into(),
        "--data-dir".into(),
        data.into(),
        "--listen".into(),
        listen.to_string().into(),
        "--name".into(),
        format!("m{seat}").into(),
        "--log".into(),
        "info".into(),
    ];
    let page = page.map(|page| ["--http".into(), page.to_string().into()]);
    Program {
        binary: PathBuf::from(binary),
        arguments: arguments.into_iter().chain(page.into_iter().flatten()).collect(),
        environment: Vec::new(),
        log: folder.join(format!("member-{seat}.log")),
        network: None,
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::v1::Member;

    use super::*;

    fn answer(member_id: u64, leader: u64, applied_index: u64, writable: bool) -> GetClusterStatusResponse {
        GetClusterStatusResponse {
            member_id,
            leader: (leader != 0).then(|| Member { id: leader, ..Member::default() }),
            committed_index: applied_index,
            applied_index,
            writable,
            ..GetClusterStatusResponse::default()
        }
    }

    #[test]
    fn a_leader_leads_when_all_say_so_and_it_can_write() {
        let healthy = [answer(1, 3, 50, true), answer(2, 3, 50, true), answer(3, 3, 51, true)];
        assert_eq!(agreed_leader(&healthy).expect("agreed"), Seat(2));
        let lonely = [answer(1, 3, 50, true), answer(2, 3, 50, true), answer(3, 3, 51, false)];
        assert!(agreed_leader(&lonely).is_err());
        let split = [answer(1, 3, 50, true), answer(2, 2, 50, true), answer(3, 3, 51, true)];
        assert!(agreed_leader(&split).is_err());
        let nobody = [answer(1, 0, 50, true), answer(2, 0, 50, true), answer(3, 0, 51, true)];
        assert!(agreed_leader(&nobody).is_err());
        let behind = [answer(1, 3, 50, true), answer(2, 3, 5_000, true), answer(3, 3, 5_000, true)];
        assert!(agreed_leader(&behind).is_err());
    }
}
