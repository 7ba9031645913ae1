//! The place of a data folder, kept in it. A copy lies somewhere else, and must not speak for the same node or member:
//! it knows nothing of what the other one does meanwhile.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use nix::sys::statfs::{FUSE_SUPER_MAGIC, FsType, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
use serde::{Deserialize, Serialize};

use crate::durable;

/// The file in which a member's data folder has its place; that of an agent's lies in its identity.
const FILE: &str = "place.json";
const MACHINE_ID: &str = "/etc/machine-id";
/// File systems whose files are made anew at each start of a host, or with each image of a container.
const FLEETING: [FsType; 3] = [TMPFS_MAGIC, FsType(0x8584_58f6), OVERLAYFS_SUPER_MAGIC];
/// File systems that number their files anew at each mount: FUSE and 9p.
const NUMBERED_ANEW: [FsType; 2] = [FUSE_SUPER_MAGIC, FsType(0x0102_1997)];

/// The place of a data folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FolderPlace {
    /// The host, by `/etc/machine-id`; empty where there is none that outlives a boot.
    pub machine: String,
    /// 0 where the file system gives others at each mount.
    pub inode: u64,
    /// The time at which it was made, in nanoseconds since the Unix epoch: the first folder of each file system has the
    /// same inode. `None`: the file system does not keep it, or an earlier release has kept the rest.
    #[serde(default)]
    pub made: Option<u64>,
}

impl FolderPlace {
    /// Determines the place of a folder on this host.
    ///
    /// # Errors
    /// What the file system says.
    pub fn of(data: &Path) -> io::Result<Self> {
        let machine = match fs::read_to_string(MACHINE_ID) {
            Ok(_) if FLEETING.contains(&statfs(MACHINE_ID)?.filesystem_type()) => String::new(),
            Ok(id) => Some(id.trim()).filter(|id| is_machine_id(id)).unwrap_or_default().to_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let metadata = fs::metadata(data)?;
        let inode = if NUMBERED_ANEW.contains(&statfs(data)?.filesystem_type()) { 0 } else { metadata.ino() };
        let made = metadata.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
        let made = made.and_then(|made| u64::try_from(made.as_nanos()).ok());
        Ok(Self { machine, inode, made })
    }

    /// Returns whether another one may be the same: what only one of them knows tells nothing. Images of containers
    /// come with an id of their machine and without.
    fn may_be(&self, other: &Self) -> bool {
        let made = self.made.zip(other.made).is_none_or(|(own, other)| own == other);
        let machine = self.machine == other.machine || self.machine.is_empty() || other.machine.is_empty();
        let inode = self.inode == other.inode || self.inode == 0 || other.inode == 0;
        machine && inode && made
    }

    /// The place of `here`, unless it is another one than `before`, where the folder was used last, and nobody says
    /// that it was moved.
    ///
    /// # Errors
    /// [`Copied`] says both places.
    pub(crate) fn confirmed(self, before: Option<Self>, data: &Path, moved: bool) -> Result<Self, Copied> {
        match before.filter(|before| !moved && !before.may_be(&self)) {
            Some(before) => Err(Copied { path: data.to_owned(), before, here: self }),
            None => Ok(self),
        }
    }
}

/// Returns whether a text is an id of a machine, and not what images have in its place (`uninitialized`).
fn is_machine_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl fmt::Display for FolderPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inode {}", self.inode)?;
        if let Some(made) = self.made {
            write!(f, " (made {} ms after 1970)", made / 1_000_000)?;
        }
        write!(f, " of the host with machine id {:?}", self.machine)
    }
}

/// A data folder is not where it was used last.
#[derive(Debug, thiserror::Error)]
#[error(
    "the data folder {} was copied or moved, or the host's system was installed anew: it was used last at {before}, \
     and lies at {here}",
    path.display()
)]
pub struct Copied {
    path: PathBuf,
    before: FolderPlace,
    here: FolderPlace,
}

/// The reason why a member's data folder is not used.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A member may still run where the folder was used last.
    #[error(transparent)]
    Copied(#[from] Copied),
    /// The file holds no place.
    #[error("{} is damaged", path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: serde_json::Error,
    },
    /// The file cannot be read or written.
    #[error("{} cannot be read or kept", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Takes a member's data folder, which is made if need be. Nothing is written where it lies at its place. What cannot
/// be written there is written at the next start, for its disk may be full. `moved` is the operator's word that it lies
/// elsewhere than before and is used here only.
///
/// # Errors
/// [`PlaceError`]
pub fn take(data: &Path, moved: bool) -> Result<(), PlaceError> {
    let path = data.join(FILE);
    let file = |source| PlaceError::File { path: path.clone(), source };
    fs::create_dir_all(data).map_err(file)?;
    let before = match fs::read(&path) {
        _ if moved => None,
        Ok(bytes) => {
            Some(serde_json::from_slice(&bytes).map_err(|source| PlaceError::Damaged { path: path.clone(), source })?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(file(source)),
    };
    let here = FolderPlace::of(data).map_err(file)?.confirmed(before.clone(), data, moved)?;
    if before.as_ref() != Some(&here) {
        let bytes = serde_json::to_vec_pretty(&here).map_err(|source| file(source.into()))?;
        match durable::replace(&path, &bytes) {
            Err(source) if moved => return Err(file(source)),
            Err(error) => tracing::warn!(path = %path.display(), %error, "the place of the data folder is not kept"),
            Ok(()) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(folders: [&Path; 2]) -> [String; 2] {
        folders.map(|folder| FolderPlace::of(folder).expect("a place").to_string())
    }

    #[test]
    fn a_members_folder_is_taken_where_it_was_used_and_a_copy_of_it_only_by_an_operators_word() {
        let (scratch, data) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let copy = scratch.path().join("copy");
        take(data.path(), false).expect("a new one, or one that a restored pool begins with");
        take(data.path(), false).expect("it is started again");
        fs::create_dir(&copy).expect("writable");
        fs::copy(data.path().join(FILE), copy.join(FILE)).expect("readable");
        let refused = take(&copy, false).expect_err("a copy").to_string();
        assert!(places([data.path(), &copy]).iter().all(|place| refused.contains(place)), "{refused}");
        take(&copy, true).expect("the operator's word");
        take(&copy, false).expect("at home now");
        let renamed = scratch.path().join("renamed");
        fs::rename(&copy, &renamed).expect("renamed");
        take(&renamed, false).expect("the same folder under another name");
        fs::write(renamed.join(FILE), "{").expect("written");
        let damaged = take(&renamed, false).expect_err("it says nothing");
        assert!(matches!(damaged, PlaceError::Damaged { .. }), "{damaged}");
        take(&renamed, true).expect("the operator's word");
    }

    #[test]
    fn what_is_not_known_of_one_of_two_places_tells_nothing() {
        let place = |machine: &str, made| FolderPlace { machine: machine.to_owned(), inode: 2, made };
        let of_host = place("a", Some(1));
        assert!(of_host.may_be(&place("a", None)) && of_host.may_be(&place("", Some(1))));
        assert!(!of_host.may_be(&place("b", Some(1))) && !of_host.may_be(&place("a", Some(2))));
        let numbered = |inode| FolderPlace { inode, ..of_host.clone() };
        assert!(!of_host.may_be(&numbered(3)) && of_host.may_be(&numbered(0)) && numbered(0).may_be(&of_host));
        assert!(is_machine_id("0123456789abcdef0123456789abcdef") && !is_machine_id("uninitialized"));
    }
}
