//! A pool of real processes on loopback: members with RocksDB and fsync, agents with simulated cards, workers in
//! control groups. Ports come from the kernel; each pool has its own folder and its own names.

mod asking;
mod ending;
mod options;
mod ports;
mod programs;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use tempfile::TempDir;

pub use options::{CardSpec, Options, REFERENCE_POOL};
pub use programs::{PROGRAMS, helper_here, program_here};

use self::options::lease_options;
use self::ports::free_address;
use self::programs::{can_be_entered, copy_programs};
use crate::process::Process;
use crate::wait::until;

/// A member: its address and, while it runs, its process.
#[derive(Debug)]
pub struct MemberHost {
    /// The address on which it serves gRPC.
    pub address: String,
    /// The address on which it serves metrics.
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
    pub name: String,
    /// Its agent's data folder.
    pub data: PathBuf,
    /// The address on which its agent serves metrics.
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
    pub members: Vec<MemberHost>,
    /// The cluster id that agents are told to accept when they start.
    pub accept_pool: Option<String>,
    agent_config: String,
    environment: Vec<(&'static str, String)>,
    bucket: Vec<(String, String)>,
    folder: TempDir,
}

/// The beginning of names outside of the folder of a pool, by which a run of the suite finds what is left of it. Empty
/// when no suite runs.
#[must_use]
pub fn run_mark() -> String {
    std::env::var("TESSERA_SUITE").map(|run| run + "-").unwrap_or_default()
}

/// The `tessera` binary: `TESSERA_BIN`, or the one that cargo made with this test.
#[must_use]
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("TESSERA_BIN") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().expect("a test knows its own file");
    let beside = test.parent().and_then(Path::parent).expect("tests lie in <profile>/deps");
    let made = std::env::var_os("CARGO_TARGET_DIR").map(|made| Path::new(&made).join("debug"));
    let path = made.unwrap_or_else(|| beside.to_path_buf()).join("tessera");
    assert!(path.exists(), "{} is not built: run `cargo build -p tessera-cli`, or set TESSERA_BIN", path.display());
    path
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
        can_be_entered(folder.path())?;
        copy_programs(folder.path())?;
        let (environment, bucket) = (options.environment.clone(), options.bucket.clone());
        let programs = folder.path().join("programs").display().to_string();
        let agent_config = options.agent_config.replace(PROGRAMS, &programs);
        let mut pool =
            Self { nodes: vec![], members: vec![], accept_pool: None, agent_config, environment, bucket, folder };
        for place in 0..options.members {
            pool.prepare_member(place, &options)?;
            pool.start_member_as(place, next)?;
        }
        pool.initialize(&options).await?;
        let local = std::iter::repeat_n(None, options.local_nodes);
        let nodes = options.nodes.iter().map(|cards| Some(cards.as_slice())).chain(local);
        for (place, cards) in nodes.enumerate() {
            pool.prepare_node(place, cards, options.card_lines)?;
            if let Some((_, own)) = options.agent_folders.iter().find(|(agent, _)| *agent == place) {
                pool.nodes[place].data.clone_from(own);
            }
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

    fn prepare_node(&mut self, place: usize, cards: Option<&[CardSpec]>, lines: &str) -> Result<()> {
        // Workers of pools that run side by side share the host's control groups: names must not meet.
        let pool = self.folder().file_name().unwrap_or_default().to_string_lossy().replace("tessera-e2e-", &run_mark());
        let name = format!("{}-node-{place}", pool.trim_start_matches('.'));
        let (data, http) = (self.folder().join(&name), free_address("127.0.0.1")?);
        let inventory = cards.map(|cards| self.write_inventory(&name, cards, lines)).transpose()?;
        self.nodes.push(NodeHost { name, data, http, inventory, namespace: None, process: None });
        Ok(())
    }

    fn write_inventory(&self, node: &str, cards: &[CardSpec], lines: &str) -> Result<PathBuf> {
        let mut inventory = format!("[[node]]\nname = \"{node}\"\n");
        for (kind, tflops) in cards {
            let _ = write!(
                inventory,
                "[[node.card]]\nkind = \"{kind}\"\nvendor = \"acme\"\nmodel = \"{kind}-{tflops}\"\nmemory_gib = 64\n\
                 tflops = {{ fp16 = {tflops} }}\n{lines}"
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
        if !self.agent_config.is_empty() {
            let path = self.folder().join(format!("{}.toml", node.name));
            std::fs::write(&path, &self.agent_config)?;
            command.arg("--config").arg(path);
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
}
