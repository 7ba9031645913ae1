//! `tessera job move`.

use tessera_api::v1::MoveJobRequest;

use super::super::Desk;
use super::super::desk::node_named;
use crate::args::MoveArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::confirm;
use crate::view::MoveAnswerView;

/// Moves a job, or says where it would go.
pub(super) async fn run(mut desk: Desk, args: MoveArgs) -> Result<Exit, Failure> {
    let job = args.job.0;
    if !args.plan {
        confirm(args.yes, &format!("Move job {job}? It is suspended on the way; see `--plan` for what it loses."))?;
    }
    let node = args.to.as_deref().map(node_named);
    let request = MoveJobRequest { request_id: String::new(), job_id: job, node, plan_only: args.plan };
    let answer = desk.client.move_job(request).await;
    let answer = answer.map_err(|error| Failure::call(format!("job {job} is not moved"), &error))?;
    desk.printer.one(&MoveAnswerView::of(job, answer))?;
    Ok(Exit::Done)
}
