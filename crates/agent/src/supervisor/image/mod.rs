//! Images of process trees: how a worker whose program knows nothing of checkpoints is saved, and goes on elsewhere.
//!
//! CRIU does the work ([`crate::criu`]). It runs inside the worker's PID namespace and sees what the worker sees: so
//! there is no namespace to be dumped, process ids are free wherever the tree is restored, and CRIU ends with the
//! namespace when its time is over. What it restores is made a child of the supervisor like any other worker, so that
//! leases, signals, exit codes and the end stay what they are.
//!
//! ```text
//! workers/WORKER/checkpoint/image/       what CRIU has dumped
//! workers/WORKER/checkpoint/image.json   what restoring it takes ([`ImageRecord`]); the agent writes it
//! workers/WORKER/checkpoint/work/        the worker's own folder as it was then; the agent puts it there
//! workers/WORKER/snapshot/NUMBER/        the same of one that was made while the worker ran, until it is kept
//! workers/WORKER/restored/               the same, of which this worker goes on
//! ```
//!
//! Paths in a process do not change when it goes on elsewhere. So such a worker finds its folder at [`PLACE`], in a
//! mount namespace of its own, on every node.
//!
//! What a process has on graphics cards is brought into its memory by their driver before, and back afterwards
//! ([`driver`]).
//!
//! What the kernel would lose without a word is looked for first (`tree`, `sockets`): processes whose parents are
//! gone, and connections of which only one end would be there again.

mod beside;
mod contents;
mod credentials;
pub mod driver;
mod files;
mod helper;
mod imaging;
pub(crate) mod links;
mod open_files;
mod place;
mod places;
mod restoring;
mod room;
mod rpc;
mod running;
mod snapshots;
mod sockets;
mod tool;
mod tree;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(super) use helper::time_for;
pub(super) use imaging::{Ended, Imaging};
pub use place::{PLACE, make_place};
use sockets::Connections;
use tool::{At, Handed, Tool, real_user_for};
use tree::{Tree, child_that_is, seen_as, stray, whole_tree};

use super::program::NoStart;
use crate::supervisor::status::Cause;
use crate::untrusted;
use crate::worker::Account;

/// Below the folder of a checkpoint: what CRIU has dumped.
pub const IMAGE_FOLDER: &str = "image";
/// Below the folder of a checkpoint: what restoring it takes.
pub const RECORD_FILE: &str = "image.json";
/// Form of that file.
const FORMAT: u32 = 1;
/// Most bytes of it: it names each process that has something on graphics cards.
const LONGEST: u64 = 1 << 20;
/// Descriptors on which CRIU is handed what the tree's output goes to.
const OUTPUTS: [i32; 2] = [100, 101];
/// Descriptor on which CRIU is told what to restore.
const ORDERS: i32 = 102;
/// Open files that were removed travel within the image, up to this size each.
const GHOST_LIMIT: &str = "1G";

/// The plan by which a worker is dumped and restored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImagePlan {
    pub criu: PathBuf,
    /// The version of CRIU.
    pub version: String,
    pub node: String,
    /// The worker's folder, as the host sees it.
    pub folder: PathBuf,
    /// The folder for its image when it is stopped.
    pub into: PathBuf,
    /// The folder for images that are made while it runs, each in a folder of its number.
    pub snapshots: PathBuf,
    /// True if images are packed onto the disk on which they are made.
    pub is_packed_here: bool,
    /// The checkpoint that it goes on from.
    pub from: Option<PathBuf>,
}

/// The data that a restore of an image needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImageRecord {
    pub format: u32,
    /// The node on which it was dumped.
    pub node: String,
    /// By which version of CRIU.
    pub criu: String,
    /// Process id of the first process, as it sees itself.
    pub root: i32,
    /// From here on no process or thread of the tree has a number.
    pub free_from: i32,
    /// The pipes that took its output.
    pub outputs: [u64; 2],
    /// The treatment of its TCP connections when it resumes.
    pub connections: Connections,
    /// Its processes, as they see themselves, that have state on graphics cards.
    pub on_cards: Vec<i32>,
    /// User and group that it runs as.
    pub user: u32,
    pub group: u32,
}

/// The state in which a tree is left after its dump.
#[derive(Clone, Copy, Debug)]
pub(super) enum Then<'a> {
    End,
    /// Each of its processes is stopped, until somebody lets it go on or ends it.
    StandStill,
    /// It stays as it is in its control group, which is frozen.
    StayFrozen(&'a Path),
}

/// The outcome of an attempt to make an image while the processes ran.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    pub number: u64,
    /// The data that a restore needs; `None`: there is no image.
    pub image: Option<ImageRecord>,
    /// The reason why there is no image; empty: there is one.
    pub why: String,
}

impl ImageRecord {
    /// Reads that of a checkpoint, which has come from elsewhere.
    pub(super) fn load(checkpoint: &Path) -> io::Result<Self> {
        let mut bytes = Vec::new();
        untrusted::open(&checkpoint.join(RECORD_FILE))?.take(LONGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LONGEST {
            return Err(io::Error::other(format!("what is said of it has more than {LONGEST} bytes")));
        }
        let record: Self = serde_json::from_slice(&bytes)?;
        if record.format == FORMAT {
            return Ok(record);
        }
        Err(io::Error::other(format!("it is of form {}, and this release reads form {FORMAT}", record.format)))
    }

    /// Checks that it is restored under the identity under which it was dumped, and no other.
    pub(super) fn check_identity(&self, account: Option<&Account>) -> Result<(), NoStart> {
        let (user, group) = identity(account);
        if (user, group) == (self.user, self.group) {
            return Ok(());
        }
        Err(NoStart {
            cause: Cause::NodeFault,
            message: format!(
                "the processes ran as user {} and group {}, and would run as {user} and {group} here: give all nodes the \
                 same `user_ids`",
                self.user, self.group
            ),
        })
    }

    /// The failure of its restore. Whether that lies in the image, in this node or in this moment cannot be told.
    pub(super) fn not_restored(&self, why: &str) -> NoStart {
        let message = format!("the image of its processes, dumped on {}, cannot be restored here: {why}", self.node);
        NoStart { cause: Cause::NotRestored, message }
    }
}

/// User and group of a worker.
pub(super) fn identity(account: Option<&Account>) -> (u32, u32) {
    let own = || (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
    account.map_or_else(own, |account| (account.uid, account.gid))
}

impl ImagePlan {
    /// The record for the image that is to be made of this tree.
    pub(super) fn record(
        &self,
        tree: &Tree,
        connections: Connections,
        outputs: [u64; 2],
        who: (u32, u32),
    ) -> ImageRecord {
        ImageRecord {
            format: FORMAT,
            node: self.node.clone(),
            criu: self.version.clone(),
            root: tree.root,
            free_from: tree.free_from(),
            outputs,
            connections,
            on_cards: tree.on_cards().into_iter().map(|(_, own)| own).collect(),
            user: who.0,
            group: who.1,
        }
    }

    /// CRIU, about to dump a tree into a folder, and what becomes of the tree then.
    pub(super) fn dump(&self, into: &Path, record: &ImageRecord, of: &File, then: Then<'_>, says: OwnedFd) -> Tool {
        let mut words = self.words(&into.join(IMAGE_FOLDER), record.connections);
        match then {
            Then::End => {}
            Then::StandStill => words.push("--leave-stopped".to_owned()),
            Then::StayFrozen(group) => {
                words.extend(["--leave-running", "--freeze-cgroup"].map(str::to_owned));
                words.push(group.display().to_string());
            }
        }
        words.extend(["--tree".to_owned(), record.root.to_string()]);
        words.extend(["--ghost-limit".to_owned(), GHOST_LIMIT.to_owned()]);
        let real = real_user_for(record.user, record.group);
        Tool { program: self.criu.clone(), words, at: At::Of(of.as_raw_fd()), says, handed: Vec::new(), real }
    }

    /// CRIU and the arguments with which each dump begins: the image folder, the option for connections, and what all
    /// dumps share. Control groups are the supervisor's business. Connections need no lock: both ends are in the tree,
    /// or are not kept.
    fn words(&self, image: &Path, connections: Connections) -> Vec<String> {
        let (program, image) = (self.criu.display().to_string(), image.display().to_string());
        let words =
            [&*program, "dump", "--no-default-config", "--images-dir", &*image, "-v1", "--manage-cgroups=ignore"];
        let further = ["--network-lock", "skip", "--file-locks"];
        let of_connections = match connections {
            Connections::None => None,
            Connections::Kept => Some("--tcp-established"),
            Connections::Closed => Some("--tcp-close"),
        };
        words.into_iter().chain(further).chain(of_connections).map(str::to_owned).collect()
    }

    /// CRIU, about to restore trees as it is told over a socket, and that order for a tree whose output goes into these
    /// pipes.
    pub(super) fn restore(
        &self,
        from: &Path,
        record: &ImageRecord,
        outputs: [OwnedFd; 2],
        socket: OwnedFd,
        says: OwnedFd,
    ) -> (Tool, Vec<u8>) {
        let words = [&*self.criu.display().to_string(), "swrk", &ORDERS.to_string(), "--no-default-config"];
        let words = words.map(str::to_owned).to_vec();
        let pipes: Vec<_> = OUTPUTS.into_iter().zip(record.outputs).collect();
        let order = rpc::restore(&from.join(IMAGE_FOLDER), record.connections, &pipes);
        let handed = outputs.into_iter().zip(OUTPUTS).chain([(socket, ORDERS)]);
        let handed = handed.map(|(descriptor, number)| Handed { descriptor, number }).collect();
        (
            Tool { program: self.criu.clone(), words, at: At::Fresh(self.folder.clone()), says, handed, real: None },
            order,
        )
    }
}

/// A line as CRIU writes it, with a reason that [`reason`] finds.
fn error_line(why: &str) -> String {
    format!("Error (supervisor): {why}\n")
}

/// The most telling line of what CRIU says when it fails: the first error, without its place in CRIU's source. Warnings
/// that every run has are no reason. While an image is restored no link is followed ([`links`]).
pub(crate) fn reason(said: &str) -> String {
    const LINK: &str = "Too many levels of symbolic links";
    let told = |line: &str| {
        let (_, told) = line.split_once("Error (")?;
        let (_, told) = told.split_once("): ")?;
        (!told.starts_with("rlimit: ")).then(|| told.trim().to_owned())
    };
    let last = || said.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned);
    match said.lines().find_map(told).or_else(last) {
        Some(met) if met.ends_with(LINK) => {
            format!("{met}: a symbolic link has been put there since, and is not followed")
        }
        Some(why) => why,
        None => "CRIU did not say why".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_said_of_an_image_is_bounded_and_read_through_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, elsewhere) = (folder.path().join(RECORD_FILE), folder.path().join("elsewhere"));
        let record = r#"{"format":1,"node":"a","criu":"4.0","root":300,"free_from":301,"outputs":[1,2],"on_cards":[],
            "connections":"none","user":1,"group":1}"#;
        let load = |said: &str| {
            fs::write(&file, said).expect("written");
            ImageRecord::load(folder.path()).map(|record| record.root).map_err(|error| error.to_string())
        };
        assert_eq!(load(record), Ok(300));
        let room = usize::try_from(LONGEST).expect("it is small") - record.len();
        assert_eq!(load(&format!("{record}{}", " ".repeat(room))), Ok(300));
        let refused = load(&format!("{record}{}", " ".repeat(room + 1))).expect_err("it is too long");
        assert!(refused.contains("more than 1048576 bytes"), "{refused}");
        fs::write(&elsewhere, record).expect("written");
        fs::remove_file(&file).expect("there");
        std::os::unix::fs::symlink(&elsewhere, &file).expect("made");
        ImageRecord::load(folder.path()).expect_err("it is a link");
    }

    #[test]
    fn the_first_error_is_the_reason() {
        let said = "(00.005406) Error (criu/util.c:1533): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n\
                    (00.030044) Error (criu/sk-unix.c:1234): unix: External socket is used. Consider using --ext-unix-sk option.\n\
                    (00.049807) Error (criu/cr-dump.c:2111): Dumping FAILED.\n";
        assert_eq!(reason(said), "unix: External socket is used. Consider using --ext-unix-sk option.");
        assert_eq!(reason("criu: cannot be run\n\n"), "criu: cannot be run");
        assert_eq!(reason(""), "CRIU did not say why");
    }
}
