//! Agents with simulated cards: each a real process that starts real workers.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use tessera_api::v1::{GetPoolRequest, NodeState};
use tessera_client::{Address, Client};
use tessera_testkit::config_that_dumps;
use tokio::time::Duration;

use crate::poll;
use crate::process::{Process, Program};

/// The file with the configuration of all agents.
const CONFIGURATION: &str = "agents.toml";
/// Longest wait for the agents to be in the pool.
const REGISTERED: Duration = Duration::from_secs(30);
const ASK_EVERY: Duration = Duration::from_millis(50);

/// The nodes of a pool and their cards.
#[derive(Clone, Copy, Debug)]
pub struct Cards {
    pub nodes: u32,
    /// Cards per node.
    pub per_node: u32,
    /// TFLOPS of each card, which is also its number of blocks.
    pub tflops: u32,
    /// True if workers take turns on the cards.
    pub turns: bool,
}

impl Cards {
    /// The inventory file that declares them.
    fn inventory(&self) -> String {
        (0..self.nodes).map(|node| self.section(node)).collect()
    }

    fn section(&self, node: u32) -> String {
        let Self { per_node, tflops, turns, .. } = self;
        let slicing = if *turns { "freeze" } else { "device" };
        let name = node_name(node);
        format!(
            "[[node]]\nname = \"{name}\"\n\n[[node.card]]\nkind = \"gpu\"\nvendor = \"simulated\"\nmodel = \"bench\"\n\
             count = {per_node}\nmemory_gib = 64\ntflops = {{ fp16 = {tflops}, fp32 = {tflops} }}\n\
             time_slicing = \"{slicing}\"\n\n"
        )
    }
}

/// Name of a node: unique on this machine, because the control groups of workers are named after their node.
pub fn node_name(node: u32) -> String {
    format!("chaos-{}-{node}", std::process::id())
}

#[derive(Debug)]
pub struct Agents {
    processes: Vec<Process>,
}

impl Agents {
    /// Starts one agent per node and waits until the pool has them all.
    ///
    /// # Errors
    /// One cannot be started, or they do not come into the pool.
    pub async fn start(
        binary: &Path,
        folder: &Path,
        cards: Cards,
        members: &[Address],
        client: &Client,
    ) -> Result<Self> {
        let inventory = folder.join("inventory.toml");
        fs::write(&inventory, cards.inventory()).context("cannot write the inventory")?;
        let configuration = config_that_dumps().unwrap_or_default();
        fs::write(folder.join(CONFIGURATION), configuration).context("cannot write the agents' configuration")?;
        let members: Vec<String> = members.iter().map(ToString::to_string).collect();
        let start = |node| program(binary, folder, node, &inventory, &members).start();
        let mut agents = Self { processes: (0..cards.nodes).map(start).collect::<Result<_>>()? };
        poll::until("the nodes to be in the pool", REGISTERED, ASK_EVERY, || ready(client, cards)).await?;
        agents.check_alive()?;
        Ok(agents)
    }

    /// Fails when an agent has ended by itself.
    ///
    /// # Errors
    /// One has.
    pub fn check_alive(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check_alive)
    }

    /// Ends all agents. Their workers run on until their leases are over: cancel their jobs before.
    ///
    /// # Errors
    /// One is not gone.
    pub async fn stop(mut self) -> Result<()> {
        try_join_all(self.processes.iter_mut().map(|process| process.stop(Duration::from_secs(5)))).await?;
        Ok(())
    }
}

async fn ready(client: &Client, cards: Cards) -> Result<()> {
    let pool = client.get_pool(GetPoolRequest::default()).await?.pool.context("an answer without a pool")?;
    let of_state =
        |state| pool.nodes.iter().filter(|count| count.state() == state).map(|count| count.count).sum::<u64>();
    let ready = of_state(NodeState::Ready);
    ensure!(ready == u64::from(cards.nodes), "{ready} of {} nodes are in the pool", cards.nodes);
    let free = pool.blocks.map_or(0, |blocks| blocks.free);
    ensure!(free == u64::from(cards.nodes * cards.per_node * cards.tflops), "{free} blocks are free");
    Ok(())
}

fn program(binary: &Path, folder: &Path, node: u32, inventory: &Path, members: &[String]) -> Program {
    let arguments = vec![
        "agent".into(),
        // The folder is a temporary one, which other users cannot enter.
        "--run-as".into(),
        "agent".into(),
        "--name".into(),
        node_name(node).into(),
        "--data-dir".into(),
        folder.join(format!("agent-{node}")).into(),
        "--server".into(),
        members.join(",").into(),
        "--inventory".into(),
        inventory.into(),
        "--config".into(),
        folder.join(CONFIGURATION).into(),
        "--log".into(),
        "info".into(),
    ];
    Program {
        binary: PathBuf::from(binary),
        arguments,
        environment: Vec::new(),
        log: folder.join(format!("agent-{node}.log")),
        network: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inventory_has_a_section_for_each_node() {
        let text = Cards { nodes: 3, per_node: 2, tflops: 16, turns: false }.inventory();
        assert_eq!(text.matches("[[node]]").count(), 3);
        assert_eq!(text.matches("count = 2").count(), 3);
        assert!(text.contains(&format!("name = \"{}\"", node_name(2))));
    }
}
