//! Members of this release beside those that know no lines, and strangers on a line.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{BOUND, Cluster, config};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_know_no_lines_are_called_until_they_are_upgraded() {
    let mut cluster = Cluster::new(config());
    cluster.without_lines = [1, 2].into();
    for id in 1..=3 {
        cluster.add_seat(id).await;
        cluster.start(id).await.expect("a new member must start");
    }
    cluster.found().await;
    let mut serial = 0;
    for upgraded in [1, 2] {
        for leader in [1, 3] {
            cluster.leave_the_lead(leader).await;
            for _ in 0..20 {
                cluster.propose_somewhere(serial).await;
                serial += 1;
            }
        }
        cluster.converged().await;
        cluster.kill(upgraded).await;
        cluster.without_lines.remove(&upgraded);
        cluster.start(upgraded).await.expect("an upgraded member must start");
    }
    cluster.propose_somewhere(serial).await;
    let applied = cluster.converged().await;
    assert_eq!(applied, (0..=serial).collect::<Vec<_>>(), "each once, in order");
    cluster.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_on_a_line_is_turned_away_and_nobody_else_notices() {
    let cluster = Cluster::founded(3, config()).await;
    // A length no opening has; an opening that is none; one that names nobody.
    for (said, told) in [(&[0, 1, 0, 0, 0][..], false), (&[0, 0, 0, 0, 1, 0xff], false), (&[0, 0, 0, 0, 0], true)] {
        let mut line = TcpStream::connect(&cluster.seats[&2].member.address).await.expect("it listens");
        line.write_all(said).await.expect("it is taken");
        let mut answer = Vec::new();
        // Whether the end is orderly depends on what of the above was still unread.
        let _ = timeout(BOUND, line.read_to_end(&mut answer)).await.expect("it is closed");
        assert_eq!(String::from_utf8_lossy(&answer).contains("without a header"), told, "{said:?}: {answer:?}");
    }
    cluster.propose_somewhere(1).await;
    assert_eq!(cluster.converged().await, [1]);
    cluster.shutdown().await;
}
