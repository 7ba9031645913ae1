//! The agents: they run, stop and move workers as soon as they are told, and report it.

use std::collections::BTreeMap;

use tessera_ledger::{
    Allocation, AllocationId, AllocationPhase, Command, LogTime, MovePhase, NodeId, Observation, StopCause, Touched,
    WorkerExit, WorkerReport, WorkerState,
};

use super::{Engine, EngineError};

impl Engine {
    /// Does what the ledger says until there is nothing left to do.
    pub(super) fn follow_orders(&mut self) -> Result<(), EngineError> {
        loop {
            let mut touched = std::mem::take(&mut self.for_agents);
            touched.sort_unstable();
            touched.dedup();
            let allocations: Vec<AllocationId> = touched
                .into_iter()
                .filter_map(|touched| match touched {
                    Touched::Allocation(id) => Some(id),
                    _ => None,
                })
                .collect();
            let mut idle = !self.advance_moves()?;
            for id in allocations {
                idle &= !self.follow(id)?;
            }
            if idle {
                return Ok(());
            }
        }
    }

    /// Takes moves on that wait for somebody to; answers whether there were any.
    fn advance_moves(&mut self) -> Result<bool, EngineError> {
        let waiting: Vec<_> = self
            .state
            .moves()
            .filter(|movement| matches!(movement.phase, MovePhase::Reserved | MovePhase::Transferring))
            .map(|movement| (movement.id, movement.phase))
            .collect();
        for (id, from) in &waiting {
            self.carry_out("a step of a move", Command::AdvanceMove { id: *id, from: *from, proceed: true })?;
        }
        Ok(!waiting.is_empty())
    }

    /// Does what the ledger says of one allocation; answers whether that was anything.
    fn follow(&mut self, id: AllocationId) -> Result<bool, EngineError> {
        let Some(allocation) = self.state.allocation(id).cloned() else { return Ok(false) };
        match allocation.phase {
            AllocationPhase::Active => {
                self.report(&allocation, |state| (state == WorkerState::Held).then_some(Observation::Running))
            }
            AllocationPhase::Ending => self.report(&allocation, |state| {
                (state != WorkerState::Stopped).then(|| Observation::Stopped(exit(StopCause::Ordered)))
            }),
            AllocationPhase::Waiting | AllocationPhase::Reserved => Ok(false),
        }
    }

    /// All workers of an allocation have ended well.
    pub(super) fn report_exits(&mut self, id: AllocationId) -> Result<(), EngineError> {
        let Some(allocation) = self.state.allocation(id).cloned() else { return Ok(()) };
        self.report(&allocation, |state| {
            (state != WorkerState::Stopped).then(|| Observation::Stopped(exit(StopCause::Exited)))
        })?;
        Ok(())
    }

    /// Reports of each worker what its state calls for, node by node; answers whether there was anything to report.
    fn report(
        &mut self,
        allocation: &Allocation,
        observe: impl Fn(WorkerState) -> Option<Observation>,
    ) -> Result<bool, EngineError> {
        let mut by_node: BTreeMap<NodeId, Vec<WorkerReport>> = BTreeMap::new();
        for worker in allocation.workers.iter() {
            if let Some(observation) = observe(worker.state) {
                let report = WorkerReport { worker: allocation.owner(worker.rank), observation };
                by_node.entry(worker.node).or_default().push(report);
            }
        }
        let any = !by_node.is_empty();
        for (node, reports) in by_node {
            self.carry_out("a report", Command::ReportWorkers { node, reports })?;
        }
        Ok(any)
    }
}

fn exit(cause: StopCause) -> WorkerExit {
    let code = (cause == StopCause::Exited).then_some(0);
    WorkerExit {
        cause,
        code,
        signal: None,
        checkpointed: cause == StopCause::Ordered,
        message: String::new(),
        not_saved: String::new(),
        ended_at: LogTime(0),
    }
}
