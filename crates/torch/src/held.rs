//! Storages of a program whose dispatcher is written in Python: names at addresses that nothing lies behind, handed to
//! PyTorch as tensors by DLPack, so that PyTorch itself says when the last alias of one is gone.
#![allow(unsafe_code)] // PyTorch gets pointers, and calls back with them.

use std::{
    collections::HashMap,
    ffi::{CStr, c_void},
    num::NonZeroUsize,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use pyo3::{exceptions::PyRuntimeError, ffi, prelude::*};

use crate::locked;

/// Bytes of addresses that are set aside, and how far from each other two storages begin there.
const SPAN: usize = 1 << 45;
const STEP: usize = 64;
const NEW: &CStr = c"dltensor";
/// DLPack's type of a device that is none of those it knows; PyTorch takes it for the one that is registered with it.
const EXTENSION: i32 = 12;

/// The memory that a program holds at its slice server.
pub(crate) struct Held {
    base: usize,
    /// In a process that was forked: all that is there belongs to the parent, and locks may never be free again.
    forked: AtomicBool,
    used: AtomicU64,
    peak: AtomicU64,
    gone: Mutex<Gone>,
}

/// Storages that the program has let go of, and the server has not heard of yet.
#[derive(Default)]
struct Gone {
    names: Vec<u64>,
    bytes: u64,
    /// Storages that grew, and so have several handles: how many more than one, and what those that are gone counted
    /// for.
    several: HashMap<u64, (u32, u64)>,
}

impl Held {
    pub(crate) fn new() -> nix::Result<Self> {
        let length = NonZeroUsize::new(SPAN).unwrap_or(NonZeroUsize::MIN);
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: new memory, which cannot be read or written: whoever follows such an address is stopped.
        let base = unsafe { mmap_anonymous(None, length, ProtFlags::PROT_NONE, flags) }?;
        let base = base.as_ptr() as usize;
        let (used, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { base, forked: AtomicBool::new(false), used, peak, gone: Mutex::default() })
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    pub(crate) fn reset_peak(&self) {
        self.peak.store(self.used(), Relaxed);
    }

    pub(crate) fn fork(&self) {
        self.forked.store(true, Relaxed);
    }

    /// Bytes of storages that the server is not told of yet.
    pub(crate) fn gone_bytes(&self) -> u64 {
        locked(&self.gone).bytes
    }

    /// Names that the server may forget.
    pub(crate) fn take_gone(&self) -> Vec<u64> {
        let mut gone = locked(&self.gone);
        gone.bytes = 0;
        std::mem::take(&mut gone.names)
    }

    fn count(&self, bytes: u64) {
        let total = self.used.fetch_add(bytes, Relaxed) + bytes;
        self.peak.fetch_max(total, Relaxed);
    }

    fn let_go(&self, name: u64, bytes: u64) {
        if self.forked.load(Relaxed) {
            return;
        }
        let mut gone = locked(&self.gone);
        let mut whole = bytes;
        if let Some((more, carried)) = gone.several.get_mut(&name) {
            *carried += bytes;
            if *more > 0 {
                *more -= 1;
                return;
            }
            whole = *carried;
            gone.several.remove(&name);
        }
        gone.names.push(name);
        gone.bytes += whole;
        self.used.fetch_sub(whole, Relaxed);
    }
}

// As DLPack 0 says it.
#[repr(C)]
struct Device {
    kind: i32,
    index: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Type {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    dimensions: i32,
    kind: Type,
    sizes: *const i64,
    strides: *const i64,
    offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// A storage as PyTorch holds it.
struct Handle {
    managed: Managed,
    name: u64,
    bytes: u64,
    form: Arc<Shape>,
}

struct Shape {
    held: Arc<Held>,
    kind: Type,
    sizes: Vec<i64>,
    strides: Vec<i64>,
    bytes: u64,
}

/// How tensors lie that are alike: made once, and then only named.
#[pyclass(frozen)]
pub(crate) struct Form(Arc<Shape>);

impl Form {
    /// `like` is DLPack's capsule of a tensor of the same type.
    pub(crate) fn new(
        held: Arc<Held>,
        like: &Bound<'_, PyAny>,
        sizes: Vec<i64>,
        strides: Vec<i64>,
        bytes: u64,
    ) -> PyResult<Self> {
        if sizes.len() != strides.len() {
            return Err(PyRuntimeError::new_err("as many strides as sizes are needed"));
        }
        // SAFETY: its name says what it holds, and it is not used up yet.
        let kind = unsafe {
            let pointer = ffi::PyCapsule_GetPointer(like.as_ptr(), NEW.as_ptr());
            if pointer.is_null() {
                return Err(PyErr::fetch(like.py()));
            }
            (*pointer.cast::<Managed>()).tensor.kind
        };
        Ok(Self(Arc::new(Shape { held, kind, sizes, strides, bytes })))
    }

    /// A capsule for PyTorch, which calls `release` when the storage is gone.
    fn handle<'py>(&self, py: Python<'py>, name: u64, bytes: u64) -> PyResult<Bound<'py, PyAny>> {
        let form = Arc::clone(&self.0);
        let at = usize::try_from(name).ok().and_then(|name| name.checked_mul(STEP)).filter(|at| *at < SPAN);
        let Some(at) = at else {
            return Err(PyRuntimeError::new_err(
                "no names are left for the tensors of the virtual card; start the program again",
            ));
        };
        let tensor = Tensor {
            data: (form.held.base + at) as *mut c_void,
            device: Device { kind: EXTENSION, index: 0 },
            dimensions: form.sizes.len() as i32,
            kind: form.kind,
            sizes: form.sizes.as_ptr(),
            strides: form.strides.as_ptr(),
            offset: 0,
        };
        form.held.count(bytes);
        let managed = Managed { tensor, context: std::ptr::null_mut(), deleter: Some(release) };
        let handle = Box::into_raw(Box::new(Handle { managed, name, bytes, form }));
        // SAFETY: the handle was just made, and lives until it is released, once.
        unsafe {
            (*handle).managed.context = handle.cast();
            let capsule = ffi::PyCapsule_New((&raw mut (*handle).managed).cast(), NEW.as_ptr(), Some(unused));
            if capsule.is_null() {
                release(&raw mut (*handle).managed);
            }
            Bound::from_owned_ptr_or_err(py, capsule)
        }
    }
}

#[pymethods]
impl Form {
    /// A new storage of this name, as a capsule of DLPack.
    fn made<'py>(&self, py: Python<'py>, name: u64) -> PyResult<Bound<'py, PyAny>> {
        self.handle(py, name, self.0.bytes)
    }

    /// One more handle of a storage that is there, which grew by so many bytes.
    fn grown<'py>(&self, py: Python<'py>, name: u64, bytes: u64) -> PyResult<Bound<'py, PyAny>> {
        locked(&self.0.held.gone).several.entry(name).or_default().0 += 1;
        self.handle(py, name, bytes)
    }

    /// What a storage of it takes.
    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }
}

unsafe extern "C" fn release(managed: *mut Managed) {
    // SAFETY: PyTorch gives back what `handle` has given it, once.
    let handle = unsafe { Box::from_raw((*managed).context.cast::<Handle>()) };
    handle.form.held.let_go(handle.name, handle.bytes);
}

/// The destructor of a capsule that is gone. A capsule that PyTorch has taken has another name.
unsafe extern "C" fn unused(capsule: *mut ffi::PyObject) {
    // SAFETY: Python passes the capsule; its name says that it still holds what `handle` has put there.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NEW.as_ptr()) == 1 {
            release(ffi::PyCapsule_GetPointer(capsule, NEW.as_ptr()).cast());
        }
    }
}

/// First of the addresses at which storages have their names, how many bytes of them there are, and how far they lie
/// apart.
pub(crate) fn addresses(held: &Held) -> (usize, usize, usize) {
    (held.base, SPAN, STEP)
}
