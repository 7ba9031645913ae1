//! Functions that C++ calls, and the state they work on. `python/tessera/csrc/wire/transport.h` says the same in C++.
#![allow(unsafe_code)] // What is called from C++ gets pointers.

use std::{
    ffi::{CString, c_char, c_int, c_void},
    sync::{Arc, Mutex},
    time::Duration,
};

use tessera_slice::{Error, Received};

use crate::locked;

const DONE: c_int = 0;
const ENDED: c_int = 1;
const FAILED: c_int = 2;
const INTERRUPTED: c_int = 3;

struct State {
    connection: Arc<Mutex<tessera_slice::Connection>>,
    /// The frame that C++ looks at, and why the last call failed.
    frame: Vec<u8>,
    error: CString,
}

/// A connection as C++ sees it. One thread at a time calls it: the dispatcher and the executor hold a lock of their
/// own.
#[repr(C)]
pub(crate) struct Transport {
    state: *mut c_void,
    send: extern "C" fn(*mut c_void, *const u8, usize) -> c_int,
    receive: extern "C" fn(*mut c_void, *mut *const u8, *mut usize) -> c_int,
    bulk_send: extern "C" fn(*mut c_void, *const u8, usize) -> c_int,
    bulk_receive: extern "C" fn(*mut c_void, *mut u8, usize) -> c_int,
    waiting: extern "C" fn(*mut c_void) -> u64,
    error: extern "C" fn(*mut c_void) -> *const c_char,
}

// SAFETY: the state is only touched by the functions of the table, one thread at a time.
unsafe impl Send for Transport {}
// SAFETY: as above.
unsafe impl Sync for Transport {}

impl Transport {
    pub(crate) fn new(connection: Arc<Mutex<tessera_slice::Connection>>) -> Box<Self> {
        let state = Box::new(State { connection, frame: Vec::new(), error: CString::default() });
        Box::new(Self { state: Box::into_raw(state).cast(), send, receive, bulk_send, bulk_receive, waiting, error })
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and dropped once.
        drop(unsafe { Box::from_raw(self.state.cast::<State>()) });
    }
}

fn with(state: *mut c_void, work: impl FnOnce(&mut State) -> Result<c_int, Error>) -> c_int {
    // SAFETY: C++ passes the state of its table, and one thread at a time does.
    let state = unsafe { &mut *state.cast::<State>() };
    match work(state) {
        Ok(code) => code,
        Err(error) => {
            state.error = CString::new(error.to_string()).unwrap_or_default();
            FAILED
        }
    }
}

extern "C" fn send(state: *mut c_void, bytes: *const u8, length: usize) -> c_int {
    // SAFETY: C++ passes a buffer of its own.
    let frame = unsafe { std::slice::from_raw_parts(bytes, length) };
    with(state, |state| locked(&state.connection).send(frame).map(|()| DONE))
}

extern "C" fn receive(state: *mut c_void, bytes: *mut *const u8, length: *mut usize) -> c_int {
    with(state, |state| {
        let mut connection = locked(&state.connection);
        let frame = match connection.receive()? {
            Received::Frame(frame) => frame,
            Received::Ended => return Ok(ENDED),
            Received::Interrupted => return Ok(INTERRUPTED),
        };
        state.frame.clear();
        state.frame.extend_from_slice(frame);
        // SAFETY: C++ passes two places of its own.
        unsafe {
            *bytes = state.frame.as_ptr();
            *length = state.frame.len();
        }
        Ok(DONE)
    })
}

extern "C" fn bulk_send(state: *mut c_void, bytes: *const u8, length: usize) -> c_int {
    if length == 0 {
        return DONE;
    }
    // SAFETY: C++ passes the memory of a tensor.
    let bytes = unsafe { std::slice::from_raw_parts(bytes, length) };
    with(state, |state| locked(&state.connection).bulk_send(bytes).map(|()| DONE))
}

extern "C" fn bulk_receive(state: *mut c_void, bytes: *mut u8, length: usize) -> c_int {
    // SAFETY: C++ passes the memory of a tensor.
    with(state, |state| unsafe { locked(&state.connection).bulk_receive(bytes, length) }.map(|()| DONE))
}

extern "C" fn waiting(state: *mut c_void) -> u64 {
    // SAFETY: as in `with`.
    locked(&unsafe { &*state.cast::<State>() }.connection).waiting_bytes() as u64
}

extern "C" fn error(state: *mut c_void) -> *const c_char {
    // SAFETY: as in `with`.
    unsafe { &*state.cast::<State>() }.error.as_ptr()
}

/// A gate as C++ sees it.
#[repr(C)]
pub(crate) struct Gate {
    state: *const Mutex<tessera_slice::Gate>,
    enter: extern "C" fn(*const Mutex<tessera_slice::Gate>),
    pay: extern "C" fn(*const Mutex<tessera_slice::Gate>, u64, bool),
}

// SAFETY: behind the pointer is a lock.
unsafe impl Send for Gate {}
// SAFETY: as above.
unsafe impl Sync for Gate {}

impl Gate {
    pub(crate) fn new(gate: Arc<Mutex<tessera_slice::Gate>>) -> Box<Self> {
        Box::new(Self { state: Arc::into_raw(gate), enter, pay })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and dropped once.
        drop(unsafe { Arc::from_raw(self.state) });
    }
}

extern "C" fn enter(gate: *const Mutex<tessera_slice::Gate>) {
    // SAFETY: C++ passes the state of its table.
    locked(unsafe { &*gate }).enter();
}

extern "C" fn pay(gate: *const Mutex<tessera_slice::Gate>, nanoseconds: u64, rests: bool) {
    // SAFETY: C++ passes the state of its table.
    locked(unsafe { &*gate }).pay(Duration::from_nanos(nanoseconds), rests);
}
