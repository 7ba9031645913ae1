//! Commands that stay with a job: through an outage of the control plane, and until they are told to end.

use std::process::{Output, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_api::v1::JobState;
use tessera_tests::jobs::{get, wait_for};
use tessera_tests::pool::{Options, Pool, binary};
use tessera_tests::wait::until;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A command that goes on in the background.
fn begin(pool: &Pool, program: &str, arguments: &[&str]) -> Result<Child> {
    Command::new(program)
        .args(arguments)
        .env("TESSERA_SERVER", &pool.members[0].address)
        .env("TESSERA_CONFIG", pool.folder().join("no-config.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting the command")
}

/// Waits until a command says on standard error that it waits for a member, and reads on.
async fn waits(child: &mut Child) -> Result<()> {
    let said = child.stderr.take().context("no standard error")?;
    let mut lines = BufReader::new(said).lines();
    let line = lines.next_line().await?.context("it ended and said nothing")?;
    assert!(line.contains("waiting for 127.0.0.1:"), "{line}");
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok(())
}

/// A pool of one member whose work outlives an outage of it.
async fn pool_of_one() -> Result<Pool> {
    Pool::start(Options { members: 1, lease: [1_000, 60_000, 70_000, 90_000], ..Options::default() }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stays_with_a_job_stays_through_an_outage() -> Result<()> {
    let mut pool = pool_of_one().await?;
    let client = pool.client();
    let flag = pool.shared_folder("flag")?.join("go");
    let line = format!("echo before; while [ ! -e {} ]; do sleep 0.05; done; echo after; exit 5", flag.display());
    let program = binary();
    let program = program.to_str().context("a path of text")?;
    let mut runs = begin(&pool, program, &["job", "run", "--", "sh", "-c", &line])?;
    wait_for(&client, 1, JobState::Running).await?;
    let mut stays = begin(&pool, program, &["job", "wait", "1", "--timeout", "10m"])?;
    let mut follows = begin(&pool, program, &["job", "logs", "1", "--follow"])?;
    // It has been answered once, and goes on for ever; the one above was told for how long.
    let mut said = BufReader::new(follows.stdout.take().context("no output")?);
    let mut first = String::new();
    said.read_line(&mut first).await?;
    assert_eq!(first, "before\n");
    pool.kill_member(0);
    waits(&mut runs).await?;
    waits(&mut follows).await?;
    waits(&mut stays).await?;
    pool.start_member(0)?;
    pool.wait_for_nodes(3).await?;
    std::fs::write(&flag, "")?;
    let Output { status, stdout, .. } = runs.wait_with_output().await?;
    assert_eq!((status.code(), String::from_utf8(stdout)?.as_str()), (Some(5), "before\nafter\n"));
    assert_eq!(stays.wait().await?.code(), Some(5));
    let mut rest = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut said, &mut rest).await?;
    assert_eq!((rest.as_str(), follows.wait().await?.code()), ("after\n", Some(0)));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_tells_job_run_to_end_has_its_job_cancelled() -> Result<()> {
    let pool = pool_of_one().await?;
    let client = pool.client();
    let program = binary();
    let program = program.to_str().context("a path of text")?;
    let tell = |child: &Child, signal| -> Result<()> {
        let pid = i32::try_from(child.id().context("it has ended")?)?;
        Ok(kill(Pid::from_raw(pid), signal)?)
    };
    for (job, signal, code) in [(1, Signal::SIGTERM, 143), (2, Signal::SIGHUP, 129), (3, Signal::SIGINT, 130)] {
        // Whoever runs this test may have been started to ignore some of them.
        let listens = ["--default-signal", program, "job", "run", "--", "sleep", "600"];
        let mut runs = begin(&pool, "env", &listens)?;
        wait_for(&client, job, JobState::Running).await?;
        tell(&runs, signal)?;
        assert_eq!(runs.wait().await?.code(), Some(code));
        assert_eq!(get(&client, job).await?.state(), JobState::Cancelled);
    }
    let ignores = "trap '' HUP; exec \"$0\" job run -- sleep 600";
    let mut runs = begin(&pool, "sh", &["-c", ignores, program])?;
    wait_for(&client, 4, JobState::Running).await?;
    tell(&runs, Signal::SIGHUP)?;
    tell(&runs, Signal::SIGTERM)?;
    assert_eq!(runs.wait().await?.code(), Some(143), "started as by nohup, it hears no SIGHUP");
    until("the job to be cancelled", async || {
        (get(&client, 4).await.ok()?.state() == JobState::Cancelled).then_some(())
    })
    .await
}
