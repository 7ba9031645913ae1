//! A whole pool: members, agents, and workers that stay.

use std::path::Path;

use anyhow::Result;
use tessera_client::Client;

use super::agents::{Agents, Cards};
use super::members::Members;
use super::residents::Residents;
use crate::hosts::Hosts;
use crate::witness::Stand;

/// A pool of real processes.
#[derive(Debug)]
pub struct Pool {
    /// Its members.
    pub members: Members,
    /// Its agents.
    pub agents: Agents,
    /// Where its workers testify.
    pub stand: Stand,
    /// Its workers that stay.
    pub residents: Residents,
}

impl Pool {
    /// Starts three members, on hosts of their own if there are some, agents with `cards`, and `residents` workers that
    /// stay, on `blocks` blocks each.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn start(
        binary: &Path,
        folder: &Path,
        cards: Cards,
        residents: u32,
        blocks: u32,
        hosts: Option<Hosts>,
    ) -> Result<Self> {
        let members = Members::start(binary, folder, "", hosts).await?;
        let agents = Agents::start(binary, folder, cards, members.addresses(), members.client()).await?;
        let stand = Stand::new(folder.join("stand"))?;
        let residents = Residents::start(members.client(), &stand, residents, blocks).await?;
        Ok(Self { members, agents, stand, residents })
    }

    /// A client that knows all members.
    #[must_use]
    pub fn client(&self) -> &Client {
        self.members.client()
    }

    /// Ends everything: workers first, by cancelling their jobs, then agents, then members.
    ///
    /// # Errors
    /// Something is not gone.
    pub async fn stop(mut self) -> Result<()> {
        self.agents.check_alive()?;
        self.residents.end().await?;
        self.agents.stop().await?;
        self.members.stop().await
    }
}
