//! Proposals per second and their latency by number of concurrent clients: three members in one process over loopback
//! gRPC, disks that flush at once. `cargo bench -p tessera-consensus --bench proposals`.
//!
//! It shows what consensus itself costs; with real disks each entry also waits for a synced write.

#![expect(clippy::print_stdout, reason = "what a developer runs by hand prints for its developer")]
#![allow(clippy::panic, reason = "so it fails for its developer")]

#[allow(dead_code)]
#[path = "../tests/cluster/harness.rs"]
mod harness;
#[allow(dead_code)]
#[path = "../tests/cluster/register.rs"]
mod register;
#[allow(dead_code)]
#[path = "../tests/cluster/wires.rs"]
mod wires;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tessera_consensus::{Consensus, ConsensusConfig};
use tessera_metrics::quantile;
use tokio::time::Instant;

use harness::{Cluster, soon};
use register::{Register, command};

const MEASURED: Duration = Duration::from_secs(2);

fn main() {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        let config =
            ConsensusConfig { snapshot_entries: u64::MAX, snapshot_bytes: u64::MAX, ..ConsensusConfig::default() };
        let cluster = Cluster::founded(3, config).await;
        for clients in [1, 16, 64, 256] {
            measure(&cluster, clients).await;
        }
        cluster.shutdown().await;
    });
}

async fn measure(cluster: &Cluster, clients: u64) {
    let leader = &cluster.nodes[&cluster.leader().await];
    let before = leader.status().last.0;
    let serial = Arc::new(AtomicU64::new(0));
    let ends = Instant::now() + MEASURED;
    let running: Vec<_> =
        (0..clients).map(|_| tokio::spawn(client(leader.consensus.clone(), Arc::clone(&serial), ends))).collect();
    let mut took = Vec::new();
    for client in running {
        took.extend(client.await.expect("clients do not panic"));
    }
    took.sort_unstable();
    let at = |share| quantile(&took, share).unwrap_or_default().as_micros();
    let entries = leader.status().last.0 - before;
    println!(
        "{clients:>4} clients: {:>7} proposals/s in {entries} entries, p50 {} us, p99 {} us",
        took.len() as u64 / MEASURED.as_secs(),
        at(0.5),
        at(0.99)
    );
}

async fn client(consensus: Consensus<Register>, serial: Arc<AtomicU64>, ends: Instant) -> Vec<Duration> {
    let mut took = Vec::new();
    while Instant::now() < ends {
        let began = Instant::now();
        let command = command(serial.fetch_add(1, Ordering::Relaxed), 0);
        if consensus.propose(command, soon()).await.is_ok() {
            took.push(began.elapsed());
        }
    }
    took
}
