//! Addresses, connections, deaths and silences, all in memory.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::BoxFuture;
use tessera_client::Address;
use tessera_connection::{BoxedIo, Dialer, Outbound};
use tokio::io::{DuplexStream, copy_bidirectional, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

const PIPE: usize = 64 << 10;

/// The host behind an address.
enum Place {
    /// A member listens; its connections.
    Up(mpsc::Sender<DuplexStream>, JoinSet<()>),
    /// The host swallows everything.
    Silent,
}

/// A network in memory.
#[derive(Clone, Default)]
pub struct Network(Arc<Mutex<BTreeMap<String, Place>>>);

impl Network {
    fn places(&self) -> MutexGuard<'_, BTreeMap<String, Place>> {
        self.0.lock().expect("no test panics while it holds the network")
    }

    /// Connections to `address` come out of the receiver.
    pub fn listen(&self, address: &Address) -> mpsc::Receiver<DuplexStream> {
        let (sender, receiver) = mpsc::channel(16);
        self.places().insert(address.to_string(), Place::Up(sender, JoinSet::new()));
        receiver
    }

    /// The process behind `address` is killed: its connections break, new ones are refused.
    pub fn kill(&self, address: &Address) {
        self.places().remove(address.as_str());
    }

    /// The host behind `address` is gone: connections to it hang.
    pub fn silence(&self, address: &Address) {
        self.places().insert(address.to_string(), Place::Silent);
    }

    /// Opens connections on this network.
    pub fn outbound(&self) -> Outbound {
        Outbound::new(Arc::new(self.clone()))
    }

    async fn connect(self, name: String) -> io::Result<BoxedIo> {
        let listener = match self.places().get_mut(&name) {
            None => return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused")),
            Some(Place::Silent) => None,
            Some(Place::Up(listener, wires)) => {
                let (ours, mut near) = duplex(PIPE);
                let (mut far, theirs) = duplex(PIPE);
                wires.spawn(async move {
                    // The end of a connection is what this wire is for; how it ends does not matter.
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
                Some((listener.clone(), ours, theirs))
            }
        };
        let Some((listener, ours, theirs)) = listener else { return std::future::pending().await };
        listener.send(theirs).await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
        Ok(Box::new(ours) as BoxedIo)
    }
}

impl Dialer for Network {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxedIo>> {
        Box::pin(self.clone().connect(address.to_owned()))
    }
}
