//! A worker whose card is on another node, with a test in the place of the slice server there.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tessera_agent::device::ProgramPlace;
use tessera_slice::handshake::{Credentials, Slice, Versions, of_server};

use super::support::{PATIENCE, device_plan, example};

/// Less than a word to a server that hangs may take.
const SOON: Duration = Duration::from_secs(8);
/// The code with which a worker ends that tells why.
const TOLD: i32 = 125;

/// The server of its card, which does what the test does.
struct Server {
    listener: TcpListener,
    credentials: Credentials,
}

impl Server {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        Self { listener, credentials: Credentials { token: "0123456789abcdef".to_owned(), epoch: 7 } }
    }

    /// Starts a worker of its card, with a program of the shell.
    fn worker(&self, script: &str) -> Worker {
        let server = format!("tcp:{}", self.listener.local_addr().expect("an address"));
        let plan = device_plan(&[], ProgramPlace::Apart { server, within: PATIENCE }, Vec::new());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new(example("with_device"));
        command.arg(serde_json::to_string(&plan).expect("plain data")).args(["/bin/sh", "-c", script]);
        command.env("TESSERA_TOKEN", &self.credentials.token).env("TESSERA_EPOCH", "7");
        command.env("TESSERA_WORKER_DIR", folder.path());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
        Worker { child, _folder: folder }
    }

    /// Lets the worker in, for the next connection of it.
    fn let_in(&self) -> Connection {
        let (mut stream, _) = self.listener.accept().expect("it comes");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let versions = Versions::of_this_build("");
        let heard = of_server(&mut stream, "a test", &versions, &self.credentials).expect("a handshake");
        assert_eq!(heard.refusal(), None);
        let slice = Slice { device: "cpu".to_owned(), memory_bytes: 1, share: 1.0, sequence: 0 };
        heard.welcome(&mut stream, "a test", &self.credentials, &slice, false).expect("it reads");
        Connection(stream)
    }
}

struct Connection(TcpStream);

impl Connection {
    fn hear(&mut self) -> u8 {
        let mut word = [0];
        self.0.read_exact(&mut word).expect("a word");
        word[0]
    }

    /// Answers the next word.
    fn answer(&mut self) -> u8 {
        let word = self.hear();
        self.0.write_all(&[word]).expect("it reads");
        word
    }
}

struct Worker {
    child: Child,
    _folder: TempDir,
}

impl Worker {
    fn until_it_has_begun(&mut self) {
        let mut said = String::new();
        let output = self.child.stdout.as_mut().expect("a pipe");
        BufReader::new(output).read_line(&mut said).expect("it can be read");
        assert_eq!(said, "begun\n");
    }

    /// Lets a program go on that reads a line.
    fn go_on(&mut self) {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"go on\n").expect("it reads");
    }

    fn ends(&mut self) -> ExitStatus {
        self.child.wait().expect("a child")
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

#[test]
fn a_stop_comes_to_a_program_whose_server_hangs_and_its_code_to_the_worker() {
    let server = Server::new();
    let mut worker = server.worker("trap 'exit 7' TERM; sleep 3600 & echo begun; wait");
    let mut hangs = server.let_in();
    hangs.answer();
    worker.until_it_has_begun();
    hangs.hear();
    let asked = Instant::now();
    kill(Pid::from_raw(worker.child.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert_eq!(worker.ends().code(), Some(7));
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}

#[test]
fn a_stop_comes_to_a_worker_that_waits_for_a_server_that_hangs() {
    let server = Server::new();
    let mut worker = server.worker("echo begun");
    server.let_in().hear();
    let mut hangs = server.let_in();
    hangs.hear();
    kill(Pid::from_raw(worker.child.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    let asked = Instant::now();
    assert!(!worker.ends().success());
    assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
}

#[test]
fn a_program_that_fails_by_itself_is_not_excused_by_a_connection_that_broke() {
    let server = Server::new();
    let mut worker = server.worker("echo begun; read line; exit 3");
    let mut first = server.let_in();
    first.answer();
    worker.until_it_has_begun();
    first.hear();
    drop(first);
    let mut second = server.let_in();
    worker.go_on();
    while second.answer() != b'o' {}
    second.answer();
    assert_eq!(worker.ends().code(), Some(3));
}

#[test]
fn a_program_that_fails_because_its_server_is_gone_is_excused() {
    let server = Server::new();
    let mut worker = server.worker("echo begun; read line; exit 3");
    server.let_in().answer();
    worker.until_it_has_begun();
    drop(server);
    worker.go_on();
    assert_eq!(worker.ends().code(), Some(TOLD));
}
