//! Wires one member's consensus together.

use std::collections::VecDeque;
use std::sync::Arc;

use openraft::{Config, SnapshotPolicy, StepDownPolicy};
use tessera_connection::Outbound;
use tessera_store::Store;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::apply::Applier;
use crate::audit::Auditor;
use crate::clock::Clock;
use crate::codec;
use crate::compact::Compactor;
use crate::config::ConsensusConfig;
use crate::entropy::Entropy;
use crate::error::{StartError, StopReason};
use crate::handle::{Consensus, Inner};
use crate::ids::Identity;
use crate::log::Log;
use crate::machine::Machine;
use crate::observe::Observer;
use crate::presence::Presence;
use crate::propose::Proposer;
use crate::pulse::Pulse;
use crate::reads::Rounds;
use crate::shared::Shared;
use crate::stamps::Stamps;
use crate::status::{Leadership, Status};
use crate::transport::{Links, Network};
use crate::types::TypeConfig;

/// The resources that a member needs from its surroundings.
#[derive(Clone)]
pub struct Environment {
    pub store: Arc<dyn Store>,
    /// The means of connecting to other members.
    pub outbound: Outbound,
    /// The clock a leader writes into entries.
    pub clock: Arc<dyn Clock>,
    /// Seed of everything random. Matters only under simulation; a real member draws it from the system.
    pub seed: u64,
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// Checks whose data folder this is; false when it is nobody's yet.
fn admitted(store: &dyn Store, identity: &Identity) -> Result<bool, StartError> {
    let Some(stored) = store.identity()? else {
        return Ok(false);
    };
    let found = codec::decode_identity(stored)?;
    if found == *identity {
        return Ok(true);
    }
    Err(StartError::OtherIdentity { expected: identity.clone(), found })
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Our settings in openraft's words.
fn raft_config(config: &ConsensusConfig, identity: &Identity) -> Result<Config, StartError> {
    let (min, max) = (millis(config.election_timeout_min), millis(config.election_timeout_max));
    let raft = Config {
        cluster_name: identity.cluster.to_string(),
        heartbeat_interval: millis(config.heartbeat),
        election_timeout_min: min,
        election_timeout_max: max,
        // An old leader that reaches some voters but no quorum must fall silent for long enough that they elect
        // another.
        quorum_loss_probe_interval: Some(2 * max + min),
        enable_pre_vote: Some(true),
        // The machine lives in memory and `committed` is saved without a sync: a leader that comes back must be elected
        // again and so learn what is committed.
        enable_leader_restore: Some(false),
        removed_leader_step_down: StepDownPolicy::After(min),
        // A follower that lost entries it had acknowledged is never replicated to again.
        allow_log_reversion: Some(false),
        broadcast_submitted_on_append: Some(true),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(config.snapshot_entries),
        max_in_snapshot_log_to_keep: config.keep_entries,
        purge_batch_size: (config.keep_entries / 8).max(1),
        replication_lag_threshold: config.snapshot_entries.saturating_mul(2),
        install_snapshot_timeout: millis(config.snapshot_install_timeout),
        // A peer that restarts refuses connections for a moment: try again soon, the attempt costs nothing.
        backoff: "10ms 20ms 50ms ..200ms".to_owned(),
        ..Config::default()
    };
    raft.validate().map_err(|error| StartError::Core { what: error.to_string() })
}

impl<M: Machine> Consensus<M> {
    /// Starts a member on its store. A store that was never admitted to a cluster (see
    /// [`initialize`](Consensus::initialize) and [`add_learner`](Consensus::add_learner)) is not a member yet: it
    /// refuses votes and entries until a leader admits it under a new id. So a member that lost its data cannot come
    /// back under its old id and vote twice.
    ///
    /// Mount [`raft_service`](crate::raft_service) on this member's address before the others need it.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(
        config: ConsensusConfig,
        identity: Identity,
        environment: Environment,
        machine: M,
    ) -> Result<Self, StartError> {
        config.validate()?;
        let raft_config = Arc::new(raft_config(&config, &identity)?);
        let admitted = admitted(environment.store.as_ref(), &identity)?;
        tracing::info!(%identity, admitted, "consensus starts");
        let entropy = Entropy::new(environment.seed);
        let mut shared = Shared::new(identity, config, environment.store, environment.clock, entropy, admitted);
        shared.highest_level = machine.highest_level();
        shared.start = environment.seed.max(1);
        shared.stamps = Stamps::new(shared.start, Instant::now());
        let shared = Arc::new(shared);
        let log = Log::open(Arc::clone(&shared)).map_err(|error| failed(&shared, error.to_string()))?;
        if let Some((_, record)) = shared.newest_snapshot().map_err(|error| failed(&shared, error.to_string()))? {
            shared.meters.snapshot_kept(record.bytes);
        }
        let links = Arc::new(Links::new(Arc::clone(&shared), environment.outbound));
        let applier = Applier::new(Arc::clone(&shared), machine);
        let raft = shared
            .entropy
            .scope(openraft::Raft::<TypeConfig, _>::new(
                shared.id().0,
                raft_config,
                Network::new(Arc::clone(&links)),
                log.clone(),
                applier,
            ))
            .await
            .map_err(|fatal| failed(&shared, fatal.to_string()))?;
        Ok(spawn_all(shared, raft, log, links))
    }
}

/// The precise reason when one was noted, else what raft said.
fn failed(shared: &Shared, what: String) -> StartError {
    match shared.stopper.reason() {
        Some(StopReason::Storage(error)) => StartError::Storage(error),
        Some(StopReason::Unreadable(error)) => {
            StartError::Unreadable(crate::machine::Unreadable { what: error.what.clone() })
        }
        _ => StartError::Core { what },
    }
}

fn spawn_all<M: Machine>(
    shared: Arc<Shared>,
    raft: openraft::Raft<TypeConfig, Applier<M>>,
    log: Log,
    links: Arc<Links>,
) -> Consensus<M> {
    let tasks = TaskTracker::new();
    let end = CancellationToken::new();
    let (status, status_seen) = watch::channel(Status::new(shared.id(), shared.admitted()));
    let (leadership, leadership_seen) = watch::channel(Leadership::Following { leader: None });
    let (proposals, mailbox) = mpsc::channel(shared.config.mailbox);
    let room = Arc::new(Semaphore::new(shared.config.mailbox_bytes));
    let (questions, asked) = mpsc::channel(shared.config.mailbox);

    let observer = Observer {
        shared: Arc::clone(&shared),
        metrics: raft.metrics(),
        roles: raft.server_metrics(),
        status,
        leadership,
        end: end.clone(),
    };
    tasks.spawn(observer.run());
    let proposer = Proposer {
        slots: Arc::new(Semaphore::new(shared.config.max_in_flight)),
        shared: Arc::clone(&shared),
        raft: raft.clone(),
        mailbox,
        leadership: leadership_seen.clone(),
        waiting: VecDeque::new(),
        end: end.clone(),
    };
    tasks.spawn(shared.entropy.scope(proposer.run()));
    let pulse = Pulse {
        shared: Arc::clone(&shared),
        raft: raft.clone(),
        links: Arc::clone(&links),
        leadership: leadership_seen.clone(),
        status: status_seen.clone(),
        end: end.clone(),
    };
    tasks.spawn(shared.entropy.scope(pulse.run()));
    let rounds = Rounds {
        shared: Arc::clone(&shared),
        raft: raft.clone(),
        links: Arc::clone(&links),
        questions: asked,
        end: end.clone(),
    };
    tasks.spawn(shared.entropy.scope(rounds.run()));
    let compactor = Compactor {
        shared: Arc::clone(&shared),
        raft: raft.clone(),
        log,
        status: status_seen.clone(),
        end: end.clone(),
    };
    tasks.spawn(shared.entropy.scope(compactor.run()));
    let auditor = Auditor {
        shared: Arc::clone(&shared),
        links: Arc::clone(&links),
        status: status_seen.clone(),
        end: end.clone(),
    };
    tasks.spawn(auditor.run());
    let presence = Presence {
        shared: Arc::clone(&shared),
        raft: raft.clone(),
        links: Arc::clone(&links),
        status: status_seen.clone(),
        end: end.clone(),
    };
    tasks.spawn(shared.entropy.scope(presence.run()));
    tasks.spawn(end_with_reason(Arc::clone(&shared), raft.clone(), end.clone()));

    Consensus {
        inner: Arc::new(Inner {
            shared,
            raft,
            links,
            proposals,
            room,
            questions,
            status: status_seen,
            leadership: leadership_seen,
            tasks,
            end,
            changing: Arc::default(),
        }),
    }
}

/// Ends the raft core when a reason to stop is noted or the last handle is dropped, so that a member that must not
/// serve neither votes nor acknowledges.
async fn end_with_reason<M: Machine>(
    shared: Arc<Shared>,
    raft: openraft::Raft<TypeConfig, Applier<M>>,
    end: CancellationToken,
) {
    tokio::select! {
        reason = shared.stopper.stopped() => tracing::debug!(%reason, "ending the raft core"),
        () = end.cancelled() => shared.stopper.stop(StopReason::Shutdown),
    }
    if let Err(error) = raft.shutdown().await {
        tracing::warn!(%error, "the raft core did not end in order");
    }
    end.cancel();
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::{ClusterId, MemberId};

    #[test]
    fn the_core_keeps_to_the_times_that_are_set() {
        let identity = Identity { cluster: ClusterId::new("prod").expect("a legal name"), member: MemberId(1) };
        let times_of = |config: &ConsensusConfig| {
            let core = raft_config(config, &identity).expect("times that fit together");
            (core.heartbeat_interval, core.election_timeout_min, core.election_timeout_max)
        };
        let usual = ConsensusConfig::default();
        let slow = ConsensusConfig {
            heartbeat: Duration::from_millis(70),
            election_timeout_min: Duration::from_millis(300),
            election_timeout_max: Duration::from_millis(900),
            ..usual.clone()
        };
        assert_eq!((times_of(&usual), times_of(&slow)), ((40, 100, 220), (70, 300, 900)));
    }
}
