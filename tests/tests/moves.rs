//! Moves of running jobs between cards and nodes, through real processes: the work is saved and goes on elsewhere,
//! whoever dies meanwhile, and never runs twice at once (L2).

use std::path::PathBuf;

use anyhow::Result;
use tessera_api::v1::{
    CancelJobRequest, CheckpointMode, CheckpointPolicy, Job, JobSpec, JobState, MoveJobRequest, MovePhase, NodeRef,
    Span, node_ref,
};
use tessera_client::Client;
use tessera_tests::jobs::{get, on, output, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::wait::until;

/// The files that a program that saves itself leaves behind.
struct Diary(PathBuf);

impl Diary {
    fn new(pool: &Pool, name: &str) -> Result<Self> {
        Ok(Self(pool.shared_folder(name)?))
    }

    /// A program that writes down each of its runs, saves itself when it is told to stop (while `gate` is there
    /// it takes its time), and ends when `finish` is there. Two runs at once would be seen: only one of them gets
    /// the lock.
    fn program(&self) -> String {
        format!(
            "cd {} || exit 8\nmkdir lock || {{ echo $TESSERA_ATTEMPT >> overlaps; exit 9; }}\n\
             save() {{ echo $TESSERA_ATTEMPT >> stopping; while [ -e gate ]; do sleep 0.02; done\n\
             echo $TESSERA_ATTEMPT >> saves; rmdir lock; exit 0; }}\n\
             trap save TERM\necho $TESSERA_ATTEMPT $TESSERA_NODE_NAME >> runs\nwhile [ ! -e finish ]; do sleep 0.02; done\nrmdir lock",
            self.0.display()
        )
    }

    fn touch(&self, name: &str) -> Result<()> {
        Ok(std::fs::write(self.0.join(name), "")?)
    }

    fn remove(&self, name: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.0.join(name))?)
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// One run for each attempt, each of which but the last saved itself, and never two at once.
    fn assert_whole(&self, attempts: usize) {
        let numbers: Vec<String> =
            self.lines("runs").iter().filter_map(|line| Some(line.split(' ').next()?.to_owned())).collect();
        let expected: Vec<String> = (1..=attempts).map(|number| number.to_string()).collect();
        assert_eq!(numbers, expected, "each attempt ran once");
        assert_eq!(self.lines("saves"), expected[..attempts - 1], "each but the last saved itself");
        assert_eq!(self.lines("overlaps"), Vec::<String>::new(), "two ran at once");
    }
}

fn saving(line: &str, tflops: u64) -> JobSpec {
    let grace = Some(prost_types::Duration { seconds: 50, nanos: 0 });
    let mode = CheckpointMode::Cooperative.into();
    let mut spec = on(shell(line), tflops, Span::Card);
    spec.checkpoint = Some(CheckpointPolicy { mode, signal: "SIGTERM".to_owned(), grace, ..Default::default() });
    spec
}

async fn move_to(client: &Client, job: u64, node: Option<&str>) -> Result<()> {
    let node = node.map(|name| NodeRef { r#ref: Some(node_ref::Ref::Name(name.to_owned())) });
    client.move_job(MoveJobRequest { job_id: job, node, ..Default::default() }).await?;
    Ok(())
}

/// Waits until the attempt of this number runs, and its program is so far that it can save itself.
async fn runs(client: &Client, diary: &Diary, job: u64, attempt: u32) -> Result<Job> {
    let line = format!("{attempt} ");
    until(&format!("attempt {attempt} of job {job} to run"), async || {
        let seen = get(client, job).await.ok()?;
        let begun = diary.lines("runs").iter().any(|run| run.starts_with(&line));
        (begun && seen.attempts == attempt && seen.state() == JobState::Running).then_some(seen)
    })
    .await
}

/// Waits until the program has noticed that it is told to stop.
async fn is_stopping(diary: &Diary, attempt: u32) -> Result<()> {
    until(&format!("attempt {attempt} to be told to stop"), async || {
        diary.lines("stopping").contains(&attempt.to_string()).then_some(())
    })
    .await
}

fn on_node(job: &Job, attempt: usize) -> &str {
    &job.history[attempt - 1].nodes[0]
}

/// Between the cards of a node and between nodes, by the command line; output and exit codes of every attempt stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_moves_between_cards_and_nodes() -> Result<()> {
    let nodes = vec![vec![("gpu", 8), ("gpu", 8)], vec![("gpu", 8)]];
    let pool = Pool::start(Options { nodes, ..Options::default() }).await?;
    let client = pool.client();
    let diary = Diary::new(&pool, "diary")?;
    let program = format!("echo attempt $TESSERA_ATTEMPT\n{}", diary.program());
    let job = submit(&client, saving(&program, 5)).await?;
    let first = runs(&client, &diary, job, 1).await?;
    let number = job.to_string();

    let other =
        pool.nodes.iter().map(|node| node.name.clone()).find(|name| name != on_node(&first, 1)).expect("two nodes");
    let planned = pool.cli_ok(&["job", "move", &number, "--to", &other, "--plan"]).await?;
    assert!(planned.contains("would move") && planned.contains("what it does not save (cooperative)"), "{planned}");
    assert_eq!(get(&client, job).await?.state(), JobState::Running, "only planned");

    let unconfirmed = pool.cli(&["job", "move", &number]).await?;
    assert_eq!(unconfirmed.status.code(), Some(2), "it asks first");
    pool.cli_ok(&["job", "move", &number, "--to", &other, "--yes"]).await?;
    let second = runs(&client, &diary, job, 2).await?;
    assert_eq!(on_node(&second, 2), other);
    assert_eq!(second.history[0].reason.as_ref().map(|reason| reason.code.as_str()), Some("MOVING"));
    assert_eq!(second.history[0].exit_code, Some(0));

    let home = on_node(&first, 1).to_owned();
    move_to(&client, job, Some(&home)).await?;
    let third = runs(&client, &diary, job, 3).await?;
    let card = |job: &Job| {
        let slice = job.allocation.as_ref()?.workers.first()?.slices.first()?.slice;
        Some((slice?.node_id, slice?.card_index))
    };
    let fourth = if home == pool.nodes[0].name {
        // The node has a second card of the class.
        move_to(&client, job, Some(&home)).await?;
        let fourth = runs(&client, &diary, job, 4).await?;
        let (before, after) = (card(&third).expect("it runs"), card(&fourth).expect("it runs"));
        assert!(before.0 == after.0 && before.1 != after.1, "{before:?} -> {after:?}");
        4
    } else {
        3
    };
    diary.touch("finish")?;
    let done = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!((done.attempts, done.retries), (fourth, 0));
    diary.assert_whole(fourth as usize);
    assert_eq!(output(&client, job, 0).await?, format!("attempt {fourth}\n"));
    let before = pool.cli_ok(&["job", "logs", &number, "--attempt", "1"]).await?;
    assert_eq!(before, "attempt 1\n", "what was written where it was before is still there");

    let refused = pool.cli(&["job", "move", &number, "--yes"]).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("only a job all of whose workers run"), "{said}");
    pool.verify().await
}

/// The leader is killed at once after the move began, while the source saves itself, and when it has: whoever leads
/// next carries it on.
#[tokio::test(flavor = "multi_thread")]
async fn a_move_survives_the_death_of_the_leader_at_every_step() -> Result<()> {
    // Leases as in a real pool: a change of leader does not use them up.
    let options = Options { lease: [500, 9_000, 12_000, 20_000], ..Options::default() };
    let mut pool = Pool::start(options).await?;
    let client = pool.client();
    let diary = Diary::new(&pool, "diary")?;
    let job = submit(&client, saving(&diary.program(), 5)).await?;
    runs(&client, &diary, job, 1).await?;
    for (attempt, step) in (1u32..).zip([None, Some(MovePhase::Suspending), Some(MovePhase::Transferring)]) {
        diary.touch("gate")?;
        let leader = pool.leader().await?;
        move_to(&client, job, None).await?;
        if step.is_some() {
            is_stopping(&diary, attempt).await?;
            assert_eq!(get(&client, job).await?.r#move.map(|of| of.phase()), Some(MovePhase::Suspending));
        }
        if step == Some(MovePhase::Transferring) {
            // The source ends while nobody leads: the next leader hears of it first.
            pool.kill_member(leader);
            diary.remove("gate")?;
        } else {
            pool.kill_member(leader);
            is_stopping(&diary, attempt).await?;
            diary.remove("gate")?;
        }
        let moved = runs(&client, &diary, job, attempt + 1).await?;
        assert_ne!(on_node(&moved, attempt as usize), on_node(&moved, attempt as usize + 1));
        pool.start_member(leader)?;
    }
    diary.touch("finish")?;
    let done = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!((done.attempts, done.retries), (4, 0));
    diary.assert_whole(4);
    pool.verify().await
}

/// The target dies while the source saves itself: the job is suspended, and resumes by itself where there is room.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_target_dies_resumes_elsewhere() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    let diary = Diary::new(&pool, "diary")?;
    let job = submit(&client, saving(&diary.program(), 5)).await?;
    let first = runs(&client, &diary, job, 1).await?;
    let target = usize::from(pool.nodes[0].name == on_node(&first, 1));
    diary.touch("gate")?;
    move_to(&client, job, None).await?;
    is_stopping(&diary, 1).await?;
    pool.kill_agent(target);
    until("the move to be given up", async || {
        let seen = get(&client, job).await.ok()?;
        let given_up = seen.reason.is_some_and(|reason| reason.code == "MOVE_FAILED");
        (given_up && seen.r#move.is_none()).then_some(())
    })
    .await?;
    diary.remove("gate")?;
    let again = runs(&client, &diary, job, 2).await?;
    assert_eq!(on_node(&again, 1), on_node(&again, 2), "the other node is dead");
    diary.touch("finish")?;
    let done = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!(done.retries, 0);
    diary.assert_whole(2);
    pool.verify().await
}

/// A gang moves whole: its workers find each other at the target, under another address and the ranks that they had.
#[tokio::test(flavor = "multi_thread")]
async fn a_gang_meets_again_where_it_was_moved() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 4], ..Options::default() }).await?;
    let client = pool.client();
    let gang = pool.program("gang.py");
    let diary = Diary::new(&pool, "diary")?;
    let begun = diary.0.join("runs");
    let program = format!(
        "if [ $TESSERA_ATTEMPT = 1 ]; then trap 'exit 0' TERM; echo \"1 $RANK\" >> {}; while :; do sleep 0.02; done; fi\n\
         exec python3 {gang}",
        begun.display()
    );
    let mut spec = saving(&program, 5);
    spec.gang = 2;
    let job = submit(&client, spec).await?;
    let first = runs(&client, &diary, job, 1).await?;
    until("both to be so far", async || (diary.lines("runs").len() == 2).then_some(())).await?;
    move_to(&client, job, None).await?;
    let done = wait_for(&client, job, JobState::Completed).await?;
    assert_eq!(done.attempts, 2);
    let (before, after) = (&first.history[0].nodes, &done.history[1].nodes);
    assert!(after.len() == 2 && after.iter().all(|node| !before.contains(node)), "{before:?} -> {after:?}");
    for rank in 0..2 {
        assert_eq!(output(&client, job, rank).await?, format!("rank {rank}: sum 3\n"));
    }
    pool.verify().await
}

/// A node is to be empty by some time: what saves itself goes where it goes on, what would begin again stays until the
/// time is over. The leader dies in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_drained_by_some_time_is_left_without_haste() -> Result<()> {
    let mut pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    let [home, other] = [0, 1].map(|place| pool.nodes[place].name.clone());
    pool.cli_ok(&["node", "cordon", &other]).await?;
    let diary = Diary::new(&pool, "diary")?;
    let saves = submit(&client, saving(&diary.program(), 3)).await?;
    runs(&client, &diary, saves, 1).await?;
    let begins_again = submit(&client, on(shell("exec sleep 600"), 3, Span::Card)).await?;
    wait_for(&client, begins_again, JobState::Running).await?;
    pool.cli_ok(&["node", "uncordon", &other]).await?;

    pool.cli_ok(&["node", "drain", &home, "--deadline", "1h", "--reason", "fan", "--yes"]).await?;
    let leader = pool.kill_leader().await?;
    let moved = runs(&client, &diary, saves, 2).await?;
    assert_eq!((on_node(&moved, 1), on_node(&moved, 2)), (home.as_str(), other.as_str()));
    let stays = get(&client, begins_again).await?;
    assert_eq!((stays.state(), stays.attempts), (JobState::Running, 1));
    let shown = pool.cli_ok(&["node", "show", &home]).await?;
    assert!(shown.contains("draining (fan)") && shown.contains("left by"), "{shown}");
    pool.start_member(leader)?;

    pool.cli_ok(&["node", "drain", &home, "--deadline", "1s", "--yes"]).await?;
    until("the node to be left", async || {
        let seen = get(&client, begins_again).await.ok()?;
        (seen.state() == JobState::Running && seen.attempts == 2).then_some(seen)
    })
    .await
    .map(|seen| assert_eq!(on_node(&seen, 2), other))?;
    diary.touch("finish")?;
    wait_for(&client, saves, JobState::Completed).await?;
    diary.assert_whole(2);
    let refused = pool.cli(&["node", "drain", &home, "--deadline", "400d", "--yes"]).await?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("at most 1year 18h"), "{said}");
    pool.verify().await
}

/// P7: compaction is previewed and then makes room for a job that waits for a whole card, and shows how far it is.
#[tokio::test(flavor = "multi_thread")]
async fn compaction_lets_a_large_job_start() -> Result<()> {
    let pool = Pool::start(Options { nodes: vec![vec![("gpu", 8)]; 2], ..Options::default() }).await?;
    let client = pool.client();
    let mut fillers = Vec::new();
    for _ in 0..2 {
        let filler = submit(&client, on(shell("exec sleep 600"), 5, Span::Card)).await?;
        wait_for(&client, filler, JobState::Running).await?;
        fillers.push(filler);
    }
    let mut small = Vec::new();
    for name in ["one", "two"] {
        let diary = Diary::new(&pool, name)?;
        let job = submit(&client, saving(&diary.program(), 3)).await?;
        runs(&client, &diary, job, 1).await?;
        small.push((diary, job));
    }
    for filler in fillers {
        client.cancel_job(CancelJobRequest { job_id: filler, ..Default::default() }).await?;
        wait_for(&client, filler, JobState::Cancelled).await?;
    }
    // Five of eight blocks are free on each of two cards.
    let large = submit(&client, on(shell("exec sleep 600"), 8, Span::Card)).await?;
    let why = pool.cli_ok(&["job", "why", &large.to_string(), "--when"]).await?;
    assert!(why.contains("FRAGMENTED") && why.contains("2 jobs without a time limit never end"), "{why}");

    let plan: serde_json::Value = serde_json::from_str(&pool.cli_ok(&["pool", "compact", "-o", "json"]).await?)?;
    assert_eq!(plan["moves"].as_array().map(Vec::len), Some(1), "{plan:#}");
    assert_eq!((&plan["before"]["startable_jobs"], &plan["after"]["startable_jobs"]), (&0.into(), &1.into()));
    assert_eq!(plan["moves"][0]["makes_room_for"], large);
    assert_eq!(get(&client, large).await?.state(), JobState::Pending, "only planned");

    pool.cli_ok(&["pool", "compact", "--apply", "--moves", "3"]).await?;
    wait_for(&client, large, JobState::Running).await?;
    let status = until("compaction to be done", async || {
        let text = pool.cli_ok(&["pool", "compact", "--status", "-o", "json"]).await.ok()?;
        let status: serde_json::Value = serde_json::from_str(&text).ok()?;
        (status["phase"] == "done").then_some(status)
    })
    .await?;
    assert_eq!((&status["begun"], &status["done"], &status["failed"]), (&1.into(), &1.into(), &0.into()), "{status}");
    let mut attempts = 0;
    for (diary, job) in small {
        diary.touch("finish")?;
        let done = wait_for(&client, job, JobState::Completed).await?;
        diary.assert_whole(done.attempts as usize);
        attempts += done.attempts;
    }
    assert_eq!(attempts, 3, "one of the two was moved, once");
    pool.verify().await
}
