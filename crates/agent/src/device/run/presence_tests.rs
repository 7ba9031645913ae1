use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use tessera_slice::handshake::{Slice, Versions, of_server};
use tessera_slice::{Admits, Listener};

use super::*;

/// Longest wait for anything. A test that waits so long has failed.
const LONG: Duration = Duration::from_secs(30);

fn credentials() -> Credentials {
    Credentials { token: "0123456789abcdef".to_owned(), epoch: 7 }
}

fn slice() -> Slice {
    Slice { device: "cpu".to_owned(), memory_bytes: 1, share: 1.0, sequence: 0 }
}

/// The listener with which a test plays the server, and its address.
fn stage() -> (TcpListener, Address) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("tcp:{}", listener.local_addr().expect("an address"));
    (listener, address.parse().expect("an address"))
}

/// Lets the next one in.
fn let_in(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().expect("somebody comes");
    let heard = of_server(&mut stream, "a test", &Versions::of_this_build("2.0"), &credentials()).expect("a handshake");
    assert_eq!(heard.refusal(), None);
    heard.welcome(&mut stream, "a test", &credentials(), &slice(), false).expect("it reads");
    stream
}

fn hear(stream: &mut TcpStream) -> u8 {
    let mut word = [0];
    stream.read_exact(&mut word).expect("a word");
    word[0]
}

fn answer(stream: &mut TcpStream) {
    let word = hear(stream);
    stream.write_all(&[word]).expect("it reads");
}

fn next(presence: &Presence) -> Heard {
    presence.heard.recv_timeout(LONG).expect("something is heard")
}

fn begin(address: Address) -> Presence {
    Presence::begin(address, credentials()).expect("a thread")
}

#[test]
fn a_server_hears_that_the_program_is_there_and_that_it_is_over() {
    let any = "tcp:127.0.0.1:0".parse().expect("an address");
    let listener = Listener::bind(&any, "2.0", credentials(), slice(), Admits::Program, None).expect("a free port");
    let presence = begin(listener.address().clone());
    assert_eq!(next(&presence), Heard::Here);
    assert!(listener.attended().has_come());
    assert!(presence.say_over(LONG));
    assert_eq!(listener.attended().over(), Some(0));
}

#[test]
fn a_word_on_a_connection_that_has_broken_is_said_on_another_one() {
    let (listener, address) = stage();
    let presence = begin(address);
    let mut first = let_in(&listener);
    answer(&mut first);
    hear(&mut first);
    drop(first);
    answer(&mut let_in(&listener));
    assert_eq!([next(&presence), next(&presence)], [Heard::Here, Heard::Here]);
}

#[test]
fn a_server_that_hangs_keeps_nobody_waiting() {
    let (listener, address) = stage();
    let presence = begin(address);
    let mut hangs = let_in(&listener);
    hear(&mut hangs);
    let asked = Instant::now();
    assert_eq!(presence.next(), None);
    assert!(!presence.say_over(Duration::from_millis(10)));
    assert!(asked.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_will_not_change_is_told_from_what_may() {
    let (listener, address) = stage();
    let presence = begin(address.clone());
    let (mut stranger, _) = listener.accept().expect("it comes");
    stranger.write_all(b"\x05\0\0\0hello").expect("it reads");
    assert!(matches!(next(&presence), Heard::Never(_)));
    drop((listener, presence));
    assert!(matches!(next(&begin(address)), Heard::Gone(_)));
}
