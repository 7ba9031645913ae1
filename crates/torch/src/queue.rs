//! The queue of a program whose dispatcher is written in Python. What is put into it leaves in batches; a thread of its
//! own sends what has waited for too long, without Python's lock, which a program that computes would not give it in
//! time.
#![allow(unsafe_code)] // Tensors are read and written where they lie.

use std::{
    sync::{Arc, Mutex, TryLockError},
    thread,
    time::{Duration, Instant},
};

use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyBytes};
use tessera_slice::Received;

use crate::{
    Connection,
    held::{self, Form, Held},
    locked,
};

/// The longest wait of the tail of a batch, and the interval at which that is looked at.
const OLD: Duration = Duration::from_micros(200);
const LOOK: Duration = Duration::from_micros(300);
const FULL: usize = 256 << 10;
const LARGE: u64 = 1 << 20; // bytes that are free again
const FREE: u8 = 4; // csrc/wire.h: kFree
const HEAD: usize = 9; // bytes with which each answer begins: its status, and the number of its frame
const LOST: &str =
    "What the virtual card held is lost with it, unless a server goes on from a snapshot (torch.tessera.reconnect)";

struct State {
    connection: Option<Arc<Mutex<tessera_slice::Connection>>>,
    lost: Option<String>,
    commands: Vec<u8>,
    batch: u32,
    waiting: u32,
    since: Instant,
    operations: u64,
    sequence: u64,
    frames: u64,
    bytes: u64,
    limit: u64,
    watched: bool,
}

struct Shared {
    state: Mutex<State>,
    held: Arc<Held>,
}

/// The memory of a tensor of the program.
#[derive(Clone, Copy)]
struct Place {
    address: usize,
    length: usize,
}

impl State {
    fn check(&self) -> Result<Arc<Mutex<tessera_slice::Connection>>, String> {
        match (&self.lost, &self.connection) {
            (None, Some(connection)) => Ok(Arc::clone(connection)),
            (Some(lost), _) => Err(format!("virtual card: {lost}")),
            (None, None) => Err("virtual card: no slice server: nothing is connected".into()),
        }
    }

    fn lose(&mut self, why: String) -> String {
        self.commands.clear();
        self.waiting = 0;
        format!("virtual card: {}", self.lost.insert(why))
    }

    /// Puts what the server may forget behind what was put before.
    fn drain(&mut self, held: &Held) {
        for name in held.take_gone() {
            self.commands.push(FREE);
            self.commands.extend_from_slice(&name.to_le_bytes());
        }
    }

    /// Puts commands into the batch, of which so many are operations. Tells whether it is full, and how many operations
    /// there were so far.
    fn put(&mut self, commands: &[u8], operations: u64) -> Result<(bool, u64), String> {
        self.check()?;
        if self.waiting == 0 {
            self.since = Instant::now();
        }
        self.waiting += 1;
        self.operations += operations;
        self.commands.extend_from_slice(commands);
        Ok((self.waiting >= self.batch || self.commands.len() > FULL, self.operations))
    }

    /// Sends what waits, and bulk data that the last command announces.
    fn flush(&mut self, held: &Held, bulk: Option<Place>) -> Result<(), String> {
        let connection = self.check()?;
        self.drain(held);
        if self.commands.is_empty() {
            return Ok(());
        }
        self.frames += 1;
        self.bytes += (self.commands.len() + bulk.map_or(0, |bulk| bulk.length)) as u64;
        let mut connection = locked(&connection);
        let mut sent = connection.send(&self.commands);
        self.commands.clear();
        self.waiting = 0;
        if sent.is_ok() {
            self.sequence += 1;
            if let Some(Place { address, length }) = bulk {
                // SAFETY: Python passes what a tensor reports that it keeps.
                sent = connection.bulk_send(unsafe { std::slice::from_raw_parts(address as *const u8, length) });
            }
        }
        sent.map_err(|error| self.lose(format!("{error}. {LOST}")))
    }

    /// Sends what waits, and waits for the answer to the last command. What is answered when its frame is done has the
    /// number of that frame; all else has the one before.
    fn ask(&mut self, held: &Held, when_done: bool) -> Result<Vec<u8>, String> {
        self.flush(held, None)?;
        let connection = self.check()?;
        let answer = match locked(&connection).receive() {
            Ok(Received::Frame(frame)) => Ok(frame.to_vec()),
            Ok(Received::Ended | Received::Interrupted) => Err("the slice server has ended the connection".into()),
            Err(error) => Err(error.to_string()),
        };
        let answer = answer.map_err(|why: String| self.lose(format!("{why}. {LOST}")))?;
        let number = answer.get(1..HEAD).and_then(|number| number.try_into().ok()).map(u64::from_le_bytes);
        if number.map(|number| number + u64::from(!when_done)) != Some(self.sequence) {
            // Whatever is at fault: no value is better than another one's.
            let why = format!(
                "frame {} of the program's operations asked for a value, and the slice server has answered another one: no value of it can \
                 be trusted any more. Start the program again, and please report this",
                self.sequence
            );
            return Err(self.lose(why));
        }
        Ok(answer)
    }

    /// Asks for what a tensor holds. Gives the answer when that is something else.
    fn read(&mut self, held: &Held, to: Place) -> Result<Option<Vec<u8>>, String> {
        let answer = self.ask(held, false)?;
        match (answer[0], answer.get(HEAD)) {
            (0, Some(0)) if answer.len() - HEAD - 1 == to.length => {
                // SAFETY: Python passes what a tensor reports that it keeps, and it is as long as what is written
                // there.
                unsafe { std::ptr::copy_nonoverlapping(answer[HEAD + 1..].as_ptr(), to.address as *mut u8, to.length) };
            }
            (0, Some(1)) => {
                self.bytes += to.length as u64;
                let connection = self.check()?;
                // SAFETY: as above.
                let received = unsafe { locked(&connection).bulk_receive(to.address as *mut u8, to.length) };
                received.map_err(|error| self.lose(format!("{error}. {LOST}")))?;
            }
            (0, _) => {
                return Err(self.lose("the slice server has answered with another tensor than it was asked for".into()));
            }
            _ => return Ok(Some(answer)),
        }
        Ok(None)
    }
}

fn told<T>(done: Result<T, String>) -> PyResult<T> {
    done.map_err(PyRuntimeError::new_err)
}

/// Commands of a program on their way to its slice server, and what it holds there.
#[pyclass(frozen)]
pub(crate) struct Queue(Arc<Shared>);

impl Queue {
    fn with<T: Send>(&self, py: Python<'_>, work: impl FnOnce(&mut State, &Held) -> T + Send) -> T {
        py.detach(|| work(&mut locked(&self.0.state), &self.0.held))
    }
}

#[pymethods]
impl Queue {
    #[new]
    fn new() -> PyResult<Self> {
        let held = Held::new().map_err(|errno| {
            PyRuntimeError::new_err(format!("no addresses are left for the tensors of the virtual card: {errno}"))
        })?;
        let state = State {
            connection: None,
            lost: None,
            commands: Vec::new(),
            batch: 32,
            waiting: 0,
            since: Instant::now(),
            operations: 0,
            sequence: 0,
            frames: 0,
            bytes: 0,
            limit: 0,
            watched: false,
        };
        Ok(Self(Arc::new(Shared { state: Mutex::new(state), held: Arc::new(held) })))
    }

    /// Speaks to this slice server from now on.
    fn connect(&self, py: Python<'_>, connection: &Connection, memory_bytes: u64, sequence: u64) {
        let connection = Arc::clone(&connection.inner);
        self.with(py, |state, _| {
            state.connection = Some(connection);
            (state.limit, state.sequence, state.lost) = (memory_bytes, sequence, None);
            state.commands.clear();
            state.waiting = 0;
            if !std::mem::replace(&mut state.watched, true) {
                let shared = Arc::clone(&self.0);
                thread::spawn(move || send_what_is_old(&shared));
            }
        });
    }

    fn set_batch(&self, py: Python<'_>, operations: u32) {
        self.with(py, |state, _| state.batch = operations);
    }

    /// Nothing is sent any more, for this reason.
    fn lose(&self, py: Python<'_>, why: String) {
        self.with(py, |state, _| state.lose(why));
    }

    /// In a process that was forked from one with a connection: nothing of it is touched any more.
    fn fork(&self) {
        self.0.held.fork();
    }

    /// Puts commands into the batch, of which so many are operations, and sends that when it is full. Gives how many
    /// operations there were so far: it is counted here, where nothing breaks off in between.
    #[pyo3(signature = (commands, operations=0))]
    fn put(&self, py: Python<'_>, commands: &[u8], operations: u64) -> PyResult<u64> {
        let put = match self.0.state.try_lock() {
            Ok(mut state) => state.put(commands, operations),
            Err(TryLockError::Poisoned(state)) => state.into_inner().put(commands, operations),
            Err(TryLockError::WouldBlock) => self.with(py, |state, _| state.put(commands, operations)),
        };
        let (full, operations) = told(put)?;
        if full {
            self.flush(py)?;
        }
        Ok(operations)
    }

    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        told(self.with(py, |state, held| state.flush(held, None)))
    }

    /// Sends a command with this many bytes of memory behind it.
    fn write(&self, py: Python<'_>, command: &[u8], address: usize, length: usize) -> PyResult<()> {
        told(self.with(py, |state, held| {
            state.put(command, 0)?;
            state.flush(held, Some(Place { address, length }))
        }))
    }

    /// Sends a question and gives its answer.
    #[pyo3(signature = (command, operations=0, when_done=false))]
    fn ask<'py>(
        &self,
        py: Python<'py>,
        command: &[u8],
        operations: u64,
        when_done: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let answer = self.with(py, |state, held| {
            state.put(command, operations)?;
            state.ask(held, when_done)
        });
        Ok(PyBytes::new(py, &told(answer)?))
    }

    /// Asks for so many bytes of a tensor, and has them written to this address. Gives the answer when it is an error.
    fn read<'py>(
        &self,
        py: Python<'py>,
        command: &[u8],
        address: usize,
        length: usize,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let answer = self.with(py, |state, held| {
            state.put(command, 0)?;
            state.read(held, Place { address, length })
        });
        Ok(told(answer)?.map(|answer| PyBytes::new(py, &answer)))
    }

    /// Whether the virtual card has so many bytes left. The server hears what is free before it hears what is wanted.
    /// What is large it hears at once: one slice of several may be full before the card is.
    fn room(&self, py: Python<'_>, bytes: u64) -> bool {
        let held = &self.0.held;
        let used = held.used();
        if let Ok(state) = self.0.state.try_lock()
            && used.saturating_add(bytes) <= state.limit
            && held.gone_bytes() < LARGE
            && (used + bytes).saturating_add(held.gone_bytes()) <= state.limit
        {
            return true;
        }
        self.with(py, |state, held| {
            state.drain(held);
            held.used().saturating_add(bytes) <= state.limit
        })
    }

    /// How tensors lie that are like `like`, a capsule of DLPack, with these sizes and strides and so many bytes.
    fn form(&self, like: &Bound<'_, PyAny>, sizes: Vec<i64>, strides: Vec<i64>, bytes: u64) -> PyResult<Form> {
        Form::new(Arc::clone(&self.0.held), like, sizes, strides, bytes)
    }

    /// Where names begin, how many bytes of addresses they take, and how far one lies from the next.
    #[getter]
    fn addresses(&self) -> (usize, usize, usize) {
        held::addresses(&self.0.held)
    }

    /// Bytes that are used, that were used at most, and that there are.
    #[getter]
    fn memory(&self, py: Python<'_>) -> (u64, u64, u64) {
        (self.0.held.used(), self.0.held.peak(), self.with(py, |state, _| state.limit))
    }

    fn reset_peak(&self) {
        self.0.held.reset_peak();
    }

    /// Operations that were put into it.
    #[getter]
    fn operations(&self, py: Python<'_>) -> u64 {
        self.with(py, |state, _| state.operations)
    }

    /// Number of the last frame that was sent.
    #[getter]
    fn sequence(&self, py: Python<'_>) -> u64 {
        self.with(py, |state, _| state.sequence)
    }

    /// Frames and bytes that were sent, with bulk data in both directions.
    #[getter]
    fn sent(&self, py: Python<'_>) -> (u64, u64) {
        self.with(py, |state, _| (state.frames, state.bytes))
    }
}

/// Sends batches that have waited too long, so that the slice does not idle while the program thinks. An error is
/// recorded, and raised where the program uses the card next.
fn send_what_is_old(shared: &Shared) {
    loop {
        thread::sleep(LOOK);
        if let Ok(mut state) = shared.state.try_lock()
            && state.waiting > 0
            && state.lost.is_none()
            && state.since.elapsed() > OLD
        {
            let _ = state.flush(&shared.held, None);
        }
    }
}
