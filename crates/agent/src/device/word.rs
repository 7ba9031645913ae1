//! The word about its end that a worker leaves beside its exit code, if it began as a process of this agent's program.
//!
//! The file lies in the worker's own folder: a program that writes one can blame its node, which is believed only so
//! often, or say that the host of its program is gone, which ends its own job.

use std::fs;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::supervisor::status::{Cause, Exit};
use crate::untrusted;

/// The code with which a worker ends that leaves a word.
pub(super) const CODE: u8 = 125;
/// Name of the file in the worker's own folder.
const FILE: &str = ".word";
/// Most bytes of it.
const LONGEST: u64 = 4096;

/// The reason for the end of a worker that ended otherwise than by its program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Word {
    pub cause: Cause,
    /// For people.
    pub why: String,
}

impl Word {
    pub(super) fn leave(&self, work: &Path) {
        // Without it the job is blamed, and its output says why.
        let _ = serde_json::to_vec(self).map(|word| fs::write(work.join(FILE), word));
    }

    /// The word that a worker left which ended so.
    pub(crate) fn left(exit: Exit, work: &Path) -> Option<Self> {
        if exit != Exit::Code(CODE.into()) {
            return None;
        }
        let word: Self = serde_json::from_slice(&read(&work.join(FILE), LONGEST)?).ok()?;
        matches!(word.cause, Cause::NodeFault | Cause::HostLost | Cause::PortTaken).then_some(word)
    }
}

/// The beginning of a file in a worker's own folder, which may have put anything in its place.
pub(super) fn read(path: &Path, longest: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    untrusted::open(path).ok()?.take(longest).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_believed_only_about_the_node_and_the_host_and_only_from_who_ended_with_its_code() {
        let work = tempfile::tempdir().expect("a folder");
        let left = |cause, code| {
            let word = Word { cause, why: "so it was".to_owned() };
            word.leave(work.path());
            Word::left(Exit::Code(code), work.path()).map(|word| word.why)
        };
        assert_eq!(left(Cause::NodeFault, 125).as_deref(), Some("so it was"));
        assert_eq!(left(Cause::HostLost, 125).as_deref(), Some("so it was"));
        assert_eq!(left(Cause::NodeFault, 1), None);
        assert_eq!(left(Cause::LeaseExpired, 125), None);
        let file = work.path().join(FILE);
        fs::write(&file, "no word").expect("writable");
        assert_eq!(Word::left(Exit::Code(125), work.path()), None);
        fs::remove_file(&file).expect("there");
        std::os::unix::fs::symlink("/etc/passwd", &file).expect("writable");
        assert_eq!(read(&file, 10), None, "a link leads out of the folder");
    }

    #[test]
    fn what_a_worker_left_is_read_up_to_a_bound() {
        let work = tempfile::tempdir().expect("a folder");
        let file = work.path().join(FILE);
        let longest = usize::try_from(LONGEST).expect("it is small");
        fs::write(&file, vec![b' '; 1 << 20]).expect("writable");
        assert_eq!(read(&file, LONGEST).map(|bytes| bytes.len()), Some(longest));
        assert_eq!(Word::left(Exit::Code(CODE.into()), work.path()), None, "what was cut is no word");
    }
}
