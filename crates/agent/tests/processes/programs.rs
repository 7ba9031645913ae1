//! The blame for a program that does not begin, or ends with a word about its node.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::supervisor::machine_has;
use super::support::{Supervised, launch};
use tessera_agent::cgroup::Limits;
use tessera_agent::supervisor::message::Request;
use tessera_agent::supervisor::status::{Cause, Exit};

/// The shell would take their bytes for commands, or find none and be done.
#[test]
fn only_text_is_given_to_the_shell() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mine");
        path
    };
    let run = |path: PathBuf| {
        let mut launch = launch("");
        launch.command = vec![path.display().to_string()];
        Supervised::start(launch).stopped()
    };
    let mut alien = fs::read("/bin/true").expect("it is a program");
    alien[18] ^= 0xFF;
    for (path, why) in [
        (file("alien", &alien), "is a program for "),
        (file("empty", b""), "is empty"),
        (file("marked", b"\xEF\xBB\xBF#!/bin/sh\nexit 0\n"), "byte order mark"),
        (file("wide", b"\xFF\xFEe\0x\0i\0t\0\n\0"), "UTF-16"),
    ] {
        let status = run(path);
        assert_eq!((status.cause, status.exit), (Some(Cause::StartFailed), None), "{}", status.message);
        assert!(status.message.contains(why), "{}", status.message);
    }
    assert_eq!(run(file("text", b"exit 3\n")).exit, Some(Exit::Code(3)));
}

/// The words are the job's, also where a program of the node's own is given them.
#[test]
fn words_that_are_too_long_are_the_jobs_own() {
    let mut long = launch("");
    long.command = vec!["/proc/self/exe".to_owned(), "x".repeat(140_000)];
    let status = Supervised::start(long).stopped();
    assert_eq!(status.cause, Some(Cause::StartFailed));
    assert!(status.message.contains("the argument that begins with `xxx"), "{}", status.message);
}

#[test]
fn a_working_directory_that_cannot_be_entered_is_named_with_what_is_missing_of_it() {
    let mut lost = launch("true");
    lost.working_directory = PathBuf::from("/no/such/folder");
    let status = Supervised::start(lost).stopped();
    assert_eq!(status.cause, Some(Cause::StartFailed));
    let why = "the working directory `/no/such/folder` cannot be entered: `/no/such/folder` is not on this node: there \
               is no `/no`";
    assert_eq!(status.message, why);
}

#[test]
fn a_word_about_the_node_is_believed_on_the_socket_only() {
    let word = r#"{"cause":"node_fault","why":"it is broken"}"#;
    let run = |script: &str| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("work")).expect("writable");
        let mut says = launch(&script.replace("WORD", word));
        says.has_device = true;
        let mut worker = Supervised::prepare_in(folder, says);
        worker.send(&Request::Begin);
        worker.stopped()
    };
    let blamed = run("echo 'word WORD' >&0; exit 125");
    assert_eq!((blamed.cause, blamed.message.as_str()), (Some(Cause::NodeFault), "it is broken"));
    let written = run("echo 'WORD' > \"$FOLDER/work/.word\"; exit 125");
    assert_eq!((written.cause, written.exit), (Some(Cause::Exited), Some(Exit::Code(125))));
    assert_eq!(run("echo 'word WORD' >&0; exit 3").exit, Some(Exit::Code(3)));
}

/// Its process is born into the group that may have less than it takes to be born.
#[test]
fn what_is_killed_for_its_memory_before_it_begins_is_out_of_memory() {
    if !machine_has("memory") {
        return;
    }
    let mut limited = launch("true");
    limited.limits = Limits { memory_bytes: Some(4096), ..Limits::default() };
    let status = Supervised::start(limited).stopped();
    assert_eq!(status.cause, Some(Cause::OutOfMemory), "{}", status.message);
}
