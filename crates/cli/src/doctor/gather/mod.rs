//! Looks at the host, at the ways to the members, and at the members. Nothing here decides what is good.

mod containment;
mod devices;
mod disk;
mod members;
mod network;
mod process;
mod system;

use std::time::Duration;

use tessera_agent::{AgentConfig, CardSource};
use tessera_client::Client;
use tessera_devices::{HostRoot, NodeDevices};
use tessera_server::ServerConfig;

use super::facts::{AgentSettings, Facts, MemberSettings, Seen};

/// Most time for one look.
const PATIENCE: Duration = Duration::from_secs(10);

/// The processes of this host, as its files configure them.
#[derive(Clone, Debug, Default)]
pub struct Host {
    pub member: Option<ServerConfig>,
    pub agent: Option<AgentConfig>,
    /// Files that cannot be used, and why.
    pub unusable: Vec<(String, String)>,
}

impl Host {
    /// The roles of this host: `member`, `agent`.
    #[must_use]
    pub fn roles(&self) -> Vec<String> {
        let member = self.member.iter().map(|_| "member".to_owned());
        member.chain(self.agent.iter().map(|_| "agent".to_owned())).collect()
    }
}

/// Looks at everything at once; nothing takes longer than its bound.
pub async fn gather(host: &Host, client: &Client) -> Facts {
    let owned = host.clone();
    let cards = host.agent.clone();
    let contained = host.agent.clone();
    let (clock, folders, ports, (cluster, ways), kernel, containment, limits, memory, devices, cards) = tokio::join!(
        bounded(system::clock),
        disk::folders(host),
        network::ports(host),
        members::ask(client),
        bounded(system::kernel),
        async {
            match contained {
                Some(agent) => Some(bounded(move || containment::try_here(&agent)).await),
                None => None,
            }
        },
        bounded(move || process::limits(&owned)),
        bounded(system::memory),
        bounded(devices::look),
        async {
            match cards {
                Some(agent) => bounded(move || offered(&agent)).await,
                None => Err("no agent".to_owned()),
            }
        },
    );
    let member = host.member.as_ref().map(|config| MemberSettings {
        disk_reserve_bytes: config.disk_reserve_bytes,
        connections: config.limits.connections,
        heartbeat_ms: millis(config.consensus.heartbeat),
        election_ms: millis(config.consensus.election_timeout_min),
    });
    let agent = host.agent.as_ref().map(|config| AgentSettings { node: config.node_name.clone(), cards });
    let unusable = host.unusable.clone();
    Facts {
        unusable,
        member,
        agent,
        clock,
        folders,
        ports,
        ways,
        cluster,
        kernel,
        containment,
        limits,
        memory,
        devices,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A look that may hang, such as one at a broken disk: it is given up after [`PATIENCE`].
async fn bounded<T: Send + 'static>(look: impl FnOnce() -> Seen<T> + Send + 'static) -> Seen<T> {
    match tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(look)).await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => Err(format!("the look itself failed: {error}")),
        Err(_elapsed) => Err(format!("it took more than {} s", PATIENCE.as_secs())),
    }
}

/// The cards that the agent would declare, without measuring any.
fn offered(agent: &AgentConfig) -> Seen<String> {
    match &agent.cards {
        CardSource::None => Ok("none: the node runs work on cards of others".to_owned()),
        CardSource::Local => Ok("the processors of this host".to_owned()),
        CardSource::Accelerators => {
            let python = agent.device.python.clone().unwrap_or_default();
            Ok(format!("the accelerators that {} finds, and the processors of this host", python.display()))
        }
        CardSource::Inventory(path) => {
            let root = HostRoot::new(agent.node_name.clone(), agent.data_dir.clone());
            let devices = NodeDevices::declared(path, &root).map_err(|error| crate::failure::chain(&error))?;
            Ok(format!("{} cards declared in {}", devices.cards().len(), path.display()))
        }
    }
}
