//! A number of clients, each writing one after the other: what a system can take, and how long a write takes then.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant};

use crate::distribution::{Distribution, Percentiles};
use crate::writer::Writer;

/// The parameters of a load.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Clients that write at the same time.
    pub clients: usize,
    /// Time before anything counts.
    pub warm_up: Duration,
    /// Time that counts.
    pub duration: Duration,
}

/// The measured throughput of a load.
#[derive(Clone, Debug, Serialize)]
pub struct Throughput {
    /// Clients that wrote at the same time.
    pub clients: usize,
    /// Seconds that counted.
    pub seconds: f64,
    /// Writes acknowledged in that time.
    pub acknowledged: usize,
    /// Writes that failed, over all.
    pub failed: usize,
    /// Acknowledged writes per second.
    pub per_second: f64,
    /// From call to acknowledgement.
    pub latency: Percentiles,
}

/// The measurements of one client.
#[derive(Debug, Default)]
pub struct Seen {
    /// From call to acknowledgement, of the writes that count.
    pub latencies: Vec<Duration>,
    /// Writes that failed, over all.
    pub failed: usize,
    /// Error of the last write that failed.
    pub failure: Option<String>,
}

/// Loads. Clients take the writers in turn: each writer stands for one set of connections.
///
/// # Errors
/// There is no writer, or not one write was acknowledged; the last failure says why.
pub async fn run<W: Writer>(writers: &[W], plan: Plan) -> Result<Throughput> {
    ensure!(!writers.is_empty(), "there is nobody to write");
    let counts_from = Instant::now() + plan.warm_up;
    let end = counts_from + plan.duration;
    let mut clients = JoinSet::new();
    for client in 0..plan.clients {
        clients.spawn(write_until(writers[client % writers.len()].clone(), client as u64, counts_from, end));
    }
    let seen = clients.join_all().await;
    throughput(seen, plan)
}

/// Summarizes the measurements of all clients.
///
/// # Errors
/// Not one write was acknowledged; the last failure says why.
pub fn throughput(seen: Vec<Seen>, plan: Plan) -> Result<Throughput> {
    let failed = seen.iter().map(|one| one.failed).sum();
    let failure = seen.iter().find_map(|one| one.failure.clone()).unwrap_or_else(|| "none failed either".to_owned());
    let latencies: Vec<Duration> = seen.into_iter().flat_map(|one| one.latencies).collect();
    let acknowledged = latencies.len();
    let seconds = plan.duration.as_secs_f64();
    let latency = Distribution::of(latencies)
        .percentiles()
        .with_context(|| format!("no write was acknowledged within {seconds} s: {failure}"))?;
    let per_second = acknowledged as f64 / seconds;
    Ok(Throughput { clients: plan.clients, seconds, acknowledged, failed, per_second, latency })
}

/// Numbers are unique over all clients: the upper half is the client's.
async fn write_until<W: Writer>(writer: W, client: u64, counts_from: Instant, end: Instant) -> Seen {
    let mut seen = Seen::default();
    for number in (client << 32).. {
        let began = Instant::now();
        if began >= end {
            break;
        }
        match writer.write(number).await {
            Ok(_) => {
                let ended = Instant::now();
                if ended >= counts_from && ended < end {
                    seen.latencies.push(ended - began);
                }
            }
            Err(error) => {
                seen.failed += 1;
                seen.failure = Some(format!("{error:#}"));
            }
        }
    }
    seen
}

/// Has `clients` clients make `count` writes together, as fast as they can.
///
/// # Errors
/// A write fails.
pub async fn fill<W: Writer>(writers: &[W], clients: usize, count: u64) -> Result<Duration> {
    ensure!(!writers.is_empty() && clients > 0, "there is nobody to write");
    let began = Instant::now();
    let mut under_way = JoinSet::new();
    for client in 0..clients {
        let writer = writers[client % writers.len()].clone();
        under_way.spawn(async move {
            for number in (client as u64..count).step_by(clients) {
                writer.write(number).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(one) = under_way.join_next().await {
        one.context("a client broke")??;
    }
    Ok(began.elapsed())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::{Arc, Mutex};

    use anyhow::bail;
    use tokio::time::sleep;

    use super::*;

    /// Takes 10 ms for each write and remembers its number.
    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<Vec<u64>>>);

    impl Writer for Slow {
        type Ack = ();

        async fn write(&self, number: u64) -> Result<()> {
            sleep(Duration::from_millis(10)).await;
            self.0.lock().expect("not poisoned").push(number);
            Ok(())
        }
    }

    #[derive(Clone)]
    struct Refusing;

    impl Writer for Refusing {
        type Ack = ();

        async fn write(&self, _: u64) -> Result<()> {
            sleep(Duration::from_millis(10)).await;
            bail!("full")
        }
    }

    const PLAN: Plan = Plan { clients: 4, warm_up: Duration::from_millis(500), duration: Duration::from_secs(1) };

    #[tokio::test(start_paused = true)]
    async fn counts_what_was_acknowledged_after_the_warm_up() {
        let writer = Slow::default();
        let seen = run(std::slice::from_ref(&writer), PLAN).await.expect("works");
        assert_eq!((seen.acknowledged, seen.failed), (400, 0));
        assert_eq!((seen.per_second, seen.latency.p50_ms, seen.latency.max_ms), (400.0, 10.0, 10.0));
        let numbers = writer.0.lock().expect("not poisoned");
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len(), "numbers are unique");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_acknowledged_is_an_error_that_says_why() {
        let error = run(&[Refusing], PLAN).await.expect_err("nothing was acknowledged");
        assert!(error.to_string().ends_with("full"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn filling_makes_each_write_once() {
        let writer = Slow::default();
        fill(&[writer.clone(), writer.clone()], 3, 100).await.expect("works");
        let numbers: BTreeSet<u64> = writer.0.lock().expect("not poisoned").iter().copied().collect();
        assert_eq!(numbers, (0..100).collect());
        assert!(fill(&[Refusing], 3, 100).await.is_err());
    }
}
