//! A program in the form that `execve` takes, so that nothing is allocated between fork and exec.

use std::ffi::{CStr, CString, NulError, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::errno::Errno;

use super::unrunnable::{FIRST_LINE, candidates, not_for_shell};

/// The number of tries, 10 ms apart, at a program that is open for writing: another process that is just being started
/// may have a copy of the descriptor, until it becomes its program.
const WRITER_CLOSES: u32 = 50;
/// Reads what has no first line that names its interpreter.
const SHELL: &CStr = c"/bin/sh";

/// The paths, arguments and environment of a program.
#[derive(Debug)]
pub(crate) struct Execution {
    /// In the order in which they are tried.
    pub paths: Vec<CString>,
    pub arguments: Vec<CString>,
    pub environment: Vec<CString>,
    /// The same as pointers, and those of the shell: its second one is set to the script's path once that is known.
    pointers: [Pointers; 3],
}

/// An array of pointers to texts that ends with none.
type Pointers = Vec<AtomicPtr<libc::c_char>>;

impl Execution {
    /// The program that is named first among some words, looked for in these folders.
    ///
    /// # Errors
    /// When a text holds a NUL byte.
    pub fn new<'a>(
        words: impl Iterator<Item = &'a OsStr>,
        path: &str,
        variables: impl Iterator<Item = (&'a OsStr, &'a OsStr)>,
    ) -> Result<Self, NulError> {
        let arguments = words.map(|word| CString::new(word.as_bytes())).collect::<Result<Vec<_>, _>>()?;
        let variable = |(name, value): (&OsStr, &OsStr)| CString::new([name.as_bytes(), value.as_bytes()].join(&b'='));
        let environment = variables.map(variable).collect::<Result<Vec<_>, _>>()?;
        let name = arguments.first().map(|name| OsStr::from_bytes(name.as_bytes())).unwrap_or_default();
        let paths = candidates(name, path);
        let paths = paths.iter().map(|path| path_text(path)).collect::<Result<Vec<_>, _>>()?;
        let of_shell = [SHELL.as_ptr().cast_mut()].into_iter().map(AtomicPtr::new).chain(pointers(&arguments));
        let pointers = [pointers(&arguments), pointers(&environment), of_shell.collect()];
        Ok(Self { paths, arguments, environment, pointers })
    }

    /// The program as the job names it.
    pub fn name(&self) -> String {
        self.arguments.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Becomes the program, at the first place where that is possible; the error is the most telling one. Only calls
    /// what is async-signal-safe.
    pub fn take_over(&self) -> Errno {
        let mut telling = Errno::ENOENT;
        for path in &self.paths {
            match self.try_at(path) {
                Errno::ENOEXEC if is_for_shell(path) => telling = self.through_shell(path),
                Errno::ENOENT | Errno::ENOTDIR => {}
                other => telling = other,
            }
        }
        telling
    }

    #[allow(unsafe_code)]
    fn try_at(&self, path: &CStr) -> Errno {
        let [arguments, environment, _] = &self.pointers;
        let mut closes = WRITER_CLOSES;
        let pause = libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 };
        loop {
            // SAFETY: all pointers lead to NUL-terminated texts and null-terminated arrays, which live as long as this;
            // an atomic pointer has the layout of a pointer.
            unsafe { libc::execve(path.as_ptr(), arguments.as_ptr().cast(), environment.as_ptr().cast()) };
            if Errno::last_raw() != libc::ETXTBSY || closes == 0 {
                return Errno::last();
            }
            closes -= 1;
            // SAFETY: a system call that reads a valid structure and writes nothing.
            unsafe { libc::nanosleep(&raw const pause, ptr::null_mut()) };
        }
    }

    #[allow(unsafe_code)]
    fn through_shell(&self, path: &CStr) -> Errno {
        let [_, environment, arguments] = &self.pointers;
        if let Some(script) = arguments.get(1) {
            script.store(path.as_ptr().cast_mut(), Ordering::Relaxed);
        }
        // SAFETY: as in `try_at`.
        unsafe { libc::execve(SHELL.as_ptr(), arguments.as_ptr().cast(), environment.as_ptr().cast()) };
        Errno::last()
    }
}

/// Returns whether a file may be a script for the shell, by its first bytes.
#[allow(unsafe_code)]
fn is_for_shell(path: &CStr) -> bool {
    let mut head = [0_u8; FIRST_LINE];
    // SAFETY: system calls on a NUL-terminated text, on a buffer of the given length, and on a descriptor that is
    // closed again.
    let length = unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY);
        if file < 0 {
            return false;
        }
        let length = libc::read(file, head.as_mut_ptr().cast(), head.len());
        libc::close(file);
        length
    };
    let head = usize::try_from(length).ok().and_then(|length| head.get(..length));
    head.is_some_and(|head| not_for_shell(head).is_none())
}

pub(super) fn path_text(path: &Path) -> Result<CString, NulError> {
    CString::new(path.as_os_str().as_bytes())
}

fn pointers(texts: &[CString]) -> Pointers {
    let ends = [ptr::null_mut()];
    texts.iter().map(|text| text.as_ptr().cast_mut()).chain(ends).map(AtomicPtr::new).collect()
}
