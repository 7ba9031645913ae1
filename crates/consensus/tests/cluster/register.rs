//! A small machine: remembers the serial numbers it was given, in order, and optionally a lot of bytes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use tessera_consensus::{EntryPosition, Frozen, LogTime, Machine, Unreadable};

/// Bytes of a snapshot's chunk.
pub const CHUNK: usize = 64 << 10;

/// A command: a serial number and ballast.
pub fn command(serial: u64, ballast: usize) -> Bytes {
    let mut bytes = BytesMut::with_capacity(8 + ballast);
    bytes.put_u64(serial);
    // Not all zeros, and not the same for every command.
    bytes.put_bytes((serial % 251) as u8, ballast);
    bytes.freeze()
}

/// A command that this release cannot read.
pub const UNREADABLE: Bytes = Bytes::from_static(b"?");

/// The serial number at which a machine panics.
pub const PANIC: u64 = u64::MAX;

/// The public view of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    pub serials: Vec<u64>,
    pub times: BTreeMap<u64, LogTime>,
    pub observed: u64,
}

/// Switches by which a test makes one member misbehave.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Computes another state than the others.
    pub lies: Arc<AtomicBool>,
}

#[derive(Clone, Default)]
struct State {
    serials: Vec<u64>,
    times: BTreeMap<u64, LogTime>,
    ballast: Vec<Bytes>,
    observed: u64,
    digest: u128,
}

pub struct Register {
    state: State,
    view: Arc<Mutex<View>>,
    faults: Faults,
}

impl Register {
    pub fn new(view: Arc<Mutex<View>>, faults: Faults) -> Self {
        Register { state: State::default(), view, faults }
    }
}

fn mix(digest: u128, with: u64) -> u128 {
    (digest ^ u128::from(with)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
}

impl Machine for Register {
    /// The number of commands that were applied, this one included.
    type Outcome = u64;

    fn apply(&mut self, at: EntryPosition, commands: &[Bytes]) -> Result<Vec<u64>, Unreadable> {
        let mut outcomes = Vec::new();
        for command in commands {
            let Some((serial, ballast)) = command.split_at_checked(8) else {
                return Err(Unreadable { what: format!("command of {} bytes", command.len()) });
            };
            let serial = u64::from_be_bytes(serial.try_into().expect("split at 8"));
            assert_ne!(serial, PANIC, "this machine panics when told to");
            self.state.serials.push(serial);
            self.state.times.insert(serial, at.time);
            if !ballast.is_empty() {
                self.state.ballast.push(command.slice(8..));
            }
            self.state.digest = mix(self.state.digest, serial);
            if self.faults.lies.load(Ordering::Acquire) {
                self.state.digest = mix(self.state.digest, 0xbad);
            }
            outcomes.push(self.state.serials.len() as u64);
        }
        Ok(outcomes)
    }

    fn observe(&mut self, _at: EntryPosition) {
        self.state.observed += 1;
    }

    fn publish(&mut self) {
        let mut view = self.view.lock().unwrap_or_else(PoisonError::into_inner);
        let known = view.serials.len();
        if known > self.state.serials.len() || view.serials[..] != self.state.serials[..known] {
            view.serials.clear();
        }
        let known = view.serials.len();
        view.serials.extend_from_slice(&self.state.serials[known..]);
        view.times.clone_from(&self.state.times);
        view.observed = self.state.observed;
    }

    fn freeze(&self) -> Box<dyn Frozen> {
        Box::new(self.state.clone())
    }

    fn restore(&mut self, chunks: &mut dyn Iterator<Item = Bytes>) -> Result<(), Unreadable> {
        let mut all = BytesMut::new();
        chunks.for_each(|chunk| all.extend_from_slice(&chunk));
        self.state = State::read(&mut all.freeze()).ok_or_else(|| Unreadable { what: "a snapshot".to_owned() })?;
        Ok(())
    }

    fn digest(&self) -> Option<u128> {
        Some(self.state.digest)
    }
}

impl State {
    fn write(&self) -> Bytes {
        let mut all = BytesMut::new();
        all.put_u128(self.digest);
        all.put_u64(self.observed);
        all.put_u64(self.serials.len() as u64);
        for serial in &self.serials {
            all.put_u64(*serial);
            all.put_u64(self.times[serial].0);
        }
        for ballast in &self.ballast {
            all.put_u64(ballast.len() as u64);
            all.extend_from_slice(ballast);
        }
        all.freeze()
    }

    fn read(all: &mut Bytes) -> Option<Self> {
        use bytes::Buf;
        let mut state =
            State { digest: all.try_get_u128().ok()?, observed: all.try_get_u64().ok()?, ..State::default() };
        for _ in 0..all.try_get_u64().ok()? {
            let serial = all.try_get_u64().ok()?;
            state.serials.push(serial);
            state.times.insert(serial, LogTime(all.try_get_u64().ok()?));
        }
        while let Ok(length) = all.try_get_u64() {
            let length = usize::try_from(length).ok()?;
            (length <= all.len()).then(|| state.ballast.push(all.split_to(length)))?;
        }
        Some(state)
    }
}

impl Frozen for State {
    fn chunks(self: Box<Self>) -> Box<dyn Iterator<Item = Bytes> + Send> {
        let all = self.write();
        let chunks: Vec<Bytes> =
            (0..all.len()).step_by(CHUNK).map(|from| all.slice(from..all.len().min(from + CHUNK))).collect();
        Box::new(chunks.into_iter())
    }
}
