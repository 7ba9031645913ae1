//! `tessera pool compact`.

use tessera_api::v1::{
    CompactionOrder, CompactionStatus, GetCompactionRequest, PlanCompactionRequest, StartCompactionRequest,
    StopCompactionRequest,
};

use super::Desk;
use crate::args::CompactArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view::{CompactionPlanView, CompactionStatusView};

/// Previews, begins, shows or stops compaction.
pub(super) async fn run(mut desk: Desk, args: CompactArgs) -> Result<Exit, Failure> {
    let order = Some(CompactionOrder {
        moves: args.moves,
        losing_work: args.losing_work,
        not_preemptible: args.not_preemptible,
    });
    if args.apply {
        return apply(desk, order, args.at_once).await;
    }
    if args.status || args.stop {
        let status = if args.stop { stop(&desk).await? } else { get(&desk).await? };
        desk.printer.one(&CompactionStatusView::from(status))?;
        return Ok(Exit::Done);
    }
    let request = PlanCompactionRequest { order, consistency: desk.consistency };
    let plan = desk.client.plan_compaction(request).await;
    let plan = plan.map_err(|error| Failure::call("compaction cannot be planned", &error))?;
    desk.printer.one(&CompactionPlanView::from(plan))?;
    Ok(Exit::Done)
}

async fn apply(mut desk: Desk, order: Option<CompactionOrder>, at_once: u32) -> Result<Exit, Failure> {
    let answer = desk.client.start_compaction(StartCompactionRequest { order, at_once }).await;
    let answer = answer.map_err(|error| Failure::call("compaction was not begun", &error))?;
    let status = CompactionStatusView::from(answer.status.unwrap_or_default());
    desk.printer.one(&status)?;
    if answer.started {
        return Ok(Exit::Done);
    }
    Err(Failure::new(Exit::Conflict, "compaction was not begun", "it is under way already and goes on as it was")
        .next("`tessera pool compact --status` shows how far it is, `--stop` ends it"))
}

async fn get(desk: &Desk) -> Result<CompactionStatus, Failure> {
    let answer = desk.client.get_compaction(GetCompactionRequest {}).await;
    let answer = answer.map_err(|error| Failure::call("how far compaction is cannot be shown", &error))?;
    Ok(answer.status.unwrap_or_default())
}

async fn stop(desk: &Desk) -> Result<CompactionStatus, Failure> {
    let answer = desk.client.stop_compaction(StopCompactionRequest {}).await;
    let answer = answer.map_err(|error| Failure::call("compaction was not stopped", &error))?;
    Ok(answer.status.unwrap_or_default())
}
