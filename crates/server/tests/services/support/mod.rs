//! A cluster in this process.

pub mod agent;
pub mod fixture;
pub mod http;
pub mod member;

use std::future::Future;
use std::time::Duration;

use tessera_api::error::reason_of;
use tessera_api::v1::ErrorReason;
use tessera_api::v1::cluster_service_client::ClusterServiceClient;
use tessera_api::v1::job_service_client::JobServiceClient;
use tessera_api::v1::pool_service_client::PoolServiceClient;
use tessera_api::v1::queue_service_client::QueueServiceClient;
use tessera_connection::{Outbound, Terms};
use tessera_consensus::{Leadership, Member, MemberId};
use tessera_controller::PoolHandle;
use tessera_ledger::{Command, Outcome, Revision};
use tessera_server::grpc::GrpcSettings;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Code, Status};

pub use member::TestMember;

/// The longest time that anything may take before a test fails.
pub const BOUND: Duration = Duration::from_secs(30);

pub fn soon() -> Instant {
    Instant::now() + BOUND
}

/// A fresh request id.
pub fn id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Waits for something that must happen, within the bound.
pub async fn within<T>(what: &str, happens: impl Future<Output = T>) -> T {
    timeout(BOUND, happens).await.unwrap_or_else(|_| panic!("within {BOUND:?} it did not happen: {what}"))
}

/// Asserts under which code and reason something was refused.
#[track_caller]
pub fn assert_refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, reason: ErrorReason) -> Status {
    let status = answer.expect_err("it must be refused");
    assert_eq!((status.code(), reason_of(&status)), (code, Some(reason)), "{status:?}");
    status
}

/// Some members of one cluster.
pub struct Cluster {
    pub members: Vec<TestMember>,
}

impl Cluster {
    /// Starts and founds a cluster.
    pub async fn of(size: u64) -> Self {
        Self::with(size, GrpcSettings::default()).await
    }

    /// Starts and founds a cluster whose servers behave as said.
    pub async fn with(size: u64, settings: GrpcSettings) -> Self {
        let members: Vec<TestMember> = (1..=size).map(|id| TestMember::start(id, settings)).collect();
        let founders = members
            .iter()
            .map(|member| Member { id: MemberId(member.id), name: String::new(), address: member.address.clone() })
            .collect();
        members[0].pool.consensus().initialize(founders, soon()).await.expect("the cluster is founded");
        let cluster = Self { members };
        cluster.leader().await;
        cluster
    }

    /// The member that leads and is ready to.
    pub async fn leader(&self) -> &TestMember {
        let waits = self.members.iter().map(|member| {
            Box::pin(async move {
                let mut leadership = member.pool.leadership();
                let leads = |now: &Leadership| matches!(now, Leadership::Leading { ready: true, .. });
                if leadership.wait_for(leads).await.is_err() {
                    std::future::pending::<()>().await;
                }
                member
            })
        });
        within("somebody leads", futures::future::select_all(waits)).await.0
    }

    /// A member that follows somebody.
    pub async fn follower(&self) -> &TestMember {
        let leader = self.leader().await.id;
        let follower = self.members.iter().find(|member| member.id != leader).expect("more than one member");
        let mut leadership = follower.pool.leadership();
        let follows = |now: &Leadership| matches!(now, Leadership::Following { leader: Some(_) });
        within("it follows", leadership.wait_for(follows)).await.expect("consensus runs");
        follower
    }

    /// Kills a member: nothing of it runs any more and all its connections break.
    pub fn kill(&mut self, id: u64) {
        let place = self.members.iter().position(|member| member.id == id).expect("a member of the cluster");
        self.members.remove(place).kill();
    }

    /// Has a command applied, whoever leads.
    pub async fn apply(&self, command: Command) -> Outcome {
        self.leader().await.apply(command).await
    }
}

/// Clients of one member.
#[derive(Clone, Debug)]
pub struct Clients {
    pub jobs: JobServiceClient<Channel>,
    pub pool: PoolServiceClient<Channel>,
    pub queues: QueueServiceClient<Channel>,
    pub cluster: ClusterServiceClient<Channel>,
}

/// A connection to a member, opened with the first call over it.
pub fn channel(address: &str) -> Channel {
    Outbound::default().lazily(address, &Terms::default()).expect("an address")
}

impl Clients {
    pub fn of(address: &str) -> Self {
        let channel = channel(address);
        Self {
            jobs: JobServiceClient::new(channel.clone()),
            pool: PoolServiceClient::new(channel.clone()),
            queues: QueueServiceClient::new(channel.clone()),
            cluster: ClusterServiceClient::new(channel),
        }
    }
}

/// Has a command applied by a member that leads.
pub async fn propose(pool: &PoolHandle, command: Command) -> (Revision, Outcome) {
    let committed = pool.propose(tessera_testkit::request(command), soon()).await.expect("it leads and has a quorum");
    (committed.revision, committed.outcome)
}
