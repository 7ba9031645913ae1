//! The handshake by which a program and a slice server find out that they belong together.
//!
//! Three messages. The server names its versions and gives a nonce; the program names its own, and proves that it knows
//! the token of the epoch; the server proves the same, and tells what the slice is. The token itself never travels: it
//! is the key of a keyed hash over both nonces and the epoch, so that what was overheard is good for nothing, and a
//! token of an earlier epoch neither.

use std::fmt;
use std::io::{Read, Write};

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sha2::Sha256;

use crate::{Coming, Error, PROTOCOL};

/// Most bytes of one message of the handshake.
const LARGEST_MESSAGE: usize = 4096;

/// The versions in which both sides must agree, reported by each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    /// Protocol of operations ([`PROTOCOL`]).
    pub protocol: u32,
    /// Version of Tessera, for people.
    pub tessera: String,
    /// Version of PyTorch without its build: operators and their numbers belong to it.
    pub torch: String,
}

impl Versions {
    /// This build, with the PyTorch it runs under.
    pub fn of_this_build(torch: &str) -> Self {
        Self {
            protocol: PROTOCOL,
            tessera: env!("CARGO_PKG_VERSION").into(),
            torch: torch.split('+').next().unwrap_or_default().into(),
        }
    }

    /// The reason why the two cannot work together, with both named; `None`: they can.
    pub fn differ_from(&self, role: Role, program: &Self) -> Option<String> {
        if self.protocol != program.protocol {
            return Some(format!(
                "the server speaks protocol {} (Tessera {}), the program protocol {} (Tessera {}); install the same version",
                self.protocol, self.tessera, program.protocol, program.tessera
            ));
        }
        (role != Role::Host && self.torch != program.torch).then(|| {
            format!(
                "the server runs PyTorch {}, the program PyTorch {}; operators differ between them: install the same version",
                self.torch, program.torch
            )
        })
    }
}

/// The credentials that bind a connection to an allocation.
#[derive(Clone)]
pub struct Credentials {
    /// Secret of this allocation, given to the program and to its servers only.
    pub token: String,
    /// Epoch of the allocation.
    pub epoch: u64,
}

impl fmt::Debug for Credentials {
    /// The token is kept out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// The properties of a slice, as its program sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// Kind of the device behind it, as PyTorch names it.
    pub device: String,
    /// Bytes that the program's tensors may take.
    pub memory_bytes: u64,
    /// Part of the device's time, above 0 and at most 1.
    pub share: f64,
    /// Frames of operations that were executed before, when the server was restored from a snapshot.
    pub sequence: u64,
}

/// The role in which somebody comes to a slice server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The program that computes on the slice.
    Program,
    /// The host of that program, which says that it is there ([`crate::attendance`]). It needs no PyTorch.
    Host,
    /// Another slice server of the same card, which comes to the first of them.
    Follower,
}

impl Role {
    /// The word that the role's proof includes, so that a proof of one role is not valid for another.
    const fn word(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Host => "host",
            Self::Follower => "follower",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Hello {
    versions: Versions,
    nonce: String,
}

#[derive(Serialize, Deserialize)]
struct Claim {
    role: Role,
    versions: Versions,
    nonce: String,
    epoch: u64,
    proof: String,
    /// The program that comes. Absent from messages of other protocols, which are refused for their protocol.
    #[serde(default)]
    coming: Option<Coming>,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Refused(String),
    /// And that will not change.
    RefusedForGood(String),
    /// The slice is another program's.
    Taken(String),
    Welcome {
        slice: Slice,
        proof: String,
        bulk: bool,
    },
}

/// The answer to a program that is let in.
#[derive(Debug)]
pub struct Welcome {
    /// The slice behind the connection.
    pub slice: Slice,
    /// A descriptor of shared memory comes next.
    pub bulk: bool,
}

fn nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn keyed(credentials: &Credentials, role: &str, server: &str, program: &str) -> Hmac<Sha256> {
    let hash = <Hmac<Sha256> as Mac>::new_from_slice(credentials.token.as_bytes());
    let mut hash = hash.expect("a keyed hash takes keys of any length");
    hash.update(format!("{role}\n{server}\n{program}\n{}", credentials.epoch).as_bytes());
    hash
}

fn proof(credentials: &Credentials, role: &str, server: &str, program: &str) -> String {
    let bytes = keyed(credentials, role, server, program).finalize().into_bytes();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn proves(credentials: &Credentials, role: &str, server: &str, program: &str, proof: &str) -> bool {
    let bytes: Option<Vec<u8>> = (0..proof.len())
        .step_by(2)
        .map(|at| proof.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()))
        .collect();
    // Compared in constant time, so that a stranger learns nothing from how long a refusal takes.
    bytes.is_some_and(|bytes| keyed(credentials, role, server, program).verify_slice(&bytes).is_ok())
}

fn say(stream: &mut impl Write, message: &impl Serialize, peer: &str) -> Result<(), Error> {
    let text = serde_json::to_vec(message).map_err(|error| broken(peer, error))?;
    let mut bytes = (text.len() as u32).to_le_bytes().to_vec();
    bytes.extend(text);
    stream.write_all(&bytes).map_err(|error| lost(peer, error))
}

/// Byte by byte where it matters: nothing behind the message may be taken with it.
fn hear<T: DeserializeOwned>(stream: &mut impl Read, peer: &str) -> Result<T, Error> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(|error| lost(peer, error))?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LARGEST_MESSAGE {
        return Err(broken(peer, format!("a message of {length} bytes in the handshake")));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text).map_err(|error| lost(peer, error))?;
    serde_json::from_slice(&text).map_err(|error| broken(peer, error))
}

fn lost(peer: &str, cause: std::io::Error) -> Error {
    Error::Lost { peer: peer.into(), cause: format!("in the handshake: {cause}") }
}

fn broken(peer: &str, what: impl ToString) -> Error {
    Error::Protocol { peer: peer.into(), what: what.to_string() }
}

/// The program's side. The reader must not read ahead.
pub fn of_program(
    stream: &mut (impl Read + Write),
    address: &str,
    role: Role,
    versions: &Versions,
    credentials: &Credentials,
    coming: Option<&Coming>,
) -> Result<Welcome, Error> {
    let hello: Hello = hear(stream, address)?;
    let own = nonce();
    let claim = Claim {
        role,
        versions: versions.clone(),
        epoch: credentials.epoch,
        proof: proof(credentials, role.word(), &hello.nonce, &own),
        nonce: own,
        coming: coming.cloned(),
    };
    say(stream, &claim, address)?;
    let refused = |reason: String| Error::Refused { address: address.into(), reason };
    match hear(stream, address)? {
        // The server has named its versions, so that this side knows whether the refusal will stand.
        Answer::Refused(reason) if hello.versions.differ_from(role, versions).is_some() => {
            Err(Error::Unfit { address: address.into(), reason })
        }
        Answer::RefusedForGood(reason) => Err(Error::Unfit { address: address.into(), reason }),
        Answer::Taken(reason) => Err(Error::Taken { address: address.into(), reason }),
        Answer::Refused(reason) => Err(refused(reason)),
        Answer::Welcome { slice, proof, bulk } => {
            if !proves(credentials, "server", &hello.nonce, &claim.nonce, &proof) {
                return Err(refused(
                    "it does not know the token of this epoch: it is not the slice server asked for".into(),
                ));
            }
            Ok(Welcome { slice, bulk })
        }
    }
}

/// The server's side, up to its decision: what is to be answered stands in [`Heard`].
pub struct Heard {
    /// The role of the one who came.
    pub role: Role,
    /// The program, when one came.
    pub coming: Option<Coming>,
    server: String,
    program: String,
    refusal: Option<String>,
}

/// Greets a program and hears who it is.
pub fn of_server(
    stream: &mut (impl Read + Write),
    peer: &str,
    versions: &Versions,
    credentials: &Credentials,
) -> Result<Heard, Error> {
    let hello = Hello { versions: versions.clone(), nonce: nonce() };
    say(stream, &hello, peer)?;
    let claim: Claim = hear(stream, peer)?;
    let refusal = versions.differ_from(claim.role, &claim.versions).or_else(|| {
        if claim.epoch != credentials.epoch {
            return Some(format!(
                "the slice is granted in epoch {}, the program comes from epoch {}",
                credentials.epoch, claim.epoch
            ));
        }
        (!proves(credentials, claim.role.word(), &hello.nonce, &claim.nonce, &claim.proof))
            .then(|| "the token is not the one of this allocation".into())
    });
    Ok(Heard { role: claim.role, coming: claim.coming, server: hello.nonce, program: claim.nonce, refusal })
}

impl Heard {
    /// The reason why the program cannot be let in, when that is decided already.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Tells the program that it is let in.
    pub fn welcome(
        &self,
        stream: &mut impl Write,
        peer: &str,
        credentials: &Credentials,
        slice: &Slice,
        bulk: bool,
    ) -> Result<(), Error> {
        let proof = proof(credentials, "server", &self.server, &self.program);
        say(stream, &Answer::Welcome { slice: slice.clone(), proof, bulk }, peer)
    }
}

/// Tells the program why it is not let in.
pub fn refuse(stream: &mut impl Write, peer: &str, reason: &str) -> Result<(), Error> {
    say(stream, &Answer::Refused(reason.into()), peer)
}

/// Tells the program why it will never be let in.
pub fn refuse_for_good(stream: &mut impl Write, peer: &str, reason: &str) -> Result<(), Error> {
    say(stream, &Answer::RefusedForGood(reason.into()), peer)
}

/// Tells the program that the slice is another one's.
pub fn refuse_as_taken(stream: &mut impl Write, peer: &str, reason: &str) -> Result<(), Error> {
    say(stream, &Answer::Taken(reason.into()), peer)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Address, Connection, Listener, listener::Admits, owner::tests::alone};

    #[test]
    fn a_message_that_is_longer_than_any_ends_the_handshake_unread() {
        let said = |length: usize| {
            let bytes = [&(length as u32).to_le_bytes()[..], &vec![b' '; length]].concat();
            hear::<Claim>(&mut &bytes[..], "the program").err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(said(LARGEST_MESSAGE + 1).contains("a message of 4097 bytes in the handshake"));
        assert!(!said(LARGEST_MESSAGE).contains("a message of"), "it is read, and is no claim");
    }

    #[test]
    fn what_will_never_be_let_in_is_told_from_what_may_come_again() {
        let credentials = Credentials { token: "0123456789abcdef".into(), epoch: 7 };
        let slice = Slice { device: "cpu".into(), memory_bytes: 1, share: 1.0, sequence: 0 };
        let any: Address = "tcp:127.0.0.1:0".parse().expect("an address");
        let listener =
            Listener::bind(&any, "2.9.1", credentials.clone(), slice, Admits::Program, None).expect("a free port");
        let come = |torch: &str, credentials| {
            Connection::connect(listener.address(), torch, credentials, Some(&alone())).err()
        };
        let earlier = Credentials { epoch: 6, ..credentials.clone() };
        assert!(matches!(come("2.8.0", &credentials), Some(Error::Unfit { .. })));
        assert!(matches!(come("2.9.1", &earlier), Some(Error::Refused { .. })));
        assert!(come("2.9.1", &credentials).is_none());
        let first = listener.accept(Duration::from_secs(30)).expect("a program");
        assert!(matches!(come("2.9.1", &credentials), Some(Error::Taken { .. })));
        drop(first);
    }
}
