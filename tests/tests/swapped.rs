//! Two ordinary jobs try to have root open a file for them: one is suspended with a file of its own open, the other
//! puts a link in its place, and the first is resumed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::Result;
use tessera_api::v1::{CheckpointMode, CheckpointPolicy, JobSpec, JobState, ResumeJobRequest, Span};
use tessera_tests::dumping::pool_that_dumps;
use tessera_tests::jobs::{get, on, shell, submit, suspend, wait_for};
use tessera_tests::pool::Options;
use tessera_tests::wait::until;

const OF_ROOT: &str = "root's\n";

/// A job that a node dumps when it is suspended.
fn dumped(line: &str) -> JobSpec {
    let grace = Some(prost_types::Duration { seconds: 50, nanos: 0 });
    let mode = CheckpointMode::Transparent.into();
    let checkpoint = Some(CheckpointPolicy { mode, grace, ..CheckpointPolicy::default() });
    JobSpec { checkpoint, ..on(shell(line), 4, Span::Card) }
}

/// The owners of what lies in a folder.
fn owners(folder: &Path) -> Result<Vec<u32>> {
    fs::read_dir(folder)?.map(|entry| Ok(fs::symlink_metadata(entry?.path())?.uid())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_ordinary_jobs_have_root_open_nothing_for_them() -> Result<()> {
    let pool = pool_that_dumps(Options { members: 1, nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    let (shared, gate) = (pool.shared_folder("shared")?, pool.shared_folder("gate")?);
    let (file, before, target) = (shared.join("file"), shared.join("before"), pool.folder().join("target"));
    fs::write(&target, OF_ROOT)?;
    fs::set_permissions(&target, fs::Permissions::from_mode(0o644))?;

    let line = format!(
        "umask 022; exec 5>>{file}; echo begun >&5; until [ -e {gate}/open ]; do sleep 0.05; done; echo gone on >&5",
        file = file.display(),
        gate = gate.display()
    );
    let first = submit(&client, dumped(&line)).await?;
    until("the job to have its file open", async || (fs::read_to_string(&file).ok()? == "begun\n").then_some(()))
        .await?;
    let suspended = suspend(&client, first).await?;
    assert_eq!((suspended.checkpoints.len(), suspended.history[0].not_saved.as_str()), (1, ""));

    let (file_shown, before_shown) = (file.display(), before.display());
    let swap = format!("mv {file_shown} {before_shown} && ln -s {} {file_shown}", target.display());
    let second = submit(&client, shell(&swap)).await?;
    wait_for(&client, second, JobState::Completed).await?;
    assert_eq!(fs::read_link(&file)?, target);
    assert!(!owners(&shared)?.contains(&0), "both jobs have accounts of their own");

    // It would write as soon as it is there again.
    fs::write(gate.join("open"), "")?;
    client.resume_job(ResumeJobRequest { job_id: first, ..Default::default() }).await?;
    let refused = until("the restore to be refused", async || {
        let reasons = get(&client, first).await.ok()?.history.into_iter().filter_map(|attempt| attempt.reason);
        reasons.into_iter().find(|reason| reason.code == "NOT_RESTORED")
    })
    .await?;
    let path = file.display().to_string();
    assert!(refused.sentence.contains(path.trim_start_matches('/')), "{}", refused.sentence);
    assert!(refused.sentence.contains("a symbolic link has been put there since"), "{}", refused.sentence);
    assert_eq!(fs::read_to_string(&target)?, OF_ROOT);

    // It goes on when its file is there again.
    fs::rename(&before, &file)?;
    wait_for(&client, first, JobState::Completed).await?;
    assert_eq!(fs::read_to_string(&file)?, "begun\ngone on\n");
    assert!(!owners(&shared)?.contains(&0), "nothing of root lies there");
    assert_eq!(fs::read_to_string(&target)?, OF_ROOT);
    pool.verify().await
}
