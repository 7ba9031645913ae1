//! Output of workers, through any member.
//!
//! Output lies on the node where the worker ran and never in the ledger. The ledger knows where that is, for attempts
//! that are over too; the asked member reads it there and passes it on. A reader that follows is carried over a
//! restart of the agent and over the time before the worker starts; it hears of a node that cannot be reached after a
//! bounded time.

mod locate;
mod proxy;

use std::sync::Arc;

use futures::StreamExt;
use tessera_api::error::Refusal;
use tessera_api::v1;
use tessera_ledger::State;
use tessera_ledger::wire::FieldError;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Answers, Desk, refusal};
pub(super) use locate::{Location, Wanted, locate};
use proxy::Proxy;
pub(super) use proxy::TERMS;
use tessera_controller::pool::Consistency;

/// Pieces of output that wait for a reader; a reader that is slower slows the agent down, not this member.
const BUFFER: usize = 16;

/// Opens the stream that a request asks for.
pub(super) async fn open(
    desk: &Desk,
    deadline: Instant,
    request: v1::StreamLogsRequest,
) -> Result<Answers<v1::StreamLogsResponse>, Status> {
    let stream = v1::LogStream::try_from(request.stream).map_err(|_| {
        let problem = format!("must be stdout (1) or stderr (2), is {}", request.stream);
        Refusal::from(FieldError::invalid("stream", problem))
    })?;
    let wanted = Wanted::of(&request);
    let permit = desk.log_permit()?;
    let read = desk.pool.read(Consistency::Linearizable, deadline).await;
    let (state, _): (Arc<State>, _) = read.map_err(|error| refusal::of_read(&desk.pool, &error))?;
    // What can be refused at once is refused before the stream begins.
    locate(&state, &wanted)?;
    drop(state);
    let (pieces, waiting) = mpsc::channel(BUFFER);
    let proxy = Proxy {
        outbound: desk.pool.outbound().clone(),
        wanted,
        stream,
        offset: request.offset,
        follow: request.follow,
        states: desk.pool.view().changes(),
        pieces: pieces.clone(),
    };
    let end = desk.end.clone();
    tokio::spawn(async move {
        let _open = permit;
        let ended = tokio::select! {
            ended = proxy.run() => ended,
            () = end.cancelled() => Err(refusal::member_stopping().into()),
            () = pieces.closed() => Ok(()),
        };
        if let Err(status) = ended {
            // Nobody hears it when the reader has left.
            let _ = pieces.send(Err(status)).await;
        }
    });
    Ok(ReceiverStream::new(waiting).boxed())
}
