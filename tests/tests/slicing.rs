//! Workers that take turns on a card that nothing else divides, through real processes: what they get of it, what
//! becomes of them when their agent dies while they stand still, and what compaction spares.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tessera_api::v1::{JobSpec, JobState, Span};
use tessera_client::Client;
use tessera_tests::jobs::{get, on, output, shell, submit, wait_for};
use tessera_tests::page;
use tessera_tests::pool::{Options, Pool, program_here};
use tessera_tests::trainer::{Trainer, comes_to_the_same};
use tessera_tests::wait::until;

const TENANT: &str = "tenant.py";
/// Processor time in seconds over which shares are judged.
const JUDGED: f64 = 2.0;
/// The number of times that shares are judged before they count as wrong.
const STRETCHES: usize = 8;

/// Processor time of each program, in seconds.
type Shares = BTreeMap<&'static str, f64>;

/// A pool of one card of so many blocks, on which turns are taken.
async fn card(blocks: u32, round: &str) -> Result<Pool> {
    Pool::start(Options {
        members: 1,
        nodes: vec![vec![("gpu", blocks)]],
        card_lines: "time_slicing = \"freeze\"\n",
        agent_config: format!("[time_slicing]\nround = \"{round}\"\nquantum = \"10ms\"\n"),
        ..Options::default()
    })
    .await
}

/// Programs that compute, and how long they have.
struct Tenants<'a> {
    client: &'a Client,
    program: String,
    out: PathBuf,
}

impl Tenants<'_> {
    fn spec(&self, name: &str, blocks: u64, elastic: bool, more: &str) -> JobSpec {
        let mut spec = on(
            shell(&format!("exec python3 {} {} {name} {more}", self.program, self.out.display())),
            blocks,
            Span::Card,
        );
        spec.virtual_card.get_or_insert_default().elastic = elastic;
        spec
    }

    async fn start(&self, name: &str, blocks: u64, elastic: bool, more: &str) -> Result<u64> {
        let job = submit(self.client, self.spec(name, blocks, elastic, more)).await?;
        wait_for(self.client, job, JobState::Running).await?;
        Ok(job)
    }

    /// Processor time that each of them has had, in seconds.
    fn had(&self, names: &[&'static str]) -> Option<Shares> {
        let had = |name: &&'static str| Some((*name, std::fs::read_to_string(self.out.join(name)).ok()?.parse().ok()?));
        names.iter().map(had).collect()
    }

    /// The processor time that each program gets from now on, until that is enough to be judged.
    async fn stretch(&self, names: &[&'static str]) -> Result<Shares> {
        let before = until("all programs to compute", async || self.had(names)).await?;
        until("the programs to compute for a while", async || {
            let mut had = self.had(names)?;
            had.iter_mut().for_each(|(name, seconds)| *seconds -= before[name]);
            (had.values().sum::<f64>() >= JUDGED).then_some(had)
        })
        .await
    }

    /// Waits for a stretch in which the shares are `right`: others that keep the machine busy may spoil some.
    async fn get(&self, what: &str, names: &[&'static str], right: impl Fn(&Shares) -> bool) -> Result<()> {
        let mut spoilt = Vec::new();
        while spoilt.len() < STRETCHES {
            let had = self.stretch(names).await?;
            if right(&had) {
                return Ok(());
            }
            spoilt.push(had);
        }
        bail!("never {what}: {spoilt:?}")
    }

    /// Lets them come to their end, and checks what they came to.
    async fn finish(&self, jobs: &[u64]) -> Result<()> {
        std::fs::write(self.out.join("finish"), "")?;
        for job in jobs {
            wait_for(self.client, *job, JobState::Completed).await?;
            let said = output(self.client, *job, 0).await?;
            let (steps, state) = said.trim().split_once(' ').context("two words")?;
            let right = Command::new("python3").arg(program_here(TENANT)).arg(steps).output()?;
            assert_eq!(state, String::from_utf8(right.stdout)?.trim(), "standing still changes nothing");
        }
        Ok(())
    }
}

/// The part about turns in the card's newest reading.
async fn slicing(pool: &Pool) -> Option<Value> {
    let card = format!("{}/0", pool.nodes[0].name);
    let text = pool.cli_ok(&["card", "show", &card, "-o", "json"]).await.ok()?;
    let shown: Value = serde_json::from_str(&text).ok()?;
    Some(shown["sample"]["time_slicing"].clone()).filter(|slicing| !slicing.is_null())
}

/// Without turns both would have the same: there are more processors than one, or they are divided evenly.
#[tokio::test(flavor = "multi_thread")]
async fn programs_get_time_by_their_blocks_and_come_to_what_they_should() -> Result<()> {
    let pool = card(8, "200ms").await?;
    let client = pool.client();
    let tenants = Tenants { client: &client, program: pool.program(TENANT), out: pool.shared_folder("out")? };
    let jobs = [tenants.start("large", 6, false, "").await?, tenants.start("small", 2, false, "").await?];
    let three_to_one = |had: &Shares| (1.7..6.0).contains(&(had["large"] / had["small"]));
    tenants.get("three to one", &["large", "small"], three_to_one).await?;

    let told = until("the card to tell of turns", async || {
        slicing(&pool).await.filter(|told| told["workers"] == 2 && told["switches_per_round"].as_f64() > Some(1.0))
    })
    .await?;
    assert_eq!((&told["slicer"], &told["round_seconds"]), (&"freeze".into(), &0.2.into()), "{told}");
    let shown = pool.cli_ok(&["card", "show", &format!("{}/0", pool.nodes[0].name)]).await?;
    // A round in which a program had no turn, because the machine was busy with others, has one switch.
    assert!(shown.contains("rounds of 0.2 s; 2 of them, ") && shown.contains(" switches a round"), "{shown}");
    let metrics = page::get(&pool.nodes[0].http, "/metrics", "text/plain")?;
    let value = |name: &str, label: &str| -> Option<f64> {
        let of_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
        metrics.lines().find(of_it)?.rsplit(' ').next()?.parse().ok()
    };
    let of = |name, job: u64| value(name, &format!("job_id=\"{job}\"")).unwrap_or_default();
    let (turn, rest) = ("tessera_slice_turn_seconds_total", "tessera_slice_rest_seconds_total");
    assert!(of(turn, jobs[0]) > 1.5 * of(turn, jobs[1]) && of(rest, jobs[1]) > of(rest, jobs[0]), "{metrics}");
    assert!(value("tessera_card_switches_total", "card=\"0\"") > value("tessera_card_rounds_total", "card=\"0\""));
    tenants.finish(&jobs).await?;
    pool.verify().await
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_time_is_lent_to_elastic_programs_only_and_given_back() -> Result<()> {
    let pool = card(8, "200ms").await?;
    let client = pool.client();
    let tenants = Tenants { client: &client, program: pool.program(TENANT), out: pool.shared_folder("out")? };
    let mut jobs = vec![tenants.start("waiting", 4, false, "waits").await?];
    jobs.push(tenants.start("elastic", 2, true, "").await?);
    jobs.push(tenants.start("strict", 2, false, "").await?);
    let lent = |had: &Shares| had["elastic"] > 1.7 * had["strict"];
    tenants.get("three to one while the third does nothing", &["elastic", "strict"], lent).await?;
    std::fs::write(tenants.out.join("begin"), "")?;
    let back = |had: &Shares| had["waiting"] > 1.4 * had["elastic"];
    tenants.get("two to one, as their blocks are", &["elastic", "strict", "waiting"], back).await?;
    tenants.finish(&jobs).await?;
    pool.verify().await
}

/// Renumbering brings free blocks together. What is lent of them then costs one switch less.
#[tokio::test(flavor = "multi_thread")]
async fn compaction_spares_switches() -> Result<()> {
    let pool = card(8, "200ms").await?;
    let client = pool.client();
    let tenants = Tenants { client: &client, program: pool.program(TENANT), out: pool.shared_folder("out")? };
    let mut jobs = Vec::new();
    for (name, blocks, elastic) in
        [("first", 2, false), ("left", 1, false), ("second", 2, false), ("gone", 1, false), ("third", 2, true)]
    {
        jobs.push(tenants.start(name, blocks, elastic, "").await?);
    }
    for job in [jobs.remove(3), jobs.remove(1)] {
        pool.cli_ok(&["job", "cancel", &job.to_string(), "--yes"]).await?;
        wait_for(&client, job, JobState::Cancelled).await?;
    }
    let switches = async |low: f64, high: f64| {
        let told = slicing(&pool).await?;
        let switches = told["switches_per_round"].as_f64()?;
        (told["workers"] == 3 && low < switches && switches < high).then_some(switches)
    };
    // First, third on the free block, second, third on the free block and on its own.
    let before = until("turns with free blocks between them", async || switches(3.7, 4.3).await).await?;
    pool.cli_ok(&["pool", "compact", "--apply"]).await?;
    let after = until("turns without", async || switches(2.7, 3.3).await).await?;
    assert!(after < before);
    tenants.finish(&jobs).await?;
    pool.verify().await
}

/// Two programs share a full card, and one stands still at any time. Their agent is killed: nothing of them is left
/// when the lease is over, both have saved themselves, and both come to what they should.
#[tokio::test(flavor = "multi_thread")]
async fn programs_that_stand_still_when_their_agent_dies_end_with_their_lease_and_go_on_later() -> Result<()> {
    let mut pool = card(8, "4s").await?;
    let client = pool.client();
    let trainers = [Trainer::new(&pool, "left")?, Trainer::new(&pool, "right")?];
    let mut jobs = Vec::new();
    for trainer in trainers {
        trainer.limit(100)?;
        jobs.push((submit(&client, trainer.spec(4, None)).await?, trainer));
    }
    for (_, trainer) in &jobs {
        trainer.is_at(0, 1, 100).await?;
    }
    until("turns to be taken", async || slicing(&pool).await.filter(|told| told["workers"] == 2)).await?;
    pool.kill_agent(0);
    until("nothing of them to be left", async || pool.processes_on(0).is_empty().then_some(())).await?;
    pool.start_agent(0)?;
    for (job, trainer) in &jobs {
        // Each saved itself before it was ended.
        comes_to_the_same(&client, trainer, *job, &[0, 100]).await?;
        assert_eq!(get(&client, *job).await?.attempts, 2);
    }
    pool.verify().await
}
