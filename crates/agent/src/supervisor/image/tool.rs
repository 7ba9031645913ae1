//! CRIU between fork and exec: born into the worker's PID namespace, it joins what the worker has or is to have.
//! Nothing here waits, and nothing in the child allocates.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;

use nix::errno::Errno;

use super::PLACE;
use crate::criu::{SYS_RESOURCE, has_right};
use crate::supervisor::child::{reset_signals, show_own_folder, show_own_processes, step_forward};
use crate::supervisor::pid_namespace::PidNamespace;

/// Exit code of a child that has not become CRIU.
pub(super) const NOT_BEGUN: i32 = 127;

/// The view of the host that CRIU has.
#[derive(Debug)]
pub enum At {
    /// That of a mount namespace, which is open.
    Of(RawFd),
    /// One of its own, in which the worker of this folder will be.
    Fresh(PathBuf),
}

/// A descriptor under the number that it is to have.
#[derive(Debug)]
pub struct Handed {
    pub descriptor: OwnedFd,
    pub number: i32,
}

/// CRIU, about to be started.
#[derive(Debug)]
pub struct Tool {
    pub program: PathBuf,
    /// Name and arguments.
    pub words: Vec<String>,
    pub at: At,
    /// The file into which it writes its errors.
    pub says: OwnedFd,
    /// Further descriptors that it is handed.
    pub handed: Vec<Handed>,
    /// Real user and group; `None`: its own.
    pub real: Option<(u32, u32)>,
}

/// The real user and group that CRIU needs to look at the limits of a worker's processes: that takes their user, or the
/// right to exceed all limits. Where a host withholds that right from root, the real user becomes the worker's; the
/// effective one, which counts for everything else, stays.
pub fn real_user_for(user: u32, group: u32) -> Option<(u32, u32)> {
    (!has_right(SYS_RESOURCE)).then_some((user, group))
}

/// Everything in the form that the child needs.
struct Child {
    program: CString,
    words: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    null: RawFd,
    folder: Option<CString>,
    place: CString,
}

impl Tool {
    /// Starts it inside `namespace`, and in the control groups of `join`; answers its process id as the host sees it.
    ///
    /// # Errors
    /// When no process can be had.
    pub fn start(&self, namespace: &PidNamespace, join: &[File]) -> io::Result<i32> {
        let words = self.words.iter().map(|word| CString::new(word.as_str())).collect::<Result<Vec<_>, _>>()?;
        let path = std::env::var("PATH").unwrap_or_default();
        // It calls helpers of the host, some of them for administrators.
        let path = CString::new(format!("PATH={path}:/usr/local/sbin:/usr/sbin:/sbin"))?;
        let null = File::open("/dev/null")?;
        let folder = match &self.at {
            At::Of(_) => None,
            At::Fresh(folder) => Some(CString::new(folder.as_os_str().as_bytes())?),
        };
        let child = Child {
            program: CString::new(self.program.as_os_str().as_bytes())?,
            words: words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect(),
            environment: vec![path.as_ptr(), ptr::null()],
            null: null.as_raw_fd(),
            folder,
            place: CString::new(PLACE)?,
        };
        #[allow(unsafe_code)]
        // SAFETY: the child only makes async-signal-safe calls before exec or _exit.
        let fork = || match unsafe { libc::fork() } {
            0 => self.run(&child, join),
            pid if pid > 0 => Ok(pid),
            _ => Err(io::Error::last_os_error()),
        };
        namespace.with_children_inside(fork)?
    }

    #[allow(unsafe_code)]
    fn run(&self, child: &Child, join: &[File]) -> ! {
        // SAFETY: all are async-signal-safe system calls on descriptors and texts of this process's own copy of the
        // memory; the arrays of pointers end with a null pointer.
        unsafe {
            let failed = self.set_up(child, join);
            let error = Errno::last().desc();
            for text in [failed, ": ", error, "\n"] {
                libc::write(2, text.as_ptr().cast(), text.len());
            }
            libc::_exit(NOT_BEGUN)
        }
    }

    /// Returns only when a step failed, with its name.
    #[allow(unsafe_code)]
    unsafe fn set_up(&self, child: &Child, join: &[File]) -> &'static str {
        // SAFETY: as in `run`.
        unsafe {
            let says = self.says.as_raw_fd();
            if libc::dup2(says, 1) < 0 || libc::dup2(says, 2) < 0 || libc::dup2(child.null, 0) < 0 {
                return "CRIU cannot be given its descriptors";
            }
            for file in join {
                if libc::write(file.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                    return "CRIU cannot join the worker's control group";
                }
            }
            libc::setsid();
            libc::umask(0o077);
            // What it restores begins with its score.
            step_forward();
            let seen = match (&self.at, &child.folder) {
                (At::Of(namespace), _) => libc::setns(*namespace, libc::CLONE_NEWNS) == 0,
                (At::Fresh(_), folder) => {
                    show_own_processes() && folder.as_ref().is_some_and(|folder| show_own_folder(folder, &child.place))
                }
            };
            if !seen {
                return "CRIU cannot be shown what the worker sees";
            }
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
            for Handed { descriptor, number } in &self.handed {
                if libc::dup2(descriptor.as_raw_fd(), *number) < 0 {
                    return "CRIU cannot be given its descriptors";
                }
            }
            reset_signals(&[]);
            if let Some((user, group)) = self.real
                && (libc::setresgid(group, 0, 0) != 0 || libc::setresuid(user, 0, 0) != 0)
            {
                return "CRIU cannot be given the worker's user";
            }
            libc::chdir(c"/".as_ptr());
            libc::execve(child.program.as_ptr(), child.words.as_ptr(), child.environment.as_ptr());
        }
        "CRIU cannot be run"
    }
}
