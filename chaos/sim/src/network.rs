//! The network: one turmoil host for each simulated machine, which plays the part of its kernel.
//!
//! A process never touches turmoil. It holds a [`Plug`]: through it it asks its machine to listen or to connect, and
//! gets bytes both ways. So the kernel of a stopped process goes on accepting and buffering, as a real one does, and
//! the kernel of a killed process closes its connections. Delay, loss and partitions between machines are turmoil's.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tessera_client::Settings;
use tessera_connection::{BoxedIo, Dialer, Listener, Outbound};
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use turmoil::net::{TcpListener, TcpStream};

/// Port at which members serve.
pub const PORT: u16 = 7400;
/// Bytes that a kernel buffers for a process that does not read.
const SOCKET_BUFFER: usize = 256 << 10;

/// A connection that reached a process, and where it comes from.
type Arrived = (DuplexStream, SocketAddr);

/// A request of a process to its machine.
enum Call {
    Dial { address: String, answer: oneshot::Sender<io::Result<DuplexStream>> },
    Listen { port: u16, accepted: mpsc::UnboundedSender<Arrived> },
    Reset,
    Mislead(Option<String>),
    Refuse { host: String, refused: bool },
}

/// The end of the network that a process holds.
#[derive(Clone)]
pub struct Plug {
    calls: mpsc::UnboundedSender<Call>,
}

/// The end that the machine holds; its kernel takes calls from it.
pub struct Socket {
    calls: Arc<Mutex<mpsc::UnboundedReceiver<Call>>>,
}

/// A machine's connection to the network.
pub fn wire() -> (Plug, Socket) {
    let (calls, taken) = mpsc::unbounded_channel();
    (Plug { calls }, Socket { calls: Arc::new(Mutex::new(taken)) })
}

impl Socket {
    /// The kernel of the machine, as turmoil runs it.
    pub async fn serve(&self) -> turmoil::Result {
        let mut calls = self.calls.lock().await;
        // Counts resets: a connection lives as long as the count it began with.
        let resets = watch::Sender::new(0u64);
        let mut misled: Option<String> = None;
        let mut refused = BTreeSet::new();
        while let Some(call) = calls.recv().await {
            match call {
                Call::Dial { address, answer } => {
                    let address = misled.clone().unwrap_or(address);
                    let host = address.split(':').next().unwrap_or_default();
                    if refused.contains(host) {
                        // Whoever asked may have given up.
                        let _ = answer.send(Err(io::ErrorKind::ConnectionRefused.into()));
                        continue;
                    }
                    drop(tokio::task::spawn_local(dial(address, answer, resets.subscribe())))
                }
                Call::Listen { port, accepted } => {
                    drop(tokio::task::spawn_local(listen(port, accepted, resets.subscribe())))
                }
                Call::Reset => resets.send_modify(|count| *count += 1),
                Call::Mislead(to) => misled = to,
                Call::Refuse { host, refused: true } => drop(refused.insert(host)),
                Call::Refuse { host, refused: false } => drop(refused.remove(&host)),
            }
        }
        Ok(())
    }
}

async fn dial(address: String, mut answer: oneshot::Sender<io::Result<DuplexStream>>, resets: watch::Receiver<u64>) {
    let connected = tokio::select! {
        () = answer.closed() => return,
        connected = TcpStream::connect(address) => connected,
    };
    match connected {
        Ok(stream) => {
            let (ours, theirs) = duplex(SOCKET_BUFFER);
            if answer.send(Ok(theirs)).is_ok() {
                carry(stream, ours, resets).await;
            }
        }
        // Whoever asked may have given up.
        Err(error) => drop(answer.send(Err(error))),
    }
}

async fn listen(port: u16, accepted: mpsc::UnboundedSender<Arrived>, resets: watch::Receiver<u64>) {
    // A process that follows another one at once may find the port taken for a moment.
    let listener = loop {
        match TcpListener::bind(("0.0.0.0", port)).await {
            Ok(listener) => break listener,
            Err(_) if accepted.is_closed() => return,
            Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    };
    loop {
        tokio::select! {
            () = accepted.closed() => return,
            connection = listener.accept() => {
                let Ok((stream, from)) = connection else { continue };
                let (ours, theirs) = duplex(SOCKET_BUFFER);
                if accepted.send((theirs, from)).is_err() {
                    return;
                }
                tokio::task::spawn_local(carry(stream, ours, resets.clone()));
            }
        }
    }
}

async fn carry(mut stream: TcpStream, mut process: DuplexStream, mut resets: watch::Receiver<u64>) {
    resets.mark_unchanged();
    // How it ended is told to both ends by their being closed.
    tokio::select! {
        _ = copy_bidirectional(&mut stream, &mut process) => {}
        _ = resets.changed() => {}
    }
}

impl Dialer for Plug {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxedIo>> {
        let (answer, connected) = oneshot::channel();
        let sent = self.calls.send(Call::Dial { address: address.to_owned(), answer });
        Box::pin(async move {
            let unplugged = || io::Error::new(io::ErrorKind::NetworkUnreachable, "the machine has no network");
            sent.map_err(|_| unplugged())?;
            let stream = connected.await.map_err(|_| unplugged())??;
            Ok(Box::new(stream) as BoxedIo)
        })
    }
}

/// Connections that reached a process.
pub struct Accepting {
    port: u16,
    connections: Mutex<mpsc::UnboundedReceiver<Arrived>>,
}

impl Listener for Accepting {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxedIo, SocketAddr)>> {
        Box::pin(async {
            let arrived = self.connections.lock().await.recv().await;
            let closed = || io::Error::new(io::ErrorKind::NotConnected, "the machine has no network");
            let (stream, from) = arrived.ok_or_else(closed)?;
            Ok((Box::new(stream) as BoxedIo, from))
        })
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::UNSPECIFIED, self.port).into())
    }
}

impl Plug {
    /// Listens on a port of the machine.
    pub fn listen(&self, port: u16) -> Accepting {
        let (accepted, connections) = mpsc::unbounded_channel();
        // A machine without a network accepts nothing.
        let _ = self.calls.send(Call::Listen { port, accepted });
        Accepting { port, connections: Mutex::new(connections) }
    }

    /// Breaks all connections of the machine at once.
    pub fn reset(&self) {
        // A machine without a network has none.
        let _ = self.calls.send(Call::Reset);
    }

    /// Leads every connection that is opened from now on to one address, as a false name service does; `None`: no
    /// more.
    pub fn mislead(&self, to: Option<String>) {
        // A machine without a network reaches nobody.
        let _ = self.calls.send(Call::Mislead(to));
    }

    /// Has connections to a host refused from now on, as a firewall does, or no more.
    pub fn refuse(&self, host: &str, refused: bool) {
        // A machine without a network reaches nobody.
        let _ = self.calls.send(Call::Refuse { host: host.to_owned(), refused });
    }

    /// The [`Outbound`] through which processes on this machine open connections.
    pub fn outbound(&self) -> Outbound {
        Outbound::new(Arc::new(self.clone()))
    }

    /// Settings of a client on this machine.
    pub fn client_settings(&self, seed: u64) -> Settings {
        Settings { seed: Some(seed), outbound: self.outbound(), ..Settings::default() }
    }
}
