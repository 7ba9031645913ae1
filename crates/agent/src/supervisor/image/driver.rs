//! The state of a process on graphics cards: NVIDIA's driver moves it into the process's memory before the process is
//! dumped, and back after it was restored.
//!
//! The driver's library is loaded when there is something to do, by a process of its own ([`WORD`]): what it starts,
//! and how long it takes, is none of the supervisor's business. The calls are those of driver 570 and newer
//! (`cuCheckpointProcess*`). Tests have a library that answers like it; on a card they were done by hand
//! (docs/benchmarks/device-gpu.md).

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::ptr;

use tessera_diagnostics::remark;

use crate::process::ProcessId;

/// The word with which this program speaks with a driver.
pub const WORD: &str = "with-driver";
/// Brings what processes have on cards into their memory.
const PAUSE: &str = "pause";
/// Brings it back, and lets them go on.
const RESUME: &str = "resume";
const LIBRARY: &str = "libcuda.so.1";
/// The part of the library's path that is the same in whatever process has loaded it.
const LOADED: &str = "/libcuda.so";
/// The longest time that work on a card may take to come to a rest, in milliseconds.
const LOCK_PATIENCE_MS: u32 = 10_000;

/// A step that the driver performs on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its work on cards comes to a rest, and its next calls wait.
    Lock,
    /// Its state on cards is moved into its memory, and the cards are given back.
    Checkpoint,
    /// Its state is moved back onto the cards.
    Restore,
    /// Its calls go on.
    Unlock,
}

/// A driver that can do that.
pub trait Driver {
    /// Does a step with the process of this number.
    ///
    /// # Errors
    /// What the driver says.
    fn step(&self, step: Step, process: i32) -> Result<(), String>;
}

/// Does a step with a process, if it is still there.
fn step_with(driver: &impl Driver, step: Step, process: ProcessId) -> Result<(), String> {
    if process.is_alive() {
        return driver.step(step, process.pid);
    }
    Err(format!("process {} is gone", process.pid))
}

/// Returns whether a process has loaded the driver's library.
pub fn is_used_by(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/maps")).is_ok_and(|maps| maps.contains(LOADED))
}

/// The words of the command that pauses processes, or lets them go on. They are named with when they started: another
/// process that is given such a number meanwhile is left alone.
pub fn command(pauses: bool, processes: &[ProcessId]) -> Vec<String> {
    let action = if pauses { PAUSE } else { RESUME };
    let named = processes.iter().map(|process| format!("{}:{}", process.pid, process.start_ticks));
    [WORD, action].map(str::to_owned).into_iter().chain(named).collect()
}

fn process_of(word: &str) -> Option<ProcessId> {
    let (pid, start_ticks) = word.split_once(':')?;
    Some(ProcessId { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? })
}

/// Does what the words after [`WORD`] say, and says on standard error what went wrong.
#[must_use]
pub fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let action = words.next().unwrap_or_default();
    let processes: Option<Vec<ProcessId>> = words.map(|word| process_of(word.to_str()?)).collect();
    let done = match (action.to_str(), processes) {
        (Some(PAUSE), Some(processes)) => Cuda::load(Path::new(LIBRARY)).and_then(|driver| pause(&driver, &processes)),
        (Some(RESUME), Some(processes)) => {
            Cuda::load(Path::new(LIBRARY)).and_then(|driver| resume(&driver, &processes))
        }
        _ => Err(format!("{WORD} takes {PAUSE} or {RESUME}, and processes")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            remark!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Pauses all of them; when one cannot be, those that were go on.
fn pause(driver: &impl Driver, processes: &[ProcessId]) -> Result<(), String> {
    let mut done = Vec::new();
    for step in [Step::Lock, Step::Checkpoint] {
        for process in processes {
            if let Err(why) = step_with(driver, step, *process) {
                undo(driver, &done);
                return Err(why);
            }
            done.push((step, *process));
        }
    }
    Ok(())
}

fn undo(driver: &impl Driver, done: &[(Step, ProcessId)]) {
    for (step, process) in done.iter().rev() {
        let back = if *step == Step::Checkpoint { Step::Restore } else { Step::Unlock };
        // What went wrong first is what is told.
        let _ = step_with(driver, back, *process);
    }
}

/// Lets all of them go on, also those beside one that cannot; answers what went wrong first.
fn resume(driver: &impl Driver, processes: &[ProcessId]) -> Result<(), String> {
    let mut told = Ok(());
    for step in [Step::Restore, Step::Unlock] {
        for process in processes {
            told = told.and(step_with(driver, step, *process));
        }
    }
    told
}

/// Arguments of a lock.
#[repr(C)]
struct LockArguments {
    timeout_ms: u32,
    reserved: u32,
    more: [u64; 7],
}

type Call = unsafe extern "C" fn(c_int, *const c_void) -> c_int;
type Init = unsafe extern "C" fn(u32) -> c_int;
type ErrorText = unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int;

/// NVIDIA's driver.
pub struct Cuda {
    lock: Call,
    checkpoint: Call,
    restore: Call,
    unlock: Call,
    error_text: ErrorText,
}

impl Cuda {
    /// Loads the driver's library, and has it look for its cards.
    ///
    /// # Errors
    /// What is missing.
    #[allow(unsafe_code)]
    pub fn load(library: &Path) -> Result<Self, String> {
        let shown = library.display();
        let name = CString::new(library.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the name is a NUL-terminated text; the library stays loaded until this process ends.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if handle.is_null() {
            // SAFETY: after a failure this is a NUL-terminated text of the loader, or null.
            return Err(format!("the driver's library cannot be loaded: {}", unsafe { text(libc::dlerror()) }));
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle is that of a library which is loaded, the name a NUL-terminated text.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            let missing = || format!("{shown} has no {}: driver 570 or newer is needed", name.to_string_lossy());
            ptr::NonNull::new(found).ok_or_else(missing)
        };
        // SAFETY: functions of these names have these signatures in every release of the driver that has them.
        let (driver, init) = unsafe {
            let call = |name: &CStr| symbol(name).map(|found| std::mem::transmute::<_, Call>(found.as_ptr()));
            let driver = Self {
                lock: call(c"cuCheckpointProcessLock")?,
                checkpoint: call(c"cuCheckpointProcessCheckpoint")?,
                restore: call(c"cuCheckpointProcessRestore")?,
                unlock: call(c"cuCheckpointProcessUnlock")?,
                error_text: std::mem::transmute::<*mut c_void, ErrorText>(symbol(c"cuGetErrorString")?.as_ptr()),
            };
            (driver, std::mem::transmute::<*mut c_void, Init>(symbol(c"cuInit")?.as_ptr()))
        };
        // SAFETY: it takes no flags.
        driver.judge("cuInit", unsafe { init(0) })?;
        Ok(driver)
    }

    #[allow(unsafe_code)]
    fn judge(&self, what: &str, code: c_int) -> Result<(), String> {
        if code == 0 {
            return Ok(());
        }
        let mut said = ptr::null();
        // SAFETY: the pointer is to a variable of this function; what it is set to is a constant of the library.
        let said = unsafe {
            (self.error_text)(code, &raw mut said);
            text(said)
        };
        Err(format!("{what} failed: {said} ({code})"))
    }
}

impl Driver for Cuda {
    #[allow(unsafe_code)]
    fn step(&self, step: Step, process: i32) -> Result<(), String> {
        let lock = LockArguments { timeout_ms: LOCK_PATIENCE_MS, reserved: 0, more: [0; 7] };
        let (call, arguments): (Call, *const c_void) = match step {
            Step::Lock => (self.lock, (&raw const lock).cast()),
            Step::Checkpoint => (self.checkpoint, ptr::null()),
            Step::Restore => (self.restore, ptr::null()),
            Step::Unlock => (self.unlock, ptr::null()),
        };
        // SAFETY: the library is loaded; the arguments are of the layout that it has for this call, or left out.
        let code = unsafe { call(process, arguments) };
        self.judge(&format!("{step:?} of process {process}"), code)
    }
}

/// A text of a library.
#[allow(unsafe_code)]
unsafe fn text(said: *const c_char) -> String {
    if said.is_null() {
        return "nobody knows why".to_owned();
    }
    // SAFETY: the caller says that it is NUL-terminated.
    unsafe { CStr::from_ptr(said) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::process::{Child, Command};

    use super::*;

    /// Notes what it is told, and fails at one step.
    struct Noting {
        steps: RefCell<Vec<(Step, i32)>>,
        fails: Option<(Step, i32)>,
    }

    impl Driver for Noting {
        fn step(&self, step: Step, process: i32) -> Result<(), String> {
            self.steps.borrow_mut().push((step, process));
            if self.fails == Some((step, process)) { Err("no".to_owned()) } else { Ok(()) }
        }
    }

    #[test]
    fn when_one_process_cannot_be_paused_the_others_go_on() {
        let (one, two) = (Asleep::new(), Asleep::new());
        let [first, second] = [one.id(), two.id()];
        let driver = Noting { steps: RefCell::default(), fails: Some((Step::Checkpoint, second.pid)) };
        assert_eq!(pause(&driver, &[first, second]), Err("no".to_owned()));
        let [first, second] = [first.pid, second.pid];
        let there = [(Step::Lock, first), (Step::Lock, second), (Step::Checkpoint, first), (Step::Checkpoint, second)];
        let back = [(Step::Restore, first), (Step::Unlock, second), (Step::Unlock, first)];
        assert!(driver.steps.into_inner().into_iter().eq(there.into_iter().chain(back)));
    }

    #[test]
    fn those_beside_one_that_cannot_be_let_go_on_are() {
        let (one, two) = (Asleep::new(), Asleep::new());
        let [first, second] = [one.id(), two.id()];
        let gone = ProcessId { start_ticks: first.start_ticks + 1, ..first };
        let driver = Noting { steps: RefCell::default(), fails: Some((Step::Restore, first.pid)) };
        assert_eq!(resume(&driver, &[first, gone, second]), Err("no".to_owned()));
        let [first, second] = [first.pid, second.pid];
        let expected = [(Step::Restore, first), (Step::Restore, second), (Step::Unlock, first), (Step::Unlock, second)];
        assert_eq!(driver.steps.into_inner(), expected, "another process of that number is left alone");
    }

    /// A process that does nothing.
    struct Asleep(Child);

    impl Asleep {
        fn new() -> Self {
            Self(Command::new("sleep").arg("600").spawn().expect("it runs"))
        }

        fn id(&self) -> ProcessId {
            ProcessId::of(self.0.id().cast_signed()).expect("it is there")
        }
    }

    impl Drop for Asleep {
        fn drop(&mut self) {
            self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
        }
    }

    #[test]
    fn an_old_driver_is_told_to_be_old() {
        let old = Cuda::load(Path::new("libc.so.6")).err().expect("it is no driver");
        assert!(old.contains("cuCheckpointProcessLock") && old.contains("570"), "{old}");
        assert!(Cuda::load(Path::new("/nowhere/libcuda.so.1")).err().expect("none").contains("cannot be loaded"));
    }
}
