//! The way to a server that is elsewhere: it may be slow, and it may be cut.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The state of the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Each piece that is passed on waits so long before.
    Open(Duration),
    /// Connections stay, and nothing comes through.
    Silent,
    /// Connections end, and new ones do too.
    Cut,
}

/// A way to a server, at an address of its own. It ends with this value.
#[derive(Debug)]
pub struct Link {
    address: SocketAddr,
    state: watch::Sender<State>,
    _passing: JoinSet<()>,
}

impl Link {
    /// Makes one to `server`, a `host:port`.
    ///
    /// # Errors
    /// When no address is free.
    pub async fn to(server: String) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (state, seen) = watch::channel(State::Open(Duration::ZERO));
        let mut passing = JoinSet::new();
        passing.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(pass(client, server.clone(), seen.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, state, _passing: passing })
    }

    /// Its address, a `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Lets everything through, each piece after so long.
    pub fn open(&self, delay: Duration) {
        self.state.send_replace(State::Open(delay));
    }

    /// Lets nothing through, and says so to nobody.
    pub fn silence(&self) {
        self.state.send_replace(State::Silent);
    }

    /// Ends all connections, and those that come.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }
}

/// Passes on what comes from either side, until one has ended or the way is cut.
async fn pass(client: TcpStream, server: String, state: watch::Receiver<State>) {
    let mut cut = state.clone();
    let passing = async {
        let Ok(server) = TcpStream::connect(server).await else { return };
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        tokio::join!(one_way(from_client, to_server, &state), one_way(from_server, to_client, &state));
    };
    tokio::select! {
        biased;
        _ = cut.wait_for(|state| *state == State::Cut) => {}
        () = passing => {}
    }
}

async fn one_way(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, state: &watch::Receiver<State>) {
    let mut piece = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut piece).await {
        let mut seen = state.clone();
        let Ok(State::Open(delay)) = seen.wait_for(|state| *state != State::Silent).await.map(|state| *state) else {
            return;
        };
        sleep(delay).await;
        if to.write_all(&piece[..length]).await.is_err() {
            return;
        }
    }
    // Whoever has gone already need not be told.
    let _ = to.shutdown().await;
}
