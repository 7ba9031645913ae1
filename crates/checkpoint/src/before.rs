//! Things that an archive says of an entry before it: a name, or the target of a link, that is too long for its header,
//! and the length of a file with holes.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tar::{Entry, EntryType, PaxExtensions};

use crate::extents::{Extents, wrong};
use crate::pack::{SPARSE_LENGTH, SPARSE_MAJOR, SPARSE_MINOR};

/// Longer is no path: folders lie in each other only so deep.
const LONGEST: u64 = 64 << 10;

type Packed<'a, 'r> = Entry<'a, &'r mut dyn Read>;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    name: Option<PathBuf>,
    target: Option<PathBuf>,
    /// Bytes of a file with holes.
    length: Option<u64>,
}

impl Before {
    /// Takes in what is said of the next entry; answers `false` when this is an entry.
    pub(crate) fn takes_in(&mut self, entry: &mut Packed<'_, '_>) -> io::Result<bool> {
        match entry.header().entry_type() {
            EntryType::GNULongName => once(&mut self.name, long(entry)?)?,
            EntryType::GNULongLink => once(&mut self.target, long(entry)?)?,
            EntryType::XHeader => once(&mut self.length, length(&said(entry)?)?)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(crate) fn name(&self, entry: &Packed<'_, '_>) -> PathBuf {
        self.name.clone().unwrap_or_else(|| path(entry.path_bytes().into_owned()))
    }

    /// Returns the target of a link; `None`: it has none.
    pub(crate) fn target(&self, entry: &Packed<'_, '_>) -> Option<PathBuf> {
        self.target.clone().or_else(|| Some(path(entry.link_name_bytes()?.into_owned())))
    }

    /// Returns the parts of a file that what follows belongs into.
    pub(crate) fn extents(&self, entry: &mut Packed<'_, '_>) -> io::Result<Extents> {
        let bytes = entry.size();
        match self.length {
            Some(length) => Extents::read(entry, length, bytes),
            None => Ok(Extents::whole(bytes)),
        }
    }
}

/// Takes in what may be said once.
fn once<T>(said: &mut Option<T>, now: T) -> io::Result<()> {
    match said.replace(now) {
        Some(_) => Err(wrong("the same is said twice of an entry")),
        None => Ok(()),
    }
}

fn path(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

fn said(entry: &mut Packed<'_, '_>) -> io::Result<Vec<u8>> {
    if entry.size() > LONGEST {
        return Err(wrong("more is said of an entry than can be"));
    }
    let mut said = Vec::new();
    entry.read_to_end(&mut said)?;
    Ok(said)
}

fn long(entry: &mut Packed<'_, '_>) -> io::Result<PathBuf> {
    let mut name = said(entry)?;
    name.pop_if(|last| *last == 0);
    Ok(path(name))
}

/// The length of a file with holes whose map is in the format that is read here.
fn length(said: &[u8]) -> io::Result<u64> {
    let unknown = || wrong("what is said of a file with holes is not understood");
    let (mut major, mut minor, mut length) = (None, None, None::<u64>);
    for record in PaxExtensions::new(said) {
        let record = record?;
        let (key, value) = (record.key().map_err(|_| unknown())?, record.value().map_err(|_| unknown())?);
        match (key, value) {
            SPARSE_MAJOR => once(&mut major, ())?,
            SPARSE_MINOR => once(&mut minor, ())?,
            (SPARSE_LENGTH, value) => {
                // Longer is no file.
                let known = value.parse().ok().filter(|length| i64::try_from(*length).is_ok());
                once(&mut length, known.ok_or_else(unknown)?)?;
            }
            _ => return Err(unknown()),
        }
    }
    length.filter(|_| major.and(minor).is_some()).ok_or_else(unknown)
}
