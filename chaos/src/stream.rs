//! A steady stream of writes: one is started every few milliseconds, and none waits for another. What a member's death
//! costs its users shows in how long it takes until a write that was started after it is acknowledged.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Duration, Instant, MissedTickBehavior, interval, timeout};

use crate::writer::Writer;

/// One acknowledged write.
#[derive(Clone, Debug)]
pub struct Acknowledged<A> {
    /// Time at which the write was started.
    pub started: Instant,
    /// Time at which its acknowledgement arrived.
    pub ended: Instant,
    /// Content of the acknowledgement.
    pub ack: A,
}

/// The outcomes of the writes so far.
struct Account<A> {
    acknowledged: Mutex<Vec<Acknowledged<A>>>,
    failed: Mutex<Vec<String>>,
    news: Notify,
}

/// A running stream. Dropping it stops it.
pub struct Stream<W: Writer> {
    account: Arc<Account<W::Ack>>,
    pacer: JoinHandle<()>,
    stop: Arc<Notify>,
}

/// The outcomes of all writes of a stream.
#[derive(Debug)]
pub struct Outcome<A> {
    /// Writes that were acknowledged, in the order of their acknowledgements.
    pub acknowledged: Vec<Acknowledged<A>>,
    /// Errors of the other writes.
    pub failed: Vec<String>,
}

impl<W: Writer> Stream<W> {
    /// Starts one write every `every`.
    #[must_use]
    pub fn start(writer: W, every: Duration) -> Self {
        let account = Arc::new(Account {
            acknowledged: Mutex::new(Vec::new()),
            failed: Mutex::new(Vec::new()),
            news: Notify::new(),
        });
        let stop = Arc::new(Notify::new());
        let pacer = tokio::spawn(pace(writer, every, Arc::clone(&account), Arc::clone(&stop)));
        Self { account, pacer, stop }
    }

    /// The first acknowledgement of a write that was started after `moment`; waits for it.
    ///
    /// # Errors
    /// There was none within `bound`.
    pub async fn first_started_after(&self, moment: Instant, bound: Duration) -> Result<Instant> {
        let wait = async {
            loop {
                let news = self.account.news.notified();
                if let Some(end) = first_after(&locked(&self.account.acknowledged), moment) {
                    return end;
                }
                news.await;
            }
        };
        timeout(bound, wait).await.with_context(|| self.silence(bound))
    }

    /// Starts no more writes, waits for those under way, and tells what became of all.
    ///
    /// # Errors
    /// The stream broke.
    pub async fn finish(mut self) -> Result<Outcome<W::Ack>> {
        self.stop.notify_one();
        (&mut self.pacer).await.context("the stream broke")?;
        let mut acknowledged = std::mem::take(&mut *locked(&self.account.acknowledged));
        acknowledged.sort_by_key(|one| one.ended);
        Ok(Outcome { acknowledged, failed: std::mem::take(&mut *locked(&self.account.failed)) })
    }

    fn silence(&self, bound: Duration) -> String {
        let last = locked(&self.account.failed).last().cloned().unwrap_or_else(|| "none failed either".to_owned());
        format!("no write was acknowledged for {}; last failure: {last}", humantime::format_duration(bound))
    }
}

impl<W: Writer> Drop for Stream<W> {
    fn drop(&mut self) {
        self.pacer.abort();
    }
}

async fn pace<W: Writer>(writer: W, every: Duration, account: Arc<Account<W::Ack>>, stop: Arc<Notify>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut under_way = JoinSet::new();
    for number in 0.. {
        tokio::select! {
            () = stop.notified() => break,
            _ = ticks.tick() => {}
        }
        under_way.spawn(one(writer.clone(), number, Arc::clone(&account)));
        while under_way.try_join_next().is_some() {}
    }
    while under_way.join_next().await.is_some() {}
}

async fn one<W: Writer>(writer: W, number: u64, account: Arc<Account<W::Ack>>) {
    let started = Instant::now();
    match writer.write(number).await {
        Ok(ack) => {
            locked(&account.acknowledged).push(Acknowledged { started, ended: Instant::now(), ack });
            account.news.notify_waiters();
        }
        Err(error) => locked(&account.failed).push(format!("{error:#}")),
    }
}

/// Nothing that holds one of these locks can panic half way.
fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Acknowledgements arrive nearly in order of their ends, so that those of interest are the newest.
fn first_after<A>(acknowledged: &[Acknowledged<A>], moment: Instant) -> Option<Instant> {
    let newest = acknowledged.iter().rev().take_while(|one| one.ended + Duration::from_secs(1) > moment);
    newest.filter(|one| one.started > moment).map(|one| one.ended).min()
}

/// The longest time without any acknowledgement between `from` and `to`; `ends` are in order.
#[must_use]
pub fn longest_silence(ends: &[Instant], from: Instant, to: Instant) -> Duration {
    let within = ends.iter().copied().filter(|end| (from..=to).contains(end));
    let marks: Vec<Instant> = std::iter::once(from).chain(within).chain([to]).collect();
    marks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use anyhow::bail;
    use tokio::time::sleep;

    use super::*;

    const EVERY: Duration = Duration::from_millis(5);

    /// Refuses between 100 ms and 300 ms after its beginning; takes 1 ms otherwise.
    #[derive(Clone)]
    struct Interrupted(Instant);

    impl Writer for Interrupted {
        type Ack = u64;

        async fn write(&self, number: u64) -> Result<u64> {
            sleep(Duration::from_millis(1)).await;
            let at = self.0.elapsed();
            if (Duration::from_millis(100)..Duration::from_millis(300)).contains(&at) {
                bail!("nobody leads");
            }
            Ok(number)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_interruption_shows_in_full() {
        let began = Instant::now();
        let stream = Stream::start(Interrupted(began), EVERY);
        let died = began + Duration::from_millis(100);
        tokio::time::sleep_until(died).await;
        let back = stream.first_started_after(died, Duration::from_secs(1)).await.expect("comes back");
        let outage = back - died;
        assert!((Duration::from_millis(200)..Duration::from_millis(210)).contains(&outage), "{outage:?}");

        let outcome = stream.finish().await.expect("ends");
        assert!(outcome.failed.iter().all(|why| why == "nobody leads"));
        assert!((38..=41).contains(&outcome.failed.len()), "{}", outcome.failed.len());
        let ends: Vec<Instant> = outcome.acknowledged.iter().map(|one| one.ended).collect();
        let silence = longest_silence(&ends, began, back);
        assert!((Duration::from_millis(200)..Duration::from_millis(212)).contains(&silence), "{silence:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silence_without_end_is_an_error_that_says_why() {
        let stream = Stream::start(Interrupted(Instant::now() - Duration::from_millis(150)), EVERY);
        let never = stream.first_started_after(Instant::now(), Duration::from_millis(100)).await;
        let error = format!("{:#}", never.expect_err("nobody leads"));
        assert!(error.contains("no write was acknowledged for 100ms; last failure: nobody leads"), "{error}");
    }
}
