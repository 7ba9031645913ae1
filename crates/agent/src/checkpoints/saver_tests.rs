use std::path::Path;

use tessera_actor::{ActorMeters, WhenFull, mailbox};
use tessera_ledger::{AllocationId, Epoch, Rank};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::*;
use crate::config::CheckpointConfig;
use crate::supervisor::status::Phase;
use crate::worker::{Fence, Term};

fn order(mode: wire::CheckpointMode) -> wire::WorkerOrder {
    let checkpoint = Some(wire::CheckpointPolicy { mode: mode.into(), ..Default::default() });
    wire::WorkerOrder { spec: Some(wire::JobSpec { checkpoint, ..Default::default() }), ..Default::default() }
}

fn over(change: impl FnOnce(&mut Status)) -> Status {
    let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(5), rank: Rank(0) };
    let mut status = Status::new(worker, 7, Fence { term: Term(1), epoch: Epoch(5) }, String::new());
    (status.phase, status.cause, status.exit) = (Phase::Stopped, Some(Cause::Ordered), Some(Exit::Code(0)));
    change(&mut status);
    status
}

#[test]
fn only_what_was_written_in_time_by_a_program_that_ended_well_is_kept() {
    let cooperative = order(wire::CheckpointMode::Cooperative);
    let due = |change: fn(&mut Status)| is_due_at_the_end(&over(change), Some(&cooperative), None);
    assert!(due(|_| {}));
    assert!(due(|status| status.cause = Some(Cause::LeaseExpired)));
    assert!(!due(|status| status.exit = Some(Exit::Code(1))));
    assert!(!due(|status| status.exit = Some(Exit::Signal(15))), "the signal ended it: it may have been writing");
    assert!(!due(|status| status.within_grace = false));
    assert!(!due(|status| status.cause = Some(Cause::Exited)), "nobody told it to stop");
    assert!(!due(|status| status.phase = Phase::Stopping));
    let requeue = order(wire::CheckpointMode::Requeue);
    assert!(!is_due_at_the_end(&over(|_| {}), Some(&requeue), None));
    let saved = |sequence| tessera_testkit::saved(sequence, 1);
    assert!(is_due_at_the_end(&over(|_| {}), Some(&cooperative), Some(&saved(3))));
    let last = saved(CheckpointKey::LAST);
    assert!(!is_due_at_the_end(&over(|_| {}), Some(&cooperative), Some(&last)), "it was done");
}

/// A cooperative worker of a job, with a file in its checkpoint folder.
async fn saver_in(data: &Path) -> (Saver, Shelf) {
    saver_of(data, &order(wire::CheckpointMode::Cooperative)).await
}

async fn saver_of(data: &Path, order: &wire::WorkerOrder) -> (Saver, Shelf) {
    let shelf = Shelf::open(data, &CheckpointConfig::default()).await.expect("it opens");
    let folder = WorkerFolder::at(data.join("worker"));
    std::fs::create_dir_all(folder.checkpoint()).expect("made");
    std::fs::write(folder.checkpoint().join("state"), "7").expect("written");
    let (node, _) = mailbox("node", 8, WhenFull::Wait, &ActorMeters::default());
    let saver = Saver::of(&shelf, &folder, &over(|_| {}), order, None, node);
    (saver.expect("its job saves"), shelf)
}

/// The host lost power after the program had ended: what it wrote may be there by half, unless it was kept before.
#[tokio::test]
async fn what_was_written_before_the_host_was_started_anew_is_not_taken_for_whole() {
    let data = tempfile::tempdir().expect("a folder");
    let wanted = || Wishes::from(watch::Sender::new(Wanted::default()).subscribe());
    let here = boot_id().expect("Linux");
    let (this_boot, other_boot) = (over(|status| status.boot_id = here), over(|_| {}));
    let (saver, shelf) = saver_in(data.path()).await;
    let not_kept = saver.finish(&other_boot, wanted()).await.expect_err("it may be torn").to_string();
    assert!(not_kept.contains("started anew"), "{not_kept}");
    assert!(shelf.kept().is_empty());
    let (saver, shelf) = saver_in(data.path()).await;
    saver.finish(&this_boot, wanted()).await.expect("it is kept");
    assert_eq!(shelf.kept().len(), 1);
    let (saver, _) = saver_in(data.path()).await;
    saver.finish(&other_boot, wanted()).await.expect("it was kept before the host lost power, and is told again");
}

/// A worker that is asked to save every ten seconds, and its program's end of the control socket, once it was asked.
async fn asked_in(data: &Path) -> (Saver, Shelf, UnixStream) {
    let mut order = order(wire::CheckpointMode::Cooperative);
    let policy = order.spec.as_mut().and_then(|spec| spec.checkpoint.as_mut()).expect("it has one");
    policy.every = Some(prost_types::Duration { seconds: 10, nanos: 0 });
    let (mut saver, shelf) = saver_of(data, &order).await;
    saver.begin(Duration::ZERO);
    let mut program = UnixStream::connect(data.join("worker/control.sock")).await.expect("it listens");
    let mut said = [0; 5];
    program.read_exact(&mut said).await.expect("it is asked");
    assert_eq!(&said, b"save\n");
    (saver, shelf, program)
}

fn sequences(shelf: &Shelf) -> Vec<u64> {
    shelf.kept().iter().map(|part| part.checkpoint.sequence).collect()
}

/// It has said that it has saved, waits for the word that this is kept, and its grace is over before that comes.
#[tokio::test(start_paused = true)]
async fn what_a_program_saved_is_kept_also_when_it_is_killed_while_that_is_packed() {
    let data = tempfile::tempdir().expect("a folder");
    let (saver, shelf, mut program) = asked_in(data.path()).await;
    let Way::Asked { packing, .. } = &saver.way else { panic!("it is asked") };
    let packing = Arc::clone(packing);
    program.write_all(b"saved 7\n").await.expect("written");
    while packing.try_lock().is_ok() && shelf.kept().is_empty() {
        tokio::task::yield_now().await;
    }
    let killed = over(|status| (status.exit, status.within_grace) = (Some(Exit::Signal(9)), false));
    saver.finish(&killed, watch::Sender::new(Wanted::default()).subscribe().into()).await.expect("it is kept");
    assert_eq!(sequences(&shelf), [1]);
}

/// The numbers of saves continue behind those of the agent that ran before.
#[tokio::test(start_paused = true)]
async fn numbers_go_on_after_those_of_the_agent_before() {
    let data = tempfile::tempdir().expect("a folder");
    let folder = WorkerFolder::at(data.path().join("worker"));
    std::fs::create_dir_all(folder.path()).expect("made");
    folder.note_saved(&tessera_testkit::saved(41, 1)).expect("writable");
    let since = Instant::now();
    let (saver, shelf, mut program) = asked_in(data.path()).await;
    assert_eq!(since.elapsed().as_secs(), 10, "it is asked in time");
    program.write_all(b"saved 7\n").await.expect("written");
    let mut answer = [0; 6];
    program.read_exact(&mut answer).await.expect("it is answered");
    assert_eq!((&answer, sequences(&shelf)), (b"kept 7", vec![42]));
    drop(saver);
}
