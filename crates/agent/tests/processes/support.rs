//! A supervised worker under test: the real supervisor process, real programs, and this test in the place of the agent.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tessera_agent::boot::BootTime;
use tessera_agent::cgroup::Limits;
use tessera_agent::device::{Plan, PlannedSlice, ProgramPlace};
use tessera_agent::supervisor::image::ImagePlan;
use tessera_agent::supervisor::message::{Inbox, Launch, Notice, Request, encode};
use tessera_agent::supervisor::output::Stream;
use tessera_agent::supervisor::probe::whole_trees_end;
use tessera_agent::supervisor::status::{Cause, Phase, Status};
use tessera_agent::supervisor::{LAUNCH_FILE, LOG_FILE, SOCKET_FILE};
use tessera_agent::worker::{Fence, Lease, StopPolicy, StopSignal, Term, WorkerId};
use tessera_ledger::{AllocationId, Epoch, Rank};

/// Longest wait for anything. A test that waits so long has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn fence(term: u64, epoch: u64) -> Fence {
    Fence { term: Term(term), epoch: Epoch(epoch) }
}

/// A launch of a shell script with generous settings.
pub fn launch(script: &str) -> Launch {
    let worker = WorkerId { allocation: AllocationId(1), epoch: Epoch(10), rank: Rank(0) };
    let path = std::env::var("PATH").unwrap_or_default();
    Launch {
        worker,
        job: 1,
        ordered_unix_ms: None,
        fence: fence(1, 10),
        lease: None,
        command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        account: None,
        contained: contained(),
        has_device: false,
        image: None,
        companion: None,
        environment: BTreeMap::from([("PATH".to_owned(), path)]),
        working_directory: PathBuf::from("/"),
        limits: Limits::default(),
        cgroup: String::new(),
        cgroup_root: control_groups(),
        stop: StopPolicy { signal: StopSignal::default(), grace: Duration::from_secs(20) },
        time_limit: None,
        output_file_bytes: 1 << 20,
        output_files: 4,
        kill_confirmation: Duration::from_secs(10),
        longest_lease: Duration::from_secs(24 * 3600),
    }
}

pub fn criu() -> PathBuf {
    tessera_testkit::criu().expect("CRIU is there (deploy/setup.sh test)")
}

/// The plan by which a worker in a folder is dumped; makes the folders for that.
pub fn plan(folder: &TempDir, criu: PathBuf) -> ImagePlan {
    let path = |name: &str| folder.path().join(name);
    for made in ["work/.card", "checkpoint/image", "snapshot/1/image"] {
        fs::create_dir_all(path(made)).expect("writable");
    }
    ImagePlan {
        criu,
        version: "of the tests".to_owned(),
        node: "node".to_owned(),
        folder: folder.path().to_owned(),
        into: path("checkpoint"),
        snapshots: path("snapshot"),
        is_packed_here: true,
        from: None,
    }
}

/// The group below which those of tests lie; a run of the suite finds by it what is left of them.
pub fn control_groups() -> String {
    std::env::var("TESSERA_SUITE").map_or_else(|_| "tessera-test".to_owned(), |run| format!("tessera-test-{run}"))
}

/// Returns whether this machine lets workers have PID namespaces, which takes root.
pub fn contained() -> bool {
    static CONTAINED: OnceLock<bool> = OnceLock::new();
    *CONTAINED.get_or_init(|| whole_trees_end().is_ok())
}

/// A lease whose deadlines lie so far ahead of now.
pub fn lease_in(stop: Duration, kill: Duration) -> Lease {
    let now = BootTime::now();
    Lease { stop_at: now.after(stop), kill_at: now.after(kill) }
}

/// A supervisor process with its folder and the agent's end of its first socket.
pub struct Supervised {
    pub folder: TempDir,
    pub child: Child,
    stream: Option<UnixStream>,
    inbox: Inbox,
    end: Option<Status>,
}

impl Supervised {
    /// Starts the supervisor, but not yet its worker.
    pub fn prepare(launch: Launch) -> Self {
        Self::prepare_in(tempfile::tempdir().expect("a temporary folder"), launch)
    }

    /// The same, in a folder that is there.
    pub fn prepare_in(folder: TempDir, mut launch: Launch) -> Self {
        let unique = folder.path().file_name().expect("a name").to_string_lossy().into_owned();
        launch.cgroup = format!("{}/{unique}", launch.cgroup_root);
        launch.environment.insert("FOLDER".to_owned(), folder.path().display().to_string());
        let text = serde_json::to_vec(&launch).expect("a launch is plain data");
        fs::write(folder.path().join(LAUNCH_FILE), text).expect("writable");
        let (child, stream) = spawn(folder.path());
        Self { folder, child, stream: Some(stream), inbox: Inbox::default(), end: None }
    }

    /// Starts the supervisor and its worker, and waits until that runs.
    pub fn start(launch: Launch) -> Self {
        let mut supervised = Self::prepare(launch);
        supervised.send(&Request::Begin);
        supervised.until(|status| status.process.is_some() || status.phase == Phase::Stopped);
        supervised
    }

    pub fn send(&mut self, request: &Request) {
        self.send_bytes(&encode(request).expect("short"));
    }

    /// Sends what need not be a request.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.as_mut().expect("connected").write_all(bytes).expect("the supervisor reads");
    }

    /// The next notice; `None` when the supervisor has closed the socket.
    pub fn notice(&mut self) -> Option<Notice> {
        let stream = self.stream.as_mut().expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        loop {
            if let Some(notice) = self.inbox.take::<Notice>().expect("well formed") {
                self.end = Some(notice.status.clone()).filter(Status::is_final);
                return Some(notice);
            }
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(length) => self.inbox.push(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                // Other tests in this process have children whose end interrupts system calls.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => panic!("no notice in time: {error}"),
            }
        }
    }

    /// Reads notices until a status fits.
    pub fn until(&mut self, fits: impl Fn(&Status) -> bool) -> Status {
        loop {
            let notice = self.notice().expect("the supervisor ended before");
            if fits(&notice.status) {
                return notice.status;
            }
        }
    }

    /// Reads notices until one refuses, and gives the reason.
    pub fn refusal(&mut self) -> String {
        loop {
            if let Some(reason) = self.notice().expect("the supervisor ended before").refused {
                return reason;
            }
        }
    }

    /// Waits for the end.
    pub fn stopped(&mut self) -> Status {
        let status = self.end.clone().unwrap_or_else(|| self.until(|status| status.phase == Phase::Stopped));
        self.child.wait().expect("a child");
        assert_eq!(Status::load(self.folder.path()).expect("readable"), Some(status.clone()), "told what is on disk");
        status
    }

    /// Ends the connection, as the death of the agent does.
    pub fn hang_up(&mut self) {
        self.stream = None;
        self.inbox = Inbox::default();
    }

    /// Connects as a later agent does.
    pub fn connect(&mut self) {
        let socket = self.folder.path().join(SOCKET_FILE);
        self.stream = Some(wait_for("the socket", || UnixStream::connect(&socket).ok()));
    }

    pub fn stop(&mut self, grace: Duration) {
        self.stop_and(false, grace);
    }

    /// Tells it to stop, and to be saved before that where its job wants it.
    pub fn stop_and(&mut self, save: bool, grace: Duration) {
        let policy = StopPolicy { signal: StopSignal::default(), grace };
        self.send(&Request::Stop { fence: fence(1, 10), policy, cause: Cause::Ordered, save });
    }

    /// The output of the worker so far.
    pub fn output(&self, stream: Stream) -> String {
        let offsets = stream.offsets(self.folder.path()).expect("readable");
        let parts = offsets.into_iter().map(|offset| fs::read(stream.file(self.folder.path(), offset)).expect("kept"));
        String::from_utf8_lossy(&parts.flatten().collect::<Vec<u8>>()).into_owned()
    }

    /// The status of the worker, once it runs.
    pub fn running(&self) -> Status {
        running_status(self.folder.path())
    }

    /// Waits until the worker has written a line, and gives all it wrote.
    pub fn output_with(&self, text: &str) -> String {
        wait_for("output", || Some(self.output(Stream::Stdout)).filter(|output| output.contains(text)))
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        // A supervisor that a failed test left behind; its worker dies with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a supervisor in a folder, with one end of a socket pair as its standard input.
pub fn spawn(folder: &Path) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let log = fs::OpenOptions::new().create(true).append(true).open(folder.join(LOG_FILE)).expect("a log");
    let child = Command::new(supervisor_program())
        .arg(folder)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the example `supervise` is built together with the tests");
    (child, ours)
}

pub fn supervisor_program() -> PathBuf {
    example("supervise")
}

/// An example of this crate, which cargo makes with this test.
pub fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a path");
    let beside = own.parent().and_then(Path::parent).expect("target/debug/deps");
    let made = std::env::var_os("CARGO_TARGET_DIR").map(|made| Path::new(&made).join("debug"));
    made.unwrap_or_else(|| beside.to_path_buf()).join("examples").join(name)
}

/// The plan of a worker with a device: the command of its servers, the place of its program, and its slices.
pub fn device_plan(command: &[&str], place: ProgramPlace, slices: Vec<PlannedSlice>) -> Plan {
    Plan {
        command: command.iter().map(|word| (*word).to_owned()).collect(),
        environment: BTreeMap::new(),
        of_program: BTreeMap::new(),
        build: String::new(),
        start_within: PATIENCE,
        place,
        slices,
        across: None,
    }
}

/// Waits for a condition, with a bound.
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Returns whether a process with that pid is there and more than a zombie.
pub fn is_alive(pid: i32) -> bool {
    tessera_agent::process::has_live_thread(pid)
}

/// The pid of the process that a worker named in a line `name=PID` of its output, as it is seen from outside the
/// worker's PID namespace. The process must live.
pub fn pid_in(output: &str, name: &str, status: &Status) -> i32 {
    let line = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let inner: i32 = line.and_then(|pid| pid.trim().parse().ok()).expect("the worker wrote its pid");
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let own = namespace(status.process.expect("the worker runs").pid);
    let called = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        text.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last()?.parse().ok())
            == Some(inner)
    };
    let pids = fs::read_dir("/proc").expect("mounted").flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.find(|pid| called(*pid) && namespace(*pid) == own).expect("a live process of the worker")
}

/// The status that the supervisor in a folder has recorded of its worker, once that runs.
pub fn running_status(folder: &Path) -> Status {
    wait_for("a running worker", || Status::load(folder).expect("readable").filter(|status| status.process.is_some()))
}
