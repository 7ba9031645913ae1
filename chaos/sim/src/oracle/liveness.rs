//! After healing: a leader soon, every node back, every job at an end, no block stuck.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_explain::{WaitCode, explain};
use tessera_ledger::{BlockState, JobId, LogTime, NodeState, State};
use tessera_placement::Pool;

use super::{Oracle, View};

/// Longest time without anybody who leads, once nothing is broken.
const LEADER: Duration = Duration::from_secs(10);
/// Time until every node is ready: silence of a lease, the search for a leader, and a new leader's wait.
const NODES: Duration = Duration::from_secs(60);
/// Time until every job is at an end: all that was submitted, one after the other if need be.
const JOBS: Duration = Duration::from_secs(600);

/// Tolerance for the end of a backoff: log time goes at half the pace at the least, and somebody must lead.
const BACKOFF_SLACK: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct Liveness {
    settled: bool,
    /// Until when which job is not tried again, when that was first seen, and what was left of it then.
    backing_off: BTreeMap<(JobId, LogTime), (Duration, Duration)>,
    /// Time at which a member was last seen to lead.
    led_at: Option<Duration>,
}

/// Describes what is not at rest yet; `None` when everything is.
pub fn unrest(view: &View<'_>) -> Option<String> {
    let leader = view.members.iter().find(|member| member.leads.is_some());
    let Some(leader) = leader else { return Some("nobody leads".to_owned()) };
    let Some(state) = &leader.state else { return Some("the leader shows no state".to_owned()) };
    absent(state, view).or_else(|| unfinished(state)).or_else(|| stuck(state)).or_else(|| unexplained(state))
}

fn absent(state: &State, view: &View<'_>) -> Option<String> {
    let ready = |name: &&String| state.node_by_name(name).is_some_and(|node| node.state == NodeState::Ready);
    let absent: Vec<&String> = view.nodes.iter().filter(|name| !ready(name)).collect();
    (!absent.is_empty()).then(|| format!("nodes {absent:?} are not ready"))
}

fn unfinished(state: &State) -> Option<String> {
    let open: Vec<String> = state
        .jobs_from(JobId(1))
        .filter(|job| !(job.state.is_terminal() || job.is_waiting() && job.allocation.is_none()))
        .map(|job| format!("{} {} ({})", job.id.0, job.state.name(), job.reason.code()))
        .collect();
    (!open.is_empty()).then(|| format!("{} jobs are not at an end: {}", open.len(), open.join(", ")))
}

/// A job may wait for ever only for what not even the empty pool has.
fn unexplained(state: &State) -> Option<String> {
    let mut pool = Pool::new(state);
    state.jobs_from(JobId(1)).filter(|job| !job.state.is_terminal()).find_map(|job| {
        let explanation = explain(&mut pool, state, job, state.time());
        let lasting = matches!(
            explanation.code,
            WaitCode::ExceedsPool
                | WaitCode::ExceedsHost
                | WaitCode::HostShort
                | WaitCode::Affinity
                | WaitCode::NoAcceptableCard
                | WaitCode::ComputeShort
                | WaitCode::MemoryShort
                | WaitCode::Fragmented
        );
        (!lasting).then(|| format!("job {} waits in an empty pool: {}", job.id.0, explanation.sentence))
    })
}

fn stuck(state: &State) -> Option<String> {
    for (card, content) in state.cards() {
        for extent in content.extents.as_slice() {
            // A card that offers less than it did keeps the numbers of what it does not offer any more.
            let withdrawn = extent.state == BlockState::Offline && extent.start.0 >= content.blocks.0;
            if extent.state != BlockState::Free && !withdrawn {
                return Some(format!("{card}: {} blocks are {:?}", extent.length.0, extent.state));
            }
        }
    }
    None
}

impl Liveness {
    /// Log time goes on while somebody leads: a backoff ends when it said, and windows open, within the slack.
    fn backoffs_end(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(state) = view.newest() else { return Ok(()) };
        let waits: BTreeMap<(JobId, LogTime), Duration> = state
            .jobs_from(JobId(1))
            .filter(|job| job.is_waiting() && !job.is_eligible(state.time()))
            .map(|job| ((job.id, job.waits_until()), job.waits_until().since(state.time())))
            .collect();
        self.backing_off.retain(|key, _| waits.contains_key(key));
        for ((job, until), left) in waits {
            let (since, at_first) = *self.backing_off.entry((job, until)).or_insert((view.now, left));
            if view.now.saturating_sub(since) > at_first.min(BACKOFF_SLACK) * 2 + BACKOFF_SLACK {
                return Err(format!("job {} is not tried again: it waits for another {left:?}", job.0));
            }
        }
        Ok(())
    }
}

impl Oracle for Liveness {
    fn name(&self) -> &'static str {
        "liveness after healing"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        let Some(healed_for) = view.healed_for else { return Ok(()) };
        if self.settled {
            return Ok(());
        }
        let Some(unrest) = unrest(view) else {
            self.settled = true;
            return Ok(());
        };
        if view.members.iter().any(|member| member.leads.is_some()) {
            self.led_at = Some(view.now);
        }
        self.backoffs_end(view)?;
        // Leadership may be handed over at any time; nobody leads for a moment then.
        let leaderless = self.led_at.map_or(healed_for, |at| view.now.saturating_sub(at).min(healed_for));
        let absent = view.newest().and_then(|state| absent(state, view));
        if leaderless > LEADER {
            return Err(format!("{healed_for:?} after healing nobody has led for {leaderless:?}"));
        }
        if healed_for > NODES
            && let Some(absent) = absent
        {
            return Err(format!("{healed_for:?} after healing: {absent}"));
        }
        if healed_for > JOBS {
            return Err(format!("{healed_for:?} after healing: {unrest}"));
        }
        Ok(())
    }
}
