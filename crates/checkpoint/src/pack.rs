//! A folder as a stream of bytes: a tar archive, so that everybody can read it without Tessera.
//!
//! In it are files, folders, named pipes and links with their permissions and times of change. Owners are not: whoever
//! restores it says whose it is. Files that share their content by hard links are written once for each name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::stat::{FileStat, fstat};
use tar::{Builder, EntryType, Header};

use crate::Error;
use crate::measure::Measured;
use crate::walk::{Found, walk};

/// Writes the folder to `out`.
pub(crate) fn pack(folder: &Path, out: &mut dyn Write) -> Result<Measured, Error> {
    let mut archive = Builder::new(out);
    let mut measured = Measured::default();
    walk(folder, &mut |path, found, seen| {
        let failed = || Error::io(folder.join(path));
        let mut header = header(seen);
        measured.entries += 1;
        let name = path.as_os_str().as_bytes();
        let added = match found {
            Found::Folder => {
                header.set_entry_type(EntryType::Directory);
                add(&mut archive, header, name, &mut io::empty())
            }
            Found::Pipe => {
                header.set_entry_type(EntryType::Fifo);
                add(&mut archive, header, name, &mut io::empty())
            }
            Found::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                let target = target.as_os_str().as_bytes();
                // As it is: whoever tidies it up says something else.
                if header.set_link_name_literal(target).is_err() {
                    add_long(&mut archive, EntryType::GNULongLink, target).map_err(failed())?;
                }
                add(&mut archive, header, name, &mut io::empty())
            }
            Found::File(mut file) => {
                header.set_entry_type(EntryType::Regular);
                let size = u64::try_from(seen.st_size).unwrap_or(0);
                header.set_size(size);
                measured.bytes += size;
                let added = add(&mut archive, header, name, &mut Exactly { file: &mut file, left: size });
                if is_other(&file, seen) {
                    return Err(Error::Changed { path: folder.join(path) });
                }
                added
            }
        };
        added.map_err(failed())
    })?;
    archive.finish().map_err(Error::io(folder))?;
    Ok(measured)
}

/// Adds an entry. Names are bytes here: the crate's own way to write long ones refuses some that are no text.
fn add(
    archive: &mut Builder<&mut dyn Write>,
    mut header: Header,
    name: &[u8],
    content: &mut dyn Read,
) -> io::Result<()> {
    let field = &mut header.as_old_mut().name;
    let fits = name.len().min(field.len());
    field[..fits].copy_from_slice(&name[..fits]);
    if fits < name.len() {
        add_long(archive, EntryType::GNULongName, name)?;
    }
    header.set_cksum();
    archive.append(&header, content)
}

/// Adds what is longer than its field in the header of the next entry, as GNU's tar does.
fn add_long(archive: &mut Builder<&mut dyn Write>, kind: EntryType, long: &[u8]) -> io::Result<()> {
    let mut header = Header::new_gnu();
    let mark = b"././@LongLink";
    header.as_old_mut().name[..mark.len()].copy_from_slice(mark);
    header.set_entry_type(kind);
    header.set_mode(0o644);
    header.set_size(long.len() as u64 + 1);
    header.set_cksum();
    archive.append(&header, long.chain(&[0_u8][..]))
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

/// The bytes of a file, as many as its header says.
struct Exactly<'a> {
    file: &'a mut File,
    left: u64,
}

impl Read for Exactly<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.file.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}
