//! Starts what a member does for the pool, once its consensus runs.

use std::sync::Arc;

use tessera_api::v1::agent_service_server::AgentServiceServer;
use tessera_connection::Outbound;
use tessera_consensus::Consensus;
use tessera_store::Store;
use tessera_usage::Keeper;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::ControllerConfig;
use crate::disk::DiskSpace;
use crate::feed::Feed;
use crate::leader::Office;
use crate::machine::LedgerMachine;
use crate::metrics::Metrics;
use crate::pool::{Parts, PoolHandle};
use crate::session::NodeSessions;
use crate::telemetry::Telemetry;
use crate::view::LedgerView;
use crate::{clock, disk, leader};

/// The parts that the controller of a member works with beside consensus.
pub struct Means {
    /// The view that the machine of consensus publishes to.
    pub view: LedgerView,
    /// The feed of the keys that the machine reports as touched.
    pub feed: Feed,
    /// The store of the log; its disk is watched.
    pub store: Arc<dyn Store>,
    /// Bytes that must be free on that disk, below which a leader takes no more jobs and hands leadership over.
    pub disk_reserve_bytes: u64,
    /// Opens connections to other members and to agents.
    pub outbound: Outbound,
    /// The accounts of what jobs hold; `None`: this member keeps none.
    pub usage: Option<Keeper>,
    /// The metrics that Prometheus reads.
    pub metrics: Arc<Metrics>,
    pub config: ControllerConfig,
}

impl std::fmt::Debug for Means {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Means").field("config", &self.config).finish_non_exhaustive()
    }
}

/// The controller of a member, at work.
#[derive(Debug)]
pub struct Controller {
    /// The pool, for whoever asks and changes it.
    pub pool: PoolHandle,
    /// The service that agents call, to be mounted in the member's server.
    pub agents: AgentServiceServer<NodeSessions>,
    /// The tasks that end after `end` is cancelled: the leader's actors, and the watches over the clock and the disk.
    pub tasks: Vec<JoinHandle<()>>,
}

impl Controller {
    /// Starts it, until `end` is cancelled.
    #[must_use]
    pub fn start(consensus: Consensus<LedgerMachine>, means: Means, end: &CancellationToken) -> Self {
        let Means { view, feed, store, disk_reserve_bytes, outbound, usage, metrics, config } = means;
        metrics.backups_are_due(config.backup.as_ref().map(|plan| plan.interval));
        consensus.register_metrics(&mut metrics.registry());
        let telemetry = Telemetry::default();
        metrics.show(view.clone(), telemetry.clone(), usage.clone());
        let (room, room_seen) = watch::channel(DiskSpace::Ample);
        let (placement, placement_seen) = watch::channel(None);
        let (reign, reign_seen) = watch::channel(None);
        let pool = PoolHandle::new(Parts {
            consensus: consensus.clone(),
            view,
            telemetry,
            metrics: Arc::clone(&metrics),
            config: Arc::new(config),
            outbound,
            placement: placement_seen,
            room: room_seen,
            usage,
        });
        let office = Office { pool: pool.clone(), feed, placement, reign };
        let watching = disk::watch_room(store, disk_reserve_bytes, room, consensus.clone(), metrics, end.clone());
        let tasks = vec![
            tokio::spawn(leader::lead(office, end.clone())),
            tokio::spawn(clock::watch(consensus, end.clone())),
            tokio::spawn(watching),
        ];
        let agents = NodeSessions::new(pool.clone(), reign_seen).into_server();
        Self { pool, agents, tasks }
    }
}
