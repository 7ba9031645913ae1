//! A program that is dumped by CRIU, and beside it the process that has its card: here a script that says what it is
//! told to.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::support::{Supervised, criu, is_alive, launch, pid_in, plan, wait_for};
use tessera_agent::supervisor::image::{PLACE, make_place};
use tessera_agent::supervisor::message::{CompanionPlan, Request};
use tessera_agent::supervisor::output::Stream;
use tessera_agent::supervisor::status::{Cause, Exit, Phase, Status};

/// A program that counts, and says so when it is told to stop.
const COUNTS: &str = "trap 'echo stopped at $i; exit 0' TERM; i=0; while :; do i=$((i+1)); echo $i; sleep 0.05; done";

/// A worker of two scripts: its program, and what runs beside it.
///
/// The latter speaks with the supervisor on its standard input.
fn worker(program: &str, beside: &str) -> Supervised {
    worker_of(criu(), program, beside)
}

fn worker_of(criu: PathBuf, program: &str, beside: &str) -> Supervised {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut launch = launch(program);
    launch.image = Some(plan(&folder, criu));
    launch.companion = Some(CompanionPlan {
        command: ["/bin/sh", "-c", beside].map(str::to_owned).to_vec(),
        environment: launch.environment.clone(),
        card_mib: 1,
    });
    make_place().expect("this takes root");
    Supervised::prepare_in(folder, launch)
}

/// A script beside the program that is ready, and does this whenever it is told to save.
fn saves(what: &str) -> String {
    format!("echo beside=$$; echo ready >&0; while read word; do {what}; done; sleep 1000")
}

fn begun(program: &str, beside: &str) -> Supervised {
    let mut worker = worker(program, beside);
    worker.send(&Request::Begin);
    worker.until(|status| status.process.is_some() || status.phase == Phase::Stopped);
    worker
}

/// Waits until each process of a tree stands still, of which this is the first.
fn stands(first: i32) {
    wait_for("it to stand still", || {
        let stat = fs::read_to_string(format!("/proc/{first}/stat")).ok()?;
        stat.rsplit(") ").next()?.starts_with('T').then_some(())
    });
}

/// The number to which the program has counted.
fn counted(worker: &Supervised) -> u32 {
    worker.output(Stream::Stdout).lines().filter_map(|line| line.parse().ok()).max().unwrap_or(0)
}

fn goes_on(worker: &Supervised) {
    let before = counted(worker);
    wait_for("it to go on", || (counted(worker) > before).then_some(()));
}

fn snapshot_of(worker: &mut Supervised) -> Status {
    worker.until(|status| status.snapshot.as_ref().is_some_and(|snapshot| snapshot.number == 1))
}

fn why(status: &Status) -> &str {
    &status.snapshot.as_ref().expect("it was tried").why
}

#[test]
fn a_program_begins_when_what_has_its_card_is_ready_and_both_end_as_it_does() {
    let mut worker = begun("echo program; exit 3", "echo beside=$$; sleep 0.2; echo ready >&0; exec sleep 1000");
    let status = worker.stopped();
    assert_eq!((status.cause, status.exit), (Some(Cause::Exited), Some(Exit::Code(3))));
    let output = worker.output(Stream::Stdout);
    assert!(output.starts_with("beside=") && output.ends_with("\nprogram\n"), "{output}");
}

/// Nothing else would end a start that has come to no process.
#[test]
fn a_program_whose_card_never_comes_never_begins_and_is_over() {
    for beside in ["exit 9", "exec 0<&-; sleep 1000", "echo nonsense >&0"] {
        let mut worker = begun("echo program", beside);
        let status = worker.stopped();
        assert_eq!((status.cause, status.process), (Some(Cause::NodeFault), None), "{beside}");
        assert!(status.message.contains("slice servers of its card ended"), "{}", status.message);
        assert_eq!(worker.output(Stream::Stdout), "", "nothing of it has run");
    }
}

#[test]
fn a_stop_before_the_card_is_ready_ends_both() {
    let mut worker = worker("echo program", "echo beside=$$; exec sleep 1000");
    worker.send(&Request::Begin);
    worker.output_with("beside=");
    worker.stop(Duration::from_secs(20));
    let status = worker.stopped();
    assert_eq!((status.cause, status.process), (Some(Cause::Ordered), None));
    assert!(!worker.output(Stream::Stdout).contains("program"));
}

#[test]
fn a_program_whose_card_is_lost_is_over() {
    let mut worker = begun(COUNTS, &saves("true"));
    let output = worker.output_with("beside=");
    let beside = pid_in(&output, "beside", &worker.running());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(beside), nix::sys::signal::Signal::SIGKILL).expect("it lives");
    let status = worker.stopped();
    let killed = (Some(Cause::Exited), Some(Exit::Signal(9)));
    assert_eq!((status.cause, status.exit), killed, "a process of the worker may have done that");
    assert!(!is_alive(status.process.expect("it ran").pid));
}

#[test]
fn a_program_whose_card_ends_by_itself_is_over_by_its_node() {
    let mut worker = begun(COUNTS, "echo ready >&0; sleep 0.2; exit 9");
    let status = worker.stopped();
    assert_eq!(status.cause, Some(Cause::NodeFault), "{}", status.message);
    let word = r#"word {"cause":"node_fault","why":"it is broken"}"#;
    let mut worker = begun(COUNTS, &format!("echo ready >&0; echo '{word}' >&0; exit 125"));
    assert_eq!(worker.stopped().message, "it is broken");
}

#[test]
fn an_image_that_is_made_while_it_runs_has_its_card_and_it_goes_on() {
    let save = "[ $word = save ] && echo 42 >$FOLDER/work/.card/device && echo saved >&0";
    let mut worker = begun(COUNTS, &saves(&save.replace("$FOLDER", PLACE)));
    worker.output_with("2\n");
    worker.send(&Request::Snapshot { number: 1 });
    let status = snapshot_of(&mut worker);
    assert_eq!(why(&status), "");
    let snapshot = worker.folder.path().join("snapshot/1");
    assert_eq!(fs::read_to_string(snapshot.join("work/.card/device")).expect("saved"), "42\n");
    assert!(snapshot.join("image/inventory.img").exists() && !snapshot.join("card").exists());
    let left = fs::read_dir(worker.folder.path().join("work/.card")).expect("the next save finds a folder");
    assert_eq!(left.count(), 0, "it would only be copied with the next one");
    goes_on(&worker);
    worker.stop_and(true, Duration::from_secs(20));
    let status = worker.stopped();
    assert!(status.image.is_some(), "{}: {}", status.message, status.not_saved);
    assert!(worker.folder.path().join("work/.card/device").exists(), "it was saved again");
}

/// Whatever becomes of its card, a program is not left standing.
#[test]
fn a_card_that_cannot_be_saved_is_told_of_and_the_program_goes_on() {
    let mut worker = begun(COUNTS, &saves("echo failed no space left >&0"));
    worker.output_with("2\n");
    worker.send(&Request::Snapshot { number: 1 });
    let status = snapshot_of(&mut worker);
    assert!(why(&status).contains("no space left"), "{status:?}");
    goes_on(&worker);
    worker.stop_and(true, Duration::from_secs(20));
    let status = worker.stopped();
    assert!(status.image.is_none() && status.not_saved.contains("no space left"), "{}", status.not_saved);
    assert_eq!(status.exit, Some(Exit::Code(0)), "it was told to stop in its own way");
    assert!(worker.output(Stream::Stdout).contains("stopped at"));
}

/// A link that a job puts in the place of its card leads root nowhere.
#[test]
fn a_link_in_the_place_of_what_is_saved_is_not_followed() {
    let precious = tempfile::tempdir().expect("a temporary folder");
    fs::write(precious.path().join("precious"), "kept").expect("writable");
    let save =
        format!("rm -rf {PLACE}/work/.card; ln -s {} {PLACE}/work/.card; echo saved >&0", precious.path().display());
    let mut worker = begun(COUNTS, &saves(&save));
    worker.output_with("2\n");
    worker.send(&Request::Snapshot { number: 1 });
    let status = snapshot_of(&mut worker);
    assert!(why(&status).contains("cannot be put beside its image"), "{status:?}");
    assert_eq!(fs::read_to_string(precious.path().join("precious")).expect("still there"), "kept");
    goes_on(&worker);
}

/// It is said of a save for which nobody waits.
#[test]
fn an_answer_that_nobody_waits_for_means_nothing() {
    let mut worker = begun(COUNTS, "echo saved >&0; echo failed why >&0; echo ready >&0; echo ready >&0; sleep 1000");
    worker.output_with("2\n");
    goes_on(&worker);
    worker.stop(Duration::from_secs(20));
    assert_eq!(worker.stopped().exit, Some(Exit::Code(0)));
}

/// A save besides would keep it from hearing that it is to stop.
#[test]
fn a_stop_does_not_wait_for_the_card_of_an_image_that_is_made_besides() {
    let mut worker = begun(COUNTS, &saves("true"));
    worker.output_with("2\n");
    let first = worker.running().process.expect("it runs").pid;
    worker.send(&Request::Snapshot { number: 1 });
    stands(first);
    // Its card is never saved.
    worker.stop(Duration::from_secs(20));
    let status = worker.stopped();
    assert_eq!((status.exit, status.within_grace), (Some(Exit::Code(0)), true), "{}", status.message);
    assert!(worker.output(Stream::Stdout).contains("stopped at"));
    assert!(why(&status).contains("told to stop"), "{status:?}");
}

/// A worker that is killed while it stands still is gone, and nobody waits for its card.
#[test]
fn a_grace_that_ends_while_its_card_is_saved_ends_it() {
    let mut worker = begun(COUNTS, &saves("true"));
    worker.output_with("2\n");
    worker.stop_and(true, Duration::from_secs(2));
    let status = worker.stopped();
    assert!(status.image.is_none() && !status.within_grace, "{status:?}");
    assert!(!is_alive(status.process.expect("it ran").pid));
}

/// CRIU lets nothing go on that it has stopped when it is killed itself.
#[test]
fn a_program_that_criu_has_left_stopped_goes_on() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dies = folder.path().join("criu");
    script(&dies, &format!("#!/bin/sh\n'{}' \"$@\"\nkill -KILL $$\n", criu().display()));
    let mut worker = worker_of(dies, COUNTS, &saves("echo saved >&0"));
    worker.send(&Request::Begin);
    worker.output_with("2\n");
    worker.send(&Request::Snapshot { number: 1 });
    let status = snapshot_of(&mut worker);
    assert!(why(&status).contains("signal 9"), "{status:?}");
    goes_on(&worker);
}

fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("mine");
}
