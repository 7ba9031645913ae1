//! Supervisors that can write nothing any more: what they would say is lost, and their workers go on.

use std::os::unix::fs::symlink;

use tessera_agent::supervisor::LOG_FILE;
use tessera_agent::supervisor::message::Request;
use tessera_agent::supervisor::output::Stream;
use tessera_agent::supervisor::status::{Cause, Exit};

use super::support::{Supervised, launch};

/// More than pipes hold: whoever writes it is read until the end.
const WRITTEN: u64 = 1_000_000;

#[test]
fn a_job_that_prints_goes_on_while_neither_its_output_nor_the_log_has_room() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for file in [folder.path().join(LOG_FILE), Stream::Stdout.file(folder.path(), 0)] {
        symlink("/dev/full", file).expect("every Linux has it");
    }
    let script = format!("head -c {WRITTEN} /dev/zero && exit 5");
    let mut worker = Supervised::prepare_in(folder, launch(&script));
    worker.send(&Request::Begin);
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::Exited), Some(Exit::Code(5))), "{}", status.message);
    assert!(status.message.ends_with(&format!("{WRITTEN} bytes of its output could not be written")));
}
