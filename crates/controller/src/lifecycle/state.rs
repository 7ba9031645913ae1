//! The state of the lifecycle actor, and its reactions to events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tessera_calendar::Judge;
use tessera_consensus::ProposeError as Cause;
use tessera_ledger::{
    AllocationId, CardHealth, Command, Epoch, JobId, JobState, LogTime, Move, MoveId, MovePhase, NodeId, Request,
    Revision, Slice, State, WindowOf, Worker, WorkerState,
};
use tokio::time::Instant;

use super::NAME;
use super::leases::{Leases, silence};
use super::loss::{self, Finding};
use crate::config::{MassLoss, Timings};
use crate::pool::{Committed, ProposeError};

/// Something that the actor has to bring into the log.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Duty {
    Lose(NodeId, Epoch),
    /// A move goes on, or is given up.
    Advance(MoveId, MovePhase),
    /// A job ran longer than its time limit and its agent did not stop it.
    Expire(JobId),
    /// Leases of before a change of their timings are over.
    Settle(Revision),
    /// Windows of a queue or job open or close.
    Close(WindowOf),
    Tick,
}

/// Everything that can happen to the actor.
#[derive(Debug)]
pub(super) enum Event {
    /// Time to look at everything.
    Look {
        /// For silence and leases.
        now: Instant,
        /// For what the ledger dates.
        log_now: LogTime,
    },
    /// The ledger changed.
    Changed,
    /// A duty is in the log, or is not.
    Answered(Duty, Result<Committed, ProposeError>),
}

/// An action for the shell of the actor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Bring a duty into the log and tell what came of it.
    Propose(Duty, Box<Request>),
    /// Show how many nodes are silent.
    Silent { nodes: usize, suspected: bool },
    /// A node was declared lost.
    CountLost,
}

/// The actor's memory. All of it is rebuilt from the ledger and the table of leases.
#[derive(Debug)]
pub(super) struct Lifecycle {
    timings: Timings,
    mass_loss: MassLoss,
    in_flight: BTreeSet<Duty>,
    /// Losses whose proposal ended without a word: they may be in the log.
    maybe_lost: BTreeSet<Duty>,
    /// The time at which this leader first saw each attempt run.
    running_since: BTreeMap<AllocationId, Instant>,
    /// The time at which this leader first saw each move wait for copies.
    moving_since: BTreeMap<MoveId, Instant>,
    suspected: bool,
    /// The revision at the last tick of the clock, and when that was.
    quiet_since: Option<(Revision, Instant)>,
    /// The time of the next check of time limits.
    limits_due: Option<Instant>,
    /// The time of the last look; `None`: this leader has not looked yet.
    looked_at: Option<Instant>,
    windows: Judge,
}

/// The interval between checks of time limits: it only matters when an agent fails to enforce one.
const LIMITS: Duration = Duration::from_secs(10);
/// The longest time that a move waits for copies of what its job has saved. Blocks are held at both places meanwhile.
const COPY_AHEAD: Duration = Duration::from_secs(60);
/// The same while other jobs wait, who may be given those of the source.
const COPY_AHEAD_OF_OTHERS: Duration = Duration::from_secs(5);

impl Lifecycle {
    pub(super) fn new(timings: Timings, mass_loss: MassLoss) -> Self {
        Self {
            timings,
            mass_loss,
            in_flight: BTreeSet::new(),
            maybe_lost: BTreeSet::new(),
            running_since: BTreeMap::new(),
            moving_since: BTreeMap::new(),
            suspected: false,
            quiet_since: None,
            limits_due: None,
            looked_at: None,
            windows: Judge::default(),
        }
    }

    /// Something happened; `state` is the newest state of the ledger, and the table of leases is held.
    pub(super) fn on(&mut self, event: Event, state: &State, leases: &mut Leases) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Look { now, log_now } => {
                self.looked_at = Some(now);
                self.look_at_nodes(state, leases, now, log_now, &mut effects);
                self.look_at_leases(state, leases, now, &mut effects);
                if self.limits_due.is_none_or(|due| due <= now) {
                    self.limits_due = Some(now + LIMITS);
                    self.look_at_limits(state, now, &mut effects);
                }
                self.look_at_windows(state, log_now, &mut effects);
                self.look_at_clock(state, now, &mut effects);
            }
            Event::Changed => {}
            Event::Answered(duty, result) => {
                self.answered(duty, &result, leases, &mut effects);
                if result.is_err() {
                    // Not again before the next look, or a leader that lost its quorum would go round in circles.
                    return effects;
                }
            }
        }
        self.drive_moves(state, leases, &mut effects);
        effects
    }

    fn propose(&mut self, duty: Duty, command: Command, actor: &str, effects: &mut Vec<Effect>) {
        if self.in_flight.insert(duty.clone()) {
            let request = Request { key: None, actor: actor.to_owned(), command };
            effects.push(Effect::Propose(duty, Box::new(request)));
        }
    }

    fn look_at_nodes(
        &mut self,
        state: &State,
        leases: &mut Leases,
        now: Instant,
        log_now: LogTime,
        effects: &mut Vec<Effect>,
    ) {
        let Finding { silent, suspected, condemned } =
            loss::look(state, leases, now, log_now, silence(state), &self.mass_loss);
        if suspected && !self.suspected {
            tracing::error!(
                silent,
                "so many nodes are silent at once that this leader suspects itself or the network: none of them is declared \
                 lost; check the network, or drain the nodes that are dead: of those the loss is then declared"
            );
        }
        self.suspected = suspected;
        effects.push(Effect::Silent { nodes: silent, suspected });
        for (node, epoch) in condemned {
            tracing::warn!(%node, epoch = epoch.0, "a node was silent until its lease was over: it is declared lost");
            self.propose(Duty::Lose(node, epoch), Command::NodeLost { node, epoch }, NAME, effects);
        }
    }

    /// Blocks are kept for as long as leases of before a change of their timings may run, and no longer.
    fn look_at_leases(&mut self, state: &State, leases: &mut Leases, now: Instant, effects: &mut Vec<Effect>) {
        if let Some(changed_at) = leases.settled(now, state) {
            tracing::info!(%changed_at, "every lease of before the timings were changed is over");
            self.propose(Duty::Settle(changed_at), Command::SettleLeases { changed_at }, NAME, effects);
        }
    }

    /// Agents stop jobs at their time limit; this is for an agent that does not.
    ///
    /// It counts on this process' own clock, from when it first saw the job run: a step of the wall clock ends no job.
    fn look_at_limits(&mut self, state: &State, now: Instant, effects: &mut Vec<Effect>) {
        self.running_since.retain(|allocation, _| state.allocation(*allocation).is_some());
        let running_since = &mut self.running_since;
        let late: Vec<(JobId, AllocationId)> = state
            .allocations()
            .filter_map(|allocation| {
                let job = state.job(allocation.job)?;
                let limit = job.spec.time_limit?;
                let allowed = limit.saturating_add(job.spec.checkpoint.grace).saturating_add(self.timings.limit_slack);
                let running = job.state == JobState::Running && job.allocation == Some(allocation.id);
                if !running {
                    return None;
                }
                let since = *running_since.entry(allocation.id).or_insert(now);
                (now.saturating_duration_since(since) > allowed).then_some((job.id, allocation.id))
            })
            .collect();
        for (job, allocation) in late {
            tracing::warn!(%job, "a job ran past its time limit and its agent did not stop it: it is ended");
            self.propose(Duty::Expire(job), Command::ExpireJob { job, allocation }, NAME, effects);
        }
    }

    /// Says until when queues and jobs are closed by their windows, where the ledger says something else.
    fn look_at_windows(&mut self, state: &State, log_now: LogTime, effects: &mut Vec<Effect>) {
        for command in self.windows.due(state, log_now) {
            let Command::CloseUntil { whose, time, .. } = &command else { continue };
            let (duty, until) = (Duty::Close(whose.clone()), time.0);
            if !self.in_flight.contains(&duty) {
                tracing::info!(?duty, closed_until_ms = until, "time windows open or close");
                self.propose(duty, command, NAME, effects);
            }
        }
    }

    /// The ledger forgets by its own time, which stands still when nothing happens.
    fn look_at_clock(&mut self, state: &State, now: Instant, effects: &mut Vec<Effect>) {
        let revision = state.revision();
        match self.quiet_since {
            Some((known, since)) if known == revision => {
                let over = JobState::ALL.iter().filter(|state| state.is_terminal());
                let ended: u64 = over.map(|job_state| state.job_count(*job_state)).sum();
                if ended > 0 && now.saturating_duration_since(since) >= self.timings.tick {
                    self.quiet_since = Some((revision, now));
                    self.propose(Duty::Tick, Command::Tick, NAME, effects);
                }
            }
            _ => self.quiet_since = Some((revision, now)),
        }
    }

    /// Takes every move as far as it can go. Its source is told to stop once what the job has saved so far is where it
    /// goes. What the source saved when it stopped is in the ledger then, and the target's agent fetches it before it
    /// starts: a move whose source has stopped goes on at once. It is given up when its target is gone or silent
    /// (nothing is suspended for a place that may not come back), and when its source cannot be stopped.
    fn drive_moves(&mut self, state: &State, leases: &Leases, effects: &mut Vec<Effect>) {
        self.moving_since.retain(|id, _| state.move_in_progress(*id).is_some());
        let mut due: Vec<(MoveId, MovePhase, bool)> = Vec::new();
        for movement in state.moves() {
            let proceeds = match movement.phase {
                MovePhase::Reserved | MovePhase::Transferring => {
                    let there = self.is_there(state, leases, movement.target);
                    let waits = there && self.waits_for_copies(state, movement);
                    (!waits).then_some(there)
                }
                MovePhase::Suspending => {
                    let source = state.allocation(movement.source);
                    let lost = |worker: &Worker| worker.state == WorkerState::Lost;
                    source.is_some_and(|source| source.workers.iter().any(lost)).then_some(false)
                }
                MovePhase::Resuming => None,
            };
            due.extend(proceeds.map(|proceed| (movement.id, movement.phase, proceed)));
        }
        for (id, from, proceed) in due {
            self.propose(Duty::Advance(id, from), Command::AdvanceMove { id, from, proceed }, NAME, effects);
        }
    }

    /// True if a move's source continues to run for now: what the job has saved is being copied to the target.
    fn waits_for_copies(&mut self, state: &State, movement: &Move) -> bool {
        if state.copies_ahead(movement).next().is_none() {
            return false;
        }
        // A leader that has not looked yet does not know for how long.
        let Some(now) = self.looked_at else { return true };
        let since = *self.moving_since.entry(movement.id).or_insert(now);
        let others_wait = state.waiting().any(|job| job.not_before <= state.time());
        let patience = if others_wait { COPY_AHEAD_OF_OTHERS } else { COPY_AHEAD };
        now.saturating_duration_since(since) < patience
    }

    /// True if the nodes of a move's target take new work and were heard lately, and its cards are healthy.
    fn is_there(&self, state: &State, leases: &Leases, target: AllocationId) -> bool {
        let silent = |node: NodeId| {
            let heard = leases.last_heard(node);
            let silent_after = silence(state);
            self.looked_at.is_some_and(|now| now.saturating_duration_since(heard) > silent_after)
        };
        let healthy =
            |slice: &Slice| state.card(slice.card).is_some_and(|card| card.description.health == CardHealth::Healthy);
        state.allocation(target).is_some_and(|target| {
            target.workers.iter().all(|worker| {
                state.node(worker.node).is_some_and(|node| node.grantable())
                    && !silent(worker.node)
                    && worker.slices.iter().all(healthy)
            })
        })
    }

    fn answered(
        &mut self,
        duty: Duty,
        result: &Result<Committed, ProposeError>,
        leases: &mut Leases,
        effects: &mut Vec<Effect>,
    ) {
        self.in_flight.remove(&duty);
        match result {
            Ok(committed) => {
                tracing::debug!(?duty, index = committed.revision.0, outcome = ?committed.outcome, "a duty is done");
            }
            // The next leader has the same duties.
            Err(ProposeError::Consensus(error @ (Cause::NotLeader { .. } | Cause::Stopped(_)))) => {
                tracing::debug!(?duty, %error, "a duty is left to the next leader");
            }
            Err(error) => tracing::warn!(?duty, %error, "a duty is not in the log; it is looked at again"),
        }
        if let Duty::Lose(node, _) = duty {
            match result {
                Ok(committed) => {
                    self.maybe_lost.remove(&duty);
                    leases.spare(node);
                    if committed.outcome == tessera_ledger::Outcome::Done {
                        effects.push(Effect::CountLost);
                    }
                }
                // It may be in the log: the node stays condemned and the loss is proposed again.
                Err(ProposeError::Consensus(Cause::OutcomeUnknown)) => {
                    self.maybe_lost.insert(duty);
                }
                // "Not proposed" is said of this try only: an earlier one may be in the log.
                Err(_) if self.maybe_lost.contains(&duty) => {}
                Err(_) => leases.spare(node),
            }
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
