//! The service about workers that members call over gRPC. It sends the output of workers, from an offset, over rotated
//! files, and on as it is written; the address of a slice server, for a worker whose program is elsewhere; and the
//! diagnostics of this agent when a fault is looked for.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::unfold;
use prometheus_client::metrics::gauge::Gauge;
use tessera_api::agent::diagnostic_part;
use tessera_api::error::LIMIT;
use tessera_api::fields::duration;
use tessera_api::reasons::ReasonLayer;
use tessera_api::v1 as wire;
use tessera_api::v1::worker_service_server::{WorkerService, WorkerServiceServer};
use tessera_api::{Refusal, limits};
use tessera_connection::Inbound;
use tessera_connection::arriving::{ArrivalLayer, Punctuality};
use tessera_connection::seated::{Arrival, incoming};
use tessera_connection::seats::{Guest, Seats};
use tessera_diagnostics::{Part, Profiler};
use tessera_ledger::wire::{FieldError, duration_to_wire};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::service::{InterceptorLayer, Routes};
use tonic::{Request, Response, Status as Answer};

use crate::config::Limits;
use crate::device::Reached;
use crate::http::Page;
use crate::node::from_ref;
use crate::supervisor::output::Stream as Output;
use crate::supervisor::status::Status;
use crate::worker::folder::{WorkerFolder, WorkerFolders};
use crate::worker::{Gone, WorkerId};

/// Bytes of one piece.
const PIECE: usize = 64 * 1024;
/// The pause before a followed output is looked at again, and the longest: it doubles while nothing comes.
const LOOK: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(400)];
/// Calls that one connection may have open at once; further ones wait.
const CALLS_PER_CONNECTION: u32 = 4096;
/// Looks at files and processes at once: what callers read must not keep the node from its own files.
const LOOKS: usize = 16;

/// Serves workers' output, and checkpoints to other agents, until `end`, within limits. Whoever is silent for too long,
/// in the middle of a request or when asked whether he is there, is let go; no method takes more than one message.
pub(crate) async fn serve(
    inbound: Inbound,
    folders: WorkerFolders,
    page: Page,
    checkpoints: Routes,
    limits: Limits,
    end: CancellationToken,
) {
    let Limits { seats, log_streams, .. } = limits;
    let [streams, looks] = [log_streams, LOOKS].map(|most| Arc::new(Semaphore::new(most)));
    let service = LogService { folders, page, log_streams, streams, looks, end: end.clone() };
    let incoming = incoming(inbound, Seats::new(seats, Gauge::default()));
    let punctuality = Punctuality { patience: seats.silence, late: || Refusal::arrived_too_slowly().into() };
    let server = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(seats.silence))
        .http2_keepalive_timeout(Some(seats.silence))
        .layer(InterceptorLayer::new(move |request| seated(request, seats.connections)))
        .layer(ReasonLayer)
        .layer(ArrivalLayer(punctuality))
        .max_concurrent_streams(CALLS_PER_CONNECTION)
        .add_routes(checkpoints)
        .add_service(WorkerServiceServer::new(service));
    let served = server.serve_with_incoming_shutdown(incoming, end.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::error!(%error, "output cannot be served any more");
    }
}

/// Lets a call through over a connection that has a seat, or gets one now.
fn seated(request: Request<()>, most: usize) -> Result<Request<()>, Answer> {
    let arrival = request.extensions().get::<Arrival>();
    if arrival.is_none_or(|arrival| arrival.seat.belongs_to(Guest::Client)) {
        return Ok(request);
    }
    let message = format!("this agent keeps {most} connections and has as many; close some, or try again later");
    Err(Refusal::new(wire::ErrorReason::TooManyConnections, message).with(LIMIT, most.to_string()).into())
}

struct LogService {
    folders: WorkerFolders,
    page: Page,
    log_streams: usize,
    streams: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    end: CancellationToken,
}

#[tonic::async_trait]
impl WorkerService for LogService {
    async fn read_device(
        &self,
        request: Request<wire::ReadDeviceRequest>,
    ) -> Result<Response<wire::ReadDeviceResponse>, Answer> {
        let worker = worker_of(request.into_inner().worker)?;
        let folder = self.folders.of(worker);
        let told = look(&self.looks, move || device_of(worker, &folder)).await;
        let Reached { address, token, lease } = told.map_err(unreadable)??;
        Ok(Response::new(wire::ReadDeviceResponse { address, token, lease: Some(duration_to_wire(lease)) }))
    }

    async fn read_diagnostics(
        &self,
        request: Request<wire::ReadDiagnosticsRequest>,
    ) -> Result<Response<wire::ReadDiagnosticsResponse>, Answer> {
        let within = limits::SHORTEST..=tessera_diagnostics::LONGEST;
        let profile = request.into_inner().profile.map(|time| duration("profile", &time, &within));
        let profiled = match profile.transpose().map_err(Refusal::from)? {
            Some(time) => {
                let profiler = Profiler::take().ok_or_else(Refusal::already_profiled)?;
                let made = tokio::task::spawn_blocking(move || profiler.part(time)).await;
                Some(made.map_err(|error| unreadable(io::Error::other(error)))?)
            }
            None => None,
        };
        let own = look(&self.looks, tessera_diagnostics::own).await.map_err(unreadable)?;
        let metrics = Part::new("metrics.txt", self.page.text().await.map(String::into_bytes));
        let parts = own.into_iter().chain([metrics]).chain(profiled);
        let parts = parts.map(|part| diagnostic_part(part.name, part.content));
        Ok(Response::new(wire::ReadDiagnosticsResponse { parts: parts.collect() }))
    }

    type ReadLogsStream = Pin<Box<dyn Stream<Item = Result<wire::ReadLogsResponse, Answer>> + Send>>;

    async fn read_logs(
        &self,
        request: Request<wire::ReadLogsRequest>,
    ) -> Result<Response<Self::ReadLogsStream>, Answer> {
        let request = request.into_inner();
        let worker = worker_of(request.worker)?;
        let output = match wire::LogStream::try_from(request.stream) {
            Ok(wire::LogStream::Stderr) => Output::Stderr,
            Ok(wire::LogStream::Stdout | wire::LogStream::Unspecified) => Output::Stdout,
            Err(_) => {
                let problem = format!("must be stdout (1) or stderr (2), is {}", request.stream);
                return Err(Refusal::from(FieldError::invalid("stream", problem)).into());
            }
        };
        let most = self.log_streams;
        let place = Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let message = format!("{most} outputs are read from this agent, as many as may be; try again later");
            Refusal::new(wire::ErrorReason::TooManyLogStreams, message).with(LIMIT, most.to_string())
        })?;
        let folder = self.folders.of(worker);
        let opened = look(&self.looks, move || open(worker, folder, output, request.offset)).await;
        let reader = opened.map_err(unreadable)??;
        let (looks, end) = (Arc::clone(&self.looks), self.end.clone());
        let following = Following { reader, follow: request.follow, looks, place, end };
        let pieces = unfold(Some(following), |following| async move { following?.piece().await });
        Ok(Response::new(Box::pin(pieces)))
    }
}

/// Looks at files, in a turn and away from the threads that serve. A look that began keeps its place to its end, also
/// when nobody waits for it any more.
async fn look<T: Send + 'static>(places: &Arc<Semaphore>, work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    // Nobody closes the semaphore.
    let place = Arc::clone(places).acquire_owned().await;
    let looked = tokio::task::spawn_blocking(move || {
        let _place = place;
        work()
    });
    looked.await.map_err(io::Error::other)
}

/// The worker that a request names.
fn worker_of(worker: Option<wire::WorkerRef>) -> Result<WorkerId, Refusal> {
    Ok(from_ref(&worker.ok_or_else(|| FieldError::missing("worker"))?))
}

/// The address of a worker's slice server, with its token and lease.
fn device_of(worker: WorkerId, folder: &WorkerFolder) -> Result<Reached, Answer> {
    if !folder.path().exists() {
        let message = format!("worker {worker} is not on this node");
        return Err(Refusal::new(wire::ErrorReason::WorkerUnknown, message).into());
    }
    let over = matches!(Status::load(folder.path()), Ok(Some(status)) if status.is_final());
    Reached::told(&folder.work()).filter(|_| !over).ok_or_else(|| {
        let standing = if over { "is over" } else { "does not listen yet" };
        Refusal::new(wire::ErrorReason::DeviceNotReady, format!("the slice server of worker {worker} {standing}"))
            .into()
    })
}

/// Finds the place in a worker's output where reading begins.
fn open(worker: WorkerId, folder: WorkerFolder, output: Output, offset: u64) -> Result<LogReader, Answer> {
    if !folder.path().exists() {
        let message = format!("worker {worker} was never on this node, or its output is long gone");
        return Err(Refusal::new(wire::ErrorReason::WorkerUnknown, message).into());
    }
    if let Some(gone) = folder.gone() {
        let why = match gone {
            Gone::InTime => "was kept as long as its job, its node or the pool says, and is removed",
            Gone::ForRoom => "was removed before its time: its node had no room for all that ended work had left",
        };
        let message = format!("the output of worker {worker} {why}");
        return Err(Refusal::new(wire::ErrorReason::OutputExpired, message).into());
    }
    let reader = LogReader { folder, output, offset };
    let length = reader.length().map_err(unreadable)?;
    if offset > length {
        let message = format!("offset {offset} is beyond the end of the output, which is {length}");
        return Err(Refusal::new(wire::ErrorReason::OffsetBeyondEnd, message).into());
    }
    Ok(reader)
}

fn unreadable(error: io::Error) -> Answer {
    Refusal::new(wire::ErrorReason::Internal, format!("what is asked for cannot be read: {error}")).into()
}

/// The agent ends while the worker goes on: whoever follows asks again when it is back. An end without a word would say
/// that this was all.
fn leaving() -> Answer {
    Answer::unavailable("the agent ends; its workers go on, and it can be asked for their output when it is back")
}

/// Reading that goes on: the reader, and whether the end of the worker is waited for.
struct Following {
    reader: LogReader,
    follow: bool,
    looks: Arc<Semaphore>,
    /// Its place among the streams that may be read at once.
    place: OwnedSemaphorePermit,
    end: CancellationToken,
}

impl Following {
    /// The next piece, waited for if need be; `None` at the end, or after an error.
    async fn piece(self) -> Option<(Result<wire::ReadLogsResponse, Answer>, Option<Self>)> {
        let Self { mut reader, follow, looks, place, end } = self;
        let [mut pause, longest] = LOOK;
        loop {
            let read = move || {
                // Looked at before reading: what was written before the end is read after it.
                let over = !follow || reader.is_over();
                let piece = reader.next_piece();
                (reader, over, piece)
            };
            let (back, over, piece) = match look(&looks, read).await {
                Ok(read) => read,
                Err(error) => return Some((Err(unreadable(error)), None)),
            };
            reader = back;
            match piece {
                Ok(Some((offset, data))) => {
                    return Some((
                        Ok(wire::ReadLogsResponse { offset, data }),
                        Some(Self { reader, follow, looks, place, end }),
                    ));
                }
                Ok(None) if over => return None,
                Ok(None) => {
                    tokio::select! {
                        () = end.cancelled() => return Some((Err(leaving()), None)),
                        () = sleep(pause) => pause = longest.min(pause * 2),
                    }
                }
                Err(error) => return Some((Err(unreadable(error)), None)),
            }
        }
    }
}

/// A place in a worker's output.
#[derive(Debug)]
struct LogReader {
    folder: WorkerFolder,
    output: Output,
    offset: u64,
}

impl LogReader {
    /// Returns whether nothing will be written any more: the worker is over. One that could not be started may have
    /// left no status.
    fn is_over(&self) -> bool {
        self.folder.is_settled() || matches!(Status::load(self.folder.path()), Ok(Some(status)) if status.is_final())
    }

    /// Offset behind the last byte.
    fn length(&self) -> io::Result<u64> {
        let Some(last) = self.output.offsets(self.folder.path())?.pop() else { return Ok(0) };
        Ok(last + self.output.file(self.folder.path(), last).metadata()?.len())
    }

    /// The next piece with its offset, which is larger than expected when rotation has dropped what was there; `None`
    /// when there is nothing yet.
    fn next_piece(&mut self) -> io::Result<Option<(u64, Bytes)>> {
        let offsets = self.output.offsets(self.folder.path())?;
        let holding = offsets.iter().rposition(|first| *first <= self.offset);
        let candidates = offsets.get(holding.unwrap_or(0)..).unwrap_or_default();
        for first in candidates {
            let from = self.offset.max(*first);
            let mut file = match File::open(self.output.file(self.folder.path(), *first)) {
                Ok(file) => file,
                // Rotated away since the folder was read; the next file has what is left.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            file.seek(SeekFrom::Start(from - first))?;
            let mut piece = Vec::with_capacity(PIECE);
            file.take(PIECE as u64).read_to_end(&mut piece)?;
            if !piece.is_empty() {
                self.offset = from + piece.len() as u64;
                return Ok(Some((from, Bytes::from(piece))));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_ledger::{AllocationId, Epoch, Rank};

    fn reader(offset: u64) -> (tempfile::TempDir, LogReader) {
        let data = tempfile::tempdir().expect("a temporary folder");
        let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(1), rank: Rank(0) };
        let folder = WorkerFolders::open(data.path()).and_then(|folders| folders.create(worker)).expect("new");
        std::fs::remove_file(Output::Stdout.file(folder.path(), 0)).expect("its first part was rotated away");
        for (first, text) in [(20, "abcde"), (25, "fghij"), (30, "kl")] {
            std::fs::write(Output::Stdout.file(folder.path(), first), text).expect("writable");
        }
        (data, LogReader { folder, output: Output::Stdout, offset })
    }

    fn rest(reader: &mut LogReader) -> Vec<(u64, String)> {
        let mut pieces = Vec::new();
        while let Some((offset, data)) = reader.next_piece().expect("readable") {
            pieces.push((offset, String::from_utf8_lossy(&data).into_owned()));
        }
        pieces
    }

    #[tokio::test]
    async fn who_follows_is_told_when_the_agent_leaves_before_the_worker() {
        let (_data, reader) = reader(32);
        let end = CancellationToken::new();
        end.cancel();
        let looks = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&looks).acquire_owned().await.expect("nobody closes it");
        looks.add_permits(1);
        let following = Following { reader, follow: true, looks, place, end };
        let (told, rest) = following.piece().await.expect("not the end of the output");
        assert_eq!(told.expect_err("there is no piece").code(), tonic::Code::Unavailable);
        assert!(rest.is_none());
    }

    #[tokio::test]
    async fn a_look_waits_for_its_place_and_keeps_it_to_its_end() {
        let places = Arc::new(Semaphore::new(1));
        let ((begun, begins), (end, ends)) = (tokio::sync::oneshot::channel(), std::sync::mpsc::channel::<()>());
        let first = tokio::spawn({
            let places = Arc::clone(&places);
            async move {
                let looks = move || {
                    begun.send(()).expect("it is waited for");
                    ends.recv()
                };
                look(&places, looks).await
            }
        });
        begins.await.expect("it begins");
        // Nobody waits for it any more, and it goes on.
        first.abort();
        assert!(first.await.expect_err("it is given up").is_cancelled());
        let mut second = std::pin::pin!(look(&places, || 2));
        assert!(futures::poll!(second.as_mut()).is_pending());
        assert_eq!(places.available_permits(), 0);
        end.send(()).expect("it waits for this");
        assert_eq!(second.await.expect("it looks"), 2);
    }

    fn piece(offset: u64, text: &str) -> (u64, String) {
        (offset, text.to_owned())
    }

    #[test]
    fn reading_goes_on_over_rotated_files() {
        let (_data, mut reader) = reader(22);
        assert_eq!(rest(&mut reader), [piece(22, "cde"), piece(25, "fghij"), piece(30, "kl")]);
        assert_eq!(reader.length().expect("readable"), 32);
        let newest = Output::Stdout.file(reader.folder.path(), 30);
        std::fs::write(newest, "klm").expect("writable");
        assert_eq!(rest(&mut reader), [piece(32, "m")]);
    }

    #[test]
    fn what_was_dropped_shows_as_a_larger_offset() {
        let (_data, mut reader) = reader(0);
        assert_eq!(rest(&mut reader)[0], piece(20, "abcde"));
        let (_data, mut at_border) = self::reader(25);
        assert_eq!(rest(&mut at_border)[0], piece(25, "fghij"));
        let (_data, mut at_end) = self::reader(32);
        assert_eq!(rest(&mut at_end), []);
    }
}
