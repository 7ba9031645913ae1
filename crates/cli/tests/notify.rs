//! Members and agents as a service manager runs them: what they tell it on the socket that it names, and when.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::unwritten::{full, stuffed, unread};

/// The longest time that anything may take here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A process with a service manager, which is this test.
struct Service {
    child: Child,
    socket: UnixDatagram,
}

impl Service {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::logging_into(Stdio::inherit(), folder, arguments)
    }

    /// One whose log goes to `log`.
    fn logging_into(log: impl Into<Stdio>, folder: &Path, arguments: &[&str]) -> Self {
        // Whoever runs this test may have been started to ignore some signals.
        Self::started_by(&["env", "--default-signal"], log, folder, arguments)
    }

    /// One that another program starts.
    fn started_by(starter: &[&str], log: impl Into<Stdio>, folder: &Path, arguments: &[&str]) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let child = Command::new(starter[0])
            .args(&starter[1..])
            .arg(env!("CARGO_BIN_EXE_tessera"))
            .args(arguments)
            .arg("--data-dir")
            .arg(folder.join("data"))
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "30000000")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the program starts");
        Self { child, socket }
    }

    /// The next thing that it says.
    fn says(&self) -> String {
        let mut buffer = [0; 256];
        let length = self.socket.recv(&mut buffer).expect("it says something in time");
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().expect("a pid fits")), signal).expect("it is there");
    }

    /// Ends it in order; what it says last.
    fn end(&mut self) -> Vec<String> {
        self.end_by(Signal::SIGTERM)
    }

    fn end_by(&mut self, signal: Signal) -> Vec<String> {
        self.signal(signal);
        let said = std::iter::from_fn(|| Some(self.says())).take_while(|word| word != "STOPPING=1").collect();
        assert!(self.child.wait().expect("it ends").success());
        said
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // When the test has ended it, there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port of loopback where nobody listens.
fn closed_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).expect("a port").port()
}

#[test]
fn a_member_is_ready_when_it_can_be_reached_and_feeds_the_watchdog_until_it_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let listen = format!("127.0.0.1:{}", closed_port());
    let mut member = Service::start(folder.path(), &["server", "--listen", &listen]);
    assert_eq!(member.says(), "READY=1");
    TcpStream::connect(&listen).expect("a unit that is ready is reached: those after it depend on that");
    for _ in 0..3 {
        assert_eq!(member.says(), "WATCHDOG=1");
    }
    assert!(member.end().iter().all(|word| word == "WATCHDOG=1"));
}

/// A member, and the agent of a node, that nobody else is there for.
fn daemons() -> [Vec<String>; 2] {
    let (listen, nobody) = (format!("127.0.0.1:{}", closed_port()), format!("127.0.0.1:{}", closed_port()));
    let member = ["server", "--listen", &listen];
    let agent = ["agent", "--name", "n", "--no-cards", "--run-as", "agent", "--server", &nobody];
    [member.map(str::to_owned).into(), agent.map(str::to_owned).into()]
}

#[test]
fn members_and_agents_end_in_order_by_whatever_tells_them_to() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        for arguments in daemons() {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let folder = tempfile::tempdir().expect("a folder");
            let mut daemon = Service::start(folder.path(), &arguments);
            assert_eq!(daemon.says(), "READY=1");
            daemon.end_by(signal);
        }
    }
}

#[test]
fn members_and_agents_that_were_started_to_outlive_their_terminal_do() {
    for arguments in daemons() {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let mut daemon = Service::started_by(&["nohup"], Stdio::inherit(), folder.path(), &arguments);
        assert_eq!(daemon.says(), "READY=1");
        daemon.signal(Signal::SIGHUP);
        for _ in 0..3 {
            assert_eq!(daemon.says(), "WATCHDOG=1");
        }
        daemon.end();
    }
}

#[test]
fn a_member_that_is_ended_as_soon_as_it_leads_ends_well() {
    // What threads of its store still do then is another thing each time.
    for _ in 0..20 {
        let folder = tempfile::tempdir().expect("a folder");
        let listen = format!("127.0.0.1:{}", closed_port());
        let mut member = Service::start(folder.path(), &["server", "--listen", &listen]);
        assert_eq!(member.says(), "READY=1");
        let mut init = Command::new(env!("CARGO_BIN_EXE_tessera"));
        let made = init.args(["cluster", "init", "--server", &listen]).output().expect("the program starts");
        assert!(made.status.success(), "{made:?}");
        member.end();
    }
}

#[test]
fn members_and_agents_whose_log_cannot_be_written_serve_all_the_same() {
    let (_reader, stuffed) = stuffed();
    for log in [Stdio::from(full()), unread().into(), stuffed.into()] {
        let folder = tempfile::tempdir().expect("a folder");
        let listen = format!("127.0.0.1:{}", closed_port());
        let arguments = ["server", "--listen", &listen, "--log", "trace"];
        let mut member = Service::logging_into(log, folder.path(), &arguments);
        assert_eq!(member.says(), "READY=1");
        TcpStream::connect(&listen).expect("it is reached");
        member.end();
    }
    for log in [Stdio::from(full()), unread().into()] {
        let folder = tempfile::tempdir().expect("a folder");
        let nobody = format!("127.0.0.1:{}", closed_port());
        let arguments = ["agent", "--name", "n", "--no-cards", "--run-as", "agent", "--server", &nobody];
        let mut agent = Service::logging_into(log, folder.path(), &arguments);
        assert_eq!([agent.says(), agent.says()], ["READY=1", "WATCHDOG=1"]);
        agent.end();
    }
}

#[test]
fn an_agent_is_ready_before_any_member_is_and_silent_while_it_is_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let nobody = format!("127.0.0.1:{}", closed_port());
    let arguments = ["agent", "--name", "n", "--no-cards", "--run-as", "agent", "--server", &nobody];
    let mut agent = Service::start(folder.path(), &arguments);
    assert_eq!([agent.says(), agent.says(), agent.says()], ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);

    agent.signal(Signal::SIGSTOP);
    // What was sent before the signal took hold is read away; then nothing comes for longer than between two signs.
    agent.socket.set_read_timeout(Some(Duration::from_secs(3))).expect("a timeout");
    let mut buffer = [0; 256];
    let stopped = Instant::now();
    let silent = loop {
        match agent.socket.recv(&mut buffer) {
            Ok(_) => assert!(stopped.elapsed() < PATIENCE, "it is stopped and goes on feeding the watchdog"),
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(silent, io::ErrorKind::WouldBlock);
    agent.signal(Signal::SIGCONT);
    agent.socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    assert_eq!(agent.says(), "WATCHDOG=1");
    agent.end();
}
