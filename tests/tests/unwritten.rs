//! Answers of a pool that cannot be written: on a full device, and where nobody reads them. What was asked for is done
//! all the same, once.

use std::fs::File;
use std::io::pipe;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use tessera_api::v1::JobState;
use tessera_tests::jobs::{get, output, shell, submit};
use tessera_tests::pool::{Pool, binary};
use tessera_tests::wait::until;
use tokio::process::Command;

use crate::stays::one_member;

/// Commands with an answer; JOB runs, NODE is where, FILE is the file of a job.
const ANSWERED: [&str; 27] = [
    "card list",
    "card show NODE/0",
    "cluster member list",
    "cluster status",
    "job checkpoints JOB",
    "job events",
    "job list",
    "job list -o json",
    "job logs JOB",
    "job plan FILE",
    "job show JOB",
    "job submit FILE",
    "job top",
    "job why JOB",
    "node list",
    "node show NODE",
    "pool compact",
    "pool config show",
    "pool map",
    "pool show",
    "pool verify",
    "pool what-if add gpu:gpu-8",
    "pool what-if drain NODE",
    "queue list",
    "queue set q --weight 2",
    "run -- echo output",
    "top --once",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_cannot_be_written_is_said_and_what_was_asked_for_is_done() -> Result<()> {
    let pool = Pool::start(one_member()).await?;
    let client = pool.client();
    let job = submit(&client, shell("echo output; sleep 600")).await?;
    let printed = async || output(&client, job, 0).await.ok()?.contains("output").then_some(());
    until("the job to print", printed).await?;
    let file = pool.shared_folder("files")?.join("job.yaml");
    std::fs::write(&file, "command: [\"true\"]\nvirtual_card: {tflops: 1}\n")?;
    let (file, node, job_name) = (file.display().to_string(), pool.nodes[0].name.clone(), job.to_string());
    let answered = async |typed: &str, full: bool| -> Result<()> {
        let typed = typed.replace("NODE", &node).replace("FILE", &file).replace("JOB", &job_name);
        let out: Stdio = if full { File::options().write(true).open("/dev/full")?.into() } else { pipe()?.1.into() };
        let mut command = Command::new(binary());
        command.args(typed.split(' ')).env("TESSERA_SERVER", &pool.members[0].address).stdin(Stdio::null());
        command.env("TESSERA_CONFIG", pool.folder().join("no-config.toml")).stdout(out);
        // Not `output`, which has pipes of its own.
        let begun = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().context("starting the command line")?;
        let ended = begun.wait_with_output().await?;
        let said = String::from_utf8_lossy(&ended.stderr);
        let (code, why) =
            if full { (8, "error: the output cannot be written\n  why: No space left") } else { (141, "") };
        ensure!(ended.status.code() == Some(code), "{typed}: {}, not {code}: {said}", ended.status);
        ensure!(if full { said.contains(why) } else { !said.contains("error:") }, "{typed}: {said}");
        Ok(())
    };
    let all = ANSWERED.into_iter().flat_map(|typed| [(typed, true), (typed, false)]);
    stream::iter(all).map(|(typed, full)| answered(typed, full)).buffer_unordered(4).try_collect::<()>().await?;
    let queues = pool.cli_ok(&["queue", "list", "-o", "name"]).await?;
    assert!(queues.lines().any(|name| name == "q"), "{queues}");
    assert_eq!(get(&client, job).await?.state(), JobState::Running);
    Ok(())
}
