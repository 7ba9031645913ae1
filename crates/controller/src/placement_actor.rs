//! The placement actor: one, on the leader. It keeps an index of the pool that is fed by what applied entries
//! touched, decides a plan whenever something changed, and proposes one plan at a time: the next is made only from a
//! state that includes the last one, so that two plans never compete. What the ledger refuses of a plan was stale and
//! is decided anew.
//!
//! Nothing here waits for a timer on the way from a submission to its allocation: the feed wakes the actor, the answer
//! to its proposal wakes it again. Timers only serve jobs that wait for the end of a backoff.

mod compaction;
#[cfg(test)]
mod compaction_tests;
mod emptying;
mod state;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::{Fuse, FusedFuture as _};
use futures::{FutureExt as _, pin_mut};
use tessera_actor::{Address, Reply, WhenFull, mailbox};
use tessera_explain::{Explanation, Preview, WaitCode};
use tessera_foresight::CompactionPlan;
use tessera_ledger::{JobId, JobSpec, NodeId, Percent};
use tessera_placement::CompactionOrder;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::feed::Feed;
use crate::pool::PoolHandle;
use compaction::Errand;
pub use compaction::{CompactionPhase, CompactionProgress};
use state::{Effect, Event, Placement, Wake};

/// Name of the actor in logs, metrics and errors.
pub const NAME: &str = "placement";

/// Questions that may wait; further ones are refused.
const QUESTIONS: usize = 256;

/// The interval at which the actor reads the load of nodes.
const LOAD: Duration = Duration::from_secs(5);

/// Questions answered after each event, so that a busy ledger does not keep people waiting.
const ANSWERS: usize = 8;

/// A question or an order to the placement actor.
#[derive(Debug)]
pub enum Question {
    /// Asks why a job waits.
    Explain {
        job: JobId,
        /// The recipient of the answer, which is `None` when there is no such job.
        reply: Reply<Option<Explanation>>,
    },
    /// Asks for the wait codes of jobs.
    Waits {
        jobs: Vec<JobId>,
        /// The recipient of the answer: those of the jobs that wait, each with its wait code.
        reply: Reply<Vec<(JobId, WaitCode)>>,
    },
    /// Asks for the outcome of a job if it were submitted now.
    Preview { spec: Box<JobSpec>, reply: Reply<Preview> },
    /// Begin to compact the pool.
    StartCompaction {
        order: CompactionOrder,
        /// Most moves at once.
        at_once: u32,
        /// The recipient of the answer: true if a run began, and the progress.
        reply: Reply<(bool, CompactionProgress)>,
    },
    /// Asks for the progress of compaction.
    Compaction(Reply<CompactionProgress>),
    /// Begin no further move.
    StopCompaction(Reply<CompactionProgress>),
}

impl Question {
    /// True if the actor may have something to do once it has answered.
    const fn steers(&self) -> bool {
        matches!(self, Self::StartCompaction { .. })
    }
}

/// The connections of the actor to its surroundings.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub pool: PoolHandle,
    pub feed: Feed,
    /// Publishes the address of the actor to others.
    pub here: watch::Sender<Option<Address<Question>>>,
    pub end: CancellationToken,
}

/// Runs the actor until its reign ends.
pub(crate) async fn run(surroundings: Surroundings) {
    let Surroundings { pool, feed, here, end } = surroundings;
    let (address, mut questions) = mailbox(NAME, QUESTIONS, WhenFull::Refuse, pool.metrics().actors());
    here.send_replace(Some(address));
    let mut reader = feed.open();
    let mut state = Placement::new(pool.config().timings.propose);
    let in_flight = Fuse::terminated();
    pin_mut!(in_flight);
    let planning = Fuse::terminated();
    pin_mut!(planning);
    let mut wake_at: Option<Instant> = None;
    let mut load = interval(LOAD);
    load.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let timer = async {
            match wake_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        let event = tokio::select! {
            biased;
            () = end.cancelled() => {
                pool.metrics().fragmented(None);
                return pool.metrics().jobs_wait(None);
            }
            answer = &mut in_flight, if !in_flight.is_terminated() => Event::Answered(answer),
            change = reader.changed() => Event::Changed(change),
            plan = &mut planning, if !planning.is_terminated() => Event::Compacted(plan),
            Some(question) = questions.next() => question.handle(Event::Asked),
            _ = load.tick() => Event::Load(load_of(&pool)),
            () = timer => {
                wake_at = None;
                Event::Woke
            }
        };
        let began = Instant::now();
        let mut effects = state.on(event, pool.log_time());
        let decided = began.elapsed();
        for _ in 0..ANSWERS {
            let Some(question) = questions.try_next() else { break };
            effects.extend(question.handle(|question| state.on(Event::Asked(question), pool.log_time())));
        }
        for effect in effects {
            match effect {
                Effect::Propose { request, within } => {
                    let pool = pool.clone();
                    let proposed = async move { pool.propose(*request, Instant::now() + within).await };
                    in_flight.set(proposed.boxed().fuse());
                }
                Effect::Wake(Wake::At(time)) => wake_at = Some(Instant::now() + pool.until(time)),
                Effect::Wake(Wake::In(pause)) => wake_at = Some(Instant::now() + pause),
                Effect::Wake(Wake::Never) => wake_at = None,
                Effect::Count { accepted, rejected } => pool.metrics().plan_answered(accepted, rejected),
                Effect::Planned { tried } => pool.metrics().planned(decided, tried),
                Effect::Waits(waits) => pool.metrics().jobs_wait(Some(waits)),
                Effect::Measured(fragmentation) => pool.metrics().fragmented(Some(fragmentation)),
                Effect::Compact(errand) => planning.set(planned(errand).boxed().fuse()),
            }
        }
    }
}

/// The load of nodes, by readings of cards that are there.
fn load_of(pool: &PoolHandle) -> BTreeMap<NodeId, Percent> {
    let state = pool.view().current();
    pool.telemetry().keep(|card| state.card(card).is_some());
    pool.telemetry().load()
}

/// Plans compaction on a thread of its own: that takes as long as the pool is large, and decisions do not wait for it.
async fn planned(errand: Box<Errand>) -> Box<CompactionPlan> {
    // A plan that could not be made is an empty one: the run ends, and its defect is in the log.
    let planned = tessera_consensus::try_blocking(move || errand.run()).await;
    Box::new(planned.unwrap_or_else(|error| {
        tracing::error!(%error, "compaction could not be planned");
        CompactionPlan::default()
    }))
}
