//! The addresses that this host listens at, and the ways to the members.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use futures::future::join_all;
use tessera_client::Address;

use super::{Host, bounded};
use crate::doctor::facts::{PortFacts, WayFacts};

/// Most time for a name or a connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// Round trips of which the least is taken.
const TRIES: usize = 5;

/// The addresses that the member and the agent listen at.
pub(super) async fn ports(host: &Host) -> Vec<PortFacts> {
    let mut places: Vec<(&str, SocketAddr)> = Vec::new();
    if let Some(member) = &host.member {
        places.push(("member", member.listen));
        places.extend(member.http.map(|http| ("member http", http)));
    }
    if let Some(agent) = &host.agent {
        places.push(("agent", agent.listen));
        places.extend(agent.http_listen.map(|http| ("agent http", http)));
    }
    // Port 0 is whichever is free.
    join_all(places.into_iter().filter(|(_, address)| address.port() != 0).map(|(of, address)| port(of, address))).await
}

async fn port(of: &str, address: SocketAddr) -> PortFacts {
    let answers = bounded(move || {
        let mut target = address;
        if address.ip().is_unspecified() {
            target.set_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        TcpStream::connect_timeout(&target, PATIENCE).map(drop).map_err(|error| error.to_string())
    })
    .await
    .is_ok();
    let bindable = bounded(move || TcpListener::bind(address).map(drop).map_err(|error| error.to_string())).await;
    PortFacts { of: of.to_owned(), address: address.to_string(), answers, bindable }
}

/// The way to a member: its name, and a connection to it.
pub(super) async fn way(address: &Address) -> WayFacts {
    let text = address.to_string();
    let begin = Instant::now();
    let resolved = match tokio::time::timeout(PATIENCE, tokio::net::lookup_host(text.clone())).await {
        Ok(Ok(mut found)) => found.next().ok_or_else(|| "the name has no address".to_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_elapsed) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    };
    let took = micros(begin);
    let round_trip_us = match &resolved {
        Ok(target) => round_trip(*target).await,
        Err(error) => Err(error.clone()),
    };
    WayFacts { address: text, resolved_us: resolved.map(|_| took), round_trip_us }
}

/// Making a connection takes one round trip.
async fn round_trip(target: SocketAddr) -> Result<u64, String> {
    let mut best: Option<u64> = None;
    for _ in 0..TRIES {
        let begin = Instant::now();
        match tokio::time::timeout(PATIENCE, tokio::net::TcpStream::connect(target)).await {
            Ok(Ok(_)) => best = Some(best.map_or(micros(begin), |best| best.min(micros(begin)))),
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_elapsed) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
        }
    }
    best.ok_or_else(|| "nothing was tried".to_owned())
}

fn micros(begin: Instant) -> u64 {
    u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX)
}
