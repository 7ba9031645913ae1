//! A leader whose threads are all taken by what clients ask for.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::pool::members::{Members, leases};

/// The time for which the threads are taken: several times as long as the others wait for a leader.
const TAKEN: Duration = Duration::from_millis(2_500);

/// A runtime with one thread.
fn runtime(name: &str) -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(name)
        .enable_all()
        .build()
        .expect("threads can be started")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_leads_on_while_its_threads_are_busy_with_clients() {
    let runtimes = [0, 1, 2].map(|_| (runtime("member"), runtime("consensus")));
    let handles = [0, 1, 2].map(|member: usize| {
        let (rest, consensus) = &runtimes[member];
        (rest.handle().clone(), consensus.handle().clone())
    });
    let members = Members::on(&handles).await;
    let (leader, term) = members.leader().await;
    // As long as it takes: nothing else of this member runs meanwhile.
    let taken = handles[leader].0.spawn(async { std::thread::sleep(TAKEN) });
    taken.await.expect("it only waits");
    assert_eq!(members.leader().await, (leader, term), "nobody else was elected");
    members.set_leases(leases(2)).await;
    members.stop().await;
    for (rest, consensus) in runtimes {
        rest.shutdown_background();
        consensus.shutdown_background();
    }
}
