//! Tests of what a server and a caller know of each other.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use tessera_connection::{BoxedIo, ConnectError, Dialer, Inbound, Listener, Outbound, Peer, Terms};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn a_connection_knows_where_it_comes_from() {
    let inbound = Inbound::bind((Ipv4Addr::LOCALHOST, 0).into()).await.expect("a free port");
    let caller = TcpStream::connect(inbound.local_address().expect("it is bound")).await.expect("it listens");
    let accepted = inbound.next().await;
    let address = caller.local_addr().expect("it is connected");
    assert_eq!(*accepted.peer(), Peer { address, identity: None });
    assert_eq!(accepted.peer().to_string(), address.to_string());
}

/// A listener of a process that has too many files open, once.
struct Exhausted {
    listener: TcpListener,
    failed: AtomicBool,
}

impl Listener for Exhausted {
    fn accept(&self) -> BoxFuture<'_, io::Result<(BoxedIo, SocketAddr)>> {
        if !self.failed.swap(true, Ordering::SeqCst) {
            return Box::pin(async { Err(io::Error::other("too many open files")) });
        }
        Listener::accept(&self.listener)
    }

    fn local_address(&self) -> io::Result<SocketAddr> {
        self.listener.local_address()
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_accepted_does_not_end_the_server() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
    let inbound = Inbound::new(Arc::new(Exhausted { listener, failed: AtomicBool::new(false) }));
    let address = inbound.local_address().expect("it is bound");
    let (accepted, caller) = tokio::join!(inbound.next(), TcpStream::connect(address));
    assert_eq!(accepted.peer().address, caller.and_then(|caller| caller.local_addr()).expect("it is connected"));
}

/// A network on which nobody is, and who was asked for.
#[derive(Default)]
struct Deserted(Mutex<Vec<String>>);

impl Dialer for Deserted {
    fn dial(&self, address: &str) -> BoxFuture<'static, io::Result<BoxedIo>> {
        self.0.lock().expect("nobody panics while holding it").push(address.to_owned());
        Box::pin(async { Err(io::ErrorKind::HostUnreachable.into()) })
    }
}

#[tokio::test]
async fn another_network_is_asked_for_the_address_as_it_was_given() {
    let network = Arc::new(Deserted::default());
    let outbound = Outbound::new(Arc::clone(&network) as Arc<dyn Dialer>);
    let refused = outbound.connect("member-1:7400", &Terms::default()).await.expect_err("nobody is there");
    assert!(matches!(refused, ConnectError::Transport(_)), "{refused:?}");
    assert!(
        outbound.connect("no address", &Terms::default()).await.is_err_and(|bad| bad.to_string().contains("host:port"))
    );
    assert_eq!(*network.0.lock().expect("nobody panics while holding it"), ["member-1:7400"]);
}
