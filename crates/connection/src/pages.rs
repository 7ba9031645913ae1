//! Plain HTTP pages on a listener, for so many connections and no longer than each has something to say.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::Inbound;

/// Connections that are open at once; what comes beyond them waits with the kernel.
pub const CONNECTIONS: usize = 256;

/// How long a connection may take to ask its next question, the first included.
const SILENCE: Duration = Duration::from_secs(20);

/// Serves `router` on what comes in until `shutdown`, then lets open answers end.
///
/// A reader that does not read is cut by the system ([`Inbound`]); a stream must end by itself when `shutdown`
/// is cancelled.
pub async fn serve(inbound: Inbound, router: Router, shutdown: CancellationToken) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS));
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
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.expect("it reads");
        let mut answer = [0; 512];
        let length = stream.read(&mut answer).await.expect("it answers");
        String::from_utf8_lossy(&answer[..length]).into_owned()
    }

    #[tokio::test]
    async fn who_says_nothing_takes_no_place_for_ever_and_open_answers_end() {
        let inbound = Inbound::bind(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = inbound.local_address().expect("an address");
        let end = CancellationToken::new();
        let router = Router::new().route("/", get(|| async { "here" }));
        let serving = tokio::spawn(serve(inbound, router, end.clone()));
        let mut silent = Vec::new();
        for _ in 0..CONNECTIONS {
            silent.push(TcpStream::connect(address).await.expect("it listens"));
        }
        let mut late = TcpStream::connect(address).await.expect("the kernel takes it");
        drop(silent.split_off(CONNECTIONS - 1));
        assert!(ask(&mut late).await.contains("here"), "it has the place of the one that left");
        tokio::time::pause();
        let mut rest = Vec::new();
        silent[0].read_to_end(&mut rest).await.expect("it is closed in order");
        tokio::time::resume();
        end.cancel();
        serving.await.expect("it ends, though connections are open");
    }
}
