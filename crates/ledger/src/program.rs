//! The workers of a job that run a program, and the requests of programs to their hosts. **The one place** that says
//! both.
//!
//! Each worker runs one, but where a virtual card may lie on several nodes and has one program all the same: there the
//! first worker of each card runs it, and the others serve slices. That first worker may have no slices: its program is
//! on a host beside those of its card, which need not have any cards.

use crate::allocation::{Allocation, PlannedWorker, Worker, WorkerState};
use crate::host::HostRequest;
use crate::ids::{NodeId, Rank};
use crate::spec::{CheckpointMode, JobSpec};
use crate::virtual_card::VirtualCardRequest;

/// Tells for each worker, in order of rank, whether it runs a program. `backed` gives the virtual card of each worker,
/// in the same order.
fn run_programs<I: Iterator<Item = u32>>(card: &VirtualCardRequest, backed: I) -> impl Iterator<Item = bool> + use<I> {
    let serves = card.serves_across_nodes();
    let mut before = None;
    backed.map(move |virtual_card| before.replace(virtual_card) != Some(virtual_card) || !serves)
}

impl JobSpec {
    /// Returns whether the program of a virtual card may be on another host than all of its slices. A dumped program
    /// may not: its image and its data on the card are saved together, on one host.
    #[must_use]
    pub fn program_may_be_beside(&self) -> bool {
        self.virtual_card.serves_across_nodes() && self.checkpoint.mode != CheckpointMode::Transparent
    }

    /// Tells for each of some workers of a plan whether it runs a program.
    pub fn programs_among<'a>(&self, workers: &'a [PlannedWorker]) -> impl Iterator<Item = bool> + use<'a> {
        run_programs(&self.virtual_card, workers.iter().map(|worker| worker.virtual_card))
    }

    /// The virtual cards of those workers of a plan that run a program.
    pub fn cards_with_programs<'a>(&self, workers: &'a [PlannedWorker]) -> impl Iterator<Item = u32> + use<'a> {
        workers
            .iter()
            .zip(self.programs_among(workers))
            .filter_map(|(worker, runs)| runs.then_some(worker.virtual_card))
    }

    /// The host request of each of some workers, in order of rank: that of the job for a worker with a program, nothing
    /// for a worker that only serves slices.
    pub(crate) fn asked_by<I: Iterator<Item = u32>>(&self, backed: I) -> impl Iterator<Item = HostRequest> + use<I> {
        let host = self.host;
        run_programs(&self.virtual_card, backed).map(move |runs| if runs { host } else { HostRequest::ZERO })
    }

    /// The host requests of the workers of a plan, by node, without the workers that ask for nothing.
    pub fn asked_of_hosts<'a>(
        &self,
        workers: &'a [PlannedWorker],
    ) -> impl Iterator<Item = (NodeId, HostRequest)> + use<'a> {
        let asked = self.asked_by(workers.iter().map(|worker| worker.virtual_card));
        workers.iter().map(|worker| worker.node).zip(asked).filter(|(_, asked)| !asked.is_zero())
    }
}

impl Allocation {
    /// Its workers, each with whether it runs a program of a job with such virtual cards.
    pub fn run_programs<'a>(&'a self, card: &VirtualCardRequest) -> impl Iterator<Item = (&'a Worker, bool)> + use<'a> {
        let runs = run_programs(card, self.workers.iter().map(|worker| worker.virtual_card));
        self.workers.iter().zip(runs)
    }

    /// The workers that run a program, in the order of the programs' ranks.
    pub fn programs<'a>(&'a self, card: &VirtualCardRequest) -> impl Iterator<Item = &'a Worker> + use<'a> {
        self.run_programs(card).filter_map(|(worker, runs)| runs.then_some(worker))
    }

    /// The rank among the programs of the job of the one that a worker runs; `None`: it only serves slices.
    #[must_use]
    pub fn program(&self, card: &VirtualCardRequest, rank: Rank) -> Option<Rank> {
        if !card.serves_across_nodes() {
            return self.worker(rank).map(|worker| worker.rank);
        }
        let program = (0..).map(Rank).zip(self.programs(card)).find(|(_, worker)| worker.rank == rank);
        program.map(|(program, _)| program)
    }

    /// The worker that runs the program of this rank.
    #[must_use]
    pub fn worker_of(&self, card: &VirtualCardRequest, program: Rank) -> Option<&Worker> {
        match card.serves_across_nodes() {
            true => self.programs(card).nth(usize::try_from(program.0).ok()?),
            false => self.worker(program),
        }
    }

    /// Its workers, each with what it asks of its host for a job with such a spec.
    pub fn asked_of_hosts<'a>(&'a self, spec: &JobSpec) -> impl Iterator<Item = (&'a Worker, HostRequest)> + use<'a> {
        let asked = spec.asked_by(self.workers.iter().map(|worker| worker.virtual_card));
        self.workers.iter().zip(asked)
    }

    /// The workers that are not over and hold host resources, or were promised some, each with its amount.
    pub(crate) fn holders_of_hosts<'a>(
        &'a self,
        spec: &JobSpec,
    ) -> impl Iterator<Item = (&'a Worker, HostRequest)> + use<'a> {
        let holds = |(worker, asked): &(&Worker, HostRequest)| worker.state != WorkerState::Stopped && !asked.is_zero();
        self.asked_of_hosts(spec).filter(holds)
    }

    /// The host resources that workers hold, or were promised, with the node of each: one item per worker, so that a
    /// node may occur several times. Workers that are over, or ask for nothing, are left out.
    pub fn held_of_hosts<'a>(&'a self, spec: &JobSpec) -> impl Iterator<Item = (NodeId, HostRequest)> + use<'a> {
        self.holders_of_hosts(spec).map(|(worker, asked)| (worker.node, asked))
    }
}
