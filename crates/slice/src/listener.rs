//! The listener on which a slice server waits for its program.
//!
//! Handshakes run beside each other, each with a deadline, and there are only so many at a time: a stranger who
//! connects and says nothing keeps nobody out for long. One program at a time is let in, because a slice has
//! one program. The first of several servers of one card has a second door, for the others ([`Admits::Followers`]).

use std::{
    io,
    net::TcpListener,
    os::{fd::OwnedFd, unix::net::UnixListener},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    Address, Connection, Error,
    attendance::Attended,
    connection::{Socket, Until, give_descriptor},
    handshake::{self, Credentials, Role, Slice, Versions},
    owner::{self, Owner, Program},
    ring::{Direction, Rings},
};

const HANDSHAKE: Duration = Duration::from_secs(5);
const MOST_HANDSHAKES: u32 = 32;

enum Accepting {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// The clients that are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admits {
    /// The program of the slice, one at a time, and its host.
    Program,
    /// This many other servers of the same card.
    Followers(u32),
}

impl Admits {
    const fn places(self) -> u32 {
        match self {
            Self::Program => 1,
            Self::Followers(count) => count,
        }
    }

    /// The reason why a client in this role is wrong here; `None`: it is right.
    const fn refusal(self, role: Role) -> Option<&'static str> {
        match (self, role) {
            (Self::Program, Role::Program | Role::Host) | (Self::Followers(_), Role::Follower) => None,
            (Self::Program, Role::Follower) => Some("the slice takes a program here, and no other slice server"),
            (Self::Followers(_), _) => Some("only slice servers of the same card are let in here, and no program"),
        }
    }
}

struct Door {
    versions: Versions,
    credentials: Credentials,
    slice: Mutex<Slice>,
    owner: Mutex<Owner>,
    admits: Admits,
    places: AtomicU32,
    under_way: AtomicU32,
    attended: Arc<Attended>,
}

/// The end of a wait: a program, or `None` for an interruption by somebody of this process.
type Waited = Option<Connection>;

/// A socket that listens, and the programs that came through the handshake.
pub struct Listener {
    address: Address,
    programs: mpsc::Receiver<Waited>,
    give: mpsc::SyncSender<Waited>,
    door: Arc<Door>,
}

impl Listener {
    /// Listens. Port 0 takes a free one; [`Listener::address`] tells which. `owner` is the program whose tensors the
    /// slice holds already.
    pub fn bind(
        address: &Address,
        torch: &str,
        credentials: Credentials,
        slice: Slice,
        admits: Admits,
        owner: Option<Program>,
    ) -> Result<Self, Error> {
        let unreachable = |source| Error::Unreachable { address: address.to_string(), source };
        let (socket, address) = open(address).map_err(unreachable)?;
        let door = Arc::new(Door {
            versions: Versions::of_this_build(torch),
            credentials,
            slice: Mutex::new(slice),
            owner: Mutex::new(Owner::of(owner)),
            admits,
            places: AtomicU32::new(admits.places()),
            under_way: AtomicU32::new(0),
            attended: Arc::default(),
        });
        // As many as are let in, and one word to the waiting process is enough.
        let (give, programs) = mpsc::sync_channel(admits.places() as usize + 1);
        let (at_door, own) = (Arc::clone(&door), give.clone());
        thread::spawn(move || accept_all(&socket, &at_door, &own));
        Ok(Self { address, programs, give, door })
    }

    /// The program that this slice is kept for: it may come again, and no other is let in before it is gone for good.
    pub fn owner(&self) -> Option<Program> {
        self.door.owner().program().cloned()
    }

    /// The state of the host of the program, as far as is known.
    pub fn attended(&self) -> Arc<Attended> {
        Arc::clone(&self.door.attended)
    }

    /// Ends a wait for a program, the one under way or the next.
    pub fn interrupt(&self) -> impl Fn() + Send + Sync + 'static {
        let give = self.give.clone();
        move || {
            // A word that waits already does for both.
            let _ = give.try_send(None);
        }
    }

    /// The address on which it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The next program, or nothing when none came in time, or somebody wants to be heard before.
    pub fn accept(&self, within: Duration) -> Option<Connection> {
        self.programs.recv_timeout(within).ok().flatten()
    }

    /// The program is gone: another may come, and is told how far the slice has come.
    pub fn free(&self, sequence: u64) {
        if let Ok(mut slice) = self.door.slice.lock() {
            slice.sequence = sequence;
        }
        self.door.leave();
    }
}

fn open(address: &Address) -> io::Result<(Accepting, Address)> {
    match address {
        Address::Unix(path) => {
            // What an earlier server of the same slice left behind; a server that lives keeps its socket open and is
            // asked first.
            if std::os::unix::net::UnixStream::connect(path).is_err() && path.exists() {
                std::fs::remove_file(path)?;
            }
            Ok((Accepting::Unix(UnixListener::bind(path)?), address.clone()))
        }
        Address::Tcp(host) => {
            let listener = TcpListener::bind(host.as_str())?;
            let address = listener.local_addr()?.into();
            Ok((Accepting::Tcp(listener), address))
        }
    }
}

fn accept_all(socket: &Accepting, door: &Arc<Door>, give: &mpsc::SyncSender<Waited>) {
    loop {
        let (socket, peer) = match next(socket) {
            Ok(found) => found,
            // Out of descriptors, or a program that left before it was greeted: neither is the end of the server.
            Err(_) => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
        };
        if door.under_way.fetch_add(1, Ordering::AcqRel) >= MOST_HANDSHAKES {
            door.under_way.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (at_door, give) = (Arc::clone(door), give.clone());
        let spawned = thread::Builder::new().name("handshake".into()).spawn(move || {
            let host = greet(socket, &peer, &at_door, &give);
            at_door.under_way.fetch_sub(1, Ordering::AcqRel);
            if let Ok(Some(host)) = host {
                at_door.attended.listen(host);
            }
        });
        if spawned.is_err() {
            door.under_way.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn next(socket: &Accepting) -> io::Result<(Socket, String)> {
    match socket {
        Accepting::Unix(listener) => Ok((Socket::Unix(listener.accept()?.0), "the program on this host".into())),
        Accepting::Tcp(listener) => {
            listener.accept().map(|(stream, from)| (Socket::Tcp(stream), format!("the program at {from}")))
        }
    }
}

/// Lets in who may come: a program is given on, and the socket of a host is given back.
fn greet(
    mut socket: Socket,
    peer: &str,
    door: &Door,
    give: &mpsc::SyncSender<Waited>,
) -> Result<Option<Socket>, Error> {
    let lost = |source: io::Error| Error::Lost { peer: peer.into(), cause: source.to_string() };
    socket.tune().and_then(|()| socket.limit(Some(HANDSHAKE))).map_err(lost)?;
    let mut until = Until { socket: &mut socket, moment: Instant::now() + HANDSHAKE };
    let heard = handshake::of_server(&mut until, peer, &door.versions, &door.credentials)?;
    socket.limit(Some(HANDSHAKE)).map_err(lost)?;
    if let Some(reason) = heard.refusal() {
        return handshake::refuse(&mut socket, peer, reason).map(|()| None);
    }
    if let Some(reason) = door.admits.refusal(heard.role) {
        return handshake::refuse(&mut socket, peer, reason).map(|()| None);
    }
    if heard.role == Role::Host {
        heard.welcome(&mut socket, peer, &door.credentials, &door.slice()?, false)?;
        return Ok(Some(socket));
    }
    if let Err(refusal) = door.enter(&heard) {
        return refusal.tell(&mut socket, peer).map(|()| None);
    }
    let welcomed = welcome(socket, peer, door, &heard);
    let given = welcomed.map(|connection| give.send(Some(connection)).is_ok());
    if !matches!(given, Ok(true)) {
        door.leave();
    }
    given.map(|_| None)
}

impl Door {
    /// Takes a place, if one is free for who comes.
    fn enter(&self, heard: &handshake::Heard) -> Result<(), owner::Refusal> {
        let mut owner = self.owner();
        let free = self.places.load(Ordering::Acquire);
        if self.admits == Admits::Program {
            let coming = heard.coming.as_ref().ok_or(owner::Refusal::Unnamed)?;
            owner.admit(coming, free == 0)?;
        } else if free == 0 {
            return Err(owner::Refusal::Full);
        }
        // Under the lock of the owner, so that two who come at once do not both take the last one.
        self.places.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    fn leave(&self) {
        self.places.fetch_add(1, Ordering::Release);
    }

    fn owner(&self) -> MutexGuard<'_, Owner> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn slice(&self) -> Result<Slice, Error> {
        let slice = self.slice.lock().map(|slice| slice.clone());
        slice.map_err(|_| Error::Protocol { peer: "this server".into(), what: "a thread of it ended badly".into() })
    }
}

fn welcome(mut socket: Socket, peer: &str, door: &Door, heard: &handshake::Heard) -> Result<Connection, Error> {
    let slice = door.slice()?;
    let shared: Option<(Rings, OwnedFd)> = match &socket {
        Socket::Unix(_) => Some(Rings::create()?),
        Socket::Tcp(_) => None,
    };
    heard.welcome(&mut socket, peer, &door.credentials, &slice, shared.is_some())?;
    if let (Socket::Unix(stream), Some((_, descriptor))) = (&socket, &shared) {
        give_descriptor(stream, descriptor).map_err(Error::Memory)?;
    }
    socket.limit(None).map_err(|source| Error::Lost { peer: peer.into(), cause: source.to_string() })?;
    Ok(Connection::new(socket, shared.map(|(rings, _)| rings), Direction::ToProgram, peer.into(), slice))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;
    use crate::LARGEST_FRAME;
    use crate::owner::tests::alone;

    fn credentials() -> Credentials {
        Credentials { token: "a token of an allocation".into(), epoch: 3 }
    }

    fn listener(admits: Admits) -> Listener {
        let slice = Slice { device: "cpu".into(), memory_bytes: 1, share: 1.0, sequence: 0 };
        let any = "tcp:127.0.0.1:0".parse().expect("an address");
        Listener::bind(&any, "2.0", credentials(), slice, admits, None).expect("a free port")
    }

    fn come(to: &Listener, role: Role) -> Result<Connection, String> {
        let program = alone();
        let program = (role == Role::Program).then_some(&program);
        Connection::connect(to.address(), "2.0", &credentials(), program).map_err(|error| error.to_string())
    }

    /// Comes to the door and says nothing.
    fn silent(to: &Listener) -> TcpStream {
        let Address::Tcp(host) = to.address() else { panic!("it listens on the network") };
        TcpStream::connect(host).expect("it listens")
    }

    #[test]
    fn so_many_shake_hands_at_a_time_and_who_comes_beyond_is_closed() {
        let door = listener(Admits::Program);
        let mut strangers: Vec<TcpStream> = (0..MOST_HANDSHAKES).map(|_| silent(&door)).collect();
        for stranger in &mut strangers {
            stranger.read_exact(&mut [0; 4]).expect("it is greeted");
        }
        assert_eq!(silent(&door).read(&mut [0]).ok(), Some(0), "it is not");
        drop(strangers);
        // Their threads notice it one after the other.
        while come(&door, Role::Program).is_err() {}
    }

    #[test]
    fn a_frame_that_is_larger_than_any_ends_the_connection_unread() {
        let door = listener(Admits::Program);
        let (mut program, versions) = (silent(&door), Versions::of_this_build("2.0"));
        let welcome =
            handshake::of_program(&mut program, "it", Role::Program, &versions, &credentials(), Some(&alone()));
        welcome.expect("it is let in");
        let mut connection = door.accept(HANDSHAKE).expect("a program");
        program.write_all(&(LARGEST_FRAME as u32 + 1).to_le_bytes()).expect("it is heard");
        let refused = connection.receive().expect_err("it is too large").to_string();
        assert!(refused.contains("a frame of 16777217 bytes"), "{refused}");
    }

    #[test]
    fn other_servers_have_a_door_of_their_own_and_a_place_each() {
        let door = listener(Admits::Followers(2));
        let refused = come(&door, Role::Program).err().expect("a program is no server");
        assert!(refused.contains("no program"), "{refused}");
        let _both = [come(&door, Role::Follower).expect("a place"), come(&door, Role::Follower).expect("a place")];
        let refused = come(&door, Role::Follower).err().expect("there are two places");
        assert!(refused.contains("there already"), "{refused}");
        door.free(0);
        come(&door, Role::Follower).expect("one has left");
    }

    #[test]
    fn a_program_has_no_way_to_come_as_a_server_nor_a_server_as_a_program() {
        let door = listener(Admits::Program);
        let refused = come(&door, Role::Follower).err().expect("a server is no program");
        assert!(refused.contains("takes a program here"), "{refused}");
        come(&door, Role::Program).expect("the place is still free");
        let refused = come(&door, Role::Program).err().expect("it is taken now");
        assert!(refused.contains("one at a time"), "{refused}");
    }
}
