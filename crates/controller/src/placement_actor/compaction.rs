//! A run of compaction (P7): plans are made beside the actor from the newest state, and a few moves at a time are
//! proposed. Which moves are in progress is in the ledger; that there is a run, its budget and its count are this
//! leader's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tessera_check::check;
use tessera_foresight::{CompactionPlan, WAY_EVERY, compact, make_way};
use tessera_ledger::{AllocationId, CardId, JobId, LogTime, Outcome, Plan, PlanPart, Reason, Revision, State};
use tessera_placement::CompactionOrder;

use crate::pool::Committed;

/// The phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CompactionPhase {
    /// Nothing was asked for since this leader was elected.
    #[default]
    Idle,
    /// Moves are made.
    Running,
    /// Somebody stopped it.
    Stopped,
    /// Nothing is left that gains anything, or the budget is used up.
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionProgress {
    pub phase: CompactionPhase,
    /// True if the pool's settings began it.
    pub automatic: bool,
    /// Most moves.
    pub budget: u32,
    /// Moves that were begun.
    pub begun: u32,
    /// Moves after which the job runs at its target.
    pub done: u32,
    /// Moves that were refused, given up or ended otherwise.
    pub failed: u32,
    /// Cards that were renumbered.
    pub renumbered: u32,
}

/// Stands for no run: the pool is looked at because its settings say so.
const LOOK: u64 = 0;

/// The window in which moves that nobody asked for are counted.
const HOUR: Duration = Duration::from_secs(3600);

/// Most cards that one plan renumbers.
const RENUMBERS: usize = 64;

/// A plan that is to be made beside the actor.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub state: Arc<State>,
    pub now: LogTime,
    pub order: CompactionOrder,
    pub scope: Scope,
    /// For moves that nobody asked for: those that all jobs together may make within an hour.
    pub per_hour: Option<u32>,
}

/// The purpose of a run of moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Scope {
    /// Whoever waits, and free room that lies scattered.
    #[default]
    Pool,
    /// Jobs that wait in queues by attained service.
    Way,
}

impl PartialEq for Errand {
    fn eq(&self, other: &Self) -> bool {
        let parts = |of: &Self| (of.state.revision(), of.order, of.scope, of.per_hour);
        parts(self) == parts(other)
    }
}

impl Eq for Errand {}

impl Errand {
    /// Makes the plan; takes as long as the pool is large.
    pub(super) fn run(mut self) -> CompactionPlan {
        if let Some(per_hour) = self.per_hour {
            let left = per_hour.saturating_sub(moves_within(&self.state, self.now, HOUR));
            self.order.moves = self.order.moves.min(left);
        }
        let plan = match self.scope {
            Scope::Pool => compact,
            Scope::Way => make_way,
        };
        plan(&self.state, self.now, &self.order)
    }
}

/// Moves that jobs in the ledger made lately; told from their histories, so that every leader counts the same.
fn moves_within(state: &State, now: LogTime, window: Duration) -> u32 {
    let attempts = state.jobs_from(JobId(0)).flat_map(|job| &job.history);
    let moved = attempts.filter(|attempt| {
        attempt.reason == Some(Reason::Moving) && attempt.ended_at.is_some_and(|ended| now.since(ended) < window)
    });
    u32::try_from(moved.count()).unwrap_or(u32::MAX)
}

/// The actor's memory of compaction.
#[derive(Debug, Default)]
pub(super) struct Compaction {
    progress: CompactionProgress,
    order: CompactionOrder,
    scope: Scope,
    at_once: u32,
    /// The run that a plan is being made for, or [`LOOK`].
    planning: Option<u64>,
    /// Runs that were begun; the last of them is numbered so.
    runs: u64,
    /// A plan is wanted: the run began, or a move of it ended.
    wanted: bool,
    /// Parts that wait for their turn to be proposed.
    staged: Vec<PlanPart>,
    /// Parts that are proposed.
    proposed: Vec<PlanPart>,
    /// Moves of this run in progress, by job, with their targets.
    moving: BTreeMap<JobId, AllocationId>,
    /// States before this one do not show those moves.
    shown_from: Revision,
    /// The time of the next automatic look at the pool.
    look_at: LogTime,
}

impl Compaction {
    pub(super) const fn progress(&self) -> CompactionProgress {
        self.progress
    }

    fn is_running(&self) -> bool {
        self.progress.phase == CompactionPhase::Running
    }

    /// Begins a run; false when one is under way.
    pub(super) fn start(&mut self, order: CompactionOrder, at_once: u32, automatic: bool) -> bool {
        if self.is_running() {
            return false;
        }
        self.progress = CompactionProgress {
            phase: CompactionPhase::Running,
            automatic,
            budget: order.moves,
            ..CompactionProgress::default()
        };
        self.runs += 1;
        (self.order, self.scope, self.at_once, self.wanted) = (order, Scope::Pool, at_once.max(1), true);
        tracing::info!(moves = order.moves, at_once, automatic, "compaction begins");
        true
    }

    /// Begins no further move.
    pub(super) fn stop(&mut self) {
        if self.is_running() {
            self.finish(CompactionPhase::Stopped);
        }
    }

    fn finish(&mut self, phase: CompactionPhase) {
        self.progress.phase = phase;
        self.staged.clear();
        self.wanted = false;
        let CompactionProgress { begun, done, failed, .. } = self.progress;
        tracing::info!(?phase, begun, done, failed, "compaction ends");
    }

    /// Takes over which moves have ended.
    pub(super) fn watch(&mut self, state: &State) {
        if state.revision() < self.shown_from {
            return;
        }
        let before = self.moving.len();
        let progress = &mut self.progress;
        self.moving.retain(|job, target| {
            let Some(job) = state.job(*job) else {
                progress.failed += 1;
                return false;
            };
            if job.moving.is_some() {
                return true;
            }
            match job.history.iter().any(|attempt| attempt.allocation == *target && attempt.started_at.is_some()) {
                true => progress.done += 1,
                false => progress.failed += 1,
            }
            false
        });
        self.wanted |= self.is_running() && self.moving.len() < before;
    }

    /// The plan that is to be made now, if any.
    pub(super) fn errand(&mut self, state: &Arc<State>, now: LogTime) -> Option<Errand> {
        if self.planning.is_some() || !self.staged.is_empty() || !self.proposed.is_empty() {
            return None;
        }
        if self.is_running() {
            if !self.wanted || self.in_progress() >= self.at_once {
                return None;
            }
            (self.wanted, self.planning) = (false, Some(self.runs));
            let moves = self.progress.budget.saturating_sub(self.progress.begun);
            let order = CompactionOrder { moves, ..self.order };
            return Some(Errand { state: Arc::clone(state), now, order, scope: self.scope, per_hour: None });
        }
        let scope = looks_for(state)?;
        if now < self.look_at || !self.moving.is_empty() {
            return None;
        }
        (self.look_at, self.planning) = (now.after(WAY_EVERY), Some(LOOK));
        let (order, per_hour) = (CompactionOrder::automatic(), Some(state.config().compaction.moves_per_hour));
        Some(Errand { state: Arc::clone(state), now, order, scope, per_hour })
    }

    /// The time of the next automatic look at the pool; `None` when nothing asks for any.
    pub(super) fn next_look(&self, state: &State) -> Option<LogTime> {
        looks_for(state).map(|_| self.look_at)
    }

    fn in_progress(&self) -> u32 {
        u32::try_from(self.moving.len()).unwrap_or(u32::MAX)
    }

    /// A plan is made: as much of it is staged as can be done at once.
    pub(super) fn planned(&mut self, state: &State, plan: &CompactionPlan) {
        let present = if self.is_running() { self.runs } else { LOOK };
        if self.planning.take() != Some(present) {
            // It was made for a run that was stopped, or before the present one began.
            self.wanted = self.is_running();
            return;
        }
        if !self.is_running() && !self.begin_by_itself(state, plan) {
            return;
        }
        let free = self.at_once.saturating_sub(self.in_progress());
        self.staged = independent(state, plan, free as usize);
        if !self.staged.is_empty() {
            return;
        }
        if plan.moves.is_empty() && self.moving.is_empty() {
            let renumbers = plan.renumbers.iter().take(RENUMBERS);
            self.staged = renumbers.map(|card| PlanPart::Renumber { card: *card }).collect();
            if self.staged.is_empty() {
                self.finish(CompactionPhase::Done);
            }
        } else if self.moving.is_empty() {
            // The state has changed since the plan was made.
            self.wanted = true;
        }
    }

    /// Begins a run if the pool's settings call for this plan: it makes room for waiting jobs, or too much of what is
    /// free lies scattered. Returns whether the run began.
    fn begin_by_itself(&mut self, state: &State, plan: &CompactionPlan) -> bool {
        let Some(scope) = looks_for(state) else { return false };
        let scattered = plan.before.fragmentation() >= state.config().compaction.threshold.0.saturating_mul(10);
        let makes_room = plan.moves.iter().any(|planned| planned.makes_room_for.is_some());
        if plan.moves.is_empty() || !(makes_room || scope == Scope::Pool && scattered) {
            return false;
        }
        let moves = u32::try_from(plan.moves.len()).unwrap_or(u32::MAX);
        // Who waits for several moves waits no longer than for one.
        let at_once = if scope == Scope::Way { moves } else { 1 };
        self.start(CompactionOrder { moves, ..CompactionOrder::automatic() }, at_once, true);
        (self.scope, self.wanted) = (scope, false);
        true
    }

    /// The parts that are to be proposed now.
    pub(super) fn take_staged(&mut self) -> Vec<PlanPart> {
        self.proposed = std::mem::take(&mut self.staged);
        self.proposed.clone()
    }

    /// Records the ledger's answers to the proposed parts; `None`: it is not known that they were committed.
    pub(super) fn answered(&mut self, committed: Option<&Committed>) {
        let proposed = std::mem::take(&mut self.proposed);
        if proposed.is_empty() {
            return;
        }
        self.wanted = self.is_running();
        let Some(Committed { revision, outcome: Outcome::Planned(answers) }) = committed else { return };
        self.shown_from = *revision;
        for (part, answer) in proposed.iter().zip(answers) {
            match (part, answer) {
                (PlanPart::Move { job, .. }, Ok(Some(target))) => {
                    self.progress.begun += 1;
                    self.moving.insert(*job, *target);
                }
                (PlanPart::Move { .. }, _) => {
                    // Counted against the budget, so that a run ends whatever is refused.
                    self.progress.begun += 1;
                    self.progress.failed += 1;
                }
                (PlanPart::Renumber { .. }, Ok(_)) => self.progress.renumbered += 1,
                _ => {}
            }
        }
        // A round of renumbering is the last thing that a run does.
        let only_renumbered = proposed.iter().all(|part| matches!(part, PlanPart::Renumber { .. }));
        if self.is_running() && only_renumbered {
            self.finish(CompactionPhase::Done);
        }
    }
}

/// The moves that the pool's settings call for by themselves, if any.
fn looks_for(state: &State) -> Option<Scope> {
    if state.config().compaction.automatic {
        return Some(Scope::Pool);
    }
    state.queues().any(|queue| queue.settings.attained.is_some()).then_some(Scope::Way)
}

/// The first moves of a plan that need nothing of one another, with the renumbering that they need, as `check` accepts
/// them now.
fn independent(state: &State, plan: &CompactionPlan, most: usize) -> Vec<PlanPart> {
    let mut parts: Vec<PlanPart> = Vec::new();
    let mut cards: BTreeSet<CardId> = BTreeSet::new();
    let mut moves = 0;
    for planned in &plan.moves {
        let apart = planned.cards().all(|card| !cards.contains(&card));
        cards.extend(planned.cards());
        if moves >= most || !apart {
            continue;
        }
        let more: Vec<PlanPart> = parts.iter().cloned().chain(planned.parts()).collect();
        if check(state, &Plan { revision: state.revision(), parts: more.clone() }).is_ok() {
            (parts, moves) = (more, moves + 1);
        }
    }
    parts
}
