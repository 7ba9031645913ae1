//! Members' wall clocks are wrong; log time is not.

use std::time::Duration;

use tessera_consensus::{Clock, LogTime, MemberId, SystemClock};
use tokio::time::{sleep, timeout};

use crate::harness::{BOUND, Cluster, config, soon};

const DAY_MS: i64 = 86_400_000;
const YEARS_MS: i64 = 10 * 365 * DAY_MS;

/// A cluster that is not founded yet, with clocks that are so far ahead.
async fn with_clocks(ahead_ms: &[i64]) -> Cluster {
    let mut cluster = Cluster::new(config());
    for (id, ahead_ms) in (1..).zip(ahead_ms) {
        cluster.add_seat(id).await;
        cluster.seats[&id].wall.set_ahead(*ahead_ms);
        cluster.start(id).await.expect("a new member must start");
    }
    cluster
}

/// Proposes through whoever leads, and answers the log time of that entry and how far it is from the right time.
async fn stamped(cluster: &Cluster, serial: u64) -> (LogTime, i64) {
    cluster.propose_somewhere(serial).await;
    let leader = cluster.leader().await;
    let view = cluster.nodes[&leader].view();
    let time = *view.times.get(&serial).expect("the entry was applied");
    let ahead = i64::try_from(time.0).expect("small") - i64::try_from(SystemClock.now().0).expect("small");
    (time, ahead)
}

async fn lead(cluster: &Cluster, id: u64) {
    let leader = cluster.leader().await;
    let handed = cluster.nodes[&leader].consensus.transfer_leadership(Some(MemberId(id)), soon()).await;
    handed.expect("it can lead");
    cluster.nodes[&id].until("leading", crate::harness::leads).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_clock_is_years_ahead_writes_the_time_of_the_others() {
    let cluster = with_clocks(&[YEARS_MS, 0, 0]).await;
    cluster.found().await;
    for (serial, leader) in [(1, 2), (2, 1), (3, 3), (4, 1)] {
        lead(&cluster, leader).await;
        let (_, ahead) = stamped(&cluster, serial).await;
        assert!(ahead.abs() < 60_000, "under member {leader} log time is {ahead} ms ahead");
    }
    let wrong = cluster.nodes[&1].consensus.clock();
    assert!(wrong.off && wrong.offset_ms.is_some_and(|ahead| ahead > YEARS_MS / 2), "{wrong:?}");
    assert!(
        [2, 3].map(MemberId).contains(&cluster.nodes[&1].consensus.voter_with_right_clock().expect("there are two"))
    );
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_learns_that_its_clock_is_wrong_whoever_leads() {
    let cluster = with_clocks(&[0, 0, -DAY_MS]).await;
    cluster.found().await;
    lead(&cluster, 1).await;
    // One that has heard of the wrong clock only does not know better for a moment.
    let right = |member: u64| {
        let clock = cluster.nodes[&member].consensus.clock();
        clock.offset_ms.is_some() && !clock.off
    };
    let known = async {
        while !(cluster.nodes[&3].consensus.clock().off && right(2) && right(1)) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(BOUND, known).await.expect("members must learn each other's clocks");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_of_all_members_log_time_is_the_right_time_again() {
    let mut cluster = with_clocks(&[-DAY_MS; 3]).await;
    cluster.found().await;
    let (_, ahead) = stamped(&cluster, 1).await;
    assert!((ahead + DAY_MS).abs() < 60_000, "a day ago log time is {ahead} ms ahead");
    for id in 1..=3 {
        cluster.kill(id).await;
        cluster.seats[&id].wall.set_ahead(0);
    }
    for id in 1..=3 {
        cluster.start(id).await.expect("must start again");
    }
    let (_, ahead) = stamped(&cluster, 2).await;
    assert!(ahead.abs() < 60_000, "a day later log time is {ahead} ms ahead");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_time_that_is_ahead_of_every_clock_goes_on() {
    let cluster = with_clocks(&[YEARS_MS; 3]).await;
    cluster.found().await;
    let (before, _) = stamped(&cluster, 1).await;
    for seat in cluster.seats.values() {
        seat.wall.set_ahead(0);
    }
    for (serial, leader) in [(2, 1), (3, 2)] {
        lead(&cluster, leader).await;
        let (after, _) = stamped(&cluster, serial).await;
        assert!(after > before, "log time stands still at {after:?}");
        let until = cluster.nodes[&leader].consensus.until(LogTime(after.0 + 1_000));
        assert!(until <= Duration::from_secs(2), "a second would take {until:?}");
    }
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_whose_clocks_all_differ_has_a_leader_with_a_clock_that_is_right() {
    let cluster = with_clocks(&[YEARS_MS, 0, -YEARS_MS]).await;
    cluster.found().await;
    lead(&cluster, 1).await;
    let (_, ahead) = stamped(&cluster, 1).await;
    assert!(ahead < 60_000, "log time is {ahead} ms ahead");
    let settled = async {
        while cluster.nodes[&1].consensus.voter_with_right_clock() != Some(MemberId(2)) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(BOUND, settled).await.expect("the one in the middle is right");
    cluster.shutdown().await;
}
