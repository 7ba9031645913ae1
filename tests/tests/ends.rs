//! The table "Commands that stay" of docs/failure-model.md, tried: every command that stays, and every way in which it
//! is told to end, or its reader, its terminal, its input or the control plane goes away.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use nix::sys::signal::Signal;
use tessera_api::v1::{CancelJobRequest, Job, JobFilter, JobState, ListJobsRequest};
use tessera_client::{Client, Settings};
use tessera_tests::jobs::{get, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool, binary, program_here};
use tessera_tests::process::live_with_variable;
use tessera_tests::stayer::Stayer;
use tessera_tests::wait::until;
use tokio::process::Command;

use crate::stays::one_member;

/// The fate of a command that nobody reads any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unread {
    /// Ends with 141 at once, also while it has nothing to print.
    Ends,
    /// Its job runs on; it ends with 141 when that is over.
    RunsOn,
    /// Nothing.
    Unnoticed,
}

/// A command that stays.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// As the reference has it, with the option by which it stays.
    name: &'static str,
    /// In its arguments, JOB is a job that runs, FILE the file of one that waits, CELL a value of its own, and LINE a
    /// program that goes on until it is let go.
    typed: &'static str,
    /// Shown once it stays.
    shows: &'static str,
    /// Shown once its job has ended or something has happened, and the code with which it ends then; `None`: it stays.
    after: (&'static str, Option<i32>),
    unread: Unread,
}

impl Row {
    /// Returns whether the job is cancelled when the command is told to end.
    fn cancels(self) -> bool {
        self.unread == Unread::RunsOn
    }
}

const ROWS: [Row; 10] = [
    row("job run", "job run --label cell=CELL -- sh -c LINE", "begun", ("more", Some(5)), Unread::RunsOn),
    row("run", "run --label cell=CELL -- sh -c LINE", "begun", ("more", Some(5)), Unread::RunsOn),
    // No node has such a card: the program goes on without, and ends as it would without Tessera.
    row(
        "job run --here",
        "job run --here --tflops 1 --memory 1MiB --label cell=CELL -- sh -c LINE",
        "begun",
        ("more", Some(5)),
        Unread::RunsOn,
    ),
    row(
        "run --here",
        "run --here --tflops 1 --memory 1MiB --label cell=CELL -- sh -c LINE",
        "begun",
        ("more", Some(5)),
        Unread::RunsOn,
    ),
    row("job wait", "job wait JOB -v", "a member answers", ("ended as failed", Some(5)), Unread::Unnoticed),
    row("job submit --wait", "job submit FILE --wait --wait-timeout 10m", "job", ("", Some(0)), Unread::Unnoticed),
    row("job logs --follow", "job logs JOB --follow", "begun", ("more", Some(0)), Unread::Ends),
    row("job list --watch", "job list --watch --label cell=CELL", "STATE", ("cancelled", None), Unread::Ends),
    row("job events --follow", "job events JOB --follow", "running", ("failed", None), Unread::Ends),
    row("node list --watch", "node list --watch", "node-0", ("cordoned", None), Unread::Ends),
];

const fn row(
    name: &'static str,
    typed: &'static str,
    shows: &'static str,
    after: (&'static str, Option<i32>),
    unread: Unread,
) -> Row {
    Row { name, typed, shows, after, unread }
}

fn row_of(name: &str) -> Row {
    ROWS.into_iter().find(|row| row.name == name).expect("it has one")
}

/// The live view is only there in a terminal. What it draws is the sign that it stays.
const TOP: Row = row("top", "top", "tessera", ("", None), Unread::Unnoticed);

/// Commands that stay and have their ends in other tests: that of the simulation, and daemons.
const ELSEWHERE: [&str; 5] = ["simulate --online", "server", "agent", "dev", "supervise"];

/// Commands that are at work side by side.
const AT_ONCE: usize = 8;

/// A way to end.
#[derive(Clone, Copy, Debug)]
enum End {
    Told(Signal),
    /// By SIGHUP where that is ignored since it was started, as by `nohup`, and then by SIGTERM.
    ToldThoughDeaf,
    ReaderGone,
    TerminalGone,
}

const ENDS: [End; 6] = [
    End::Told(Signal::SIGINT),
    End::Told(Signal::SIGTERM),
    End::Told(Signal::SIGHUP),
    End::ToldThoughDeaf,
    End::ReaderGone,
    End::TerminalGone,
];

/// The pool, and what commands are typed about.
struct Scene {
    pool: Pool,
    client: Client,
    /// Made so that programs come to their end.
    flag: PathBuf,
    folder: PathBuf,
}

impl Scene {
    async fn new(members: usize) -> Result<Self> {
        let pool = Pool::start(Options { members, nodes: vec![vec![("gpu", 64)]], ..one_member() }).await?;
        let folder = pool.shared_folder("stays")?;
        Ok(Self { client: pool.client(), pool, flag: folder.join("go"), folder })
    }

    /// A program that runs until the flag is there.
    fn line(&self) -> String {
        format!("echo begun; while [ ! -e {} ]; do sleep 0.05; done; echo more; exit 5", self.flag.display())
    }

    async fn running(&self) -> Result<u64> {
        let job = submit(&self.client, shell(&self.line())).await?;
        wait_for(&self.client, job, JobState::Running).await?;
        Ok(job)
    }

    /// The command of a row in one cell.
    fn command(&self, starter: &[&str], row: Row, job: u64, cell: &str) -> Result<Command> {
        let file = self.folder.join(format!("{cell}.yaml"));
        let waits = "command: [\"true\"]\nvirtual_card: {tflops: 1}\nnode_labels: {zone: far}";
        std::fs::write(&file, format!("{waits}\nlabels: {{cell: {cell}}}\n"))?;
        let meant = |word: &str| match word {
            "JOB" => job.to_string(),
            "FILE" => file.display().to_string(),
            "LINE" => self.line(),
            word => word.replace("CELL", cell),
        };
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).arg(binary()).args(row.typed.split(' ').map(meant));
        command.env("TESSERA_SERVER", &self.pool.members[0].address);
        command.env("TESSERA_CONFIG", self.pool.folder().join("no-config.toml"));
        Ok(command)
    }

    /// The job that was made in a cell.
    async fn made_in(&self, cell: &str) -> Result<Option<Job>> {
        let labels = [("cell".to_owned(), cell.to_owned())].into();
        let filter = JobFilter { labels, ..JobFilter::default() };
        let request = ListJobsRequest { filter: Some(filter), page_size: 10, ..ListJobsRequest::default() };
        Ok(self.client.list_jobs(request).await?.jobs.pop())
    }

    async fn cancel(&self, job: u64) -> Result<()> {
        self.client.cancel_job(CancelJobRequest { job_id: job, ..Default::default() }).await?;
        Ok(())
    }
}

/// The name of a cell, as the value of a label.
fn cell_of(row: Row, what: impl std::fmt::Debug) -> String {
    format!("{}-{what:?}", row.name).replace([' ', '(', ')'], "")
}

/// Tries one cell of the table: the command ends as it says, and its job is cancelled or as it was.
async fn one_end(scene: &Scene, row: Row, end: End, steady: u64) -> Result<()> {
    // Whoever runs this test may have been started to ignore some signals.
    let hears = ["/usr/bin/env", "--default-signal"];
    let deaf = ["/bin/sh", "-c", "trap '' HUP; exec \"$0\" \"$@\""];
    let terminal = program_here("terminal.py").display().to_string();
    let mut starter = if matches!(end, End::ToldThoughDeaf) { deaf.to_vec() } else { hears.to_vec() };
    if matches!(end, End::TerminalGone) || row.name == TOP.name {
        starter.splice(0..0, ["python3", terminal.as_str()]);
    }
    let cell = cell_of(row, end);
    let mut stayer = Stayer::start(scene.command(&starter, row, steady, &cell)?, row.shows).await?;
    let signal = match end {
        End::Told(signal) => {
            stayer.tell(signal)?;
            signal
        }
        End::ToldThoughDeaf => {
            stayer.tell(Signal::SIGHUP)?;
            stayer.tell(Signal::SIGTERM)?;
            Signal::SIGTERM
        }
        End::ReaderGone => {
            stayer.unread().await;
            Signal::SIGPIPE
        }
        End::TerminalGone => {
            stayer.tell(Signal::SIGUSR1)?;
            Signal::SIGHUP
        }
    };
    stayer.ends_with(128 + signal as i32).await?;
    let expected = if row.cancels() { JobState::Cancelled } else { JobState::Pending };
    let state = scene.made_in(&cell).await?.map(|job| job.state());
    ensure!(!row.cancels() || state.is_some(), "it made no job");
    ensure!(state.is_none_or(|state| state == expected), "its job is {state:?}, not {expected:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_stays_ends_as_it_is_told_to() -> Result<()> {
    let scene = Scene::new(1).await?;
    let steady = scene.running().await?;
    let cells = ROWS.into_iter().chain([TOP]).flat_map(|row| ENDS.map(|end| (row, end)));
    let noticed = |(row, end): &(Row, End)| !matches!(end, End::ReaderGone) || row.unread == Unread::Ends;
    let tried = stream::iter(cells.filter(noticed)).map(|(row, end)| {
        let scene = &scene;
        async move { one_end(scene, row, end, steady).await.with_context(|| format!("{}, {end:?}", row.name)) }
    });
    tried.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    assert_eq!(get(&scene.client, steady).await?.state(), JobState::Running, "nobody ends what others stay with");
    Ok(())
}

/// The command of a row whose input has ended, and which nobody reads any more unless it is `read`.
async fn unattended(scene: &Scene, row: Row, job: u64, read: bool) -> Result<(Row, bool, Stayer)> {
    let command = scene.command(&["/usr/bin/env", "--default-signal"], row, job, &cell_of(row, read))?;
    let mut stayer = Stayer::start(command, row.shows).await?;
    stayer.end_input();
    if !read {
        stayer.unread().await;
    }
    Ok((row, read, stayer))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_stays_goes_on_without_input_through_another_leader_and_an_outage() -> Result<()> {
    let mut scene = Scene::new(3).await?;
    let job = scene.running().await?;
    let unread = ROWS.into_iter().filter(|row| row.unread != Unread::Ends).map(|row| (row, false));
    let all = ROWS.into_iter().map(|row| (row, true)).chain(unread);
    let started = stream::iter(all).map(|(row, read)| unattended(&scene, row, job, read)).buffer_unordered(AT_ONCE);
    let mut stayers: Vec<_> = started.try_collect().await?;
    let leader = scene.pool.leader().await?;
    // On a busy host the one that is to lead may not be elected in time.
    let another = async || {
        scene.pool.cli_ok(&["cluster", "transfer-leader"]).await.ok()?;
        scene.pool.leader().await.ok().filter(|now| *now != leader).map(drop)
    };
    until("another leader", another).await?;
    let mut watched = shell("true");
    watched.node_labels.insert("zone".to_owned(), "far".to_owned());
    watched.labels.insert("cell".to_owned(), cell_of(row_of("job list --watch"), true));
    let watched = submit(&scene.client, watched).await?;
    for (row, _, stayer) in &stayers {
        if row.name == "job list --watch" {
            stayer.shows("pending").await?;
        }
        ensure!(!stayer.shown().contains("waiting for"), "{} notices another leader: {}", row.name, stayer.shown());
    }
    (0..3).for_each(|member| scene.pool.kill_member(member));
    for (row, _, stayer) in &stayers {
        stayer.shows("waiting for 127.0.0.1:").await.context(row.name)?;
    }
    (0..3).try_for_each(|member| scene.pool.start_member(member))?;
    scene.pool.wait_for_nodes(1).await?;
    std::fs::write(&scene.flag, "")?;
    scene.cancel(watched).await?;
    for read in [true, false] {
        let submitted = scene.made_in(&cell_of(row_of("job submit --wait"), read)).await?;
        scene.cancel(submitted.context("nothing was submitted")?.id).await?;
    }
    scene.pool.cli_ok(&["node", "cordon", &scene.pool.nodes[0].name]).await?;
    for (row, read, stayer) in &mut stayers {
        let (shown, code) = row.after;
        if *read {
            stayer.shows(shown).await.context(row.name)?;
        }
        if code.is_none() {
            stayer.tell(Signal::SIGTERM)?;
        }
        let unread = !*read && row.unread == Unread::RunsOn;
        let code = if unread { 141 } else { code.unwrap_or(143) };
        stayer.ends_with(code).await.with_context(|| format!("{}, read: {read}", row.name))?;
    }
    for row in ["job run", "run"] {
        let ran = scene.made_in(&cell_of(row_of(row), false)).await?.context("it made no job")?;
        assert_eq!(ran.history.last().and_then(|attempt| attempt.exit_code), Some(5), "it ran on to its end");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_on_one_machine_ends_with_its_terminal_and_leaves_nothing() -> Result<()> {
    let scratch = tempfile::tempdir()?;
    // Workers have identities of their own.
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o1777))?;
    let mut command = Command::new("python3");
    command.arg(program_here("terminal.py")).args(["/usr/bin/env", "--default-signal"]).arg(binary());
    command.args(["dev", "--port", "0"]).env("TMPDIR", scratch.path());
    let mut dev = Stayer::start(command, "Ctrl-C stops everything").await?;
    let shown = dev.shown();
    let server = shown.lines().find_map(|line| line.trim().strip_prefix("export TESSERA_SERVER="));
    let client = Client::new(&[server.context("it names no member")?.trim().parse()?], Settings::default())?;
    let mut spec = shell("sleep 600");
    spec.virtual_card.get_or_insert_default().milli_tflops = 10;
    wait_for(&client, submit(&client, spec).await?, JobState::Running).await?;
    let works = format!("TESSERA_WORKER_DIR={}/", scratch.path().display());
    assert!(!live_with_variable(works.as_bytes()).is_empty());
    dev.tell(Signal::SIGUSR1)?;
    dev.ends_with(0).await?;
    assert_eq!(live_with_variable(works.as_bytes()), [0; 0], "work runs on");
    assert_eq!(std::fs::read_dir(scratch.path())?.count(), 0, "its folder stays");
    Ok(())
}

/// The options by which commands stay.
const STAYS_BY: [&str; 5] = ["--watch", "--follow", "--wait", "--here", "--online"];

/// The names of all commands that stay by an option, or that wait for as long as one says, as the reference has them.
fn staying() -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for page in std::fs::read_dir(document("cli"))? {
        let page = std::fs::read_to_string(page?.path())?;
        for section in page.split("\n## tessera ").skip(1).chain(page.strip_prefix("# tessera ")) {
            let name = section.lines().next().unwrap_or_default();
            let own = section.split("\n## ").next().unwrap_or_default();
            let has = |option: &str| own.contains(&format!("`{option}`:")) || own.contains(&format!("`{option} <"));
            names.extend(STAYS_BY.into_iter().filter(|option| has(option)).map(|option| format!("{name} {option}")));
            if has("--wait-timeout") && !has("--wait") {
                names.insert(name.to_owned());
            }
        }
    }
    Ok(names)
}

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

#[test]
fn every_command_that_stays_has_its_row_and_its_test() -> Result<()> {
    let tested: BTreeSet<&str> = ROWS.into_iter().chain([TOP]).map(|row| row.name).chain(ELSEWHERE).collect();
    let staying = staying()?;
    assert!(staying.contains("job list --watch") && staying.contains("job wait"), "{staying:?}");
    for name in &staying {
        assert!(tested.contains(name.as_str()), "`{name}` stays: say here how it ends");
    }
    let text = std::fs::read_to_string(document("failure-model.md"))?;
    let table = text.split("### Commands that stay").nth(1).and_then(|rest| rest.split("\n\n*").next());
    let rows = table.unwrap_or_default().lines().filter_map(|line| line.strip_prefix("| "));
    let named: String = rows.filter_map(|row| row.split(" | ").next()).collect();
    for name in tested {
        assert!(named.contains(&format!("`{name}`")), "`{name}` has no row in docs/failure-model.md");
    }
    Ok(())
}
