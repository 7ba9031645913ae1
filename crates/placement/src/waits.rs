//! The resources that waiting requests lack, as far as that is known from when they were tried last, so that a thousand
//! rows cost no more than reading them.

use std::sync::Arc;

use tessera_ledger::{JobId, JobSpec};

use crate::line::shapes::{Block, Shape};
use crate::pool::Pool;

/// The resource that a waiting request lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Nothing: it is looked at next.
    Nothing,
    /// The pool has no card that it accepts and that has blocks.
    Cards,
    /// An open window of its queue.
    Window,
    Queue,
    /// Compute on all cards that it accepts together.
    Compute,
    /// Memory on all of them together.
    Memory,
    /// Room in the way that it asks for, though the sums would be enough.
    Room,
}

impl Pool {
    /// Returns what a job lacked when it was tried last; [`Lack::Nothing`] also for one that is not in line yet or has
    /// its place in a plan already.
    #[must_use]
    pub fn lack_of(&self, job: JobId) -> Lack {
        self.line.shape_in_line(job).map_or(Lack::Nothing, |shape| self.lack(shape))
    }

    /// Iterates over the different requests that wait: for each the spec of one of its jobs, the number of its jobs,
    /// and its lack.
    pub fn lacks(&self) -> impl Iterator<Item = (&Arc<JobSpec>, usize, Lack)> {
        self.line.shapes.all().map(|shape| (&shape.one.spec, shape.jobs.len(), self.lack(shape)))
    }

    /// The jobs whose backoff is not over, or whose windows are closed.
    pub fn later(&self) -> impl Iterator<Item = JobId> {
        self.line.later()
    }

    fn lack(&self, shape: &Shape) -> Lack {
        let demand = &shape.one.demand;
        if demand.offers.is_empty() {
            return Lack::Cards;
        }
        match shape.block {
            None | Some(Block::Round { .. }) => return Lack::Nothing,
            Some(_) if self.queues.is_closed(shape.one.queue()) => return Lack::Window,
            Some(Block::Queue | Block::Capacity { in_queue: true, .. }) => return Lack::Queue,
            Some(Block::Capacity { .. }) => {}
        }
        let least = |each: u64| u128::from(each) * u128::from(demand.gang_min());
        match demand.left_in(&self.index.classes) {
            (compute, _) if compute < least(demand.compute) => Lack::Compute,
            (_, memory) if memory < least(demand.memory) => Lack::Memory,
            _ => Lack::Room,
        }
    }
}
