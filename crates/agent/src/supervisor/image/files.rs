//! Files that a program has open may change while it is away: logs grow, what it reads is written anew. CRIU keeps the
//! size of every file and restores nothing where one differs, so that the work since would be lost for a line in a log.
//! Here the sizes of open files are taken out of an image before it is restored: such a program finds its files as they
//! are by then, as after any pause. Files that are mapped into memory keep theirs, because code and data in memory must
//! fit them.
//!
//! An image is a file of two numbers and then of messages of Protocol Buffers, each behind its length; their fields are
//! those of `fdinfo.proto` and `regfile.proto` of CRIU (<https://github.com/checkpoint-restore/criu>, `images`).

use std::collections::BTreeSet;
use std::fs::{self, DirEntry};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};

use crate::{durable, untrusted};

/// The length of the two numbers at the start of an image, and the first of them: all kinds have it in common.
const HEAD: usize = 8;
const COMMON: [u8; 4] = 0x5456_4319_u32.to_le_bytes();
/// Longest message that is read where others than messages follow.
const LONGEST_MESSAGE: u64 = 1 << 20;
/// The number for regular files among CRIU's kinds of open files.
const REGULAR: i32 = 1;
/// The path of field numbers that leads to a file's size in the message of an open file.
const SIZE: [u32; 2] = [3, 8];

/// A descriptor of a process.
#[derive(Clone, PartialEq, Message)]
struct Descriptor {
    #[prost(uint32, tag = "1")]
    file: u32,
}

/// The memory of a process.
#[derive(Clone, PartialEq, Message)]
struct Memory {
    #[prost(uint32, tag = "12")]
    program: u32,
    #[prost(message, repeated, tag = "14")]
    mappings: Vec<Mapping>,
}

/// A part of it. What backs one is a file, or something else that has a number.
#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "4")]
    backed_by: u64,
}

/// A file that something in the image needs.
#[derive(Clone, PartialEq, Message)]
struct Needed {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(uint32, tag = "2")]
    file: u32,
}

/// Lets the files that processes of an image have open be of another size when it is restored.
///
/// # Errors
/// When the image cannot be read or written, or is not of the form that is known here. It is as it was then.
pub(super) fn let_open_files_change(image: &Path) -> io::Result<()> {
    let open: BTreeSet<u64> = all(image, "fdinfo-")?.into_iter().map(|Descriptor { file }| file.into()).collect();
    let mut mapped = BTreeSet::new();
    for Memory { program, mappings } in all(image, "mm-")? {
        mapped.insert(u64::from(program));
        mapped.extend(mappings.iter().map(|mapping| mapping.backed_by));
    }
    let path = image.join("files.img");
    let before = read(&path)?;
    let mut after = before[..HEAD.min(before.len())].to_vec();
    for message in messages(&before)? {
        let needed = Needed::decode(message)?;
        // One process may have open what another one has mapped.
        let file = u64::from(needed.file);
        if needed.kind == REGULAR && open.contains(&file) && !mapped.contains(&file) {
            append(&without(message, &SIZE)?, &mut after)?;
        } else {
            append(message, &mut after)?;
        }
    }
    // What is restored may share its bytes with what is kept.
    durable::replace_soon_like(&path, &after)
}

/// The messages of all files of an image whose names begin so.
///
/// # Errors
/// When one cannot be read, or is not of the form that is known here.
pub(super) fn all<M: Message + Default>(image: &Path, prefix: &str) -> io::Result<Vec<M>> {
    let mut all = Vec::new();
    for path in named(image, prefix)? {
        for message in messages(&read(&path)?)? {
            all.push(M::decode(message)?);
        }
    }
    Ok(all)
}

/// The files of an image whose names begin so.
fn named(image: &Path, prefix: &str) -> io::Result<Vec<PathBuf>> {
    let begins = |entry: &DirEntry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes());
    let entries = fs::read_dir(image)?.filter(|entry| entry.as_ref().map_or(true, begins));
    entries.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// The messages of all files of an image whose names begin so, in which bytes follow each message; as many as
/// `following` says, or all that there are.
///
/// # Errors
/// As [`all`].
pub(super) fn with_bytes<M: Message + Default>(
    image: &Path,
    prefix: &str,
    following: impl Fn(&M) -> u64,
) -> io::Result<Vec<M>> {
    let mut all = Vec::new();
    for path in named(image, prefix)? {
        let mut file = untrusted::open(&path)?;
        let mut head = [0; HEAD];
        file.read_exact(&mut head)?;
        check_head(&head)?;
        let end = file.metadata()?.len();
        let mut at = HEAD as u64;
        while at < end {
            let mut length = [0; 4];
            file.read_exact(&mut length)?;
            let length = u64::from(u32::from_le_bytes(length));
            if length > LONGEST_MESSAGE {
                return Err(io::Error::other(format!("an image has a message of {length} bytes")));
            }
            let mut message = vec![0; usize::try_from(length).map_err(io::Error::other)?];
            file.read_exact(&mut message)?;
            let message = M::decode(&*message)?;
            at = (at + 4 + length).saturating_add(following(&message));
            all.push(message);
            file.seek(SeekFrom::Start(at.min(end)))?;
        }
    }
    Ok(all)
}

/// Reads a file of an image, which has come from elsewhere.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = untrusted::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other(format!("{} is no file", path.display())));
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// CRIU would look for messages in other places than this where an image begins otherwise.
fn check_head(image: &[u8]) -> io::Result<()> {
    if image.starts_with(&COMMON) {
        return Ok(());
    }
    Err(io::Error::other("an image is of a release of CRIU that is not used here"))
}

/// The messages of an image.
fn messages(image: &[u8]) -> io::Result<Vec<&[u8]>> {
    let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "an image of CRIU ends too early");
    let mut rest = image.get(HEAD..).ok_or_else(cut)?;
    check_head(image)?;
    let mut messages = Vec::new();
    while !rest.is_empty() {
        let length = rest.try_get_u32_le().map_err(|_| cut())?;
        let message;
        (message, rest) = rest.split_at_checked(length as usize).ok_or_else(cut)?;
        messages.push(message);
    }
    Ok(messages)
}

pub(super) fn append(message: &[u8], image: &mut Vec<u8>) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?;
    image.extend(length.to_le_bytes());
    image.extend(message);
    Ok(())
}

/// A message without one of its fields; of those on the way to it and of all others, every byte is kept, also of such
/// as are not known here.
fn without(message: &[u8], path: &[u32]) -> Result<Vec<u8>, prost::DecodeError> {
    let mut rest = message;
    let mut kept = Vec::with_capacity(message.len());
    while !rest.is_empty() {
        let whole = rest;
        let (field, kind) = decode_key(&mut rest)?;
        let mut value = rest;
        skip_field(kind, field, &mut rest, DecodeContext::default())?;
        match path {
            [last] if field == *last => {}
            [first, deeper @ ..] if field == *first && kind == WireType::LengthDelimited => {
                decode_varint(&mut value)?;
                let changed = without(&value[..value.len() - rest.len()], deeper)?;
                encode_key(field, kind, &mut kept);
                encode_varint(changed.len() as u64, &mut kept);
                kept.extend(changed);
            }
            _ => kept.extend(&whole[..whole.len() - rest.len()]),
        }
    }
    Ok(kept)
}

/// The start of an image of some kind.
#[cfg(test)]
pub(super) fn head() -> Vec<u8> {
    [COMMON, [7; 4]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Regular {
        #[prost(uint32, tag = "1")]
        file: u32,
        #[prost(string, tag = "6")]
        name: String,
        #[prost(uint64, optional, tag = "8")]
        size: Option<u64>,
        #[prost(uint32, tag = "10")]
        mode: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Entry {
        #[prost(int32, tag = "1")]
        kind: i32,
        #[prost(uint32, tag = "2")]
        file: u32,
        #[prost(message, optional, tag = "3")]
        regular: Option<Regular>,
        #[prost(bytes, tag = "18")]
        other: Vec<u8>,
    }

    fn entry(file: u32, size: Option<u64>) -> Entry {
        let regular = Regular { file, name: format!("var/log/{file}"), size, mode: 0o100_644 };
        Entry { kind: REGULAR, file, regular: Some(regular), other: vec![1, 2] }
    }

    fn image(messages: impl IntoIterator<Item = impl Message>) -> Vec<u8> {
        let mut image = head();
        for message in messages {
            append(&message.encode_to_vec(), &mut image).expect("a short message");
        }
        image
    }

    #[test]
    fn only_sizes_of_open_files_that_are_not_mapped_are_taken_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        fs::write(at("fdinfo-2.img"), image([5, 6, 7, 9].map(|file| Descriptor { file }))).expect("written");
        let memory = Memory { program: 6, mappings: vec![Mapping { backed_by: 7 }, Mapping { backed_by: 1 << 40 }] };
        fs::write(at("mm-2.img"), image([memory])).expect("written");
        let pipe = Entry { kind: 2, file: 9, regular: None, other: vec![3] };
        let kept = [4, 6, 7].map(|file| entry(file, Some(100)));
        let before = [kept.to_vec(), vec![entry(5, Some(0)), pipe.clone()]].concat();
        let after = [kept.to_vec(), vec![entry(5, None), pipe]].concat();
        fs::write(at("files.img"), image(before)).expect("written");
        for _ in 0..2 {
            let_open_files_change(folder.path()).expect("it is of the known form");
            assert_eq!(fs::read(at("files.img")).expect("read"), image(after.clone()));
        }
    }

    #[test]
    fn a_message_before_bytes_is_bounded() {
        let folder = tempfile::tempdir().expect("a folder");
        let read = |length: u32| {
            let message = vec![0x2a; length as usize];
            let image = [head(), length.to_le_bytes().to_vec(), message].concat();
            fs::write(folder.path().join("ghost-file-1.img"), image).expect("written");
            with_bytes::<Descriptor>(folder.path(), "ghost-file-", |_| 0).map_err(|error| error.to_string())
        };
        let longest = u32::try_from(LONGEST_MESSAGE).expect("it is short");
        assert!(read(longest).is_err_and(|why| !why.contains("has a message of")), "it is read, and says nothing");
        assert_eq!(read(longest + 1), Err("an image has a message of 1048577 bytes".to_owned()));
    }

    #[test]
    fn what_is_not_of_the_known_form_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let whole = image([entry(4, Some(100))]);
        for broken in [&whole[..whole.len() - 1], &whole[..3], &[9; 30]] {
            fs::write(folder.path().join("files.img"), broken).expect("written");
            let_open_files_change(folder.path()).expect_err("it cannot be read");
            assert_eq!(fs::read(folder.path().join("files.img")).expect("read"), broken);
        }
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, &whole).expect("written");
        let image = folder.path().join("image");
        fs::create_dir(&image).expect("made");
        std::os::unix::fs::symlink(&elsewhere, image.join("files.img")).expect("linked");
        let_open_files_change(&image).expect_err("it is a link");
        fs::remove_file(image.join("files.img")).expect("removed");
        nix::unistd::mkfifo(&image.join("files.img"), nix::sys::stat::Mode::S_IRWXU).expect("made");
        let_open_files_change(&image).expect_err("nobody writes into it");
    }
}
