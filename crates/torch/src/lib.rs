//! `tessera._native`: the transport and the gate of `tessera-slice`, for Python and, through a table of functions,
//! for C++.
//!
//! The dispatcher, in C++, issues an operation in a microsecond or two and must not go through Python for its frames.
//! It gets the address of a table of functions (`table.rs`) instead, which holds for as long as the Python object that
//! gave it.

mod table;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use pyo3::{
    exceptions::{PyConnectionError, PyValueError},
    prelude::*,
    types::{PyBytes, PyDict},
};
use tessera_slice::{Address, Admits, Coming, Error, Interrupter, Program, Received, attendance::Attended, handshake};

pyo3::create_exception!(
    _native,
    Unfit,
    PyConnectionError,
    "Program and server cannot work together, and that will not change."
);
pyo3::create_exception!(_native, Taken, PyConnectionError, "The slice is another program's.");

fn raise(error: &Error) -> PyErr {
    match error {
        Error::Address(_) => PyValueError::new_err(error.to_string()),
        Error::Unfit { .. } => Unfit::new_err(error.to_string()),
        Error::Taken { .. } => Taken::new_err(error.to_string()),
        _ => PyConnectionError::new_err(error.to_string()),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left behind is a connection in an unknown state; using it finds that out.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A program as Python names it.
fn named((family, number, returns): (String, u64, bool)) -> Program {
    Program { family, number, returns }
}

/// A connection between a program and its slice server.
#[pyclass(frozen)]
struct Connection {
    inner: Arc<Mutex<tessera_slice::Connection>>,
    socket: std::os::fd::OwnedFd,
    interrupter: Option<Interrupter>,
    table: Box<table::Transport>,
}

impl Connection {
    fn new(connection: tessera_slice::Connection) -> PyResult<Self> {
        let socket = connection.descriptor().try_clone_to_owned()?;
        let inner = Arc::new(Mutex::new(connection));
        Ok(Self { table: table::Transport::new(Arc::clone(&inner)), inner, socket, interrupter: None })
    }

    fn of_server(mut connection: tessera_slice::Connection) -> PyResult<Self> {
        let interrupter = connection.interrupter().map_err(|error| raise(&error))?;
        Ok(Self { interrupter: Some(interrupter), ..Self::new(connection)? })
    }
}

#[pymethods]
impl Connection {
    /// Goes to a slice server with the token and the epoch of the allocation: as this program (family, number, whether
    /// it comes again), which goes on with what it has there or begins; or, without one, as another server of the same
    /// card.
    #[staticmethod]
    #[pyo3(signature = (address, torch, token, epoch, program=None, goes_on=false))]
    fn connect(
        py: Python<'_>,
        address: &str,
        torch: &str,
        token: String,
        epoch: u64,
        program: Option<(String, u64, bool)>,
        goes_on: bool,
    ) -> PyResult<Self> {
        let address: Address = address.parse().map_err(|error| raise(&error))?;
        let credentials = handshake::Credentials { token, epoch };
        let coming = program.map(|program| Coming { program: named(program), goes_on });
        let connected =
            py.detach(|| tessera_slice::Connection::connect(&address, torch, &credentials, coming.as_ref()));
        Self::new(connected.map_err(|error| raise(&error))?)
    }

    /// What the slice is: `device`, `memory_bytes`, `share`, `sequence`.
    #[getter]
    fn slice<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let slice = locked(&self.inner).slice().clone();
        let told = PyDict::new(py);
        told.set_item("device", slice.device)?;
        told.set_item("memory_bytes", slice.memory_bytes)?;
        told.set_item("share", slice.share)?;
        told.set_item("sequence", slice.sequence)?;
        Ok(told)
    }

    /// Bytes sent and received, bulk data included.
    #[getter]
    fn bytes(&self) -> (u64, u64) {
        locked(&self.inner).bytes()
    }

    /// Host of this side and of the other, where it goes over the network.
    #[getter]
    fn hosts(&self) -> Option<(String, String)> {
        locked(&self.inner).ends().map(|(own, other)| (own.ip().to_string(), other.ip().to_string()))
    }

    /// Whether the other side still holds its end, as far as is known.
    #[getter]
    fn is_open(&self) -> bool {
        locked(&self.inner).is_open()
    }

    fn send(&self, py: Python<'_>, frame: &[u8]) -> PyResult<()> {
        py.detach(|| locked(&self.inner).send(frame)).map_err(|error| raise(&error))
    }

    /// Waits for the next frame; None once the other side has ended the connection.
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let frame = py.detach(|| match locked(&self.inner).receive()? {
            Received::Frame(frame) => Ok(Some(frame.to_vec())),
            Received::Ended | Received::Interrupted => Ok(None),
        });
        Ok(frame.map_err(|error| raise(&error))?.map(|frame| PyBytes::new(py, &frame)))
    }

    /// Sends `length` bytes from this address of memory, which the caller keeps alive.
    #[allow(unsafe_code)]
    fn bulk_send(&self, py: Python<'_>, address: usize, length: usize) -> PyResult<()> {
        if length == 0 {
            return Ok(());
        }
        // SAFETY: Python passes what a tensor of its own reports.
        let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
        py.detach(|| locked(&self.inner).bulk_send(bytes)).map_err(|error| raise(&error))
    }

    /// Receives `length` bytes to this address of memory, which the caller keeps alive.
    #[allow(unsafe_code)]
    fn bulk_receive(&self, py: Python<'_>, address: usize, length: usize) -> PyResult<()> {
        // SAFETY: Python passes what a tensor of its own reports.
        py.detach(|| unsafe { locked(&self.inner).bulk_receive(address as *mut u8, length) })
            .map_err(|error| raise(&error))
    }

    /// Has the server stop waiting for frames, from whatever thread; it is at the end of one then.
    fn interrupt(&self) {
        if let Some(interrupter) = &self.interrupter {
            interrupter.interrupt();
        }
    }

    /// Address of the table of functions for C++; good while this object lives.
    #[getter]
    fn table(&self) -> usize {
        std::ptr::from_ref(&*self.table) as usize
    }

    /// Ends it; whoever waits on it is woken.
    fn close(&self) {
        // Not through the lock: it may be held by the very wait that is to end.
        tessera_slice::connection::end(&self.socket);
    }
}

/// Where a slice server waits for its program, or the first of several for the others.
#[pyclass(frozen)]
struct Listener {
    inner: Mutex<tessera_slice::Listener>,
    // Beside the lock, which is held while a program is waited for.
    attended: Arc<Attended>,
    interrupt: Box<dyn Fn() + Send + Sync>,
}

#[pymethods]
impl Listener {
    /// `owner` is the program whose tensors the slice holds already.
    #[new]
    #[pyo3(signature = (address, *, torch, token, epoch, device, memory_bytes, share, sequence, followers=0, owner=None))]
    #[allow(clippy::too_many_arguments)] // By keyword, from Python.
    fn new(
        address: &str,
        torch: &str,
        token: String,
        epoch: u64,
        device: String,
        memory_bytes: u64,
        share: f64,
        sequence: u64,
        followers: u32,
        owner: Option<(String, u64, bool)>,
    ) -> PyResult<Self> {
        let address: Address = address.parse().map_err(|error| raise(&error))?;
        let slice = handshake::Slice { device, memory_bytes, share, sequence };
        let admits = if followers > 0 { Admits::Followers(followers) } else { Admits::Program };
        let credentials = handshake::Credentials { token, epoch };
        let listener = tessera_slice::Listener::bind(&address, torch, credentials, slice, admits, owner.map(named));
        let listener = listener.map_err(|error| raise(&error))?;
        let (attended, interrupt) = (listener.attended(), Box::new(listener.interrupt()));
        Ok(Self { inner: Mutex::new(listener), attended, interrupt })
    }

    /// Where it listens, with the port that was taken.
    #[getter]
    fn address(&self) -> String {
        locked(&self.inner).address().to_string()
    }

    /// The next program, or None when none came within so many seconds.
    fn accept(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<Connection>> {
        let within = Duration::try_from_secs_f64(seconds).map_err(|error| PyValueError::new_err(error.to_string()))?;
        py.detach(|| locked(&self.inner).accept(within)).map(Connection::of_server).transpose()
    }

    /// Has whoever waits for a program wait no longer, from whatever thread.
    fn interrupt(&self) {
        (self.interrupt)();
    }

    /// Seconds since the host of the program was last heard of, the code with which it said that its program ended, and
    /// whether it has come at all.
    #[getter]
    fn attended(&self) -> (f64, Option<u8>, bool) {
        (self.attended.silent_for().as_secs_f64(), self.attended.over(), self.attended.has_come())
    }

    /// The program that the slice is kept for: family, number, whether it comes again.
    #[getter]
    fn owner(&self) -> Option<(String, u64, bool)> {
        locked(&self.inner).owner().map(|owner| (owner.family, owner.number, owner.returns))
    }

    /// The connection of the program is gone: it may come again, or another, and is told this sequence number.
    fn free(&self, sequence: u64) {
        locked(&self.inner).free(sequence);
    }
}

/// The gate of a slice.
#[pyclass(frozen)]
struct Gate {
    inner: Arc<Mutex<tessera_slice::Gate>>,
    table: Box<table::Gate>,
}

#[pymethods]
impl Gate {
    /// A gate for `share` of the device. `card` is a file that the servers of one card share; it may be elastic then,
    /// and take turns with them.
    #[new]
    #[pyo3(signature = (share, card=None, elastic=false, turns=false))]
    fn new(share: f64, card: Option<PathBuf>, elastic: bool, turns: bool) -> PyResult<Self> {
        let card = card.map(|path| tessera_slice::Card { path, elastic, turns });
        let inner = tessera_slice::Gate::new(share, card).map_err(|error| raise(&error))?;
        let inner = Arc::new(Mutex::new(inner));
        Ok(Self { table: table::Gate::new(Arc::clone(&inner)), inner })
    }

    /// Waits until the next operation may start.
    fn enter(&self, py: Python<'_>) {
        py.detach(|| locked(&self.inner).enter());
    }

    /// The device has worked so many nanoseconds for the slice, which may rest now.
    #[pyo3(signature = (nanoseconds, rests=true))]
    fn pay(&self, nanoseconds: u64, rests: bool) {
        locked(&self.inner).pay(Duration::from_nanos(nanoseconds), rests);
    }

    /// Device time used and time spent waiting, in seconds.
    #[getter]
    fn spent(&self) -> (f64, f64) {
        let (worked, waited) = locked(&self.inner).spent();
        (worked.as_secs_f64(), waited.as_secs_f64())
    }

    /// Address of the table of functions for C++; good while this object lives.
    #[getter]
    fn table(&self) -> usize {
        std::ptr::from_ref(&*self.table) as usize
    }
}

#[pymodule(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("RELEASE", env!("CARGO_PKG_VERSION"))?;
    module.add("PROTOCOL", tessera_slice::PROTOCOL)?;
    module.add("LARGEST_FRAME", tessera_slice::LARGEST_FRAME)?;
    module.add("Unfit", module.py().get_type::<Unfit>())?;
    module.add("Taken", module.py().get_type::<Taken>())?;
    module.add_class::<Connection>()?;
    module.add_class::<Listener>()?;
    module.add_class::<Gate>()
}
