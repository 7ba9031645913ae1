//! The listener of an agent among callers that want too much of it.

use std::time::Duration;

use tessera_api::v1 as wire;
use tessera_connection::seats::SeatLimits;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use wire::WorkerDesire;

use super::agent::{client, config, follow_until, start};
use super::leader::{Leader, order, reference};
use super::support::PATIENCE;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_keep_nobody_from_an_output_and_are_closed() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut config = config(data.path(), &leader);
    // At most 16 of them may wait to say something.
    config.limits.seats = SeatLimits { connections: 8, silence: Duration::from_secs(2) };
    let running = start(config).await;
    let address = leader.welcome().await.address;
    leader.order(true, vec![order(1, WorkerDesire::Run, "echo here; exec sleep 1000")]).await;
    let mut silent = Vec::new();
    for _ in 0..24 {
        silent.push(TcpStream::connect(&address).await.expect("the kernel takes it"));
    }
    follow_until(&address, 1, "here").await;
    for mut connection in silent {
        // With an error or without; what matters is the end.
        let _ = timeout(PATIENCE, connection.read_to_end(&mut Vec::new())).await.expect("it is closed");
    }
    leader.order(true, Vec::new()).await;
    leader.report_of(1, wire::WorkerPhase::Stopped).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_followers_than_may_be_are_refused_until_one_leaves() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let mut leader = Leader::start().await;
    let mut config = config(data.path(), &leader);
    config.limits.log_streams = 1;
    let running = start(config).await;
    let address = leader.welcome().await.address;
    leader.order(true, vec![order(1, WorkerDesire::Run, "echo here; exec sleep 1000")]).await;
    follow_until(&address, 1, "here").await;
    let request = || wire::ReadLogsRequest { worker: Some(reference(1)), follow: true, ..Default::default() };
    let mut caller = client(&address).await;
    // The one before leaves when its agent hears of it.
    let first = timeout(PATIENCE, async {
        loop {
            match caller.read_logs(request()).await {
                Ok(first) => break first,
                Err(refused) => assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}"),
            }
        }
    });
    let first = first.await.expect("it may follow");
    let refused = caller.read_logs(request()).await.expect_err("one follows");
    assert!(refused.message().contains("1 outputs are read"), "{refused}");
    drop(first);
    timeout(PATIENCE, async { while caller.read_logs(request()).await.is_err() {} }).await.expect("it has left");
    leader.order(true, Vec::new()).await;
    leader.report_of(1, wire::WorkerPhase::Stopped).await;
    running.stop().await;
}
