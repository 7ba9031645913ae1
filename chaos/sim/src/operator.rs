//! The operator: founds the cluster, changes its members, drains nodes, and tidies up at the end.

use std::sync::Arc;
use std::time::Duration;

use tessera_api::v1;
use tessera_client::{Address, Client, ClientError};
use tessera_ledger::LeaseTimings;
use tessera_ledger::wire::leases_to_wire;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::agent::CARD_MEMORY_MIB;
use crate::interruptions::Deed;
use crate::network::{PORT, Plug};
use crate::story::Story;
use crate::workload::{Ladder, SHIFT, SHIFT_WINDOW, TENANTS, WITH_LADDER};

/// An order to the operator. Machines are named; addresses follow from the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Found the cluster with these members, and set it up.
    Found(Vec<String>, Terms),
    /// Make the queues that have rules of their own, as soon as every member knows such rules.
    Rules,
    /// Grant leases for other times from now on.
    Lease(LeaseTimings),
    /// Graphics cards offer so many percent of the blocks that they are rated for.
    Offer(u32),
    /// Move jobs so that free blocks come together.
    Compact,
    /// Make the process on a machine a voter.
    Add(String),
    /// Remove the member on a machine.
    Remove(String),
    /// The member on a machine has lost its data and starts anew: remove it, add the new one.
    Rebuild(String),
    /// Hand leadership to somebody.
    Transfer,
    Drain(String),
    Cordon(String),
    /// Open a node again.
    Uncordon(String),
    /// Do something to a job on purpose.
    Do(Deed),
    /// Until the end: open every node, release what is held, resume what was parked.
    Tidy,
}

/// The settings that a pool is founded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// For how long leases are granted.
    pub leases: LeaseTimings,
    /// Blocks that graphics cards offer, in percent of those that they are rated for.
    pub offer: u32,
    /// True if jobs are moved without being asked.
    pub compacts: bool,
    /// True if jobs are laid over all cards rather than beside one another.
    pub spread: bool,
    /// Log entries that ledgers remember the events of.
    pub event_limit: u64,
    /// Sum of the ratings of all cards, in TFLOPS.
    pub tflops: u64,
    /// Number of cards.
    pub cards: u64,
}

/// The client and the channels of an operator.
#[derive(Clone)]
pub struct Console {
    client: Client,
    members: Arc<[Address]>,
    done: mpsc::UnboundedSender<Order>,
    story: Story,
}

/// Does what it is told, everything at once, and says what is done.
pub async fn run(
    plug: Plug,
    members: Arc<[Address]>,
    seed: u64,
    mut orders: mpsc::UnboundedReceiver<Order>,
    done: mpsc::UnboundedSender<Order>,
    story: Story,
) -> String {
    let client = match Client::new(&members, plug.client_settings(seed)) {
        Ok(client) => client,
        Err(error) => return error.to_string(),
    };
    let console = Console { client: client.with_deadline(Duration::from_secs(20)), members, done, story };
    while let Some(order) = orders.recv().await {
        let console = console.clone();
        tokio::spawn(async move { console.carry_out(order).await });
    }
    "nobody gives orders any more".to_owned()
}

impl Console {
    async fn carry_out(&self, order: Order) {
        self.story.tell("op", format!("{order:?}"));
        let result = match &order {
            Order::Found(members, terms) => self.found(members, terms).await,
            Order::Rules => self.rules().await,
            Order::Lease(leases) => self.lease(leases).await,
            Order::Offer(percent) => self.offer(*percent).await,
            Order::Compact => self.compact().await,
            Order::Add(machine) => self.add(machine).await,
            Order::Remove(machine) => self.remove(machine).await,
            Order::Rebuild(machine) => self.rebuild(machine).await,
            Order::Transfer => {
                self.client.transfer_leadership(v1::TransferLeadershipRequest::default()).await.map(drop)
            }
            Order::Drain(node) => {
                let request = v1::DrainNodeRequest {
                    node: named(node),
                    reason: "service".to_owned(),
                    ..v1::DrainNodeRequest::default()
                };
                self.client.drain_node(request).await.map(drop)
            }
            Order::Cordon(node) => {
                let request = v1::CordonNodeRequest {
                    node: named(node),
                    reason: "look".to_owned(),
                    ..v1::CordonNodeRequest::default()
                };
                self.client.cordon_node(request).await.map(drop)
            }
            Order::Uncordon(node) => self.uncordon(named(node)).await,
            Order::Do(deed) => deed.carry_out(&self.client).await,
            Order::Tidy => self.tidy().await,
        };
        match result {
            Ok(()) => {
                self.story.tell("op", format!("done: {order:?}"));
                // Nobody may listen any more.
                let _ = self.done.send(order);
            }
            Err(error) => self.story.tell("op", format!("failed: {order:?}: {error}")),
        }
    }

    async fn found(&self, members: &[String], terms: &Terms) -> Result<(), ClientError> {
        let new = |name: &String| v1::NewMember { name: name.clone(), address: format!("{name}:{PORT}") };
        let request = v1::InitializeClusterRequest {
            cluster_id: "simulated".to_owned(),
            members: members.iter().map(new).collect(),
            ..v1::InitializeClusterRequest::default()
        };
        loop {
            match self.client.only(&self.members[0])?.initialize_cluster(request.clone()).await {
                Err(ClientError::Unavailable(_)) => sleep(Duration::from_millis(200)).await,
                Err(error) => return Err(error),
                Ok(_) => break,
            }
        }
        self.configure(|config| v1::PoolConfig {
            leases: Some(leases_to_wire(&terms.leases)),
            oversubscription: offered(terms.offer),
            compaction: Some(v1::CompactionPolicy {
                automatic: terms.compacts,
                threshold_percent: 5,
                moves_per_hour: 1_000,
            }),
            packing: if terms.spread { v1::Packing::Spread } else { v1::Packing::Stack }.into(),
            event_limit: terms.event_limit,
            ..config
        })
        .await?;
        for (name, percent) in TENANTS {
            self.set_tenant(name, percent, terms).await?;
        }
        Ok(())
    }

    /// Tried until it succeeds: members take a rule that is new only when all of them know it.
    async fn rules(&self) -> Result<(), ClientError> {
        let named = |name: &str| v1::QueueSettings { name: name.to_owned(), weight: 1, ..v1::QueueSettings::default() };
        // Bands of a second of a card: what runs goes through them, and the oldest are guarded.
        let second = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        let attained = Some(v1::AttainedOrder { first_band: second, ..v1::AttainedOrder::default() });
        let desk = v1::QueueSettings { idle: Some(Ladder::to_wire()), attained, ..named(WITH_LADDER) };
        let shift = v1::QueueSettings { windows: vec![SHIFT_WINDOW.text.to_owned()], ..named(SHIFT) };
        for queue in [desk, shift] {
            while let Err(error) = self.set_queue(queue.clone()).await {
                self.story.tell("op", format!("cannot set the queue {} yet: {error}", queue.name));
                sleep(Duration::from_millis(500)).await;
            }
        }
        Ok(())
    }

    async fn set_queue(&self, queue: v1::QueueSettings) -> Result<(), ClientError> {
        let request = v1::SetQueueRequest { queue: Some(queue), ..v1::SetQueueRequest::default() };
        self.client.set_queue(request).await.map(drop)
    }

    /// A queue that is guaranteed so much of the pool.
    async fn set_tenant(&self, name: &str, percent: u64, terms: &Terms) -> Result<(), ClientError> {
        let guaranteed = v1::QueueAmount {
            milli_tflops: terms.tflops * 1_000 * percent / 100,
            memory_mib: terms.cards * CARD_MEMORY_MIB * percent / 100,
        };
        let queue = v1::QueueSettings {
            name: name.to_owned(),
            guaranteed: Some(guaranteed),
            weight: 1,
            ..v1::QueueSettings::default()
        };
        self.set_queue(queue).await
    }

    /// Changes settings; what was changed meanwhile is not overwritten.
    async fn configure(&self, change: impl FnOnce(v1::PoolConfig) -> v1::PoolConfig) -> Result<(), ClientError> {
        let present = self.client.get_pool_config(v1::GetPoolConfigRequest::default()).await?.config;
        let config = present.clone().map(change);
        let request = v1::SetPoolConfigRequest { config, expected: present, ..v1::SetPoolConfigRequest::default() };
        self.client.set_pool_config(request).await.map(drop)
    }

    async fn lease(&self, leases: &LeaseTimings) -> Result<(), ClientError> {
        self.configure(|config| v1::PoolConfig { leases: Some(leases_to_wire(leases)), ..config }).await
    }

    async fn offer(&self, percent: u32) -> Result<(), ClientError> {
        self.configure(|config| v1::PoolConfig { oversubscription: offered(percent), ..config }).await
    }

    async fn compact(&self) -> Result<(), ClientError> {
        let order = v1::CompactionOrder { moves: 4, losing_work: true, not_preemptible: true };
        let request = v1::StartCompactionRequest { order: Some(order), at_once: 2 };
        self.client.start_compaction(request).await.map(drop)
    }

    async fn id_of(&self, machine: &str) -> Result<Option<u64>, ClientError> {
        let address = format!("{machine}:{PORT}");
        let listed = self.client.list_members(v1::ListMembersRequest::default()).await?;
        Ok(listed.members.into_iter().find(|member| member.address == address).map(|member| member.id))
    }

    async fn add(&self, machine: &str) -> Result<(), ClientError> {
        let member = v1::NewMember { name: machine.to_owned(), address: format!("{machine}:{PORT}") };
        let added = self
            .client
            .add_member(v1::AddMemberRequest { member: Some(member), ..v1::AddMemberRequest::default() })
            .await?;
        let member_id = added.member.map_or(0, |member| member.id);
        self.client
            .promote_member(v1::PromoteMemberRequest { member_id, ..v1::PromoteMemberRequest::default() })
            .await
            .map(drop)
    }

    async fn remove(&self, machine: &str) -> Result<(), ClientError> {
        let Some(member_id) = self.id_of(machine).await? else { return Ok(()) };
        self.client
            .remove_member(v1::RemoveMemberRequest { member_id, ..v1::RemoveMemberRequest::default() })
            .await
            .map(drop)
    }

    /// Tried until it succeeds: a pool whose members are broken is what operators lose sleep over.
    async fn rebuild(&self, machine: &str) -> Result<(), ClientError> {
        while let Err(error) = self.remove(machine).await {
            self.story.tell("op", format!("cannot remove the lost member {machine} yet: {error}"));
            sleep(Duration::from_secs(1)).await;
        }
        while let Err(error) = self.add(machine).await {
            self.story.tell("op", format!("cannot add {machine} again yet: {error}"));
            sleep(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    async fn uncordon(&self, node: Option<v1::NodeRef>) -> Result<(), ClientError> {
        self.client
            .uncordon_node(v1::UncordonNodeRequest { node, ..v1::UncordonNodeRequest::default() })
            .await
            .map(drop)
    }

    async fn tidy(&self) -> Result<(), ClientError> {
        loop {
            if let Err(error) = self.tidy_once().await {
                self.story.tell("op", format!("tidying: {error}"));
            }
            sleep(Duration::from_secs(2)).await;
        }
    }

    async fn tidy_once(&self) -> Result<(), ClientError> {
        let nodes = self
            .client
            .list_nodes(v1::ListNodesRequest { page_size: 1_000, ..v1::ListNodesRequest::default() })
            .await?;
        for node in nodes.nodes {
            if node.eligibility() != v1::Eligibility::Eligible {
                self.uncordon(named(&node.name)).await?;
            }
        }
        let waiting = v1::JobFilter {
            states: vec![v1::JobState::Pending.into(), v1::JobState::Suspended.into()],
            ..v1::JobFilter::default()
        };
        let jobs = self
            .client
            .list_jobs(v1::ListJobsRequest {
                filter: Some(waiting),
                page_size: 1_000,
                ..v1::ListJobsRequest::default()
            })
            .await?;
        for job in jobs.jobs {
            // What is refused has changed meanwhile, and is looked at again.
            if job.held {
                let _ = self
                    .client
                    .release_job(v1::ReleaseJobRequest { job_id: job.id, ..v1::ReleaseJobRequest::default() })
                    .await;
            }
            if job.parked {
                let _ = self
                    .client
                    .resume_job(v1::ResumeJobRequest { job_id: job.id, ..v1::ResumeJobRequest::default() })
                    .await;
            }
        }
        Ok(())
    }
}

fn named(node: &str) -> Option<v1::NodeRef> {
    Some(v1::NodeRef { r#ref: Some(v1::node_ref::Ref::Name(node.to_owned())) })
}

fn offered(percent: u32) -> Vec<v1::Oversubscription> {
    let more = v1::Oversubscription { kind: v1::CardKind::Gpu.into(), percent };
    if percent > 100 { vec![more] } else { Vec::new() }
}
