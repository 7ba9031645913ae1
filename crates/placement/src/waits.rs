//! What a job waits for in one word, for lists: only what is known already is looked at, so that a thousand rows cost
//! no more than reading them. [`Pool::explain`] finds out the rest.

use std::collections::BTreeMap;

use tessera_ledger::{Job, LogTime, State};

use crate::line::shapes::{Block, Shape};
use crate::pool::{Moment, Pool};
use crate::shortage::refused_for_size;
use crate::why::{WaitCode, standing, without_blocks};

impl Pool {
    /// What a job waited for when it was tried last. It says of a lack what the sums over all its cards tell; where
    /// these would be enough, it says [`WaitCode::NoRoom`].
    #[must_use]
    pub fn waits_for(&self, state: &State, job: &Job, now: LogTime) -> WaitCode {
        if let Some(explanation) = standing(Moment::of(state, now), job) {
            return explanation.code;
        }
        // One that is not in line yet, or has its place in a plan already, is looked at next.
        self.line.shape_in_line(job.id).map_or(WaitCode::Ready, |shape| self.shape_waits_for(state, shape))
    }

    /// How many jobs of each queue wait for what, by what was known when they were tried last. Jobs that a person
    /// keeps back are not among them. Costs as much as there are different requests, not jobs.
    #[must_use]
    pub fn waits_by_queue(&self, state: &State) -> BTreeMap<(String, WaitCode), u64> {
        let mut waits: BTreeMap<(String, WaitCode), u64> = BTreeMap::new();
        let mut add = |queue: &str, code: WaitCode, jobs: usize| {
            if jobs > 0 {
                *waits.entry((queue.to_owned(), code)).or_default() += jobs as u64;
            }
        };
        for shape in self.line.shapes.all() {
            let refused = refused_for_size(state, &shape.one.spec).map(|explanation| explanation.code);
            let code = refused.unwrap_or_else(|| self.shape_waits_for(state, shape));
            add(&shape.one.spec.queue, code, shape.jobs.len());
        }
        for job in self.line.later().filter_map(|id| state.job(id)) {
            let code = if job.closed_until > job.not_before { WaitCode::OutsideWindow } else { WaitCode::Backoff };
            add(&job.spec.queue, code, 1);
        }
        waits
    }

    fn shape_waits_for(&self, state: &State, shape: &Shape) -> WaitCode {
        if shape.one.demand.offers.is_empty() {
            let without = without_blocks(&self.index.classes, &shape.one.spec, state);
            return without.map_or(WaitCode::NoAcceptableCard, |without| without.code);
        }
        match shape.block {
            None | Some(Block::Round { .. }) => WaitCode::Ready,
            Some(_) if self.queues.is_closed(shape.one.queue()) => WaitCode::OutsideWindow,
            Some(Block::Queue | Block::Capacity { in_queue: true, .. }) => WaitCode::QueueMaximum,
            Some(Block::Capacity { .. }) => self.lack(shape),
        }
    }

    /// What the cards that a request accepts have too little of, all together.
    fn lack(&self, shape: &Shape) -> WaitCode {
        let demand = &shape.one.demand;
        let least = |each: u64| u128::from(each) * u128::from(demand.gang_min());
        let (compute, memory) = demand.left_in(&self.index.classes);
        if compute < least(demand.compute) {
            WaitCode::ComputeShort
        } else if memory < least(demand.memory) {
            WaitCode::MemoryShort
        } else {
            WaitCode::NoRoom
        }
    }
}
