//! Work that is interrupted while somebody dies in the middle of it, through real processes: the leader, the agent of
//! either node, or the program itself. Whatever becomes of the interruption, the job goes on from what it saved, never
//! runs twice at once (L2), and comes bit for bit to what it comes to undisturbed.

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tessera_api::v1::{JobSpec, JobState, MovePhase, RetryPolicy, Span};
use tessera_client::Client;
use tessera_tests::jobs::{get, on, shell, submit, wait_for};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::trainer::{Trainer, ends_as_undisturbed, is_saved};
use tessera_tests::wait::until;

/// Leases that neither a change of leader uses up nor an agent that is frozen for a while.
const LONG: [u64; 4] = [200, 20_000, 25_000, 32_000];
/// Leases that only a change of leader does not use up.
const SHORT: [u64; 4] = [200, 9_000, 12_000, 15_000];

/// The process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Leader,
    SourceAgent,
    TargetAgent,
    Program,
}

use Victim::{Leader, Program, SourceAgent, TargetAgent};

/// A pool of three nodes on which one program is interrupted again and again.
struct Stage {
    pool: Pool,
    client: Client,
    trainer: Trainer,
    job: u64,
    /// The step to which the program was let, and at which it was saved before it is interrupted.
    step: u64,
    /// The number of its beginnings so far.
    began: usize,
}

impl Stage {
    async fn new(lease: [u64; 4]) -> Result<Self> {
        let options = Options { nodes: vec![vec![("gpu", 8)]; 3], lease, ..Options::default() };
        let pool = Pool::start(options).await?;
        let client = pool.client();
        let trainer = Trainer::new(&pool, "trainer")?;
        trainer.limit(0)?;
        let short = Some(prost_types::Duration { seconds: 0, nanos: 100_000_000 });
        let retry = Some(RetryPolicy { max_retries: 10, backoff: short, max_backoff: short });
        let spec = JobSpec { priority: Some(10), retry, ..trainer.spec(8, Some(1)) };
        let job = submit(&client, spec).await?;
        Ok(Self { pool, client, trainer, job, step: 0, began: 0 })
    }

    /// The newest attempt that runs, and the place of its node, once the program has come to the next step that it is
    /// let to and that is kept on two nodes. However often it was begun for that, it began no earlier than where it had
    /// been saved.
    async fn goes_on(&mut self) -> Result<(u32, usize)> {
        let saved = self.step;
        self.step += 20;
        self.trainer.limit(self.step)?;
        let seen = until(&format!("step {} to be saved", self.step), async || {
            let seen = get(&self.client, self.job).await.ok()?;
            (seen.state() == JobState::Running && seen.r#move.is_none()).then_some(())?;
            self.trainer.is_now_at(0, seen.attempts, self.step).then_some(seen)
        })
        .await?;
        is_saved(&self.client, self.job, self.step, 2).await?;
        let runs = self.trainer.runs(0);
        assert!(runs[self.began..].iter().all(|(.., step)| *step >= saved), "nothing is lost since {saved}: {runs:?}");
        self.began = runs.len();
        let node = &seen.history.last().context("it runs")?.nodes[0];
        Ok((seen.attempts, self.place_of(node)?))
    }

    async fn goes_on_after(&mut self, victim: Victim) -> Result<(u32, usize)> {
        self.goes_on().await.with_context(|| format!("the death of {victim:?}"))
    }

    /// The attempt that runs, the place of its node, and that of a node that has nothing of it.
    async fn ready_to_move(&mut self) -> Result<(u32, usize, usize)> {
        let (attempt, source) = self.goes_on().await?;
        Ok((attempt, source, self.elsewhere().await?))
    }

    fn place_of(&self, node: &str) -> Result<usize> {
        self.pool.nodes.iter().position(|known| known.name == node).context("a node of the pool")
    }

    /// The node that has nothing of the newest checkpoint.
    async fn elsewhere(&self) -> Result<usize> {
        let seen = get(&self.client, self.job).await?;
        let has_it = &seen.checkpoints.first().context("it is saved")?.parts[0].nodes;
        self.pool.nodes.iter().position(|node| !has_it.contains(&node.name)).context("a third node")
    }

    async fn begin_move(&self, target: usize) -> Result<()> {
        let name = self.pool.nodes[target].name.clone();
        self.pool.cli_ok(&["job", "move", &self.job.to_string(), "--to", &name, "--yes"]).await?;
        Ok(())
    }

    /// Begins a move whose source has been told to stop, and waits for its gate.
    async fn begin_move_at_gate(&self, attempt: u32, target: usize) -> Result<()> {
        self.trainer.shut_gate()?;
        self.begin_move(target).await?;
        self.trainer.is_stopping(attempt).await
    }

    async fn is_in(&self, phase: MovePhase) -> Result<()> {
        until(&format!("the move to be {phase:?}"), async || {
            let seen = get(&self.client, self.job).await.ok()?;
            (seen.r#move?.phase() == phase).then_some(())
        })
        .await
    }

    fn signal(&mut self, node: usize, signal: Signal) -> Result<()> {
        self.pool.agent(node).signal(signal)
    }

    /// Kills whom it says with SIGKILL, and starts it anew; the program is started by whoever notices.
    async fn dies(&mut self, victim: Victim, source: usize, target: usize) -> Result<()> {
        match victim {
            Leader => {
                let leader = self.pool.kill_leader().await?;
                self.pool.start_member(leader)
            }
            SourceAgent | TargetAgent => {
                let place = if victim == SourceAgent { source } else { target };
                self.pool.kill_agent(place);
                self.pool.start_agent(place)
            }
            Program => {
                for pid in self.pool.processes_on(source) {
                    // One that has ended meanwhile is what was wanted.
                    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
                }
                Ok(())
            }
        }
    }

    /// The program has been told to stop: the leader dies, and the program saves itself while nobody leads.
    async fn stops_while_the_leader_dies(&mut self, attempt: u32) -> Result<()> {
        self.trainer.is_stopping(attempt).await?;
        let leader = self.pool.kill_leader().await?;
        self.trainer.open_gate()?;
        self.pool.start_member(leader)
    }

    /// The job comes to its end as if nothing had been.
    async fn ends(self) -> Result<()> {
        ends_as_undisturbed(&self.client, &self.trainer, self.job).await?;
        self.pool.verify().await
    }
}

/// The state saved so far is being brought to the target, which cannot succeed, since the agents that have it are
/// frozen: the program runs on meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_before_a_move_stops_the_program() -> Result<()> {
    let mut stage = Stage::new(LONG).await?;
    for victim in [Leader, SourceAgent, TargetAgent, Program] {
        let (attempt, source, target) = stage.ready_to_move().await?;
        let other = 3 - source - target;
        for node in [source, other] {
            stage.signal(node, Signal::SIGSTOP)?;
        }
        stage.begin_move(target).await?;
        stage.is_in(MovePhase::Reserved).await?;
        stage.dies(victim, source, target).await?;
        assert_eq!(stage.trainer.runs(0).last().map(|run| run.0), Some(attempt), "nothing else has begun meanwhile");
        stage.signal(other, Signal::SIGCONT)?;
        if victim != SourceAgent {
            stage.signal(source, Signal::SIGCONT)?;
        }
        let (after, place) = stage.goes_on_after(victim).await?;
        match victim {
            Leader | SourceAgent => assert!(after > attempt && place == target, "the move goes on: {after} at {place}"),
            Program => assert!(after > attempt, "it begins again"),
            // It may be back before anybody missed it, or the move was given up.
            TargetAgent => assert!(place == source || after > attempt, "{after} at {place}"),
        }
    }
    stage.ends().await
}

/// The program has been told to stop, and saves itself.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_while_a_moved_program_saves_itself() -> Result<()> {
    let mut stage = Stage::new(LONG).await?;
    for victim in [Leader, SourceAgent, TargetAgent, Program] {
        let (attempt, source, target) = stage.ready_to_move().await?;
        stage.begin_move_at_gate(attempt, target).await?;
        stage.is_in(MovePhase::Suspending).await?;
        stage.dies(victim, source, target).await?;
        stage.trainer.open_gate()?;
        let (after, _) = stage.goes_on_after(victim).await?;
        assert!(after > attempt, "{victim:?}: it was told to stop");
    }
    stage.ends().await
}

/// The program has saved itself, and begins at the target, whose agent is frozen until somebody is dead.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_while_a_moved_program_begins() -> Result<()> {
    let mut stage = Stage::new(LONG).await?;
    for victim in [Leader, SourceAgent, TargetAgent, Program] {
        let (attempt, source, target) = stage.ready_to_move().await?;
        stage.begin_move_at_gate(attempt, target).await?;
        stage.signal(target, Signal::SIGSTOP)?;
        stage.trainer.open_gate()?;
        stage.is_in(MovePhase::Resuming).await?;
        if victim == Program {
            stage.signal(target, Signal::SIGCONT)?;
            until("the program to begin", async || (stage.trainer.runs(0).last()?.0 > attempt).then_some(())).await?;
            stage.dies(victim, target, source).await?;
        } else {
            stage.dies(victim, source, target).await?;
            if victim != TargetAgent {
                stage.signal(target, Signal::SIGCONT)?;
            }
        }
        let (after, _) = stage.goes_on_after(victim).await?;
        assert!(after > attempt, "{victim:?}: it had stopped");
    }
    stage.ends().await
}

/// The leader dies in the middle of whatever interrupts a program: it is suspended, preempted, its node drained, its
/// node lost.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_dies_in_the_middle_of_each_interruption() -> Result<()> {
    let mut stage = Stage::new(SHORT).await?;
    let (attempt, _) = stage.goes_on().await?;
    stage.trainer.shut_gate()?;
    let number = stage.job.to_string();
    stage.pool.cli_ok(&["job", "suspend", &number]).await?;
    stage.stops_while_the_leader_dies(attempt).await?;
    wait_for(&stage.client, stage.job, JobState::Suspended).await?;
    stage.pool.cli_ok(&["job", "resume", &number]).await?;

    let (attempt, _) = stage.goes_on().await?;
    stage.trainer.shut_gate()?;
    let gate = stage.pool.shared_folder("others")?;
    let line = format!("while [ ! -e {}/open ]; do sleep 0.02; done", gate.display());
    for _ in 0..3 {
        submit(&stage.client, JobSpec { priority: Some(90), ..on(shell(&line), 8, Span::Card) }).await?;
    }
    stage.stops_while_the_leader_dies(attempt).await?;
    wait_for(&stage.client, stage.job, JobState::Suspended).await?;
    std::fs::write(gate.join("open"), "")?;

    let (attempt, node) = stage.goes_on().await?;
    stage.trainer.shut_gate()?;
    let name = stage.pool.nodes[node].name.clone();
    stage.pool.cli_ok(&["node", "drain", &name, "--reason", "a test", "--yes"]).await?;
    stage.stops_while_the_leader_dies(attempt).await?;

    let (attempt, node) = stage.goes_on().await?;
    stage.pool.kill_agent(node);
    stage.pool.kill_supervisors(node)?;
    stage.dies(Leader, node, node).await?;
    let (after, place) = stage.goes_on().await?;
    assert!(after > attempt && place != node, "that node is gone");
    stage.ends().await
}
