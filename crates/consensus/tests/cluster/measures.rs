//! Metrics that Prometheus scrapes.

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::harness::{Cluster, config};

fn page(registry: &Registry) -> String {
    let mut page = String::new();
    encode(&mut page, registry).expect("writing to a string");
    page
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_names_that_dashboards_and_alerts_use_are_there() {
    let cluster = Cluster::founded(3, config()).await;
    let leader = cluster.leader().await;
    let follower = cluster.follower().await;
    let registries = [leader, follower].map(|id| {
        let mut registry = Registry::default();
        cluster.nodes[&id].consensus.register_metrics(&mut registry);
        registry
    });
    let applied = cluster.nodes[&leader].propose(1).await.expect("must be applied");
    let node = &cluster.nodes[&leader];
    node.consensus.take_snapshot().await;
    node.until("a snapshot", |status| status.snapshot >= applied.index && status.quorum_fresh).await;
    let [of_leader, of_follower] = registries.map(|registry| page(&registry));
    for line in [
        "tessera_raft_is_leader 1",
        "tessera_raft_term ",
        "tessera_raft_leader_changes_total ",
        "tessera_raft_log_index{kind=\"last\"} ",
        "tessera_raft_log_index{kind=\"committed\"} ",
        "tessera_raft_log_index{kind=\"applied\"} ",
        "tessera_raft_log_index{kind=\"purged\"} ",
        "tessera_raft_propose_duration_seconds_count 1",
        "tessera_raft_apply_duration_seconds_bucket{le=\"+Inf\"} ",
        "tessera_raft_fsync_duration_seconds_bucket{le=\"+Inf\"} ",
        "tessera_raft_snapshot_age_seconds ",
        "tessera_raft_snapshot_size_bytes ",
        "tessera_raft_voters 3",
        "tessera_raft_learners 0",
        "tessera_store_size_bytes ",
        "tessera_state_hash_mismatch_total 0",
    ] {
        assert!(of_leader.lines().any(|found| found.starts_with(line)), "no {line:?} in:\n{of_leader}");
    }
    let lag = format!("tessera_raft_replication_lag_entries{{peer=\"{follower}\"}} ");
    assert!(of_leader.contains(&lag), "no {lag:?} in:\n{of_leader}");
    assert!(of_follower.contains("tessera_raft_is_leader 0"), "{of_follower}");
    cluster.shutdown().await;
}
