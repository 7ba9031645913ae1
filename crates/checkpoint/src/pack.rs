//! A folder as a stream of bytes: a tar archive, so that everybody can read it without Tessera.
//!
//! In it are files, folders, named pipes and links with their permissions and times of change. Owners are not: whoever
//! restores it says whose it is. Files that share their content by hard links are written once for each name.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::stat::{FileStat, fstat};
use tar::{EntryType, Header};

use crate::Error;
use crate::chunks::Seamed;
use crate::measure::Measured;
use crate::walk::{Found, walk};

/// What archives are made of: a header, and content that is filled up to whole ones.
const BLOCK: usize = 512;
/// How much of a file is read at once.
const PIECE: usize = 1 << 18;

pub(crate) fn pack(folder: &Path, out: &mut dyn Seamed) -> Result<Measured, Error> {
    let mut measured = Measured::default();
    let mut piece = vec![0; PIECE];
    walk(folder, &mut |path, found, seen| {
        let failed = || Error::io(folder.join(path));
        let mut header = header(seen);
        measured.entries += 1;
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
                let target = target.as_os_str().as_bytes();
                // As it is: whoever tidies it up says something else.
                if header.set_link_name_literal(target).is_err() {
                    add_long(out, EntryType::GNULongLink, target).map_err(failed())?;
                }
                begin(out, header, name)
            }
            Found::File(mut file) => {
                header.set_entry_type(EntryType::Regular);
                let size = u64::try_from(seen.st_size).unwrap_or(0);
                header.set_size(size);
                measured.bytes += size;
                out.seam(size).map_err(failed())?;
                let added = begin(out, header, name).and_then(|()| fill(out, &mut file, size, &mut piece));
                out.seam(size).map_err(failed())?;
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

/// Writes as many bytes of a file as its header says, in large pieces: most of a checkpoint is the content of files.
fn fill(out: &mut dyn Seamed, file: &mut File, bytes: u64, piece: &mut [u8]) -> io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let most = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = match file.read(&mut piece[..most]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        out.write_all(&piece[..read])?;
        left -= read as u64;
    }
    fill_up(out, bytes)
}

/// Fills the last block of so many bytes.
fn fill_up(out: &mut dyn Seamed, bytes: u64) -> io::Result<()> {
    let over = usize::try_from(bytes % BLOCK as u64).unwrap_or(0);
    if over == 0 { Ok(()) } else { out.write_all(&[0; BLOCK][over..]) }
}

/// Adds what is longer than its field in the header of the next entry, as GNU's tar does.
fn add_long(out: &mut dyn Seamed, kind: EntryType, long: &[u8]) -> io::Result<()> {
    let mut header = Header::new_gnu();
    let mark = b"././@LongLink";
    header.as_old_mut().name[..mark.len()].copy_from_slice(mark);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(long.len() as u64 + 1);
    header.set_cksum();
    out.write_all(header.as_bytes())?;
    out.write_all(long)?;
    out.write_all(&[0])?;
    fill_up(out, long.len() as u64 + 1)
}

fn header(seen: &FileStat) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(seen.st_mode & 0o777);
    header.set_mtime(u64::try_from(seen.st_mtime).unwrap_or(0));
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

/// Whether a file was written to since it was looked at.
fn is_other(file: &File, seen: &FileStat) -> bool {
    let marks = |seen: &FileStat| (seen.st_size, seen.st_mtime, seen.st_mtime_nsec);
    fstat(file).is_ok_and(|now| marks(&now) != marks(seen))
}
