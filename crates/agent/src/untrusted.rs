//! Files of which others may have put anything in the place.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens one to be read: a link is not followed, and nobody is waited for at the other end of a pipe.
///
/// # Errors
/// What the file system says, also of a link.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}
