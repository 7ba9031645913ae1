//! An agent as a program of its own: `agent NODE DATA-FOLDER MEMBER SUPERVISE-PROGRAM GROUPS`.
//! The tests kill and stop it.

#![expect(clippy::print_stderr, reason = "what tests run prints for its developer")]

use std::process::ExitCode;

use tessera_actor::Pulse;
use tessera_agent::supervisor::inheritance::hear_of_ends;
use tessera_agent::{AgentConfig, CardSource, SupervisorCommand};
use tokio_util::sync::CancellationToken;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    hear_of_ends();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [node, data, member, supervise, groups] = arguments.as_slice() else {
        eprintln!("usage: agent NODE DATA-FOLDER MEMBER SUPERVISE-PROGRAM GROUPS");
        return ExitCode::from(2);
    };
    let mut config = AgentConfig::new(node.clone(), data, vec![member.clone()]);
    config.cards = CardSource::None;
    config.cgroup_root = Some(format!("{groups}/{node}"));
    config.supervisor = SupervisorCommand { program: supervise.into(), arguments: Vec::new() };
    match tessera_agent::run(config, Pulse::default(), CancellationToken::new()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
