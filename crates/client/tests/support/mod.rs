//! A network in memory with scripted members on it, under a paused clock: no port, no real waiting.

pub mod member;
pub mod network;

use std::collections::HashMap;
use std::time::Duration;

use tessera_api::v1::{JobSpec, SubmitJobRequest};
use tessera_client::{Address, Client, Settings};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use network::Network;

pub fn address(port: u16) -> Address {
    format!("10.0.0.{port}:7400").parse().expect("a good address")
}

/// A client of members 1 to `members` of `network`.
pub fn client(network: &Network, members: u16) -> Client {
    let addresses: Vec<Address> = (1..=members).map(address).collect();
    Client::new(&addresses, settings(network)).expect("there are members")
}

pub fn settings(network: &Network) -> Settings {
    Settings { outbound: network.outbound(), seed: Some(1), ..Settings::default() }
}

pub fn submission() -> SubmitJobRequest {
    let spec = JobSpec { command: vec!["true".to_owned()], ..JobSpec::default() };
    SubmitJobRequest { request_id: String::new(), spec: Some(spec) }
}

/// An error as members make them.
pub fn refusal(code: Code, reason: &str, metadata: &[(&str, String)]) -> Status {
    let metadata: Vec<(String, String)> =
        metadata.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    let mut details = ErrorDetails::new();
    details.set_error_info(reason, "tessera.v1", metadata.into_iter().collect::<HashMap<_, _>>());
    Status::with_error_details(code, format!("refused with {reason}"), details)
}

pub fn not_leader(leader: Option<u16>) -> Status {
    let metadata: Vec<(&str, String)> =
        leader.map(|port| ("leader_address", address(port).to_string())).into_iter().collect();
    refusal(Code::Unavailable, "NOT_LEADER", &metadata)
}

pub fn asks_to_wait(reason: &str, wait: Duration) -> Status {
    let mut details = ErrorDetails::new();
    details.set_error_info(reason, "tessera.v1", [(String::new(), String::new())]);
    details.set_retry_info(Some(wait));
    Status::with_error_details(Code::ResourceExhausted, format!("refused with {reason}"), details)
}
