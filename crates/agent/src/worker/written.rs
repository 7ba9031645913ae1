//! Files that the program of a worker that is to be dumped writes in case that it cannot be.
//!
//! It lies in the worker's own folder, so that it travels with images. What is there when the program begins or is
//! restored is noted, and what is in each image that is kept of it later: only what was written after that is newer
//! than its newest image. No clock is asked for it, since clocks of hosts are set back.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tessera_api::v1 as wire;
use tessera_checkpoint::{Error, marks};

use super::environment::{falls_back, is_cooperative, is_transparent};
use super::folder::{WORK_FOLDER, WorkerFolder};
use crate::durable;

/// Below the worker's own folder.
const WRITTEN_FOLDER: &str = ".checkpoint";
/// Name of the file that holds the marks of the files that are no news, 8 bytes each.
const FOUND_FILE: &str = "found";

/// The folder, below the worker's, into which its program writes what it needs to resume; `None`: it is not to write.
pub(crate) fn written_by(order: &wire::WorkerOrder, folder: &WorkerFolder) -> Option<PathBuf> {
    match is_transparent(order) {
        true => falls_back(order).then(|| folder.work().join(WRITTEN_FOLDER)),
        false => is_cooperative(order).then(|| folder.checkpoint()),
    }
}

impl WorkerFolder {
    /// Brings what a program wrote before, which was put into a folder of the agent's, to where the program finds it:
    /// whoever runs as the program's user can write there, and must be in nobody's way while it is unpacked.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn hand_over(&self, written: &Path) -> io::Result<()> {
        match fs::remove_dir(written) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::rename(self.restored(), written),
        }
    }

    /// Notes what is in a folder as no news.
    ///
    /// # Errors
    /// What the file system says, or why no checkpoint can be made of it.
    pub(crate) fn note_found(&self, written: &Path) -> Result<(), Error> {
        let found: Vec<u8> = marks_of(written)?.into_iter().flat_map(u64::to_le_bytes).collect();
        let noted = durable::replace_soon(&self.file(FOUND_FILE), &found);
        noted.map_err(|source| Error::Io { path: self.file(FOUND_FILE), source })
    }

    /// As [`note_found`](Self::note_found), of an image that was made while the program ran.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn note_in_snapshot(&self, number: u64) -> Result<(), Error> {
        self.note_found(&self.snapshot(number).join(WORK_FOLDER).join(WRITTEN_FOLDER))
    }

    /// Returns whether a file written there is news. Unreadable files count as news: whoever saves them says why not.
    pub(crate) fn has_written(&self, written: &Path) -> bool {
        let found = fs::read(self.file(FOUND_FILE)).unwrap_or_default();
        let number = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_le_bytes);
        let found: BTreeSet<u64> = found.chunks(8).filter_map(number).collect();
        marks_of(written).map_or(true, |marks| !marks.is_subset(&found))
    }
}

fn marks_of(written: &Path) -> Result<BTreeSet<u64>, Error> {
    let is_folder = fs::symlink_metadata(written).is_ok_and(|about| about.is_dir());
    if is_folder { marks(written) } else { Ok(BTreeSet::new()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn only_what_was_written_since_the_newest_image_is_news() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = WorkerFolder::at(data.path());
        let written = folder.work().join(WRITTEN_FOLDER);
        let state = written.join("deep/state");
        assert!(!folder.has_written(&written), "nothing is there");
        fs::create_dir_all(written.join("deep")).expect("made");
        assert!(!folder.has_written(&written), "it is empty");
        fs::write(&state, "7").expect("written");
        fs::write(written.join("lock"), "").expect("written");
        assert!(folder.has_written(&written));

        folder.note_found(&written).expect("noted");
        assert!(!folder.has_written(&written), "it is as it was");
        fs::remove_file(written.join("lock")).expect("removed");
        assert!(!folder.has_written(&written), "nothing new is there");
        // Written by a host whose clock was set back by a day, and of the same length.
        let file = fs::File::options().write(true).open(&state).expect("there");
        file.set_modified(SystemTime::now() - Duration::from_secs(86_400)).expect("set");
        assert!(folder.has_written(&written));

        let image = folder.snapshot(3).join(WORK_FOLDER);
        fs::create_dir_all(&image).expect("made");
        let copied = std::process::Command::new("cp").arg("-a").arg(&written).arg(&image).status();
        assert!(copied.expect("cp is there").success());
        folder.note_in_snapshot(3).expect("noted");
        assert!(!folder.has_written(&written), "it is in the image");
        let deep = (0..200).fold(written.clone(), |folder, _| folder.join("d"));
        fs::create_dir_all(deep).expect("made");
        assert!(folder.has_written(&written), "whoever saves it says that it is too deep");
    }

    #[test]
    fn what_is_handed_over_replaces_nothing_that_somebody_put_there() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = WorkerFolder::at(data.path());
        let written = folder.work().join(WRITTEN_FOLDER);
        fs::create_dir_all(folder.restored()).expect("made");
        fs::create_dir_all(folder.work()).expect("made");
        fs::write(folder.restored().join("state"), "7").expect("written");
        std::os::unix::fs::symlink(data.path(), &written).expect("linked");
        folder.hand_over(&written).expect_err("a link is there");
        fs::remove_file(&written).expect("removed");
        folder.hand_over(&written).expect("nothing is there");
        assert_eq!(fs::read_to_string(written.join("state")).expect("there"), "7");
    }
}
