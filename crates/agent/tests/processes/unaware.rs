//! The process that has the card of a program which is dumped, with a test in the places of the supervisor, of the
//! program, and of the slice server as it is asked to save.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tessera_agent::device::{PlannedSlice, ProgramPlace};

use super::support::{PATIENCE, device_plan, example, wait_for};

/// The code with which a worker ends that tells why.
const TOLD: i32 = 125;

/// One end of a conversation in lines.
struct Speaker(BufReader<UnixStream>);

impl Speaker {
    fn new(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Self(BufReader::new(stream))
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("it speaks");
        line.trim_end().to_owned()
    }
}

struct Companion {
    child: Child,
    supervisor: Speaker,
    folder: TempDir,
}

impl Companion {
    /// Starts one with a server that is this script, and waits until questions are answered.
    fn start(server: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let slice = PlannedSlice {
            device: "cpu".to_owned(),
            environment: BTreeMap::new(),
            share: 1.0,
            part: 1.0,
            threads: 1,
            memory_mib: 64,
        };
        let place = ProgramPlace::Unaware(folder.path().to_owned());
        let plan = device_plan(&["/bin/sh", "-c", server], place, vec![slice]);
        let (own, other) = UnixStream::pair().expect("a socket pair");
        let mut command = Command::new(example("with_device"));
        command.arg(serde_json::to_string(&plan).expect("plain data"));
        command.env("TESSERA_EPOCH", "7").env("TESSERA_WORKER_DIR", folder.path());
        let child = command.stdin(Stdio::from(OwnedFd::from(other))).spawn().expect("it can be started");
        let mut supervisor = Speaker::new(own);
        assert_eq!(supervisor.hear(), "ready");
        Self { child, supervisor, folder }
    }

    /// Asks for a save, of which its server hears under this number.
    fn save(&mut self, server: &mut Speaker, number: u64) {
        self.supervisor.say("save");
        assert_eq!(server.hear(), format!("save still {number}"));
    }

    fn connect(&self, name: &str) -> Speaker {
        let path = self.folder.path().join(name);
        Speaker::new(UnixStream::connect(path).expect("it listens"))
    }

    fn ask(&self, question: &str) -> String {
        let mut program = self.connect(".card.sock");
        program.say(question);
        program.hear()
    }

    /// The connection at which the first server is asked to save, once it has said where it listens.
    fn server(&self) -> Speaker {
        let server = self.connect(".card.control");
        wait_for("its server to listen", || self.ask(r#"{"where": true}"#).contains("address").then_some(()));
        server
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // One that a failed test left behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const SERVES: &str = "echo chatter; echo listening tcp:127.0.0.1:9; exec sleep 1000";

#[test]
fn a_program_is_told_to_wait_and_then_where_its_card_is() {
    let companion = Companion::start("read line; exec sleep 1000");
    assert!(companion.ask(r#"{"where": true}"#).contains("wait"));
    let companion = Companion::start(SERVES);
    companion.server();
    let place = companion.ask(r#"{"where": true}"#);
    assert!(place.contains(r#""address":"tcp:127.0.0.1:9""#) && place.contains(r#""epoch":7"#), "{place}");
    assert_eq!(companion.ask(r#"{"safe": true}"#), r#"{"safe":0}"#);
}

/// An answer to an earlier save, which the supervisor has given up, says nothing of the present one.
#[test]
fn an_answer_that_comes_late_is_not_taken_for_that_of_the_next_save() {
    let mut companion = Companion::start(SERVES);
    let mut server = companion.server();
    companion.save(&mut server, 1);
    companion.save(&mut server, 2);
    server.say("saved 10 1");
    server.say("failed 2 no space left");
    assert_eq!(companion.supervisor.hear(), "failed no space left");
    companion.supervisor.say("save");
    // Each is let go of, or it would not save again.
    let said: Vec<String> = (0..3).map(|_| server.hear()).collect();
    assert_eq!(said, ["kept 0 0", "kept 0 0", "save still 3"]);
    server.say("saved 10 3");
    assert_eq!(companion.supervisor.hear(), "saved");
}

#[test]
fn a_question_that_is_never_asked_keeps_nobody_waiting() {
    let mut companion = Companion::start(SERVES);
    let mut server = companion.server();
    let silent: Vec<Speaker> = (0..3).map(|_| companion.connect(".card.sock")).collect();
    companion.save(&mut server, 1);
    server.say("saved 10 1");
    assert_eq!(companion.supervisor.hear(), "saved");
    assert!(companion.ask(r#"{"where": true}"#).contains("address"));
    for mut hung_up in silent {
        assert_eq!(hung_up.hear(), "", "it is answered by nothing");
    }
}

/// A connection may end, and the server has not.
#[test]
fn a_server_that_comes_again_is_asked() {
    let mut companion = Companion::start(SERVES);
    let mut server = companion.server();
    companion.save(&mut server, 1);
    drop(server);
    let mut server = companion.server();
    assert_eq!(server.hear(), "save still 2", "it may have saved, and told nobody");
    server.say("saved 10 2");
    assert_eq!(companion.supervisor.hear(), "saved");
}

#[test]
fn a_server_that_ends_ends_it_with_the_reason() {
    let serves_briefly = "echo listening tcp:127.0.0.1:9; sleep 0.3; exit 3";
    for (server, why) in [("exit 3", "ended before it listened"), (serves_briefly, "nobody had asked for that")] {
        let mut companion = Companion::start(server);
        assert_eq!(companion.child.wait().expect("a child").code(), Some(TOLD), "{why}");
        let said = companion.supervisor.hear();
        assert!(said.starts_with("word ") && said.contains(why), "{said:?}");
    }
}

#[test]
fn it_ends_with_its_supervisor_and_so_do_its_servers() {
    let mut companion = Companion::start("echo $$ >$TESSERA_WORKER_DIR/pid; exec sleep 1000");
    let path = companion.folder.path().join("pid");
    let pid = wait_for("its server", || std::fs::read_to_string(&path).ok()?.trim().parse::<i32>().ok());
    let (other, _) = UnixStream::pair().expect("a socket pair");
    companion.supervisor = Speaker::new(other);
    companion.child.wait().expect("a child");
    wait_for("its server to end", || (!tessera_agent::process::has_live_thread(pid)).then_some(()));
}
