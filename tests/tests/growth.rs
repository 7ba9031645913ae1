//! Elastic gangs, on real processes: one that began with fewer virtual cards than it would like goes on with more of
//! them once there is room, where it was.

use anyhow::Result;
use tessera_api::v1::{CheckpointMode, CheckpointPolicy, JobSpec, JobState, Span};
use tessera_tests::jobs::{get, on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_goes_on_with_more_virtual_cards_when_there_is_room() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    let out = pool.shared_folder("elastic")?;
    std::fs::write(out.join("limit"), "50")?;
    let gate = pool.shared_folder("gate")?;
    let line = format!("while [ ! -e {}/open ]; do sleep 0.02; done", gate.display());
    let other = submit(&client, on(shell(&line), 8, Span::Card)).await?;
    wait_for(&client, other, JobState::Running).await?;

    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let mut spec =
        on(shell(&format!("exec python3 {} {} 100", pool.program("elastic.py"), out.display())), 8, Span::Card);
    spec.environment.insert("PYTHONPATH".to_owned(), pool.helper());
    spec.environment.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    let mode = CheckpointMode::Cooperative.into();
    let checkpoint = Some(CheckpointPolicy {
        mode,
        signal: "SIGTERM".to_owned(),
        grace: seconds(50),
        every: seconds(1),
        ..Default::default()
    });
    let job =
        submit(&client, JobSpec { gang: 2, gang_min: Some(1), grow_after: seconds(1), checkpoint, ..spec }).await?;
    let runs = || std::fs::read_to_string(out.join("runs")).unwrap_or_default();
    until("a checkpoint of the small gang", async || {
        let seen = get(&client, job).await.ok()?;
        (!seen.checkpoints.is_empty()).then_some(())
    })
    .await?;
    assert_eq!(runs(), "1 0\n", "the other job has the second card");

    std::fs::write(gate.join("open"), "")?;
    wait_for(&client, other, JobState::Completed).await?;
    until("the gang to have both cards", async || (runs() == "1 0\n2 50\n").then_some(())).await?;
    let grown = wait_for(&client, job, JobState::Running).await?;
    assert_eq!(grown.history[0].reason.as_ref().map(|reason| reason.code.as_str()), Some("GROWING"));
    std::fs::write(out.join("limit"), "100")?;
    let done = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!((done.attempts, done.retries), (2, 0));
    assert_eq!(output(&client, job, 0).await?, "5050\n");
    pool.verify().await
}
