//! Acts of root on everything in a folder that an account may change meanwhile: from folder to folder by descriptors,
//! through no link that somebody puts there.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, fstatat};

/// The deepest that folders may lie in each other: each is open while what is in it is looked at.
const DEEPEST: usize = 128;

/// Calls `act` for everything in `folder`, what is in a folder before the folder, with the folder that it lies in, its
/// name there, and its kind.
///
/// # Errors
/// What the file system or `act` says; also when folders lie deeper in each other than 128.
pub(super) fn each(folder: &Path, act: &mut dyn FnMut(&Dir, &CStr, SFlag) -> nix::Result<()>) -> io::Result<()> {
    within(openat(AT_FDCWD, folder, FOLDER, Mode::empty())?, act, 0)
}

const FOLDER: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC).union(OFlag::O_NOFOLLOW);

fn within(folder: OwnedFd, act: &mut dyn FnMut(&Dir, &CStr, SFlag) -> nix::Result<()>, depth: usize) -> io::Result<()> {
    if depth > DEEPEST {
        return Err(io::Error::other("folders lie too deep in each other"));
    }
    let mut folder = Dir::from_fd(folder)?;
    let names = folder.iter().map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    let names: Vec<CString> = names.collect::<nix::Result<_>>()?;
    for name in names.iter().filter(|name| !matches!(name.to_bytes(), b"." | b"..")) {
        let mode = fstatat(&folder, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?.st_mode;
        let kind = SFlag::from_bits_truncate(mode & SFlag::S_IFMT.bits());
        if kind == SFlag::S_IFDIR {
            within(openat(&folder, name.as_c_str(), FOLDER, Mode::empty())?, act, depth + 1)?;
        }
        act(&folder, name, kind)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn everything_is_met_once_and_no_link_is_gone_through() {
        let (folder, elsewhere) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another folder"));
        fs::write(elsewhere.path().join("theirs"), "").expect("written");
        fs::create_dir(folder.path().join("inner")).expect("made");
        fs::write(folder.path().join("inner/own"), "").expect("written");
        symlink(elsewhere.path(), folder.path().join("link")).expect("linked");
        let mut met = Vec::new();
        each(folder.path(), &mut |_, name, kind| {
            met.push((name.to_string_lossy().into_owned(), kind));
            Ok(())
        })
        .expect("readable");
        met.sort_by(|one, other| one.0.cmp(&other.0));
        let expected = [("inner", SFlag::S_IFDIR), ("link", SFlag::S_IFLNK), ("own", SFlag::S_IFREG)];
        assert_eq!(met, expected.map(|(name, kind)| (name.to_owned(), kind)));
        each(&folder.path().join("link"), &mut |_, _, _| Ok(())).expect_err("it is a link itself");
    }

    #[test]
    fn what_lies_too_deep_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let deep = (0..=DEEPEST).fold(folder.path().to_owned(), |path, _| path.join("d"));
        fs::create_dir_all(deep).expect("made");
        let refused = each(folder.path(), &mut |_, _, _| Ok(())).expect_err("too deep");
        assert!(refused.to_string().contains("too deep"), "{refused}");
    }
}
