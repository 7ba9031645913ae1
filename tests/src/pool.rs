//! A pool of real processes on loopback: members with RocksDB and fsync, agents with simulated cards, workers in
//! control groups. Ports come from the kernel; each pool has its own folder and its own names.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tessera_api::v1::{GetClusterStatusRequest, GetPoolRequest, Node, NodeState};
use tessera_client::{Address, Client, Settings};

use crate::process::Process;
use crate::wait::until;

/// One simulated card: kind and TFLOPS.
pub type CardSpec = (&'static str, u32);

/// The reference pool of the patent (P8): 200 blocks on four nodes.
pub const REFERENCE_POOL: [&[CardSpec]; 4] = [
    &[("gpu", 9), ("gpu", 9), ("npu", 20), ("fpga", 25)],
    &[("gpu", 10), ("gpu", 10), ("npu", 18), ("npu", 18)],
    &[("npu", 3), ("fpga", 8), ("fpga", 8), ("fpga", 7)],
    &[("gpu", 14), ("gpu", 14), ("npu", 15), ("fpga", 12)],
];

/// What kind of pool a test wants.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of members.
    pub members: usize,
    /// The cards of each node.
    pub nodes: Vec<Vec<CardSpec>>,
    /// Lease times in milliseconds: heartbeat, stop, kill, regrant.
    pub lease: [u64; 4],
    /// Data folders of members by place, where a test brings its own file system.
    pub member_folders: Vec<(usize, PathBuf)>,
    /// Address on which members serve.
    pub host: &'static str,
    /// The node, by place, that lives in another network namespace, and the namespace's file.
    pub far_node: Option<(usize, PathBuf)>,
    /// Nodes whose cards are the processors of this machine, after the others.
    pub local_nodes: usize,
    /// What `cluster init` is told beside the members.
    pub init: Vec<&'static str>,
    /// Whether each node registers before the next one starts, so that blocks are numbered in the order given.
    pub in_order: bool,
    /// What members, by place, are started with besides.
    pub member_arguments: Vec<(usize, &'static str)>,
    /// What the configuration files of members say besides.
    pub member_config: String,
    /// Variables of members and agents.
    pub environment: Vec<(&'static str, String)>,
    /// Variables with which members, agents and commands reach a bucket.
    pub bucket: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            members: 3,
            nodes: vec![vec![("gpu", 8)], vec![("gpu", 8)], vec![("gpu", 8)]],
            lease: [200, 2_000, 3_000, 5_000],
            member_folders: vec![],
            host: "127.0.0.1",
            far_node: None,
            local_nodes: 0,
            init: vec![],
            in_order: false,
            member_arguments: vec![],
            member_config: String::new(),
            environment: vec![],
            bucket: vec![],
        }
    }
}

/// A member: its address and, while it runs, its process.
#[derive(Debug)]
pub struct MemberHost {
    /// Where it serves gRPC.
    pub address: String,
    /// Where it serves metrics.
    pub http: String,
    /// Its data folder.
    pub data: PathBuf,
    config: PathBuf,
    arguments: Vec<&'static str>,
    process: Option<Process>,
}

/// A node: its name and, while it runs, its agent.
#[derive(Debug)]
pub struct NodeHost {
    /// Its name.
    pub name: String,
    /// Its agent's data folder.
    pub data: PathBuf,
    /// Where its agent serves metrics.
    pub http: String,
    /// Its cards; `None`: the processors of this machine.
    inventory: Option<PathBuf>,
    namespace: Option<PathBuf>,
    process: Option<Process>,
}

/// A running pool; everything it started ends with it.
#[derive(Debug)]
pub struct Pool {
    /// The nodes. Dropped before the members, so that workers are told to stop as long as somebody can.
    pub nodes: Vec<NodeHost>,
    /// The members.
    pub members: Vec<MemberHost>,
    /// The cluster id that agents are told to accept when they start.
    pub accept_pool: Option<String>,
    environment: Vec<(&'static str, String)>,
    bucket: Vec<(String, String)>,
    folder: TempDir,
}

/// The `tessera` binary: `TESSERA_BIN`, or the one built beside this test.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TESSERA_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("a test knows its own file");
    let folder = test.parent().and_then(Path::parent).expect("tests lie in <profile>/deps");
    let path = folder.join("tessera");
    assert!(path.exists(), "{} is not built: run `cargo build -p tessera-cli`, or set TESSERA_BIN", path.display());
    path
}

/// Lease times as the command line wants them.
fn lease_options([heartbeat, stop, kill, regrant]: [u64; 4]) -> [String; 4] {
    [
        format!("--lease-heartbeat={heartbeat}ms"),
        format!("--lease-stop-after={stop}ms"),
        format!("--lease-kill-after={kill}ms"),
        format!("--lease-regrant-after={regrant}ms"),
    ]
}

/// Ports of members and agents: below those that the kernel gives to connections that go out, which would take one that
/// was found free before whoever it is for listens on it.
const PORTS: std::ops::Range<u16> = 10_000..18_000;

/// An address on which nobody listens, another one each time.
fn free_address(host: &str) -> Result<String> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other processes that test begin elsewhere.
    let begin = u16::try_from(std::process::id().wrapping_mul(211) % u32::from(PORTS.end - PORTS.start))?;
    for _ in PORTS {
        let place = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % (PORTS.end - PORTS.start);
        if let Ok(socket) = TcpListener::bind((host, PORTS.start + place)) {
            return Ok(socket.local_addr()?.to_string());
        }
    }
    bail!("all ports from {} to {} of {host} are taken", PORTS.start, PORTS.end)
}

impl Pool {
    /// Starts a pool and waits until every node is ready.
    ///
    /// # Errors
    /// When something does not start; the processes' logs are printed.
    pub async fn start(options: Options) -> Result<Self> {
        Self::start_as(options, false).await
    }

    /// The same, with members of the next release: see [`Self::start_member_as`].
    ///
    /// # Errors
    /// When something does not start; the processes' logs are printed.
    pub async fn start_as(options: Options, next: bool) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tessera-e2e-").tempdir()?;
        // Workers have identities of their own and write into it.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o1777))?;
        let (environment, bucket) = (options.environment.clone(), options.bucket.clone());
        let mut pool = Self { nodes: vec![], members: vec![], accept_pool: None, environment, bucket, folder };
        for place in 0..options.members {
            pool.prepare_member(place, &options)?;
            pool.start_member_as(place, next)?;
        }
        pool.initialize(&options).await?;
        let local = std::iter::repeat_n(None, options.local_nodes);
        let nodes = options.nodes.iter().map(|cards| Some(cards.as_slice())).chain(local);
        for (place, cards) in nodes.enumerate() {
            pool.prepare_node(place, cards)?;
            if let Some((_, namespace)) = options.far_node.as_ref().filter(|(far, _)| *far == place) {
                pool.nodes[place].namespace = Some(namespace.clone());
            }
            pool.start_agent(place)?;
            if options.in_order {
                pool.wait_for_nodes(place + 1).await?;
            }
        }
        pool.wait_for_nodes(pool.nodes.len()).await?;
        Ok(pool)
    }

    /// The folder with configurations and logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A new folder below it in which workers of any job may make and remove what they like.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn shared_folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder().join(name);
        std::fs::create_dir(&folder)?;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))?;
        Ok(folder)
    }

    fn prepare_member(&mut self, place: usize, options: &Options) -> Result<()> {
        let own = options.member_folders.iter().find(|(member, _)| *member == place).map(|(_, folder)| folder.clone());
        let data = own.unwrap_or_else(|| self.folder().join(format!("member-{place}")));
        let (address, http) = (free_address(options.host)?, free_address(options.host)?);
        let text = format!(
            "data_dir = {data:?}\nlisten = \"{address}\"\nhttp = \"{http}\"\nname = \"m{place}\"\ndisk_reserve = \"4MiB\"\n\n\
             [timings]\ncheck = \"100ms\"\n{}",
            options.member_config
        );
        let config = self.folder().join(format!("member-{place}.toml"));
        std::fs::write(&config, text)?;
        let own = options.member_arguments.iter().filter(|(member, _)| *member == place);
        let arguments = own.map(|(_, argument)| *argument).collect();
        self.members.push(MemberHost { address, http, data, config, arguments, process: None });
        Ok(())
    }

    fn prepare_node(&mut self, place: usize, cards: Option<&[CardSpec]>) -> Result<()> {
        // Workers of pools that run side by side share the host's control groups: names must not meet.
        let pool = self.folder().file_name().unwrap_or_default().to_string_lossy().replace("tessera-e2e-", "");
        let name = format!("{}-node-{place}", pool.trim_start_matches('.'));
        let (data, http) = (self.folder().join(&name), free_address("127.0.0.1")?);
        let inventory = cards.map(|cards| self.write_inventory(&name, cards)).transpose()?;
        self.nodes.push(NodeHost { name, data, http, inventory, namespace: None, process: None });
        Ok(())
    }

    fn write_inventory(&self, node: &str, cards: &[CardSpec]) -> Result<PathBuf> {
        let mut inventory = format!("[[node]]\nname = \"{node}\"\n");
        for (kind, tflops) in cards {
            let _ = write!(
                inventory,
                "[[node.card]]\nkind = \"{kind}\"\nvendor = \"acme\"\nmodel = \"{kind}-{tflops}\"\nmemory_gib = 64\n\
                 tflops = {{ fp16 = {tflops} }}\n"
            );
        }
        let path = self.folder().join(format!("{node}-cards.toml"));
        std::fs::write(&path, inventory)?;
        Ok(path)
    }

    /// Starts a member, for the first time or again.
    ///
    /// # Errors
    /// When the program does not start.
    pub fn start_member(&mut self, place: usize) -> Result<()> {
        self.start_member_as(place, false)
    }

    /// Starts a member as this release or as the next one, which announces one release level more.
    ///
    /// # Errors
    /// When the program does not start.
    pub fn start_member_as(&mut self, place: usize, next: bool) -> Result<()> {
        let mut command = Command::new(binary());
        command.args(["server", "--config"]).arg(&self.members[place].config).args(&self.members[place].arguments);
        command.envs(self.environment.iter().cloned()).envs(self.bucket.iter().cloned());
        if next {
            command.arg("--drill-next-level");
        }
        let process = Process::start(&format!("member-{place}"), command, self.folder.path())?;
        self.members[place].process = Some(process);
        Ok(())
    }

    /// Starts one more process that is no member yet; answers its address.
    ///
    /// # Errors
    /// When it does not start.
    pub fn add_process(&mut self, next: bool) -> Result<String> {
        let place = self.members.len();
        self.prepare_member(place, &Options::default())?;
        self.start_member_as(place, next)?;
        Ok(self.members[place].address.clone())
    }

    /// Starts a node's agent, for the first time or again.
    ///
    /// # Errors
    /// When the program does not start.
    pub fn start_agent(&mut self, place: usize) -> Result<()> {
        let node = &self.nodes[place];
        let mut command = Command::new(binary());
        if let Some(namespace) = &node.namespace {
            // Not `ip netns exec`, which would hide the control groups by mounting /sys anew.
            command = Command::new("nsenter");
            command.arg(format!("--net={}", namespace.display())).arg(binary());
        }
        command.args(["agent", "--name", &node.name, "--server", &self.server_list(), "--http", &node.http]);
        command.arg("--data-dir").arg(&node.data);
        if let Some(inventory) = &node.inventory {
            command.arg("--inventory").arg(inventory);
        }
        if let Some(id) = &self.accept_pool {
            command.args(["--accept-pool", id]);
        }
        command.envs(self.environment.iter().cloned()).envs(self.bucket.iter().cloned());
        let process = Process::start(&node.name, command, self.folder.path())?;
        self.nodes[place].process = Some(process);
        Ok(())
    }

    /// The members as the command line wants them.
    fn server_list(&self) -> String {
        let addresses: Vec<&str> = self.members.iter().map(|member| member.address.as_str()).collect();
        addresses.join(",")
    }

    /// Makes the cluster of all members.
    async fn initialize(&self, options: &Options) -> Result<()> {
        let lease = lease_options(options.lease);
        let mut arguments = vec!["cluster", "init"];
        arguments.extend(lease.iter().map(String::as_str));
        arguments.extend(options.init.iter().copied());
        until("the cluster to be made", async || {
            let output = self.cli(&arguments).await.ok()?;
            output.status.success().then_some(())
        })
        .await
    }

    /// Changes the lease times of the running pool; in milliseconds, as in [`Options::lease`].
    ///
    /// # Errors
    /// When they are refused; the error shows what was said.
    pub async fn set_lease(&self, lease: [u64; 4]) -> Result<String> {
        let lease = lease_options(lease);
        let mut arguments = vec!["pool", "config", "set"];
        arguments.extend(lease.iter().map(String::as_str));
        self.cli_ok(&arguments).await
    }

    /// A client that knows every member.
    ///
    /// # Panics
    /// Never: addresses made here parse.
    #[must_use]
    pub fn client(&self) -> Client {
        let addresses: Vec<Address> =
            self.members.iter().map(|member| member.address.parse().expect("an address made here parses")).collect();
        let settings = Settings { deadline: Duration::from_secs(30), ..Settings::default() };
        Client::new(&addresses, settings).expect("there are members")
    }

    /// A client that knows one member only.
    ///
    /// # Panics
    /// Never: addresses made here parse.
    #[must_use]
    pub fn client_of(&self, place: usize) -> Client {
        let address = self.members[place].address.parse().expect("an address made here parses");
        self.client().only(&address).expect("one member is enough")
    }

    /// Runs the command line against the pool and answers what it printed.
    ///
    /// # Errors
    /// When it cannot be started.
    pub async fn cli(&self, arguments: &[&str]) -> Result<std::process::Output> {
        let mut command = tokio::process::Command::new(binary());
        command
            .args(arguments)
            .env("TESSERA_SERVER", self.server_list())
            .envs(self.bucket.iter().cloned())
            .env("TESSERA_CONFIG", self.folder().join("no-config.toml"))
            .env("NO_COLOR", "1")
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        command.output().await.context("running the command line")
    }

    /// Follows a command of a runbook and answers what it printed.
    ///
    /// # Errors
    /// As [`Self::cli_ok`].
    pub async fn follow(&self, command: Vec<String>) -> Result<String> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        self.cli_ok(&words).await
    }

    /// Like [`Self::cli`], but an exit code other than 0 is an error that shows what was printed.
    ///
    /// # Errors
    /// As said.
    pub async fn cli_ok(&self, arguments: &[&str]) -> Result<String> {
        let output = self.cli(arguments).await?;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(output.status.success(), "tessera {arguments:?}: {}\n{stdout}\n{stderr}", output.status);
        Ok(stdout.into_owned())
    }

    /// Waits until so many nodes are ready.
    ///
    /// # Errors
    /// When that does not happen.
    pub async fn wait_for_nodes(&self, count: usize) -> Result<()> {
        let client = self.client();
        until("the nodes to be ready", async || {
            let nodes = client.list_nodes(Default::default()).await.ok()?.nodes;
            let ready = |node: &&Node| node.state() == NodeState::Ready;
            (nodes.iter().filter(ready).count() >= count).then_some(())
        })
        .await
    }

    /// The place of the leader that a majority knows.
    ///
    /// # Errors
    /// When there is none for long.
    pub async fn leader(&self) -> Result<usize> {
        let client = self.client();
        until("a leader", async || {
            let status = client.get_cluster_status(GetClusterStatusRequest::default()).await.ok()?;
            let leader = status.leader?.address;
            self.members.iter().position(|member| member.address == leader && member.process.is_some())
        })
        .await
    }

    /// The process of a member.
    ///
    /// # Panics
    /// When it was killed and not started again: a mistake of the test.
    pub fn member(&mut self, place: usize) -> &mut Process {
        self.members[place].process.as_mut().expect("the member runs")
    }

    /// Ends a member in order and waits until it is gone.
    ///
    /// # Errors
    /// When it is gone already.
    pub async fn end_member(&mut self, place: usize) -> Result<()> {
        self.member(place).signal(Signal::SIGTERM)?;
        self.member_ended(place).await.map(drop)
    }

    /// Waits until a member has ended; its exit code then.
    ///
    /// # Errors
    /// When the system does not say.
    pub async fn member_ended(&mut self, place: usize) -> Result<i32> {
        let member = RefCell::new(self.member(place));
        until("the member to end", async || member.borrow_mut().ended().ok().flatten()).await
    }

    /// The agent of a node.
    ///
    /// # Panics
    /// When it was killed and not started again: a mistake of the test.
    pub fn agent(&mut self, place: usize) -> &mut Process {
        self.nodes[place].process.as_mut().expect("the agent runs")
    }

    /// Ends an agent in order and waits until it is gone.
    ///
    /// # Errors
    /// When it is gone already.
    pub async fn end_agent(&mut self, place: usize) -> Result<()> {
        self.agent(place).signal(Signal::SIGTERM)?;
        let agent = RefCell::new(self.agent(place));
        until("the agent to end", async || agent.borrow_mut().ended().ok().flatten()).await.map(drop)
    }

    /// Kills a member with SIGKILL.
    pub fn kill_member(&mut self, place: usize) {
        self.members[place].process = None;
    }

    /// The live processes of the workers of a node, whatever they forked.
    #[must_use]
    pub fn processes_on(&self, place: usize) -> Vec<i32> {
        let mark = format!("TESSERA_WORKER_DIR={}/", self.nodes[place].data.display());
        crate::process::live_with_variable(mark.as_bytes())
    }

    /// Kills the supervisors of a node's workers with SIGKILL.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill_supervisors(&self, place: usize) -> Result<()> {
        let mut killed = 0;
        for folder in std::fs::read_dir(self.nodes[place].data.join("workers"))? {
            let Ok(text) = std::fs::read(folder?.path().join("status.json")) else { continue };
            let status: serde_json::Value = serde_json::from_slice(&text)?;
            let pid = status["supervisor"]["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
            killed += usize::from(pid.is_some_and(|pid| kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok()));
        }
        ensure!(killed > 0, "{} has no supervisor", self.nodes[place].name);
        Ok(())
    }

    /// Kills an agent with SIGKILL.
    pub fn kill_agent(&mut self, place: usize) {
        self.nodes[place].process = None;
    }

    /// Asks a member to check every law on its state.
    ///
    /// # Errors
    /// When a law is broken, or nobody answers.
    pub async fn verify(&self) -> Result<()> {
        let answer = self.client().verify_pool(Default::default()).await?;
        ensure!(answer.violations.is_empty(), "laws are broken: {:?}", answer.violations);
        Ok(())
    }

    /// Blocks of the pool by state.
    ///
    /// # Errors
    /// When nobody answers.
    pub async fn summary(&self) -> Result<tessera_api::v1::GetPoolResponse> {
        Ok(self.client().get_pool(GetPoolRequest::default()).await?)
    }
}
