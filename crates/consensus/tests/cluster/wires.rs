//! Connections that a test can cut, forbid, and break after so many bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use tessera_connection::{BoxedIo, Dialer, Listener, Outbound};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

#[derive(Default)]
struct State {
    /// Pairs of a member and an address that it may not dial.
    forbidden: BTreeSet<(u64, String)>,
    /// Connections in use, by who dialled whom.
    live: BTreeMap<(u64, String), Vec<CancellationToken>>,
    /// Bytes after which connections break, once.
    fuses: BTreeMap<(u64, String), u64>,
    /// Bytes written by who dialled to whom.
    written: BTreeMap<(u64, String), u64>,
    /// Bytes that are garbled where they are written, by who dialled whom.
    garbled: BTreeMap<(u64, String), Bytes>,
}

/// All connections of a cluster.
#[derive(Clone, Default)]
pub struct Wires(Arc<Mutex<State>>);

impl Wires {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cuts what `from` has dialled to `to`, and lets it dial no more.
    pub fn cut(&self, from: u64, to: &str) {
        self.state().forbidden.insert((from, to.to_owned()));
        let live = self.state().live.remove(&(from, to.to_owned()));
        live.into_iter().flatten().for_each(|token| token.cancel());
    }

    /// Lets `from` dial `to` again.
    pub fn allow(&self, from: u64, to: &str) {
        self.state().forbidden.remove(&(from, to.to_owned()));
    }

    /// Lets everybody dial everybody.
    pub fn heal(&self) {
        self.state().forbidden.clear();
    }

    /// Breaks what `from` writes to `to` after so many more bytes, once.
    pub fn break_after(&self, from: u64, to: &str, bytes: u64) {
        self.state().fuses.insert((from, to.to_owned()), bytes);
    }

    /// Garbles the byte before these wherever `from` writes them to `to` in one piece.
    pub fn garble(&self, from: u64, to: &str, marked: Bytes) {
        self.state().garbled.insert((from, to.to_owned()), marked);
    }

    /// Bytes as they arrive.
    fn as_they_arrive<'a>(&self, key: &(u64, String), bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let state = self.state();
        let Some(marked) = state.garbled.get(key) else { return bytes.into() };
        match bytes.windows(marked.len()).position(|window| window == marked) {
            Some(at) if at > 0 => {
                let mut garbled = bytes.to_vec();
                garbled[at - 1] = 0x7f;
                garbled.into()
            }
            _ => bytes.into(),
        }
    }

    /// Returns whether a fuse that was set has blown.
    pub fn has_broken(&self, from: u64, to: &str) -> bool {
        !self.state().fuses.contains_key(&(from, to.to_owned()))
    }

    /// Bytes that `from` has written to `to` on connections it dialled.
    pub fn written(&self, from: u64, to: &str) -> u64 {
        self.state().written.get(&(from, to.to_owned())).copied().unwrap_or(0)
    }

    /// The way in which one member opens connections.
    pub fn outbound(&self, from: u64) -> Outbound {
        Outbound::new(Arc::new(FromMember { from, wires: self.clone() }))
    }

    /// Counts bytes; true when the fuse blows.
    fn count(&self, key: &(u64, String), bytes: u64) -> bool {
        let mut state = self.state();
        *state.written.entry(key.clone()).or_default() += bytes;
        match state.fuses.get_mut(key) {
            Some(left) if *left <= bytes => {
                state.fuses.remove(key);
                state.live.remove(key).into_iter().flatten().for_each(|token| token.cancel());
                true
            }
            Some(left) => {
                *left -= bytes;
                false
            }
            None => false,
        }
    }
}

struct FromMember {
    from: u64,
    wires: Wires,
}

impl Dialer for FromMember {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxedIo>> {
        let (key, wires) = ((self.from, address.to_owned()), self.wires.clone());
        Box::pin(async move {
            let stream = TcpStream::connect(&key.1).await?;
            stream.set_nodelay(true)?;
            let token = CancellationToken::new();
            let mut state = wires.state();
            // Asked when it is connected: a cut meanwhile would not find it among those in use.
            if state.forbidden.contains(&key) {
                return Err(io::ErrorKind::NetworkUnreachable.into());
            }
            state.live.entry(key.clone()).or_default().push(token.clone());
            drop(state);
            Ok(Box::new(Wire::new(stream, token, Some((wires, key)))) as BoxedIo)
        })
    }
}

/// A connection that ends with an error when its token is cancelled.
pub struct Wire {
    stream: TcpStream,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    counted: Option<(Wires, (u64, String))>,
}

impl Wire {
    pub fn new(stream: TcpStream, cut: CancellationToken, counted: Option<(Wires, (u64, String))>) -> Self {
        Wire { stream, cut: Box::pin(cut.cancelled_owned()), counted }
    }

    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionReset.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        let arriving = match &self.counted {
            Some((wires, key)) => wires.as_they_arrive(key, bytes),
            None => bytes.into(),
        };
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, &arriving))?;
        if let Some((wires, key)) = &self.counted
            && wires.count(key, written as u64)
        {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A listener that a test can close, and whose connections it can cut.
pub struct Cuttable {
    listener: Mutex<Option<Arc<TcpListener>>>,
    closing: CancellationToken,
    closed: CancellationToken,
    cut: CancellationToken,
}

/// Closes a listener.
#[derive(Clone)]
pub struct Closer {
    closing: CancellationToken,
    closed: CancellationToken,
}

impl Closer {
    /// Closes the listener, so that its host refuses connections. Those that were made go on.
    pub async fn close(&self) {
        self.closing.cancel();
        self.closed.cancelled().await;
    }
}

impl Cuttable {
    pub fn new(listener: TcpListener, cut: CancellationToken) -> (Self, Closer) {
        let (closing, closed) = <(CancellationToken, CancellationToken)>::default();
        let closer = Closer { closing: closing.clone(), closed: closed.clone() };
        (Cuttable { listener: Mutex::new(Some(Arc::new(listener))), closing, closed, cut }, closer)
    }

    fn listener(&self) -> MutexGuard<'_, Option<Arc<TcpListener>>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn accepted(&self) -> Option<io::Result<(TcpStream, SocketAddr)>> {
        let listener = self.listener().clone()?;
        tokio::select! {
            accepted = listener.accept() => Some(accepted),
            () = self.closing.cancelled() => None,
        }
    }
}

impl Listener for Cuttable {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxedIo, SocketAddr)>> {
        Box::pin(async {
            let Some(accepted) = self.accepted().await else {
                self.listener().take();
                self.closed.cancel();
                return std::future::pending().await;
            };
            let (stream, from) = accepted?;
            stream.set_nodelay(true)?;
            Ok((Box::new(Wire::new(stream, self.cut.clone(), None)) as BoxedIo, from))
        })
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener().as_ref().ok_or(io::ErrorKind::NotConnected)?.local_addr()
    }
}
