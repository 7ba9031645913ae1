//! An agent that only answers for the output of workers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tessera_api::error::Refusal;
use tessera_api::v1::worker_service_server::{WorkerService, WorkerServiceServer};
use tessera_api::v1::{
    DiagnosticPart, ErrorReason, ReadDeviceRequest, ReadDeviceResponse, ReadDiagnosticsRequest,
    ReadDiagnosticsResponse, ReadLogsRequest, ReadLogsResponse,
};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

/// The output of one worker, and whether it is over. Outlives the agent.
#[derive(Clone, Debug, Default)]
pub struct Output {
    pub bytes: Vec<u8>,
    pub over: bool,
}

/// An agent on a runtime of its own.
pub struct FakeAgent {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<ReadLogsRequest>>>,
    runtime: Option<Runtime>,
}

impl FakeAgent {
    /// Starts an agent on a free port.
    pub fn start(output: watch::Receiver<Option<Output>>) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), output)
    }

    /// Starts an agent; without output, it does not know the worker yet.
    pub fn start_at(address: SocketAddr, output: watch::Receiver<Option<Output>>) -> Self {
        let runtime =
            Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime can be made");
        let socket = {
            let _entered = runtime.enter();
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.set_reuseaddr(true).expect("a socket");
            socket.bind(address).expect("the port is free");
            socket.listen(16).expect("a listener")
        };
        let address = socket.local_addr().expect("an address");
        let asked = Arc::default();
        let worker = Worker { output, asked: Arc::clone(&asked) };
        runtime.spawn(serve(socket, worker));
        Self { address, asked, runtime: Some(runtime) }
    }

    /// Ends the agent at once: its connections break, and its port is free.
    pub async fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            let ended = tokio::task::spawn_blocking(move || runtime.shutdown_timeout(super::BOUND));
            ended.await.expect("it ends");
        }
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: TcpListener, worker: Worker) {
    let server = tonic::transport::Server::builder().add_service(WorkerServiceServer::new(worker));
    server.serve_with_incoming(TcpListenerStream::new(listener)).await.expect("it serves");
}

struct Worker {
    output: watch::Receiver<Option<Output>>,
    asked: Arc<Mutex<Vec<ReadLogsRequest>>>,
}

#[tonic::async_trait]
impl WorkerService for Worker {
    async fn read_device(&self, _: Request<ReadDeviceRequest>) -> Result<Response<ReadDeviceResponse>, Status> {
        Err(Refusal::new(ErrorReason::DeviceNotReady, "its slice server does not listen yet").into())
    }

    async fn read_diagnostics(
        &self,
        _: Request<ReadDiagnosticsRequest>,
    ) -> Result<Response<ReadDiagnosticsResponse>, Status> {
        let part =
            DiagnosticPart { name: "log.txt".to_owned(), content: "all is well\n".into(), missing: String::new() };
        Ok(Response::new(ReadDiagnosticsResponse { parts: vec![part] }))
    }

    type ReadLogsStream = BoxStream<'static, Result<ReadLogsResponse, Status>>;

    async fn read_logs(&self, request: Request<ReadLogsRequest>) -> Result<Response<Self::ReadLogsStream>, Status> {
        let request = request.into_inner();
        self.asked.lock().expect("nobody panicked").push(request);
        let mut output = self.output.clone();
        let Some(now) = output.borrow_and_update().clone() else {
            return Err(Refusal::new(ErrorReason::WorkerUnknown, "no order for it has come").into());
        };
        if request.offset > now.bytes.len() as u64 {
            return Err(Refusal::new(ErrorReason::OffsetBeyondEnd, "there is not so much of it").into());
        }
        let begin = Some((output, now, usize::try_from(request.offset).expect("small")));
        let pieces = stream::unfold(begin, move |at| async move {
            let (mut output, mut now, offset) = at?;
            while offset == now.bytes.len() && request.follow && !now.over {
                output.changed().await.ok()?;
                now = output.borrow_and_update().clone()?;
            }
            if offset == now.bytes.len() {
                return None;
            }
            let data = Bytes::copy_from_slice(&now.bytes[offset..]);
            let end = now.bytes.len();
            Some((Ok(ReadLogsResponse { offset: offset as u64, data }), Some((output, now, end))))
        });
        Ok(Response::new(pieces.boxed()))
    }
}
