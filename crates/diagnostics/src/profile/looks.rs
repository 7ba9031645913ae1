//! Looks at the stacks of whichever thread computes, by a timer's signal.
//!
//! The signal's handler may interrupt anything, at several threads at once: it takes no memory and no lock, and writes
//! into places that are there for good. Whoever profiles takes from them what was written, again and again.

use std::ffi::c_void;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::gettid;

/// Looks in a second of processor time: no round number, so that nothing that is done each hundredth of a second is
/// always met or never.
const RATE: i64 = 99;
/// Calls of a stack that are kept, the innermost.
const DEPTH: usize = 128;
/// Looks that wait to be taken: what 250 processors bring that compute all the time, until they are taken next.
const PLACES: usize = 512;
/// Ranges in which no stack is walked.
const RANGES: usize = 16;

/// The states of a place.
const FREE: u8 = 0;
const BEGUN: u8 = 1;
const WRITTEN: u8 = 2;

/// A place for one look.
struct Place {
    state: AtomicU8,
    thread: AtomicI32,
    depth: AtomicUsize,
    calls: [AtomicUsize; DEPTH],
}

impl Place {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(FREE),
            thread: AtomicI32::new(0),
            depth: AtomicUsize::new(0),
            calls: [const { AtomicUsize::new(0) }; DEPTH],
        }
    }

    fn turn(&self, from: u8, to: u8) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

static LOOKED: [Place; PLACES] = [const { Place::new() }; PLACES];
static NEXT: AtomicUsize = AtomicUsize::new(0);
static MISSED: AtomicUsize = AtomicUsize::new(0);
static ON: AtomicBool = AtomicBool::new(false);
static UNWALKABLE: [[AtomicUsize; 2]; RANGES] = [const { [const { AtomicUsize::new(0) }; 2] }; RANGES];

/// Looks that go on as long as this is there. There may be one of it.
pub(super) struct Looks(());

impl Looks {
    /// Begins; stacks are not walked where their innermost call lies in one of these ranges.
    pub(super) fn begin(unwalkable: &[Range<usize>]) -> nix::Result<Self> {
        let ends = unwalkable.iter().map(|range| [range.start, range.end]).chain(std::iter::repeat([0, 0]));
        for (place, ends) in UNWALKABLE.iter().zip(ends) {
            for (place, end) in place.iter().zip(ends) {
                place.store(end, Ordering::Relaxed);
            }
        }
        for place in &LOOKED {
            place.turn(WRITTEN, FREE);
        }
        MISSED.store(0, Ordering::Relaxed);
        handle()?;
        ON.store(true, Ordering::Release);
        // From here on the timer is stopped whatever comes.
        let looks = Self(());
        set_timer(1_000_000 / RATE)?;
        Ok(looks)
    }

    /// Takes what was looked at since the last time: threads, and their calls from the innermost on.
    pub(super) fn take(&self, mut each: impl FnMut(i32, &[usize])) {
        let mut calls = [0; DEPTH];
        for place in LOOKED.iter().filter(|place| place.state.load(Ordering::Acquire) == WRITTEN) {
            let depth = place.depth.load(Ordering::Relaxed).min(DEPTH);
            for (call, written) in calls.iter_mut().zip(&place.calls) {
                *call = written.load(Ordering::Relaxed);
            }
            each(place.thread.load(Ordering::Relaxed), &calls[..depth]);
            place.turn(WRITTEN, FREE);
        }
    }

    /// Looks for which there was no place.
    pub(super) fn missed(&self) -> usize {
        MISSED.load(Ordering::Relaxed)
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        // It fails for no timer that could be set before.
        let _ = set_timer(0);
        ON.store(false, Ordering::Release);
    }
}

/// Has the timer's signal handled. The handler stays: a signal that is late would end the process without it.
#[allow(unsafe_code)]
fn handle() -> nix::Result<()> {
    let action = SigAction::new(SigHandler::SigAction(look), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only does what may be done wherever a program is interrupted; see there.
    unsafe { sigaction(Signal::SIGPROF, &action) }.map(drop)
}

/// Sets the timer of processor time to so many microseconds; 0 stops it.
#[allow(unsafe_code)]
fn set_timer(microseconds: i64) -> nix::Result<()> {
    let time = libc::timeval { tv_sec: 0, tv_usec: microseconds };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: the structure is valid, and the one before is not asked for.
    Errno::result(unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) }).map(drop)
}

/// Writes down the stack of the thread that was interrupted.
extern "C" fn look(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    if !ON.load(Ordering::Acquire) {
        return;
    }
    let errno = Errno::last_raw();
    let place = LOOKED.get(NEXT.fetch_add(1, Ordering::Relaxed) % PLACES);
    match place.filter(|place| place.turn(FREE, BEGUN)) {
        Some(place) => {
            place.thread.store(gettid().as_raw(), Ordering::Relaxed);
            place.depth.store(walk(interrupted(context), &place.calls), Ordering::Relaxed);
            place.state.store(WRITTEN, Ordering::Release);
        }
        None => {
            MISSED.fetch_add(1, Ordering::Relaxed);
        }
    }
    Errno::set_raw(errno);
}

/// Writes the calls from an interrupted one outwards, and returns how many.
#[allow(unsafe_code)]
fn walk(interrupted: usize, calls: &[AtomicUsize; DEPTH]) -> usize {
    let mut depth = 0;
    let mut write = |call: usize| {
        if let Some(place) = calls.get(depth) {
            place.store(call, Ordering::Relaxed);
            depth += 1;
        }
        depth < DEPTH
    };
    let unwalkable = UNWALKABLE
        .iter()
        .any(|[from, to]| (from.load(Ordering::Relaxed)..to.load(Ordering::Relaxed)).contains(&interrupted));
    if unwalkable {
        write(interrupted);
        return depth;
    }
    // The calls of the handler itself come first.
    let mut met = false;
    // SAFETY: what is called takes no lock of its own, and the ones of the libraries that walk are not held here.
    unsafe {
        backtrace::trace_unsynchronized(|frame| {
            let call = frame.ip().expose_provenance();
            met |= call == interrupted;
            !met || write(call)
        });
    }
    depth
}

/// The address of the instruction that was interrupted.
#[allow(unsafe_code)]
fn interrupted(context: *mut c_void) -> usize {
    // SAFETY: the kernel hands this structure to a handler that asks for it, and nothing changes it.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    #[cfg(target_arch = "x86_64")]
    let address = context.uc_mcontext.gregs.get(libc::REG_RIP as usize).map_or(0, |register| *register as usize);
    #[cfg(target_arch = "aarch64")]
    let address = context.uc_mcontext.pc as usize;
    address
}
