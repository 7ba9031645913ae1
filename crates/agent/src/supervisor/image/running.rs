//! The process at work on a worker's images (CRIU, a driver of graphics cards or a copy), and the step that it
//! performs.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::ImageRecord;
use crate::boot::BootTime;
use crate::process::{ProcessId, kill_pid};
use crate::supervisor::status::Exit;

/// Something at work: CRIU, or a driver of graphics cards.
#[derive(Debug)]
pub(super) struct Running {
    pub pid: i32,
    pub says: File,
    pub step: Step,
    pub record: Box<ImageRecord>,
    /// Children that ended while something is restored: that is a child of the supervisor from the beginning.
    pub ended: Vec<(i32, Exit)>,
    /// The time at which it is ended; `None`: something else limits it.
    pub until: Option<BootTime>,
}

/// A step of the work on images.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The processes' state on cards is moved into their memory.
    Pause {
        processes: Vec<ProcessId>,
        /// The first of the tree.
        first: ProcessId,
    },
    /// The tree below this process is dumped. Others of it had something on cards.
    Dump {
        /// The first of the tree.
        first: ProcessId,
        paused: Vec<ProcessId>,
    },
    /// The tree is dumped under this number, and goes on.
    Snapshot {
        number: u64,
        /// The first of the tree.
        first: ProcessId,
    },
    /// Its folder is copied meanwhile.
    Copy(u64),
    /// It could not be, and goes on.
    GoOn {
        why: String,
    },
    Restore,
    /// The processes' state is moved back onto the cards.
    Return(ProcessId),
}

impl Step {
    pub(super) const fn restores(&self) -> bool {
        matches!(self, Self::Restore | Self::Return(_))
    }
}

impl Running {
    pub(super) fn said(&self) -> String {
        let mut said = vec![0; 1 << 16];
        let length = self.says.read_at(&mut said, 0).unwrap_or(0);
        String::from_utf8_lossy(&said[..length]).into_owned()
    }

    pub(super) fn kill(&self) {
        // It is a child of this process and not waited for, so the pid is its own.
        let _ = kill_pid(self.pid);
    }

    pub(super) fn is_late(&self) -> bool {
        self.until.is_some_and(|until| until < BootTime::now())
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::helper::hearing;
    use super::*;

    #[test]
    fn what_says_much_does_not_wait_for_a_listener() {
        let (says, end) = hearing().expect("a file");
        let mut command = Command::new("head");
        let child = command.args(["-c", "1000000", "/dev/zero"]).stdout(end).spawn().expect("it runs");
        let record = r#"{"format":1,"node":"n","criu":"4.2","root":2,"free_from":9,"outputs":[1,2],"connections":"none",
            "on_cards":[],"user":5,"group":5}"#;
        let record = Box::new(serde_json::from_str(record).expect("a record"));
        let pid = child.id().cast_signed();
        let running = Running { pid, says, step: Step::Restore, record, ended: Vec::new(), until: None };
        assert!(child.wait_with_output().expect("it ends").status.success());
        assert_eq!(running.said().len(), 1 << 16);
    }
}
