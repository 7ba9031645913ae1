//! Checks of an image that has come from elsewhere, before CRIU reads it as root.
//!
//! A tree is dumped from inside its namespaces ([`super`]), and by a CRIU that keeps all open files in one place
//! ([`crate::criu`]). An image that names namespaces would have CRIU make or join some. One that has files in the
//! places of older releases would have it open what nobody has looked at here. No dump of ours holds either.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use prost::Message;

use super::files::{all, with_bytes};
use super::places::Owner;

/// The beginnings of the names of files of an image that are of namespaces, before a number or the ending
/// (`criu/image-desc.c` of CRIU).
const OF_NAMESPACES: [&str; 23] = [
    "autofs",
    "binfmt-misc",
    "ifaddr",
    "ip6tables",
    "ipcns-msg",
    "ipcns-sem",
    "ipcns-shm",
    "ipcns-var",
    "iptables",
    "mountpoints",
    "netdev",
    "netns",
    "netns-ct",
    "netns-exp",
    "nftables",
    "pidns",
    "route",
    "route6",
    "rule",
    "tmpfs",
    "tmpfs-dev",
    "userns",
    "utsns",
];
/// The same of files that older releases of CRIU wrote.
const OF_OLDER_RELEASES: [&str; 25] = [
    "creds",
    "eventfd",
    "eventpoll",
    "eventpoll-tfd",
    "ext-files",
    "fanotify",
    "fanotify-mark",
    "fifo",
    "inetsk",
    "inotify",
    "inotify-wd",
    "itimers",
    "netlinksk",
    "ns-files",
    "packetsk",
    "pipes",
    "posix-timers",
    "reg-files",
    "rlimit",
    "sigacts",
    "signalfd",
    "tty",
    "tunfile",
    "unixsk",
    "vmas",
];
/// Flags with which a file is made or cut: one that is opened once more is neither.
const CHANGES: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC).cast_unsigned();

/// Kinds of open files that a worker can have (`fdinfo.proto` of CRIU): files, pipes, FIFOs, sockets of the internet
/// and of Unix, events, polls, watches, signals, terminals, sockets of the kernel, timers, memory, processes.
const KINDS: [i32; 14] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 18, 20];
/// The kind of a raw socket.
const RAW: u32 = libc::SOCK_RAW.cast_unsigned();
/// Memory of System V (`criu/include/image.h` of CRIU).
const SHARED_WITH_OTHERS: u32 = 1 << 10;
/// Bits of a mode by which a program becomes somebody else.
const SET_IDS: u32 = 0o6000;
/// The reason for another name of a file in an image: it was removed, and lies in the image.
const GHOST: i32 = 1;
/// The same: it is the folder of a process that has ended.
const OF_A_PROCESS: i32 = 2;

/// A file that something in the image needs. Fields are those of the messages of the same places in `fdinfo.proto`,
/// `regfile.proto`, `sk-unix.proto`, `mm.proto`, `vma.proto`, `sk-packet.proto`, `remap-file-path.proto` and
/// `ghost-file.proto` of CRIU.
#[derive(Clone, PartialEq, Message)]
struct Needed {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "2")]
    file: u32,
    #[prost(message, optional, tag = "3")]
    regular: Option<Regular>,
    #[prost(message, optional, tag = "4")]
    internet: Option<InternetSocket>,
    #[prost(message, optional, tag = "16")]
    socket: Option<UnixSocket>,
}

#[derive(Clone, PartialEq, Message)]
struct Regular {
    #[prost(uint32, tag = "2")]
    flags: u32,
    /// From the root on, without it.
    #[prost(bytes, tag = "6")]
    path: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct InternetSocket {
    #[prost(uint32, tag = "4")]
    kind: u32,
}

#[derive(Clone, PartialEq, Message)]
struct UnixSocket {
    /// Its name, and a NUL behind; before one that is of no file there is one, too.
    #[prost(bytes, tag = "11")]
    name: Vec<u8>,
    /// The folder in which a relative name was bound.
    #[prost(bytes, tag = "14")]
    folder: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Memory {
    #[prost(message, repeated, tag = "14")]
    mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint32, tag = "7")]
    status: u32,
    #[prost(uint32, tag = "10")]
    flags: u32,
}

/// Data that was sent to a socket and not received; `length` bytes of data follow the message.
#[derive(Clone, PartialEq, Message)]
struct Packet {
    #[prost(uint32, tag = "2")]
    length: u32,
    #[prost(message, repeated, tag = "4")]
    controls: Vec<Control>,
}

#[derive(Clone, PartialEq, Message)]
struct Control {
    /// Files that go along.
    #[prost(uint32, repeated, tag = "2")]
    files: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct Remap {
    #[prost(uint32, tag = "1")]
    file: u32,
    #[prost(int32, tag = "3")]
    why: i32,
}

/// A file that was removed; its bytes follow.
#[derive(Clone, PartialEq, Message)]
struct Ghost {
    #[prost(uint32, tag = "3")]
    mode: u32,
}

/// Looks through the folder of an image that is to be restored for `owner`; `None`: as this process.
///
/// # Errors
/// The first thing in it that no dump of ours has or that cannot be restored safely, or what cannot be read.
pub(super) fn check(image: &Path, owner: Option<Owner<'_>>) -> io::Result<()> {
    for entry in fs::read_dir(image)? {
        check_name(&entry?)?;
    }
    let needed: Vec<Needed> = all(image, "files.")?;
    check_kinds(&needed)?;
    check_flags(image, &needed)?;
    check_in_flight(image)?;
    check_ghosts(image)?;
    let Some(owner) = owner else { return Ok(()) };
    removed(image, &needed)?.iter().try_for_each(|path| owner.check(path)).map_err(io::Error::other)?;
    sockets(&needed).iter().try_for_each(|path| owner.check_socket(path)).map_err(io::Error::other)
}

fn refused(name: &str, why: &str) -> io::Result<()> {
    Err(io::Error::other(format!("{name} in it {why}")))
}

fn check_name(entry: &DirEntry) -> io::Result<()> {
    let name = entry.file_name();
    let name = name.to_string_lossy();
    if !entry.file_type()?.is_file() {
        return refused(&name, "is no file");
    }
    let stem = name.split('.').next().unwrap_or_default();
    let numbered = stem.rsplit_once('-').filter(|(_, number)| number.bytes().all(|digit| digit.is_ascii_hexdigit()));
    let kind = numbered.map_or(stem, |(kind, _)| kind);
    if OF_NAMESPACES.contains(&kind) {
        refused(&name, "is of a namespace, and no worker has one that is dumped")
    } else if OF_OLDER_RELEASES.contains(&kind) {
        refused(&name, "is of a release of CRIU that is not used here")
    } else {
        Ok(())
    }
}

fn check_flags(image: &Path, needed: &[Needed]) -> io::Result<()> {
    let memories: Vec<Memory> = all(image, "mm-")?;
    if memories.iter().flat_map(|memory| &memory.mappings).any(|mapping| mapping.status & SHARED_WITH_OTHERS != 0) {
        return refused("its memory", "has a segment that is shared with others");
    }
    let mapped = memories.iter().flat_map(|memory| &memory.mappings);
    let mapped = mapped.map(|mapping| ("a mapped file".to_owned(), mapping.flags));
    let open = needed.iter().filter_map(|needed| needed.regular.as_ref());
    let open = open.map(|file| (String::from_utf8_lossy(&file.path).into_owned(), file.flags));
    match open.chain(mapped).find(|(_, flags)| flags & CHANGES != 0) {
        Some((path, _)) => refused(&path, "would be cut or made anew"),
        None => Ok(()),
    }
}

/// Files that no worker could have opened, which CRIU would make as root, and such as have the number of another.
fn check_kinds(needed: &[Needed]) -> io::Result<()> {
    let mut numbers = BTreeSet::new();
    if let Some(twice) = needed.iter().find(|file| !numbers.insert(file.file)) {
        return refused(&format!("file {}", twice.file), "is there twice");
    }
    if let Some(other) = needed.iter().find(|file| !KINDS.contains(&file.kind)) {
        return refused(&format!("file {}", other.file), &format!("is of kind {}, which no worker has", other.kind));
    }
    let raw = |file: &&Needed| file.internet.as_ref().is_some_and(|socket| socket.kind == RAW);
    match needed.iter().find(raw) {
        Some(file) => refused(&format!("socket {}", file.file), "is raw, which no worker's is"),
        None => Ok(()),
    }
}

/// Files that are on their way through a socket are opened and sent, and nobody can look at them then.
fn check_in_flight(image: &Path) -> io::Result<()> {
    let packets: Vec<Packet> = with_bytes(image, "sk-queues.", |packet: &Packet| packet.length.into())?;
    match packets.iter().flat_map(|packet| &packet.controls).any(|control| !control.files.is_empty()) {
        true => refused("a socket", "has a file on its way"),
        false => Ok(()),
    }
}

fn check_ghosts(image: &Path) -> io::Result<()> {
    // The file of one holds nothing else: its bytes go on to the end.
    let ghosts: Vec<Ghost> = with_bytes(image, "ghost-file-", |_| u64::MAX)?;
    let is_plain = |mode: u32| {
        // A folder would be made under its own name, or taken from whoever has made one since.
        matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFIFO) && mode & SET_IDS == 0
    };
    match ghosts.iter().find(|ghost| !is_plain(ghost.mode)) {
        Some(ghost) => refused("a removed file", &format!("has the mode {:o}, which no job's has", ghost.mode)),
        None => Ok(()),
    }
}

/// The paths of files that were removed, under which CRIU makes them.
fn removed(image: &Path, needed: &[Needed]) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for Remap { file, why } in all(image, "remap-fpath.")? {
        let found = needed.iter().find(|needed| needed.file == file).and_then(|needed| needed.regular.as_ref());
        match (why, found) {
            (GHOST, Some(regular)) => paths.push(Path::new("/").join(OsStr::from_bytes(&regular.path))),
            (OF_A_PROCESS, _) => {}
            _ => refused("a file", "has another name, and nothing says why")?,
        }
    }
    Ok(paths)
}

/// The paths under which CRIU binds sockets.
fn sockets(needed: &[Needed]) -> Vec<PathBuf> {
    let path = |socket: &UnixSocket| {
        let name = socket.name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some(Path::new(OsStr::from_bytes(&socket.folder)).join(OsStr::from_bytes(name)))
    };
    needed.iter().filter_map(|needed| needed.socket.as_ref()).filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::super::files::{append, head};
    use super::*;

    fn checked(files: &[(&str, &[u8])]) -> Result<(), String> {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, content) in files {
            fs::write(folder.path().join(name), content).expect("written");
        }
        check(folder.path(), None).map_err(|error| error.to_string())
    }

    fn open_with(flags: i32) -> Vec<u8> {
        let regular = Regular { flags: flags.cast_unsigned(), path: b"var/log/\xff".to_vec() };
        let mut image = head();
        append(&Needed { kind: 1, regular: Some(regular), ..Needed::default() }.encode_to_vec(), &mut image)
            .expect("a short message");
        image
    }

    #[test]
    fn an_image_of_a_tree_is_taken() {
        let names = ["cgroup.img", "core-2.img", "fdinfo-2.img", "fifo-data.img", "fs-2.img", "ghost-file-a1f.img"];
        let more = ["ids-2.img", "inventory.img", "pages-1.img", "pipes-data.img", "seccomp.img", "stats-dump"];
        let ghost = image_of(&[(Ghost { mode: libc::S_IFREG | 0o600 }, &b""[..])]);
        let content = |name: &str| if name.starts_with("ghost") { ghost.clone() } else { head() };
        let files: Vec<(&str, Vec<u8>)> = names.into_iter().chain(more).map(|name| (name, content(name))).collect();
        let files: Vec<(&str, &[u8])> = files.iter().map(|(name, content)| (*name, &**content)).collect();
        assert_eq!(checked(&files), Ok(()));
        assert_eq!(checked(&[("files.img", &open_with(libc::O_WRONLY | libc::O_APPEND))]), Ok(()));
    }

    #[test]
    fn what_no_dump_of_ours_has_is_refused() {
        for name in ["userns-9.img", "mountpoints-12.img", "ipcns-shm-1.img", "tmpfs-3.tar.gz.img", "netns-ct-10.img"] {
            assert!(checked(&[(name, b"")]).is_err_and(|why| why.contains("of a namespace")), "{name}");
        }
        for name in ["reg-files.img", "creds-2.img", "unixsk.img", "pipes.img"] {
            assert!(checked(&[(name, b"")]).is_err_and(|why| why.contains("of a release of CRIU")), "{name}");
        }
        let cut = checked(&[("files.img", &open_with(libc::O_WRONLY | libc::O_TRUNC))]);
        assert_eq!(cut, Err("var/log/\u{fffd} in it would be cut or made anew".to_owned()));
        let folder = tempfile::tempdir().expect("a folder");
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("pages-1.img")).expect("made");
        check(folder.path(), None).expect_err("it is a link");
    }

    fn image_of(messages: &[(impl Message, &[u8])]) -> Vec<u8> {
        let mut image = head();
        for (message, bytes) in messages {
            append(&message.encode_to_vec(), &mut image).expect("a short message");
            image.extend(*bytes);
        }
        image
    }

    #[test]
    fn files_on_their_way_through_a_socket_are_refused() {
        let packet = |length, files| Packet { length, controls: vec![Control { files }] };
        let queues = |files| image_of(&[(packet(3, vec![]), &b"abc"[..]), (packet(1, files), b"d")]);
        assert_eq!(checked(&[("sk-queues.img", &queues(vec![]))]), Ok(()));
        assert_eq!(
            checked(&[("sk-queues.img", &queues(vec![5]))]),
            Err("a socket in it has a file on its way".to_owned())
        );
    }

    #[test]
    fn what_no_worker_can_have_open_is_refused() {
        let file = |kind, file| Needed { kind, file, ..Needed::default() };
        let with = |files: &[Needed]| {
            let files: Vec<_> = files.iter().map(|file| (file.clone(), &b""[..])).collect();
            checked(&[("files.img", &image_of(&files))])
        };
        assert_eq!(with(&[file(1, 5), file(11, 6)]), Ok(()));
        assert_eq!(with(&[file(1, 5), file(5, 5)]), Err("file 5 in it is there twice".to_owned()));
        // Sockets of packets, watches of whole mounts, network devices.
        for kind in [10, 12, 15] {
            assert!(with(&[file(kind, 5)]).is_err_and(|why| why.contains("which no worker has")), "{kind}");
        }
        let raw = Needed { internet: Some(InternetSocket { kind: RAW }), ..file(4, 5) };
        assert!(with(&[raw]).is_err_and(|why| why.contains("is raw")));
        let shared = Memory { mappings: vec![Mapping { status: SHARED_WITH_OTHERS, flags: 0 }] };
        assert!(checked(&[("mm-2.img", &image_of(&[(shared, &b""[..])]))]).is_err());
    }

    #[test]
    fn removed_files_are_plain_ones_and_say_why_they_are_named_otherwise() {
        let ghost = |mode| image_of(&[(Ghost { mode }, &b"the bytes of the file"[..])]);
        assert_eq!(checked(&[("ghost-file-a1.img", &ghost(libc::S_IFREG | 0o640))]), Ok(()));
        for mode in [libc::S_IFBLK | 0o600, libc::S_IFCHR | 0o600, libc::S_IFREG | 0o4755, libc::S_IFDIR | 0o755] {
            assert!(checked(&[("ghost-file-a1.img", &ghost(mode))]).is_err_and(|why| why.contains("has the mode")));
        }
        let remap = |why| image_of(&[(Remap { file: 7, why }, &b""[..])]);
        let regular = Some(Regular { flags: 0, path: b"tmp/removed".to_vec() });
        let files = image_of(&[(Needed { kind: 1, file: 7, regular, ..Needed::default() }, &b""[..])]);
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("files.img"), &files).expect("written");
        let account = crate::worker::Account { uid: 61_234, gid: 61_234, groups: Vec::new(), person: None };
        let with = |why| {
            fs::write(folder.path().join("remap-fpath.img"), remap(why)).expect("written");
            let owner = Owner { account: &account, folder: Path::new("/nowhere") };
            check(folder.path(), Some(owner)).map_err(|error| error.to_string())
        };
        assert_eq!(with(GHOST), Ok(()), "/tmp lets nobody but the owner change it");
        assert_eq!(with(OF_A_PROCESS), Ok(()));
        assert_eq!(with(0), Err("a file in it has another name, and nothing says why".to_owned()));
    }

    #[test]
    fn a_mapped_file_is_not_cut() {
        let mapping = |flags: i32| Memory { mappings: vec![Mapping { status: 0, flags: flags.cast_unsigned() }] };
        assert_eq!(checked(&[("mm-2.img", &image_of(&[(mapping(libc::O_RDWR), &b""[..])]))]), Ok(()));
        let cut = checked(&[("mm-2.img", &image_of(&[(mapping(libc::O_TRUNC), &b""[..])]))]);
        assert_eq!(cut, Err("a mapped file in it would be cut or made anew".to_owned()));
    }
}
