//! The check whether this node can serve devices: its Python is asked once, while the agent is at work already.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use semver::Version;
use tessera_actor::Address;
use tessera_ledger::{DEVICE_LABEL, DEVICE_VERSION_LABEL};
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::DeviceConfig;
use crate::config::AgentConfig;
use crate::host::tell_node;
use crate::node::Event;
use crate::shell::Input;
use crate::worker::INHERITED;

/// The longest time for Python to load PyTorch, from a disk that has not read it yet.
const PATIENCE: Duration = Duration::from_secs(120);

/// The settings with which slice servers are started on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The interpreter.
    pub python: PathBuf,
    /// Folder of the dispatcher.
    pub build: PathBuf,
    /// Variables of the servers.
    pub environment: BTreeMap<String, String>,
    /// The time within which a server must listen.
    pub start_within: Duration,
    /// Address at which servers listen for programs of other hosts.
    pub listen: IpAddr,
    /// Host name or address by which those reach them.
    pub host: String,
    /// The longest silence of such a host before its card is given back.
    pub host_lease: Duration,
    /// Version of PyTorch; empty until it is known.
    pub version: String,
}

impl Served {
    /// The settings for servers that this interpreter runs.
    #[must_use]
    pub fn new(python: PathBuf, config: &AgentConfig) -> Self {
        let DeviceConfig { python: _, build, environment, start_within, host_lease } = config.device.clone();
        Self {
            python,
            build: build.unwrap_or_else(|| config.data_dir.join("torch")),
            environment,
            start_within,
            listen: config.listen.ip(),
            host: config.worker_host.clone(),
            host_lease,
            version: String::new(),
        }
    }

    /// Asks the interpreter, and tells the node what it serves from now on. Where something is missing that is said,
    /// and the node does without. Leases do not wait for it.
    pub(crate) async fn tell(mut self, known: Arc<OnceLock<Self>>, node: Address<Input>, end: CancellationToken) {
        let asked = tokio::select! {
            () = end.cancelled() => return,
            asked = self.ask() => asked,
        };
        match asked {
            Ok(version) => {
                tracing::info!(version, python = %self.python.display(), "this node serves devices of PyTorch");
                self.version = version;
                let labels = self.labels().to_vec();
                if known.set(self).is_ok() {
                    tell_node(&node, Event::Labelled(labels)).await;
                }
            }
            Err(problem) => tracing::warn!(
                problem,
                python = %self.python.display(),
                "this node serves no devices of PyTorch: install what is missing, and start the agent again"
            ),
        }
    }

    /// The command of a slice server, before the words of its slice.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        [&*self.python.display().to_string(), "-m", "tessera.slice"].map(str::to_owned).to_vec()
    }

    /// The labels by which jobs find the node.
    fn labels(&self) -> [(String, String); 2] {
        let (key, value) = DEVICE_LABEL;
        // Builds of one version, such as for processors and for cards, go together.
        let version = self.version.split('+').next().unwrap_or_default().to_owned();
        [(key.to_owned(), value.to_owned()), (DEVICE_VERSION_LABEL.to_owned(), version)]
    }

    /// Asks the interpreter which PyTorch it has, as servers will be started; says what is missing.
    async fn ask(&self) -> Result<String, String> {
        let command = self.command();
        let mut asked = Command::new(&command[0]);
        asked.args(&command[1..]).arg("--check").env_clear().envs(handed_on()).envs(&self.environment);
        asked.env("TESSERA_BUILD", &self.build).env(NO_USER_SITE, "1").current_dir("/");
        asked.stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(PATIENCE, asked.output()).await;
        let output = output.map_err(|_| format!("it said nothing within {} s", PATIENCE.as_secs()))?;
        let Output { status, stdout, stderr } = output.map_err(|error| error.to_string())?;
        if status.success() {
            return pytorch_of(&String::from_utf8_lossy(&stdout));
        }
        let why = String::from_utf8_lossy(&stderr);
        Err(why.lines().last().map_or_else(|| format!("it ended with {status}"), |line| line.trim().to_owned()))
    }
}

/// Returns the version of PyTorch from the output of a wheel that is not older than this agent: an older wheel does not
/// know the words with which its servers are started.
fn pytorch_of(said: &str) -> Result<String, String> {
    let word = |name| said.lines().rev().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let release = word("tessera ").and_then(|release| Version::parse(release).ok());
    let own = Version::parse(env!("CARGO_PKG_VERSION")).map_err(|error| error.to_string())?;
    match (word("pytorch "), release) {
        (Some(pytorch), Some(release)) if release >= own => Ok(pytorch.to_owned()),
        (Some(_), release) => {
            let release = release.map_or_else(|| "an older release".to_owned(), |release| format!("release {release}"));
            Err(format!("its wheel `tessera` is of {release}, and this agent of {own}: install the wheel of that one"))
        }
        (None, _) => Err("it does not say which PyTorch it has".to_owned()),
    }
}

/// The variable that hides from Python what somebody has installed at home: that is not what the node serves.
pub(super) const NO_USER_SITE: &str = "PYTHONNOUSERSITE";

/// Variables of this process that a slice server has, too.
pub(super) fn handed_on() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    INHERITED.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::device::{Plan, ProgramPlace};

    #[test]
    fn a_wheel_that_is_older_than_its_agent_serves_nothing() {
        let own = env!("CARGO_PKG_VERSION");
        let noise = "a warning of a library\n";
        assert_eq!(pytorch_of(&format!("{noise}tessera {own}\npytorch 2.9.1+cpu\n")).as_deref(), Ok("2.9.1+cpu"));
        assert_eq!(pytorch_of("tessera 99.0.0\npytorch 2.9.1\n").as_deref(), Ok("2.9.1"));
        let refused = |said: &str| pytorch_of(said).expect_err("it is not what the agent needs");
        assert!(refused("tessera 0.0.9\npytorch 2.9.1\n").contains("of release 0.0.9"));
        assert!(refused("pytorch 2.9.1\n").contains("of an older release"));
        assert!(refused("no word of it\n").contains("which PyTorch"));
    }

    /// A module in the place of the wheel, which prints how it was asked in the place of a version.
    #[tokio::test]
    async fn the_interpreter_is_asked_with_what_servers_are_given() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("tessera")).expect("made");
        let said = format!(
            "import os\nprint('tessera {}')\nprint('pytorch', os.environ['TESSERA_BUILD'], os.environ['MINE'])\n",
            env!("CARGO_PKG_VERSION")
        );
        fs::write(folder.path().join("tessera/__init__.py"), "").expect("written");
        fs::write(folder.path().join("tessera/slice.py"), said).expect("written");
        let mut config = AgentConfig::new("node-a", "/data", vec!["127.0.0.1:7400".to_owned()]);
        let path = folder.path().display().to_string();
        config.device.environment = [("PYTHONPATH".to_owned(), path), ("MINE".to_owned(), "eth1".to_owned())].into();
        let asked = async |config: &AgentConfig| Served::new("python3".into(), config).ask().await;
        assert_eq!(asked(&config).await.as_deref(), Ok("/data/torch eth1"));
        config.device.build = Some("/opt/dispatcher".into());
        config.device.environment.insert("MINE".to_owned(), "eth2".to_owned());
        assert_eq!(asked(&config).await.as_deref(), Ok("/opt/dispatcher eth2"));
    }

    #[test]
    fn servers_have_the_times_that_are_set() {
        let mut config = AgentConfig::new("node-a", "/data", vec!["127.0.0.1:7400".to_owned()]);
        let words = |config: &AgentConfig| {
            let served = Served::new("/opt/python".into(), config);
            let (listen, lease) = ("tcp:127.0.0.1:1".to_owned(), served.host_lease);
            let plan = Plan::new(&served, &[], ProgramPlace::OnOtherNode { listen, lease }, BTreeMap::new());
            (plan.ready_within(), plan.arguments(0, Path::new("/w/group")).join(" "))
        };
        let (within, usual) = words(&config);
        assert!(within == Some(Duration::from_secs(60)) && usual.contains("--lease 60 "), "{usual}");
        config.device.start_within = Duration::from_secs(5);
        config.device.host_lease = Duration::from_secs(7);
        let (within, brief) = words(&config);
        assert!(within == Some(Duration::from_secs(5)) && brief.contains("--lease 7 "), "{brief}");
    }
}
