//! A folder as a stream of bytes: a tar archive, so that everybody can read it without Tessera.
//!
//! In it are files, folders and links with their permissions and times of change. Owners are not: whoever restores it
//! says whose it is. Files that share their content by hard links are written once for each name.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use nix::sys::stat::{FileStat, fstat};
use tar::{Builder, EntryType, Header, HeaderMode};

use crate::Error;
use crate::measure::Measured;
use crate::walk::{Found, walk};

/// Writes the folder to `out`.
pub(crate) fn pack(folder: &Path, out: &mut dyn Write) -> Result<Measured, Error> {
    let mut archive = Builder::new(out);
    archive.mode(HeaderMode::Complete);
    let mut measured = Measured::default();
    walk(folder, &mut |path, found, seen| {
        let mut header = header(seen);
        measured.entries += 1;
        let added = match found {
            Found::Folder => {
                header.set_entry_type(EntryType::Directory);
                archive.append_data(&mut header, path, io::empty())
            }
            Found::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                archive.append_link(&mut header, path, target)
            }
            Found::File(mut file) => {
                header.set_entry_type(EntryType::Regular);
                let size = u64::try_from(seen.st_size).unwrap_or(0);
                header.set_size(size);
                measured.bytes += size;
                let added = archive.append_data(&mut header, path, Exactly { file: &mut file, left: size });
                if is_other(&file, seen) {
                    return Err(Error::Changed { path: folder.join(path) });
                }
                added
            }
        };
        added.map_err(Error::io(folder.join(path)))
    })?;
    archive.finish().map_err(Error::io(folder))?;
    Ok(measured)
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
