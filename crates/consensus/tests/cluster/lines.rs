//! Strangers on a line.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{BOUND, Cluster, config};

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
