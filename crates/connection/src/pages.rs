//! Plain HTTP pages on a listener, for so many connections and no longer than each has something to say.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::util::MapResponseLayer;

use crate::Inbound;

/// Connections that are open at once; what comes beyond them waits with the kernel.
pub const CONNECTIONS: usize = 256;

/// Beyond so many, a connection ends with the answer that it is asked for: browsers keep theirs, and leave no room for
/// whoever asks whether this process is alive.
const KEPT: usize = CONNECTIONS / 2;

/// The longest time that a connection may take to send its next request, the first included.
const SILENCE: Duration = Duration::from_secs(20);

/// Serves `router` on what comes in until `shutdown`, then lets open answers end.
///
/// A reader that does not read is cut by the system ([`Inbound`]); a stream must end by itself when `shutdown`
/// is cancelled.
pub async fn serve(inbound: Inbound, router: Router, shutdown: CancellationToken) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS));
    let taken = Arc::clone(&seats);
    let router = router.layer(MapResponseLayer::new(move |mut answer: Response| {
        if taken.available_permits() < CONNECTIONS - KEPT {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }));
    let open = TaskTracker::new();
    loop {
        let next = async {
            // Nobody closes the semaphore.
            let seat = Arc::clone(&seats).acquire_owned().await;
            (seat, inbound.next().await)
        };
        let (seat, io) = tokio::select! {
            next = next => next,
            () = shutdown.cancelled() => break,
        };
        let (service, end) = (TowerToHyperService::new(router.clone()), shutdown.clone());
        open.spawn(async move {
            let _seat = seat;
            let mut builder = Builder::new(TokioExecutor::new()).http1_only();
            builder.http1().timer(TokioTimer::new()).header_read_timeout(SILENCE);
            let connection = builder.serve_connection(TokioIo::new(io), service);
            tokio::pin!(connection);
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = end.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(error, "a connection for pages ended");
            }
        });
    }
    open.close();
    open.wait().await;
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::task::JoinHandle;

    use super::*;

    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("it reads");
        let mut answer = [0; 512];
        let length = stream.read(&mut answer).await.expect("it answers");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    /// A page that is served until it is told to end.
    struct Served {
        address: SocketAddr,
        end: CancellationToken,
        serving: JoinHandle<()>,
    }

    impl Served {
        async fn start() -> Self {
            let inbound = Inbound::bind(([127, 0, 0, 1], 0).into()).await.expect("a free port");
            let address = inbound.local_address().expect("an address");
            let end = CancellationToken::new();
            let router = Router::new().route("/", get(|| async { "here" }));
            Self { address, serving: tokio::spawn(serve(inbound, router, end.clone())), end }
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.address).await.expect("it listens")
        }

        async fn end(self) {
            self.end.cancel();
            self.serving.await.expect("it ends, though connections are open");
        }
    }

    #[tokio::test]
    async fn beyond_half_of_the_places_a_connection_ends_with_its_answer() {
        let served = Served::start().await;
        let mut kept = Vec::new();
        // The listener holds a place for whoever comes next.
        for _ in 0..KEPT - 1 {
            let mut stream = served.connect().await;
            assert!(!ask(&mut stream).await.contains("connection: close"));
            kept.push(stream);
        }
        let mut further = served.connect().await;
        let mut answer = ask(&mut further).await;
        further.read_to_string(&mut answer).await.expect("it is closed in order");
        assert!(answer.contains("connection: close") && answer.contains("here"), "{answer}");
        served.end().await;
    }

    #[tokio::test]
    async fn who_says_nothing_takes_no_place_for_ever_and_open_answers_end() {
        let served = Served::start().await;
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            silent.push(served.connect().await);
        }
        let mut late = served.connect().await;
        drop(silent.split_off(CONNECTIONS - 1));
        assert!(ask(&mut late).await.contains("here"), "it has the place of the one that left");
        tokio::time::pause();
        let mut rest = Vec::new();
        silent[0].read_to_end(&mut rest).await.expect("it is closed in order");
        tokio::time::resume();
        served.end().await;
    }
}
