//! Measures the shares that workers get of a card on which they take turns, beside the shares that their blocks give
//! them; the work of all of them together, beside that of one that has the card alone; and the switches of the card
//! before and after compaction. Real agents, supervisors and control groups; the workers compute on a processor in the
//! card's place.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use tessera_api::v1::{
    CancelJobRequest, GetCardRequest, GetJobRequest, JobState, NodeRef, StartCompactionRequest, TimeSlicing, node_ref,
};
use tokio::time::{Duration, sleep};

use crate::options::Common;
use crate::poll;
use crate::tessera::{Cards, Job, Pool, Submitter, node_name};

/// Longest wait for a worker to compute, or for a job to be over.
const BOUND: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// Blocks of the card, so that one of them is a hundredth of it.
const BLOCKS: u32 = 100;
/// Blocks held by the workers, in each measurement.
const HELD: [&[u32]; 11] = [
    &[1, 99],
    &[5, 95],
    &[10, 90],
    &[25, 75],
    &[50, 50],
    &[1, 33, 33, 33],
    &[5, 31, 32, 32],
    &[10, 30, 30, 30],
    &[25, 25, 25, 25],
    &[50, 16, 17, 17],
    &[90, 3, 3, 4],
];

/// Has workers take turns on a card, and looks at what each of them gets
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// What all benchmarks have.
    #[command(flatten)]
    pub common: Common,
    /// How long each measurement takes
    #[arg(long, default_value = "20s", value_parser = humantime::parse_duration)]
    pub window: Duration,
}

/// The results of workers that share a card.
#[derive(Clone, Debug, Serialize)]
struct Got {
    held: Vec<u32>,
    /// Share of each worker in the work of all of them, in percent.
    percent: Vec<f64>,
    /// Work of all workers together, in percent of the work of one that has the card alone.
    together_percent: f64,
    switches_per_round: f64,
}

/// Runs it.
///
/// # Errors
/// Something does not start or end, or the report cannot be written.
pub async fn run(options: &Options) -> Result<()> {
    let folder = options.common.folder()?;
    let mut report = options.common.report("slicing")?;
    report.machine(folder.path())?;
    let cards = Cards { nodes: 1, per_node: 1, tflops: BLOCKS, turns: true };
    let pool = Pool::start(options.common.tessera()?, &folder.path().join("tessera"), cards, 0, 1, None).await?;
    report.section("tessera").await?;
    let mut rows = Vec::new();
    for held in HELD {
        // Beside each of them, because a machine is not the same an hour later.
        let alone = measure(&pool, &[BLOCKS], options.window / 2).await?.iter().sum::<f64>();
        let jobs = start(&pool, held, false).await?;
        let rates = rates(&pool, held.len(), options.window).await?;
        let switches = slicing(&pool).await?.switches_per_round;
        end(&pool, jobs).await?;
        let sum = rates.iter().sum::<f64>();
        let percent: Vec<f64> = rates.iter().map(|rate| 100.0 * rate / sum).collect();
        let got =
            Got { held: held.to_vec(), percent, together_percent: 100.0 * sum / alone, switches_per_round: switches };
        report.line("summary", &got)?;
        rows.push(row(&got));
    }
    report.table(["held, %", "got, %", "largest error, points", "together, of one alone", "switches a round"], rows)?;
    let [before, after] = compacted(&pool).await?;
    let text = |switches: f64| format!("{switches:.1}");
    report.table(
        ["switches a round, three workers of which one is elastic", ""],
        vec![
            ["two runs of free blocks between them".to_owned(), text(before)],
            ["after compaction".to_owned(), text(after)],
        ],
    )?;
    pool.stop().await
}

fn row(got: &Got) -> [String; 5] {
    let list = |texts: Vec<String>| texts.join(", ");
    let errors = got.percent.iter().zip(&got.held).map(|(percent, held)| (percent - f64::from(*held)).abs());
    [
        list(got.held.iter().map(u32::to_string).collect()),
        list(got.percent.iter().map(|percent| format!("{percent:.2}")).collect()),
        format!("{:.2}", errors.fold(0.0, f64::max)),
        format!("{:.1} %", got.together_percent),
        format!("{:.1}", got.switches_per_round),
    ]
}

/// Runs workers that hold these blocks, and returns the counts per second of each.
async fn measure(pool: &Pool, held: &[u32], window: Duration) -> Result<Vec<f64>> {
    let jobs = start(pool, held, false).await?;
    let rates = rates(pool, held.len(), window).await?;
    end(pool, jobs).await?;
    Ok(rates)
}

/// Starts workers one after the other, so that their blocks lie in this order. The last one may be elastic.
async fn start(pool: &Pool, held: &[u32], last_is_elastic: bool) -> Result<Vec<u64>> {
    let mut jobs = Vec::new();
    for (place, blocks) in held.iter().enumerate() {
        let elastic = last_is_elastic && place + 1 == held.len();
        // What an earlier one counted is not its own.
        let counts = pool.stand.folder().join(place.to_string());
        fs::write(&counts, 0_u64.to_le_bytes())?;
        let job = Job::computing(&place.to_string(), pool.stand.folder(), elastic)?.on_blocks(*blocks);
        let job = Submitter::new(pool.client().clone(), job).submit().await?.id;
        poll::until("a worker to compute", BOUND, LOOK, || async {
            ensure!(count(&counts)? > 0, "it has not begun");
            Ok(())
        })
        .await?;
        jobs.push(job);
    }
    Ok(jobs)
}

async fn rates(pool: &Pool, workers: usize, window: Duration) -> Result<Vec<f64>> {
    let counts =
        || (0..workers).map(|place| count(&pool.stand.folder().join(place.to_string()))).collect::<Result<Vec<u64>>>();
    // Until all of them take turns, and their readings have come.
    sleep(Duration::from_secs(5)).await;
    let before = counts()?;
    sleep(window).await;
    let after = counts()?;
    let counted = |(before, after): (&u64, u64)| {
        let counted = after.checked_sub(*before).context("a worker began again, and counts from 1")?;
        Ok(counted as f64 / window.as_secs_f64())
    };
    before.iter().zip(after).map(counted).collect()
}

async fn end(pool: &Pool, jobs: Vec<u64>) -> Result<()> {
    for job_id in jobs {
        pool.client().cancel_job(CancelJobRequest { job_id, ..Default::default() }).await?;
        poll::until("a job to be over", BOUND, LOOK, || async {
            let answer = pool.client().get_job(GetJobRequest { job_id, ..Default::default() }).await?;
            ensure!(answer.job.is_some_and(|job| job.state() == JobState::Cancelled), "job {job_id} is not over");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

/// The time slicing in the newest reading of the card.
async fn slicing(pool: &Pool) -> Result<TimeSlicing> {
    let node = Some(NodeRef { r#ref: Some(node_ref::Ref::Name(node_name(0))) });
    let request = GetCardRequest { node, ..GetCardRequest::default() };
    let card = pool.client().get_card(request).await?.card.context("an answer without a card")?;
    card.sample.and_then(|sample| sample.time_slicing).context("it does not tell of turns")
}

/// Switches of a round with free blocks between workers, which are lent to the last one, and with all of them together.
async fn compacted(pool: &Pool) -> Result<[f64; 2]> {
    let mut jobs = start(pool, &[20, 15, 20, 15, 30], true).await?;
    end(pool, vec![jobs.remove(3), jobs.remove(1)]).await?;
    let steady = async || -> Result<f64> {
        // Readings are two seconds old at most, and of the newest sixteen rounds.
        sleep(Duration::from_secs(12)).await;
        Ok(slicing(pool).await?.switches_per_round)
    };
    let before = steady().await?;
    pool.client().start_compaction(StartCompactionRequest::default()).await?;
    let after = steady().await?;
    end(pool, jobs).await?;
    Ok([before, after])
}

fn count(path: &Path) -> Result<u64> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(u64::from_le_bytes(bytes.try_into().ok().context("it holds no count")?))
}

/// Runs a worker: it computes without end, and writes its count to `counts`.
///
/// # Errors
/// It cannot write.
pub fn worker(counts: &Path) -> Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(counts)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for done in 1_u64.. {
        for _ in 0..50_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        // Never 0, so that nothing of the above can be left out.
        ensure!(state != 0, "it cannot become 0");
        file.write_all_at(&done.to_le_bytes(), 0)?;
    }
    Ok(())
}
