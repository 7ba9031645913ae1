//! The time from the death of the leader until the next proposal is accepted, with three members in one process over
//! loopback gRPC and disks that flush at once. Prints the distribution:
//! `cargo bench -p tessera-consensus --bench failover [ROUNDS]`.
//!
//! It measures elections, not disks: the figure with real processes and synced writes comes from the chaos suite.

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

use std::time::Duration;

use tessera_consensus::ConsensusConfig;
use tessera_metrics::quantile;
use tokio::time::Instant;

use harness::Cluster;

fn main() {
    tracing_subscriber::fmt().with_env_filter(tracing_subscriber::EnvFilter::from_default_env()).init();
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(20);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let mut took = runtime.expect("a runtime can be built").block_on(measure(rounds));
    took.sort_unstable();
    let at = |share| quantile(&took, share).unwrap_or_default().as_millis();
    println!("{rounds} deaths of the leader: p50 {} ms, p90 {} ms, max {} ms", at(0.5), at(0.9), at(1.0));
}

async fn measure(rounds: usize) -> Vec<Duration> {
    // Connections between members that have run for a while are open; here the comparison of digests opens them.
    let config = ConsensusConfig { digest_period: Duration::from_millis(50), ..ConsensusConfig::default() };
    let mut cluster = Cluster::founded(3, config).await;
    let mut serial = 0;
    let mut took = Vec::new();
    for round in 0..rounds {
        let leader = cluster.leader().await;
        serial += 1;
        cluster.propose_somewhere(serial).await;
        // At another phase of the heartbeat each time.
        tokio::time::sleep(Duration::from_millis(300 + 7 * (round as u64 % 8))).await;
        let killed = Instant::now();
        cluster.sever(leader);
        let heirs: Vec<_> = cluster.nodes.iter().filter(|(id, _)| **id != leader).map(|(_, node)| node).collect();
        serial += 1;
        let accepted = 'accepted: loop {
            for heir in &heirs {
                if heir.propose(serial).await.is_ok() {
                    break 'accepted killed.elapsed();
                }
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        took.push(accepted);
        cluster.kill(leader).await;
        cluster.start(leader).await.expect("must start again");
    }
    cluster.shutdown().await;
    took
}
