//! Requests to a pool: through the API and by the command line.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tessera_api::v1::{GetClusterStatusRequest, GetPoolRequest, Node, NodeState};
use tessera_client::{Address, Client, Settings};

use super::{Pool, binary, lease_options};
use crate::wait::until;

impl Pool {
    /// Changes the lease times of the running pool; in milliseconds, as in [`crate::pool::Options::lease`].
    ///
    /// # Errors
    /// When they are refused; the error shows what was said.
    pub async fn set_lease(&self, lease: [u64; 4]) -> Result<String> {
        let lease = lease_options(lease);
        let mut arguments = vec!["pool", "config", "set"];
        arguments.extend(lease.iter().map(String::as_str));
        self.cli_ok(&arguments).await
    }

    /// A client that knows every member.
    ///
    /// # Panics
    /// Never: addresses made here parse.
    #[must_use]
    pub fn client(&self) -> Client {
        let addresses: Vec<Address> =
            self.members.iter().map(|member| member.address.parse().expect("an address made here parses")).collect();
        let settings = Settings { deadline: Duration::from_secs(30), ..Settings::default() };
        Client::new(&addresses, settings).expect("there are members")
    }

    /// A client that knows one member only.
    ///
    /// # Panics
    /// Never: addresses made here parse.
    #[must_use]
    pub fn client_of(&self, place: usize) -> Client {
        let address = self.members[place].address.parse().expect("an address made here parses");
        self.client().only(&address).expect("one member is enough")
    }

    /// Runs the command line against the pool and answers what it printed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn cli(&self, arguments: &[&str]) -> Result<std::process::Output> {
        let mut command = tokio::process::Command::new(binary());
        command
            .args(arguments)
            .env("TESSERA_SERVER", self.server_list())
            .envs(self.bucket.iter().cloned())
            .env("TESSERA_CONFIG", self.folder().join("no-config.toml"))
            .env("NO_COLOR", "1")
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        command.output().await.context("running the command line")
    }

    /// Follows a command of a runbook and answers what it printed.
    ///
    /// # Errors
    /// As [`Self::cli_ok`].
    pub async fn follow(&self, command: Vec<String>) -> Result<String> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        self.cli_ok(&words).await
    }

    /// Like [`Self::cli`], but an exit code other than 0 is an error that shows what was printed.
    ///
    /// # Errors
    /// As said.
    pub async fn cli_ok(&self, arguments: &[&str]) -> Result<String> {
        let output = self.cli(arguments).await?;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "tessera {arguments:?}: {}\n{stdout}\n{stderr}", output.status);
        Ok(stdout.into_owned())
    }

    /// Waits until so many nodes are ready.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn wait_for_nodes(&self, count: usize) -> Result<()> {
        let client = self.client();
        until("the nodes to be ready", async || {
            let nodes = client.list_nodes(Default::default()).await.ok()?.nodes;
            let ready = |node: &&Node| node.state() == NodeState::Ready;
            (nodes.iter().filter(ready).count() >= count).then_some(())
        })
        .await
    }

    /// The place of the leader that a majority knows.
    ///
    /// # Errors
    /// When there is none for long.
    pub async fn leader(&self) -> Result<usize> {
        let client = self.client();
        until("a leader", async || {
            let status = client.get_cluster_status(GetClusterStatusRequest::default()).await.ok()?;
            let leader = status.leader?.address;
            self.members.iter().position(|member| member.address == leader && member.process.is_some())
        })
        .await
    }

    /// Asks a member to check every law on its state.
    ///
    /// # Errors
    /// When a law is broken, or nobody answers.
    pub async fn verify(&self) -> Result<()> {
        let answer = self.client().verify_pool(Default::default()).await?;
        ensure!(answer.violations.is_empty(), "laws are broken: {:?}", answer.violations);
        Ok(())
    }

    /// Blocks of the pool by state.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn summary(&self) -> Result<tessera_api::v1::GetPoolResponse> {
        Ok(self.client().get_pool(GetPoolRequest::default()).await?)
    }
}
