//! Clients that try to exhaust the leader: a smaller and shorter run of `tessera-chaos exhaust`.

use std::time::Duration;

use anyhow::Result;
use tessera_chaos::bench::exhaust::{self, Options};
use tessera_chaos::options::Common;
use tessera_tests::pool::binary;

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_many_clients_try_to_exhaust_keeps_its_memory_and_serves_others() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let common = Common {
        binary: Some(binary()),
        dir: folder.path().to_owned(),
        keep: false,
        json: None,
        idle: 0.0,
        patience: Duration::ZERO,
        limit: Duration::from_secs(120),
    };
    let options = Options {
        common,
        clients: 24,
        duration: Duration::from_secs(15),
        watches: 3_000,
        connections: 1_500,
        jobs: 400,
        before: 500,
        ceiling: 4_096,
        expect_below: Some(2_048),
        patient: true,
        expect_leader: true,
    };
    tokio::time::timeout(options.common.limit, exhaust::run(&options)).await?
}
