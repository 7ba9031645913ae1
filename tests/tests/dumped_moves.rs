//! Programs that know nothing of checkpoints are moved while somebody dies in the middle of it, through real processes
//! and CRIU: the leader, or the agent of either node. Whatever becomes of the move, the program goes on where it was,
//! and comes bit for bit to what it comes to undisturbed.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use tessera_api::v1::{JobState, MovePhase};
use tessera_client::Client;
use tessera_tests::dumping::pool_that_dumps;
use tessera_tests::jobs::{get, submit};
use tessera_tests::pool::{Options, Pool};
use tessera_tests::unaware::Unaware;
use tessera_tests::wait::until;

/// Leases that neither a change of leader uses up nor an agent that is frozen for a while.
const LEASE: [u64; 4] = [200, 20_000, 25_000, 32_000];

/// The process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Leader,
    SourceAgent,
    TargetAgent,
}

use Victim::{Leader, SourceAgent, TargetAgent};

/// A pool of two nodes between which a program is moved again and again.
struct Stage {
    pool: Pool,
    client: Client,
    program: Unaware,
    job: u64,
    step: u64,
}

impl Stage {
    async fn new() -> Result<Self> {
        let options = Options { members: 3, nodes: vec![vec![("gpu", 8)]; 2], lease: LEASE, ..Options::default() };
        let pool = pool_that_dumps(options).await?;
        let client = pool.client();
        // What it holds in memory gives a dump the time in which somebody dies.
        let program = Unaware::new(&pool, "big 32")?;
        let job = submit(&client, program.spec(8)).await?;
        program.is_at(50).await?;
        Ok(Self { pool, client, program, job, step: 50 })
    }

    /// The places of its node and of the other one, once it runs and is in no move.
    async fn places(&self) -> Result<(usize, usize)> {
        let node = until("it to run", async || {
            let seen = get(&self.client, self.job).await.ok()?;
            (seen.state() == JobState::Running && seen.r#move.is_none()).then_some(())?;
            seen.history.last()?.nodes.first().cloned()
        })
        .await?;
        let source = self.pool.nodes.iter().position(|known| known.name == node).context("a node of the pool")?;
        Ok((source, 1 - source))
    }

    async fn begin_move(&self, target: usize) -> Result<()> {
        let name = self.pool.nodes[target].name.clone();
        self.pool.cli_ok(&["job", "move", &self.job.to_string(), "--to", &name, "--yes"]).await?;
        Ok(())
    }

    async fn is_in(&self, phase: MovePhase) -> Result<()> {
        until(&format!("the move to be {phase:?}"), async || {
            let seen = get(&self.client, self.job).await.ok()?;
            (seen.r#move?.phase() == phase).then_some(())
        })
        .await
    }

    /// Kills whom it says with SIGKILL, and starts it anew.
    async fn dies(&mut self, victim: Victim, source: usize, target: usize) -> Result<()> {
        let place = match victim {
            Leader => {
                let leader = self.pool.kill_leader().await?;
                return self.pool.start_member(leader);
            }
            SourceAgent => source,
            TargetAgent => target,
        };
        self.pool.kill_agent(place);
        self.pool.start_agent(place)
    }

    /// It goes on where it was, on one of its nodes, and was not begun again for that.
    async fn goes_on_after(&mut self, victim: Victim) -> Result<()> {
        self.step += 20;
        self.program.goes_on_to(self.step).await.with_context(|| format!("the death of {victim:?}"))?;
        assert_eq!(self.program.runs().len(), 1, "{victim:?}: it began once");
        Ok(())
    }

    async fn ends(self) -> Result<()> {
        let done = self.program.comes_to_the_same(&self.client, self.job).await?;
        assert_eq!(done.retries, 0);
        self.pool.verify().await
    }
}

/// It is being dumped, or what was dumped is being kept.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_while_a_moved_program_is_dumped() -> Result<()> {
    let mut stage = Stage::new().await?;
    for victim in [Leader, SourceAgent, TargetAgent] {
        let (source, target) = stage.places().await?;
        stage.begin_move(target).await?;
        stage.is_in(MovePhase::Suspending).await?;
        stage.dies(victim, source, target).await?;
        stage.goes_on_after(victim).await?;
    }
    stage.ends().await
}

/// It was dumped, and is to be restored at the target, whose agent is frozen until somebody is dead.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_dies_while_a_moved_program_is_restored() -> Result<()> {
    let mut stage = Stage::new().await?;
    for victim in [Leader, SourceAgent, TargetAgent] {
        let (source, target) = stage.places().await?;
        stage.pool.agent(target).signal(Signal::SIGSTOP)?;
        stage.begin_move(target).await?;
        stage.is_in(MovePhase::Resuming).await?;
        stage.dies(victim, source, target).await?;
        if victim != TargetAgent {
            stage.pool.agent(target).signal(Signal::SIGCONT)?;
        }
        stage.goes_on_after(victim).await?;
    }
    stage.ends().await
}
