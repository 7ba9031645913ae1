//! A folder as a stream of bytes: a tar archive, so that everybody can read it without Tessera.
//!
//! In it are files, folders, named pipes and links with their permissions and times of change. Owners are not: whoever
//! restores it says whose it is. A file of several names (hard links) is in it once, and its further names as links to
//! the first. Of a file with holes, only what is in none is read and written ([`extents`](crate::extents)).

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::sys::stat::{FileStat, fstat};
use tar::{EntryType, Header};

use crate::Error;
use crate::chunks::Seamed;
use crate::extents::{Extent, Extents};
use crate::measure::Measured;
use crate::walk::{Found, is_same, walk};

/// The unit of archives: a header, and content that is filled up to whole blocks.
pub(crate) const BLOCK: usize = 512;
/// Bytes of a header for a name, and for where a link leads.
const NAME: usize = 100;
/// Keys that are said of a file with holes: the format of its map, and its length.
pub(crate) const SPARSE_MAJOR: (&str, &str) = ("GNU.sparse.major", "1");
pub(crate) const SPARSE_MINOR: (&str, &str) = ("GNU.sparse.minor", "0");
pub(crate) const SPARSE_LENGTH: &str = "GNU.sparse.realsize";

/// The number of bytes of a file that are read at once.
const PIECE: usize = 1 << 18;

pub(crate) fn pack(folder: &Path, out: &mut dyn Seamed) -> Result<Measured, Error> {
    let mut measured = Measured::default();
    let mut piece = vec![0; PIECE];
    walk(folder, &mut |path, found, seen| {
        let failed = || Error::io(folder.join(path));
        let mut header = header(seen);
        measured.add_entry(path, &found);
        let name = path.as_os_str().as_bytes();
        let added = match found {
            Found::Folder => {
                header.set_entry_type(EntryType::Directory);
                begin(out, header, name)
            }
            Found::Pipe => {
                header.set_entry_type(EntryType::Fifo);
                begin(out, header, name)
            }
            Found::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                begin_link(out, header, name, target.as_os_str().as_bytes())
            }
            Found::NameOf(first) => {
                header.set_entry_type(EntryType::Link);
                begin_link(out, header, name, first.as_os_str().as_bytes())
            }
            Found::File(file) => {
                let extents = Extents::of(&file, seen).map_err(failed())?;
                measured.add_file(&extents);
                let added = add_file(out, name, seen, &file, &extents, &mut piece);
                if is_other(&file, seen) {
                    return Err(Error::Changed { path: folder.join(path) });
                }
                added
            }
        };
        added.map_err(failed())
    })?;
    // An archive ends with two empty blocks.
    out.write_all(&[0; 2 * BLOCK]).map_err(Error::io(folder))?;
    Ok(measured)
}

/// Writes the header of an entry. Names are bytes here: the crate's own way to write long ones refuses some that are no
/// text.
fn begin(out: &mut dyn Seamed, mut header: Header, name: &[u8]) -> io::Result<()> {
    let field = &mut header.as_old_mut().name;
    let fits = name.len().min(field.len());
    field[..fits].copy_from_slice(&name[..fits]);
    if fits < name.len() {
        add_long(out, EntryType::GNULongName, name)?;
    }
    header.set_cksum();
    out.write_all(header.as_bytes())
}

fn begin_link(out: &mut dyn Seamed, mut header: Header, name: &[u8], target: &[u8]) -> io::Result<()> {
    // As it is: whoever tidies it up says something else.
    if header.set_link_name_literal(target).is_err() {
        add_long(out, EntryType::GNULongLink, target)?;
    }
    begin(out, header, name)
}

fn add_file(
    out: &mut dyn Seamed,
    name: &[u8],
    seen: &FileStat,
    file: &File,
    extents: &Extents,
    piece: &mut [u8],
) -> io::Result<()> {
    let (bytes, has_holes) = (extents.bytes(), extents.has_holes());
    out.seam(bytes)?;
    if has_holes {
        begin_with_holes(out, name, seen, extents)?;
    } else {
        let mut header = header(seen);
        header.set_size(bytes);
        begin(out, header, name)?;
    }
    for extent in extents.iter() {
        // Between holes, what fills chunks has chunks of its own: it is as it was also when others came before it.
        let own = if has_holes { extent.bytes } else { 0 };
        out.seam(own)?;
        fill(out, file, extent, piece)?;
        out.seam(own)?;
    }
    fill_up(out, bytes)?;
    out.seam(bytes)
}

/// Writes the header of a file with holes, and its map.
fn begin_with_holes(out: &mut dyn Seamed, name: &[u8], seen: &FileStat, extents: &Extents) -> io::Result<()> {
    add_length(out, extents.length())?;
    let map = extents.map();
    let mut header = in_format(Header::new_ustar(), seen);
    header.set_size(map.len() as u64 + extents.bytes());
    begin(out, header, name)?;
    out.write_all(&map)
}

/// Writes an extent of a file in large pieces: most of a checkpoint is the content of files.
fn fill(out: &mut dyn Seamed, file: &File, extent: Extent, piece: &mut [u8]) -> io::Result<()> {
    let Extent { mut start, bytes } = extent;
    let mut left = bytes;
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = match file.read_at(&mut piece[..most], start) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        out.write_all(&piece[..read])?;
        (start, left) = (start + read as u64, left - read as u64);
    }
    Ok(())
}

/// Fills the last block of so many bytes.
fn fill_up(out: &mut dyn Seamed, bytes: u64) -> io::Result<()> {
    let over = usize::try_from(bytes % BLOCK as u64).unwrap_or(0);
    if over == 0 { Ok(()) } else { out.write_all(&[0; BLOCK][over..]) }
}

/// Bytes that are said of a name, or of where a link leads, before its entry.
pub(crate) fn long_bytes(name: &Path) -> u64 {
    let length = name.as_os_str().len();
    if length <= NAME { 0 } else { (BLOCK + (length + 1).next_multiple_of(BLOCK)) as u64 }
}

/// Adds what is longer than its field in the header of the next entry, as GNU's tar does.
fn add_long(out: &mut dyn Seamed, kind: EntryType, long: &[u8]) -> io::Result<()> {
    add_before(out, Header::new_gnu(), kind, b"././@LongLink", &[long, &[0]].concat())
}

/// Says how long the next file is, whose content begins with a map.
fn add_length(out: &mut dyn Seamed, length: u64) -> io::Result<()> {
    let length = length.to_string();
    let said = [SPARSE_MAJOR, SPARSE_MINOR, (SPARSE_LENGTH, &length)].map(|(key, value)| record(key, value)).concat();
    add_before(out, Header::new_ustar(), EntryType::XHeader, b"././@PaxHeader", said.as_bytes())
}

/// A line that begins with how long it is.
fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + " =\n".len();
    let with_digits = |length: usize| rest + length.to_string().len();
    // Its own digits may make it one longer.
    let length = with_digits(with_digits(rest));
    format!("{length} {key}={value}\n")
}

/// Adds what is said of the next entry.
fn add_before(
    out: &mut dyn Seamed,
    mut header: Header,
    kind: EntryType,
    name: &[u8],
    content: &[u8],
) -> io::Result<()> {
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(content.len() as u64);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    out.write_all(content)?;
    fill_up(out, content.len() as u64)
}

fn header(seen: &FileStat) -> Header {
    in_format(Header::new_gnu(), seen)
}

fn in_format(mut header: Header, seen: &FileStat) -> Header {
    header.set_entry_type(EntryType::Regular);
    header.set_mode(seen.st_mode & 0o777);
    header.set_mtime(u64::try_from(seen.st_mtime).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// Returns whether a file was written to since it was looked at.
fn is_other(file: &File, seen: &FileStat) -> bool {
    fstat(file).is_ok_and(|now| !is_same(seen, &now))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;
    use std::process::{Command, Stdio};

    use super::*;

    impl Seamed for Vec<u8> {
        fn seam(&mut self, _file_bytes: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn everybody_can_read_it_without_tessera() {
        let (folder, into) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let long = format!("holes-{}", "n".repeat(150));
        for name in ["holes", &long] {
            let file = File::create(folder.path().join(name)).expect("made");
            file.set_len(1 << 40).expect("it may be so long");
            file.write_all_at(b"content", 1 << 30).expect("written");
        }
        fs::write(folder.path().join("whole"), "whole").expect("written");
        fs::hard_link(folder.path().join("whole"), folder.path().join("z")).expect("linked");
        let mut packed = Vec::new();
        pack(folder.path(), &mut packed).expect("it is packed");
        let mut tar = Command::new("tar").arg("-xC").arg(into.path()).stdin(Stdio::piped()).spawn().expect("tar runs");
        tar.stdin.take().expect("it is piped").write_all(&packed).expect("tar reads");
        assert!(tar.wait().expect("tar ends").success());
        for name in ["holes", &long] {
            let file = File::open(into.path().join(name)).expect("it is there");
            let mut content = [0; 7];
            file.read_exact_at(&mut content, 1 << 30).expect("it is long enough");
            let about = file.metadata().expect("it is there");
            assert_eq!((&content, about.len(), about.blocks() < 100), (b"content", 1 << 40, true), "{name}");
        }
        let number = |name| fs::metadata(into.path().join(name)).expect("it is there").ino();
        assert_eq!(number("whole"), number("z"));
    }
}
