//! Explains why a program cannot be run, as a person would look for it: the file, the line, the interpreter, the right.
//!
//! `execve` answers with one number. It is the same for a script that is missing and for one whose interpreter is. The
//! file is examined after the failure, under the identity that was to run it: nothing is told of files that the worker
//! may not read.

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{AccessFlags, faccessat};

use super::image::PLACE;
use crate::worker::Account;

/// The folders in which programs are looked for when the environment has no `PATH`.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Longest first line that the kernel reads of a script.
const FIRST_LINE: u64 = 256;
/// The longest time for which a file is examined.
const PATIENCE: Duration = Duration::from_secs(5);
/// The form of sets of capabilities: two words for each of effective, permitted and inheritable ones.
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;
/// Deepest chain of interpreters that is followed; the kernel follows five.
const DEEPEST: usize = 5;

/// A program that was to be run, and how that failed.
#[derive(Debug)]
pub struct Unrunnable {
    /// As the job names it.
    pub name: String,
    /// The paths at which the program was looked for, in order.
    pub paths: Vec<PathBuf>,
    pub error: Errno,
}

impl Unrunnable {
    /// One sentence that names the cause.
    #[must_use]
    pub fn explained(&self) -> String {
        format!("`{}` cannot be run: {}", self.name, self.cause())
    }

    /// The same, as somebody with this identity sees it (`None`: as this process does), within a short time: a file
    /// system may answer late or never, and whoever asks has leases to watch.
    #[must_use]
    pub fn explained_to(self, account: Option<Account>) -> String {
        let plain = format!("`{}` cannot be run: {}", self.name, self.error);
        let (sender, explanation) = mpsc::channel();
        // Of a thread of its own: rights to files are a thread's.
        let looks = move || {
            if account.is_none_or(|account| take_rights_of(&account).is_ok()) {
                // Nobody waits any more.
                let _ = sender.send(self.explained());
            }
        };
        match thread::Builder::new().name("unrunnable".to_owned()).spawn(looks) {
            Ok(_) => explanation.recv_timeout(PATIENCE).unwrap_or(plain),
            Err(_) => plain,
        }
    }

    fn cause(&self) -> String {
        match self.error {
            Errno::E2BIG => return "its arguments and its environment are longer than this system takes".to_owned(),
            Errno::ETXTBSY => {
                return "some process has it open for writing; it can be run when that is closed".to_owned();
            }
            _ => {}
        }
        let found = self.paths.iter().find(|path| fs::symlink_metadata(path).is_ok());
        match found.or_else(|| self.paths.first().filter(|_| self.paths.len() == 1)) {
            Some(path) => hindrance(path, self.error, DEEPEST).unwrap_or_else(|| self.error.to_string()),
            None => {
                let folders: Vec<_> = self.paths.iter().filter_map(|path| path.parent()).map(shown).collect();
                format!("it is in no folder of its PATH ({})", folders.join(", "))
            }
        }
    }
}

/// The hindrance that keeps a file from being run, as the rest of a sentence; `None`: nothing that can be seen.
fn hindrance(path: &Path, error: Errno, deepest: usize) -> Option<String> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return Some(not_reached(path, &error)),
    };
    let shown = shown(path);
    if metadata.is_dir() {
        return Some(format!("{shown} is a folder"));
    }
    if !metadata.is_file() {
        let kind = if metadata.file_type().is_fifo() { "a FIFO" } else { "no file" };
        return Some(format!("{shown} is {kind}"));
    }
    if !may_execute(path) {
        return Some(if is_mounted_without_programs(path) {
            format!("{shown} lies on a file system from which nothing may be run (noexec)")
        } else {
            let mode = metadata.permissions().mode() & 0o7777;
            format!("{shown} may not be executed by this job (its mode is {mode:04o}; chmod +x lets everybody)")
        });
    }
    let head = beginning(path).ok()?;
    match head.strip_prefix(b"#!") {
        Some(line) => of_script(line, error, deepest),
        None if head.starts_with(b"\x7fELF") && error == Errno::ENOENT => Some(format!(
            "{shown} is a program for another system: the loader that it names (of another C library, or another kind \
             of machine) is not on this node"
        )),
        None => None,
    }
}

/// The first bytes of a file, and of nothing else that may have taken its place.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut head = Vec::new();
    file.take(FIRST_LINE).read_to_end(&mut head)?;
    Ok(head)
}

/// The fault of the interpreter that the first line of a script names.
fn of_script(line: &[u8], error: Errno, deepest: usize) -> Option<String> {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let words = line.trim_ascii_start();
    let name = words.split(|byte| matches!(byte, b' ' | b'\t')).next().unwrap_or_default();
    if name.is_empty() {
        return Some("its first line names no interpreter".to_owned());
    }
    if let Some(name) = name.strip_suffix(b"\r") {
        let name = String::from_utf8_lossy(name);
        return Some(format!(
            "its first line ends with a carriage return, so that the interpreter `{name}\\r` is looked for; save it \
             with line ends of Unix"
        ));
    }
    let interpreter = Path::new(OsStr::from_bytes(name));
    if !interpreter.is_absolute() || interpreter.starts_with(PLACE) {
        // As the worker sees it, and nobody else does.
        return Some(format!("its first line names the interpreter {}: {error}", shown(interpreter)));
    }
    let deeper = deepest.checked_sub(1)?;
    let why = hindrance(interpreter, error, deeper)?;
    Some(format!("its first line names the interpreter {}: {why}", shown(interpreter)))
}

/// Names the first part of a path that is not there, leads nowhere or may not be entered.
fn not_reached(path: &Path, error: &io::Error) -> String {
    if let Ok(target) = fs::read_link(path) {
        return format!("{} is a link to {}, which cannot be reached: {error}", shown(path), shown(&target));
    }
    let above = path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty());
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            let closed = above.filter(|above| !may_execute(above));
            let outermost = closed.last().map_or_else(|| shown(path), shown);
            format!("{outermost} may not be entered by this job")
        }
        io::ErrorKind::NotFound => {
            let missing = above.filter(|above| fs::symlink_metadata(above).is_err()).last();
            match missing {
                Some(missing) => format!("{} is not on this node: there is no {}", shown(path), shown(missing)),
                None => format!("{} is not on this node", shown(path)),
            }
        }
        _ => format!("{}: {error}", shown(path)),
    }
}

/// Returns whether this thread may run a file, or enter a folder.
fn may_execute(path: &Path) -> bool {
    faccessat(AT_FDCWD, path, AccessFlags::X_OK, AtFlags::AT_EACCESS).is_ok()
}

/// Returns whether a path lies on a file system from which nothing may be run.
pub(super) fn is_mounted_without_programs(path: &Path) -> bool {
    statvfs(path).is_ok_and(|mounted| mounted.flags().contains(FsFlags::ST_NOEXEC))
}

fn shown(path: &Path) -> String {
    format!("`{}`", path.to_string_lossy().escape_debug())
}

/// The paths that `execve` tries: the name itself when it holds a slash, else one in every folder of `PATH`.
pub(crate) fn candidates(name: &str, path: &str) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![PathBuf::from(name)];
    }
    path.split(':').map(|folder| Path::new(if folder.is_empty() { "." } else { folder }).join(name)).collect()
}

/// The path of a program's file as this host sees it, from the program's working directory. `shown`: a folder of this
/// host, and the place at which the program sees it.
pub(super) fn path_here(path: &CString, folder: &CString, shown: Option<&(CString, CString)>) -> PathBuf {
    let path_of = |text: &CString| PathBuf::from(OsStr::from_bytes(text.as_bytes()));
    let path = path_of(folder).join(path_of(path));
    let within = shown.and_then(|(here, there)| Some(path_of(here).join(path.strip_prefix(path_of(there)).ok()?)));
    within.unwrap_or(path)
}

/// Gives this thread the rights that an account has, for good, as far as files are concerned, and takes all others.
#[allow(unsafe_code)]
pub(super) fn take_rights_of(account: &Account) -> Result<(), Errno> {
    // SAFETY: system calls on integers and on a list that outlives them. Made directly they change this thread alone,
    // where the C library's functions would change all.
    unsafe {
        if libc::syscall(libc::SYS_setgroups, account.groups.len(), account.groups.as_ptr()) != 0 {
            return Err(Errno::last());
        }
        // Of an identity for files only the rights of root to files would go, and others open paths, too.
        let header = [LINUX_CAPABILITY_VERSION_3, 0];
        let none = [0_u32; 6];
        libc::syscall(libc::SYS_setfsgid, account.gid);
        libc::syscall(libc::SYS_setfsuid, account.uid);
        // They answer what was before: asked again, what is now.
        let is = libc::syscall(libc::SYS_setfsuid, account.uid);
        let without = libc::syscall(libc::SYS_capset, header.as_ptr(), none.as_ptr());
        if is == libc::c_long::from(account.uid) && without == 0 { Ok(()) } else { Err(Errno::EPERM) }
    }
}

#[cfg(test)]
#[path = "unrunnable_tests.rs"]
mod tests;
