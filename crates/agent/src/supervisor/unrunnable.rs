//! Explains why a program cannot be run, as a person would look for it: the file, the line, the interpreter, the right.
//!
//! `execve` answers with one number. It is the same for a script that is missing and for one whose interpreter is. The
//! file is examined after the failure, under the identity that was to run it: nothing is told of files that the worker
//! may not read.

use std::env::consts::ARCH;
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
use nix::unistd::{AccessFlags, SysconfVar, faccessat, sysconf};

use super::image::PLACE;
use crate::worker::Account;

/// The folders in which programs are looked for when the environment has no `PATH`.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Longest first line that the kernel reads of a script.
pub(super) const FIRST_LINE: usize = 256;
/// The longest time for which a file is examined.
const PATIENCE: Duration = Duration::from_secs(5);
/// The form of sets of capabilities: two words for each of effective, permitted and inheritable ones.
const LINUX_CAPABILITY_VERSION_3: u32 = 0x2008_0522;
/// Deepest chain of interpreters that is followed; the kernel follows five.
const DEEPEST: usize = 5;
/// Pages that one argument or variable may have, its last NUL byte included.
const PAGES_OF_ONE: usize = 32;
/// Most characters of an argument or a variable's name that are quoted.
const QUOTED: usize = 32;
/// The codes with which shells end for what cannot be run, and for what is not there.
const NOT_RUN: (u8, u8) = (126, 127);

/// A program that was to be run, and how that failed.
#[derive(Debug)]
pub struct Unrunnable {
    /// As the job names it.
    pub name: String,
    /// The paths at which the program was looked for, in order.
    pub paths: Vec<PathBuf>,
    pub error: Errno,
    /// The argument or the variable that is too long, as a sentence, where that is the error and it is known.
    pub too_long: Option<String>,
}

impl Unrunnable {
    /// A program that was looked for in these folders; `None`: the environment has no `PATH`.
    #[must_use]
    pub fn new(name: &OsStr, path: Option<&str>, error: &io::Error) -> Self {
        Self {
            name: name.to_string_lossy().into_owned(),
            paths: candidates(name, path.unwrap_or(DEFAULT_PATH)),
            error: Errno::from_raw(error.raw_os_error().unwrap_or(0)),
            too_long: None,
        }
    }

    /// The code with which shells end for it: a file that is there is never said to be missing.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let is_missing =
            matches!(self.error, Errno::ENOENT | Errno::ENOTDIR) && !self.paths.iter().any(|at| at.exists());
        if is_missing { NOT_RUN.1 } else { NOT_RUN.0 }
    }

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
        as_seen_by(account, plain, move || self.explained())
    }

    /// The cause alone.
    #[must_use]
    pub fn cause(&self) -> String {
        match self.error {
            Errno::E2BIG => {
                let all = || "its arguments and its environment are longer than this system takes".to_owned();
                return self.too_long.clone().unwrap_or_else(all);
            }
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

/// Returns what somebody with this identity sees (`None`: this process), or `plain` if that takes too long.
fn as_seen_by(account: Option<Account>, plain: String, look: impl FnOnce() -> String + Send + 'static) -> String {
    let (sender, seen) = mpsc::channel();
    // Of a thread of its own: rights to files are a thread's.
    let looks = move || {
        if account.is_none_or(|account| take_rights_of(&account).is_ok()) {
            // Nobody waits any more.
            let _ = sender.send(look());
        }
    };
    match thread::Builder::new().name("unrunnable".to_owned()).spawn(looks) {
        Ok(_) => seen.recv_timeout(PATIENCE).unwrap_or(plain),
        Err(_) => plain,
    }
}

/// Tells why somebody with this identity cannot enter a folder, as the rest of a sentence.
pub(super) fn not_entered(folder: PathBuf, error: Errno, account: Option<Account>) -> String {
    as_seen_by(account, error.to_string(), move || match fs::metadata(&folder) {
        Err(error) => not_reached(&folder, &error),
        Ok(metadata) if !metadata.is_dir() => format!("{} is no folder", shown(&folder)),
        Ok(_) if !may_execute(&folder) => closed(&folder),
        Ok(_) => error.to_string(),
    })
}

/// Names what is too long of a program's arguments and variables, as a sentence.
pub(super) fn too_long(arguments: &[CString], variables: &[CString]) -> String {
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|page| usize::try_from(page).ok());
    let most = page.unwrap_or(4096) * PAGES_OF_ONE - 1;
    let longest = |texts: &[CString]| texts.iter().max_by_key(|text| text.count_bytes()).cloned().unwrap_or_default();
    let (argument, variable) = (longest(arguments), longest(variables));
    let (text, named) = if argument.count_bytes() >= variable.count_bytes() {
        let named = format!("the argument that begins with `{}`", quoted(argument.as_bytes()));
        (argument, named)
    } else {
        let name = variable.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
        let named = format!("the variable `{}`", quoted(name));
        (variable, named)
    };
    let length = text.count_bytes();
    if length > most {
        return format!("{named} has {length} bytes, and {most} are the most that this system takes of one");
    }
    let all: usize = arguments.iter().chain(variables).map(|text| text.count_bytes() + 1).sum();
    format!(
        "its arguments and its environment have {all} bytes together, which is more than this system takes; the \
         longest of them, {named}, has {length}"
    )
}

fn quoted(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(QUOTED).collect()
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
    let head = match beginning(path) {
        Ok(head) => head,
        Err(_) if error == Errno::ENOEXEC => {
            return Some(format!("{shown} is no program of this system, and this job may not read it as a script"));
        }
        Err(_) => return None,
    };
    match head.as_slice() {
        [b'#', b'!', line @ ..] => of_script(line, error, deepest),
        [0x7f, b'E', b'L', b'F', ..] => Some(format!("{shown} {}", of_program(&head, error)?)),
        head if error == Errno::ENOEXEC => {
            let text = "is text, and its first line names no interpreter (as `#!/bin/sh` does)";
            Some(format!("{shown} {}", not_for_shell(head).unwrap_or(text)))
        }
        _ => None,
    }
}

/// Tells why the shell is not to read a file that begins so, as the rest of a sentence; `None`: it may be a script.
/// Allocates nothing.
pub(super) fn not_for_shell(head: &[u8]) -> Option<&'static str> {
    // Behind its first line a script may have anything, such as an archive that it unpacks.
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match head {
        [] => Some("is empty"),
        [0xEF, 0xBB, 0xBF, ..] => Some(
            "begins with a byte order mark (the bytes EF BB BF), which hides its first line from this system; save it \
             as UTF-8 without one",
        ),
        [0xFF, 0xFE, ..] | [0xFE, 0xFF, ..] => Some("is text in UTF-16; save it as UTF-8"),
        [0x7f, b'E', b'L', b'F', ..] => Some("is a program that this system does not run"),
        [b'#', b'!', ..] => Some("names an interpreter that this system does not run"),
        [b'M', b'Z', ..] if first.contains(&0) => Some("is a program for Windows"),
        _ if first.contains(&0) => Some("begins with bytes that are neither text nor a program of this system"),
        _ => None,
    }
}

/// The fault of a program of this kind of systems, as the rest of a sentence.
fn of_program(head: &[u8], error: Errno) -> Option<String> {
    match error {
        Errno::ENOENT => Some(
            "is a program for another system: the loader that it names (of another C library, or another kind of \
             machine) is not on this node"
                .to_owned(),
        ),
        Errno::ENOEXEC => Some(match machine(head) {
            Some(other) if other != ARCH => format!("is a program for {other} machines, and this node is {ARCH}"),
            _ => "begins as a program of this system, and is damaged, cut off, or a part of one".to_owned(),
        }),
        _ => None,
    }
}

/// The kind of machine that a program is for, as this language calls it; `None`: it is cut off.
fn machine(head: &[u8]) -> Option<String> {
    let number = head.get(18..20).and_then(|number| number.try_into().ok())?;
    let number = if head.get(5) == Some(&2) { u16::from_be_bytes(number) } else { u16::from_le_bytes(number) };
    let name = match number {
        3 => "x86",
        8 => "mips",
        20 => "powerpc",
        21 => "powerpc64",
        22 => "s390x",
        40 => "arm",
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv64",
        258 => "loongarch64",
        other => return Some(format!("unknown (number {other})")),
    };
    Some(name.to_owned())
}

/// The first bytes of a file, and of nothing else that may have taken its place.
fn beginning(path: &Path) -> io::Result<Vec<u8>> {
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut head = Vec::new();
    file.take(FIRST_LINE as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// The fault of the interpreter that the first line of a script names.
fn of_script(line: &[u8], error: Errno, deepest: usize) -> Option<String> {
    let is_cut = line.len() + b"#!".len() >= FIRST_LINE && !line.contains(&b'\n');
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
    if is_cut && name.len() == words.len() {
        return Some(format!("its first line is longer than the {FIRST_LINE} bytes that this system reads of it"));
    }
    let interpreter = Path::new(OsStr::from_bytes(name));
    if !interpreter.is_absolute() || interpreter.starts_with(PLACE) {
        // As the worker sees it, and nobody else does.
        return Some(format!("its first line names the interpreter {}: {error}", shown(interpreter)));
    }
    if error == Errno::ELOOP && fs::metadata(interpreter).is_ok() {
        return Some("its interpreter is a script, and so on for longer than this system follows".to_owned());
    }
    let deeper = deepest.checked_sub(1)?;
    let why = hindrance(interpreter, error, deeper)?;
    Some(format!("its first line names the interpreter {}: {why}", shown(interpreter)))
}

/// Names the first part of a path that is not there, leads nowhere, is no folder or may not be entered.
fn not_reached(path: &Path, error: &io::Error) -> String {
    let parts = || path.ancestors().filter(|part| !part.as_os_str().is_empty());
    let outermost = parts().filter(|part| fs::metadata(part).is_err()).last();
    if let Some((link, target)) = outermost.and_then(|link| Some((link, fs::read_link(link).ok()?))) {
        return format!("{} is a link to {}, which cannot be reached: {error}", shown(link), shown(&target));
    }
    let above = parts().skip(1);
    match error.kind() {
        io::ErrorKind::PermissionDenied => closed(above.filter(|above| !may_execute(above)).last().unwrap_or(path)),
        io::ErrorKind::NotADirectory => {
            let file = above.filter(|above| fs::metadata(above).is_ok_and(|above| !above.is_dir())).last();
            format!("{} is no folder", shown(file.unwrap_or(path)))
        }
        io::ErrorKind::NotFound => match outermost.filter(|missing| *missing != path) {
            Some(missing) => format!("{} is not on this node: there is no {}", shown(path), shown(missing)),
            None => format!("{} is not on this node", shown(path)),
        },
        _ => format!("{}: {error}", shown(path)),
    }
}

fn closed(folder: &Path) -> String {
    format!("{} may not be entered by this job", shown(folder))
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
pub(super) fn candidates(name: &OsStr, path: &str) -> Vec<PathBuf> {
    if name.as_bytes().contains(&b'/') {
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
