//! A whole pool: members, agents, and workers that stay.

use std::path::Path;

use anyhow::{Context, Result};
use tessera_api::v1::{GetPoolRequest, SetPoolConfigRequest};
use tessera_client::Client;

use super::agents::{Agents, Cards};
use super::members::Members;
use super::residents::Residents;
use crate::hosts::Hosts;
use crate::witness::Stand;

/// A pool of real processes.
#[derive(Debug)]
pub struct Pool {
    pub members: Members,
    pub agents: Agents,
    /// The folder in which its workers testify.
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

    /// Lets the pool hold this many bytes of jobs, in place of what it holds unless told.
    ///
    /// # Errors
    /// Nobody answers, or it is refused.
    pub async fn holds(&self, spec_bytes: u64) -> Result<()> {
        let read = self.client().get_pool(GetPoolRequest::default()).await?;
        let mut config = read.pool.and_then(|pool| pool.config).context("a pool without settings")?;
        config.limits.get_or_insert_default().spec_bytes = spec_bytes;
        let request_id = self.client().new_request_id();
        let request = SetPoolConfigRequest { request_id, config: Some(config), expected: None };
        self.client().set_pool_config(request).await?;
        Ok(())
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
