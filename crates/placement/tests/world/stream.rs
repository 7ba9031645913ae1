//! Streams: jobs that come for ever, round by round, and one that must start all the same.

use std::collections::BTreeMap;
use std::time::Duration;

use tessera_ledger::*;
use tessera_placement::{Limits, Pool};

use super::World;

/// Seconds between two rounds.
pub const ROUND: u64 = 10;
/// Rounds after which cards are kept.
pub const PATIENCE: u64 = 3;
/// A job that is never over.
pub const ENDLESS: u64 = u64::MAX;

/// A pool, one index of it that is kept current, and the jobs that run.
pub struct Stream {
    pub world: World,
    pub pool: Pool,
    /// Seconds between two rounds.
    pub every: u64,
    /// The number of rounds that each job runs.
    lasts: BTreeMap<JobId, u64>,
    /// Jobs that run, and the round in which they end.
    running: Vec<(JobId, u64)>,
    round: u64,
}

impl Stream {
    pub fn new(world: World) -> Self {
        let pool = Pool::new(&world.state);
        Self { world, pool, every: ROUND, lasts: BTreeMap::new(), running: Vec::new(), round: 0 }
    }

    /// Submits a job that runs for so many rounds.
    pub fn submit(&mut self, spec: JobSpec, rounds: u64) -> JobId {
        let id = self.world.submit(spec);
        self.lasts(id, rounds);
        id
    }

    /// Says how many rounds a job runs.
    pub fn lasts(&mut self, id: JobId, rounds: u64) {
        self.lasts.insert(id, rounds);
    }

    /// Plays one round: jobs that are over end, time passes, and everything that can start does.
    pub fn round(&mut self) {
        self.round += 1;
        let round = self.round;
        let (over, running) = self.running.iter().partition::<Vec<(JobId, u64)>, _>(|(_, end)| *end <= round);
        self.running = running;
        over.into_iter().for_each(|(id, _)| self.world.finish(id));
        self.world.pass(Duration::from_secs(self.every));
        for part in self.decide() {
            let PlanPart::Grant { job, victims, .. } = part else { continue };
            victims.iter().for_each(|victim| self.world.stop(*victim));
            self.running.retain(|(id, _)| !victims.contains(id));
            self.world.start(job);
            let lasts = self.lasts.get(&job).copied().unwrap_or(1);
            self.running.push((job, round.saturating_add(lasts)));
        }
    }

    /// Decides and commits; nobody obeys yet.
    pub fn decide(&mut self) -> Vec<PlanPart> {
        let touched = self.world.state.take_touched();
        self.pool.refresh(&self.world.state, &touched);
        let reserve_after = Duration::from_secs(self.every * PATIENCE);
        let limits = Limits { reserve_after, stuck_after: reserve_after * 8, ..Limits::default() };
        let decision = self.pool.decide(&self.world.state, LogTime(self.world.time), &limits);
        self.world.commit(&decision)
    }

    pub fn waits(&self, job: JobId) -> bool {
        self.world.job_state(job) == JobState::Pending
    }

    /// Returns whether a job starts within `rounds` rounds while others arrive.
    pub fn starts_within(&mut self, job: JobId, rounds: u64, mut arrive: impl FnMut(&mut Self, u64)) -> bool {
        for _ in 0..rounds {
            let round = self.round;
            arrive(self, round);
            self.round();
            if !self.waits(job) {
                return true;
            }
        }
        false
    }
}
