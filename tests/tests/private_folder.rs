//! A clone may lie below a home that only its owner may enter, under a name that shells and lists of folders read in their
//! own way. Jobs of tests run from there all the same, and a job that names a file there is told at once what is wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;
use nix::unistd::geteuid;
use tessera_api::v1::{JobState, Span};
use tessera_tests::jobs::{on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool, program_here};

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_a_private_folder_are_run_from_where_workers_can_read_them() -> Result<()> {
    let home = tempfile::Builder::new().prefix("häuslich für mich ").tempdir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700))?;
    let private = home.path().join("tenant.py");
    fs::copy(program_here("tenant.py"), &private)?;
    fs::set_permissions(&private, fs::Permissions::from_mode(0o600))?;

    let pool = Pool::start(Options { members: 1, nodes: vec![vec![("gpu", 8)]], ..Options::default() }).await?;
    let client = pool.client();
    // Three steps of a chain of hashes, printed.
    let mut spec = on(shell(""), 1, Span::Card);
    spec.command = ["python3", &pool.program("tenant.py"), "3"].map(str::to_owned).to_vec();
    let job = submit(&client, spec.clone()).await?;
    wait_for(&client, job, JobState::Completed).await?;
    let right = std::process::Command::new("python3").arg(&private).arg("3").output()?;
    assert_eq!(output(&client, job, 0).await?, String::from_utf8(right.stdout)?);

    // As somebody else than its owner, which takes root to be, it cannot be read from where it lies.
    if geteuid().is_root() {
        spec.command[1] = private.display().to_string();
        let refused = submit(&client, spec).await?;
        wait_for(&client, refused, JobState::Failed).await?;
        let told = pool.cli_ok(&["job", "logs", &refused.to_string(), "--stderr"]).await?;
        assert!(told.contains("Permission denied"), "{told}");
    }
    pool.verify().await
}
