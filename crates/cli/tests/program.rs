//! The program from outside: help, errors and exit codes, without any control plane.

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

/// The program with a configuration folder of its own and nothing of this environment.
pub fn command(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tessera"));
    command.args(arguments).env_clear().env("HOME", folder).env("COLUMNS", "100");
    command
}

fn tessera(folder: &Path, arguments: &[&str]) -> Output {
    command(folder, arguments).output().expect("the program starts")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn run(arguments: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let output = tessera(folder.path(), arguments);
    (output.status.code().expect("it was not killed"), text(&output.stdout), text(&output.stderr))
}

/// A port of loopback where nobody listens.
pub fn closed_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a port").port()
}

#[test]
fn help_says_what_there_is_and_how_it_ends() {
    let (code, out, err) = run(&["--help"]);
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(out);
}

#[test]
fn help_of_a_group_and_of_a_verb() {
    insta::assert_snapshot!("job_help", run(&["job", "--help"]).1);
    insta::assert_snapshot!("job_run_help", run(&["job", "run", "--help"]).1);
    insta::assert_snapshot!("dev_help", run(&["dev", "--help"]).1);
}

#[test]
fn a_misspelt_verb_is_answered_with_the_right_one() {
    let (code, out, err) = run(&["job", "sumbit"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("'submit'"), "{err}");
}

#[test]
fn values_that_cannot_be_are_refused_with_what_would_be_right() {
    let refused = |arguments: &[&str]| {
        let (code, _, err) = run(arguments);
        assert_eq!(code, 2, "{err}");
        err
    };
    assert!(refused(&["job", "show", "many"]).contains("a job is named by its number"));
    assert!(refused(&["job", "run", "--tflops=-1", "--", "true"]).contains("TFLOPS"));
    assert!(refused(&["job", "run", "--tflops", "0", "--", "true"]).contains("at least 0.001 TFLOPS"));
    assert!(refused(&["job", "run"]).contains("<COMMAND>"));
    assert!(refused(&["dev", "--members", "2"]).contains("1, 3 or 5"));
    assert!(refused(&["job", "list", "--state", "runing"]).contains("'running'"));
    assert!(refused(&["--server", "x"]).contains("unexpected argument"));
    assert!(refused(&["job", "list", "-s", "nowhere"]).contains("it has no port"));
}

#[test]
fn a_wrong_address_is_found_at_once_however_long_one_would_wait_for_the_job() {
    let server = format!("127.0.0.1:{}", closed_port());
    let (code, _, err) = run(&["job", "wait", "1", "--wait-timeout", "1h", "-s", &server, "--timeout", "1s"]);
    assert_eq!(code, 5, "{err}");
}

#[test]
fn what_is_quoted_in_an_error_is_spelled() {
    let evil = "/no\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}/such";
    for arguments in [&["job", "submit", evil], &["job", "show", evil], &["job", "why", evil]] {
        let (code, out, err) = run(arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(r"/no\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}2J\u{202e}/such"), "{err:?}");
        assert!(!err.contains(['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}']), "{err:?}");
    }
}

#[test]
fn an_argument_that_is_no_text_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let evil = OsStr::from_bytes(b"gr\xc3\xb6\xc3\x9fe\xff");
    let mut runs = command(folder.path(), &["job", "run", "--", "echo"]);
    let refused = runs.arg(evil).output().expect("the program starts");
    let err = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{err}");
    assert!(err.contains(r"argument 5: größe\xff"), "{err}");
}

#[test]
fn nobody_there_is_said_once_and_ends_with_five() {
    let server = format!("127.0.0.1:{}", closed_port());
    let (code, out, err) = run(&["job", "list", "-s", &server, "--timeout", "1s"]);
    assert_eq!((code, out.as_str()), (5, ""));
    let err = err.replace(&server, "MEMBER");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines[0], "error: the jobs cannot be listed");
    assert!(lines[1].starts_with("  why: no member could be reached within "), "{err}");
    assert_eq!(lines[2].trim(), "MEMBER: Connection refused (os error 111)");
    assert!(lines[3].starts_with("  next: check the address (`tessera context show`)"), "{err}");
}

#[test]
fn a_job_file_with_an_error_ends_with_two_and_names_the_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.toml");
    std::fs::write(&path, "command = [\"true\"]\n[virtual_card]\ntflops = -5\n").expect("written");
    let output = tessera(folder.path(), &["job", "submit", path.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(2));
    let err = text(&output.stderr);
    assert!(err.contains("line 3") && err.contains("virtual_card.tflops"), "{err}");
}

#[test]
fn destructive_verbs_do_nothing_unless_somebody_says_yes() {
    let server = format!("127.0.0.1:{}", closed_port());
    for verb in [["job", "cancel", "1"], ["node", "drain", "n"], ["node", "forget", "n"], ["queue", "remove", "q"]] {
        let arguments = [&verb[..], &["-s", &server]].concat();
        let (code, _, err) = run(&arguments);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("add --yes"), "{err}");
    }
}

#[test]
fn contexts_are_made_chosen_and_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| {
        let output = tessera(folder.path(), arguments);
        (output.status.code().expect("it was not killed"), text(&output.stdout), text(&output.stderr))
    };
    assert_eq!(run(&["context", "use", "lab"]).0, 3);
    assert_eq!(run(&["context", "use", "lab", "--server", "10.0.0.1:7400,10.0.0.2:7400"]).0, 0);
    assert_eq!(run(&["context", "use", "prod", "--server", "10.9.0.1:7400"]).0, 0);
    assert_eq!(run(&["context", "use", "lab"]).0, 0);
    let (_, listed, _) = run(&["context", "list"]);
    insta::assert_snapshot!(listed, @r"
    IN USE  CONTEXT  SERVER
    *       lab      10.0.0.1:7400,10.0.0.2:7400
            prod     10.9.0.1:7400
    ");
    let (_, shown, _) = run(&["context", "show"]);
    assert!(shown.contains("10.0.0.1:7400,10.0.0.2:7400  (from: context lab)"), "{shown}");
    assert!(shown.contains("10s  (from: default)"), "{shown}");
}

#[test]
fn a_member_without_a_folder_and_one_with_a_bad_file_are_refused() {
    let (code, _, err) = run(&["server"]);
    assert_eq!(code, 2);
    assert!(err.contains("--data-dir"), "{err}");

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.toml");
    std::fs::write(&path, "data_dir = 'd'\n[timing]\n").expect("written");
    let output = tessera(folder.path(), &["server", "--config", path.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(2));
    let err = text(&output.stderr);
    assert!(err.contains("server.toml:2:2: unknown field `timing`"), "{err}");
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let (code, out, _) = run(&["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("transfer-leader"), "{shell} does not know the verbs");
    }
}

#[test]
fn the_supervisor_is_reached_without_the_tree_of_commands() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().to_str().expect("text");
    let (code, _, err) = run(&["supervise", empty]);
    assert_eq!(code, 1);
    assert!(err.contains("the supervisor in"), "{err}");
}

#[test]
fn versions_are_one() {
    let (_, long, _) = run(&["--version"]);
    let (_, verb, _) = run(&["version"]);
    assert_eq!(long, verb);
    assert_eq!(long, format!("tessera {}\n", env!("CARGO_PKG_VERSION")));
}
