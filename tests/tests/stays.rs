//! Commands that stay with a job: through an outage of the control plane, and until they are told to end.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_api::v1::JobState;
use tessera_client::Client;
use tessera_tests::jobs::{get, wait_for};
use tessera_tests::link::Link;
use tessera_tests::pool::{Options, Pool, binary, program_here};
use tessera_tests::stayer::Stayer;
use tessera_tests::wait::until;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

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

/// Waits until a command says something on standard error.
async fn says(said: &mut Lines<BufReader<ChildStderr>>, what: &str) -> Result<()> {
    loop {
        let line = said.next_line().await?.with_context(|| format!("it ended and did not say `{what}`"))?;
        if line.contains(what) {
            return Ok(());
        }
    }
}

fn said_by(child: &mut Child) -> Result<Lines<BufReader<ChildStderr>>> {
    Ok(BufReader::new(child.stderr.take().context("no standard error")?).lines())
}

/// Waits until a command waits for a member.
async fn waits(child: &mut Child) -> Result<()> {
    says(&mut said_by(child)?, "waiting for 127.0.0.1:").await
}

fn tell(child: &Child, signal: Signal) -> Result<()> {
    let pid = i32::try_from(child.id().context("it has ended")?)?;
    Ok(kill(Pid::from_raw(pid), signal)?)
}

/// A pool of one member whose work outlives an outage of it.
pub(crate) fn one_member() -> Options {
    Options { members: 1, lease: [1_000, 60_000, 70_000, 90_000], ..Options::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_stays_with_a_job_stays_through_an_outage() -> Result<()> {
    let mut pool = Pool::start(one_member()).await?;
    let client = pool.client();
    let flag = pool.shared_folder("flag")?.join("go");
    // The first attempt ends in the outage, and has said nothing on standard error by then.
    let line = format!(
        "[ -e {0} ] && echo again >&2; echo before; while [ ! -e {0} ]; do sleep 0.05; done; echo after; exit 5",
        flag.display()
    );
    let program = binary();
    let program = program.to_str().context("a path of text")?;
    let mut runs = begin(&pool, program, &["job", "run", "--retries", "1", "--", "sh", "-c", &line])?;
    wait_for(&client, 1, JobState::Running).await?;
    let mut stays = begin(&pool, program, &["job", "wait", "1", "--timeout", "10m"])?;
    let mut follows = begin(&pool, program, &["job", "logs", "1", "--follow"])?;
    let mut hears_nothing = begin(&pool, program, &["job", "logs", "1", "--follow", "--stderr", "-v"])?;
    let mut said_of_nothing = said_by(&mut hears_nothing)?;
    says(&mut said_of_nothing, "a member answers").await?;
    // It has been answered once, and goes on for ever; the first was told for how long.
    let mut output = BufReader::new(follows.stdout.take().context("no output")?);
    let mut first = String::new();
    output.read_line(&mut first).await?;
    assert_eq!(first, "before\n");
    pool.kill_member(0);
    let mut said = said_by(&mut runs)?;
    says(&mut said, "waiting for 127.0.0.1:").await?;
    waits(&mut follows).await?;
    waits(&mut stays).await?;
    says(&mut said_of_nothing, "waiting for 127.0.0.1:").await?;
    std::fs::write(&flag, "")?;
    pool.start_member(0)?;
    says(&mut said, "again").await?;
    let mut rest = String::new();
    while let Some(line) = said.next_line().await? {
        rest += &line;
    }
    assert!(!rest.contains("again"), "each attempt is read once: {rest}");
    let Output { status, stdout, .. } = runs.wait_with_output().await?;
    let twice = "before\nafter\nbefore\nafter\n";
    assert_eq!((status.code(), String::from_utf8(stdout)?.as_str()), (Some(5), twice));
    assert_eq!(stays.wait().await?.code(), Some(5));
    let mut rest = String::new();
    output.read_to_string(&mut rest).await?;
    assert_eq!((rest.as_str(), follows.wait().await?.code()), ("after\n", Some(0)));
    Ok(())
}

async fn cancelled(client: &Client, job: u64) -> Result<()> {
    until("the job to be cancelled", async || {
        (get(client, job).await.ok()?.state() == JobState::Cancelled).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn job_run_hears_signals_while_nobody_reads_its_output() -> Result<()> {
    let pool = Pool::start(one_member()).await?;
    let program = binary();
    let program = program.to_str().context("a path of text")?;
    let prints = ["--default-signal", program, "job", "run", "--", "sh", "-c", "while :; do echo output; done"];
    let mut runs = begin(&pool, "env", &prints)?;
    let mut output = runs.stdout.take().context("no output")?;
    output.read_exact(&mut [0; 1]).await?;
    // Without end: from now on it waits for whoever reads on, sooner or later.
    tell(&runs, Signal::SIGINT)?;
    cancelled(&pool.client(), 1).await?;
    tell(&runs, Signal::SIGINT)?;
    assert_eq!(runs.wait().await?.code(), Some(130), "it leaves what nobody reads");
    Ok(())
}

/// The program of a command with its card in the pool, which goes on until the flag is there.
fn program_here_until(flag: &Path) -> String {
    format!("echo begun; while [ ! -e {} ]; do sleep 0.05; done; exit 5", flag.display())
}

/// Keys at a terminal reach whoever is there: a command that hears a Ctrl-C before its program exists is the only one.
#[tokio::test(flavor = "multi_thread")]
async fn a_ctrl_c_before_the_program_exists_cancels_the_job() -> Result<()> {
    let pool = Pool::start(one_member()).await?;
    let client = pool.client();
    let link = Link::to(pool.members[0].address.clone()).await?;
    link.open(Duration::from_millis(300));
    let mut command = Command::new("python3");
    command.arg(program_here("terminal.py")).args(["/usr/bin/env", "--default-signal"]).arg(binary());
    command.args(["run", "--here", "--tflops", "1", "--memory", "1MiB", "--node-label", "zone=far", "--", "sh", "-c"]);
    command.arg(program_here_until(&pool.folder().join("never")));
    command.env("TESSERA_SERVER", link.address()).env("TESSERA_CONFIG", pool.folder().join("no-config.toml"));
    let mut runs = Stayer::start(command, "").await?;
    until("the job to be submitted", async || get(&client, 1).await.ok().map(drop)).await?;
    // It is told its job, and asks for a second whether a node has the label. On a host that is busy for longer its
    // program is there already, and hears the keys itself.
    link.silence();
    runs.types("\u{3}").await?;
    let heard = ["cancelling the job", "^C"];
    until("the key to be heard", async || heard.iter().any(|word| runs.shown().contains(word)).then_some(())).await?;
    link.open(Duration::ZERO);
    runs.ends_with(130).await?;
    let shown = runs.shown();
    assert!(!shown.contains(heard[0]) || !shown.contains("begun"), "{shown}");
    cancelled(&client, 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_here_ends_in_an_outage_and_its_card_is_given_back_after_it() -> Result<()> {
    let mut pool = Pool::start(one_member()).await?;
    let flag = pool.folder().join("go");
    let mut command = Command::new("/usr/bin/env");
    command
        .arg("--default-signal")
        .arg(binary())
        .args(["run", "--here", "--tflops", "1", "--memory", "1MiB", "--", "sh", "-c"]);
    command.arg(program_here_until(&flag));
    command.env("TESSERA_SERVER", &pool.members[0].address);
    command.env("TESSERA_CONFIG", pool.folder().join("no-config.toml"));
    let mut runs = Stayer::start(command, "begun").await?;
    pool.kill_member(0);
    runs.shows("job 1 cannot be watched").await?;
    std::fs::write(&flag, "")?;
    runs.shows("job 1 was not cancelled").await?;
    pool.start_member(0)?;
    runs.ends_with(5).await?;
    cancelled(&pool.client(), 1).await
}
