//! A full disk under a follower and under the leader: nothing acknowledged is lost, the pool goes on, and the member is
//! back once there is room.

use std::future::ready;

use anyhow::{Context, Result};
use tessera_api::v1::JobState;
use tessera_tests::jobs::{shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::small_disk::SmallDisk;
use tessera_tests::wait::until;

/// The number of jobs of half a megabyte that fill any log that a store of the default size has begun.
const MOST_JOBS: usize = 80;

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_nothing_that_was_acknowledged() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut disks = Vec::new();
    for place in 0..3 {
        let Some(disk) = SmallDisk::mount(&folder.path().join(format!("disk-{place}")))? else { return Ok(()) };
        disks.push(disk);
    }
    let member_folders = disks.iter().enumerate().map(|(place, disk)| (place, disk.folder().join("data"))).collect();
    let options = Options { nodes: vec![vec![("gpu", 8)]], member_folders, ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let mut jobs = Vec::new();

    for on_leader in [false, true] {
        let leader = pool.leader().await?;
        let full = if on_leader { leader } else { (leader + 1) % 3 };
        disks[full].fill()?;
        let name = if on_leader { "leader" } else { "follower" };
        // Large jobs until the log has outgrown what the store had allocated before the disk was full, which may be
        // more than half of these.
        for number in 0..MOST_JOBS {
            let mut spec = shell("true");
            spec.script = format!("#{}", "x".repeat(500_000));
            jobs.push(submit(&client, spec).await.with_context(|| format!("job {number} with a full disk"))?);
            if pool.member(full).ended()?.is_some() {
                break;
            }
        }
        until(&format!("the {name} to stop"), || ready(pool.member(full).ended().ok().flatten())).await?;
        assert_ne!(pool.leader().await?, full, "the member with the full disk does not lead ({name})");
        let log = pool.member(full).log();
        assert!(log.contains("full") || log.contains("no space"), "the member says why it stopped: {log}");
        disks[full].make_room()?;
        pool.start_member(full)?;
        let own = pool.client_of(full);
        until(&format!("the {name} to be back"), async || {
            own.get_cluster_status(Default::default()).await.ok()?.leader.map(|_| ())
        })
        .await?;
    }
    for job in jobs {
        wait_for(&client, job, JobState::Completed).await?;
    }
    pool.verify().await
}
