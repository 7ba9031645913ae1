//! Whether this node can serve devices: asked of its Python once, when the agent starts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tessera_ledger::DEVICE_LABEL;
use tokio::process::Command;
use tokio::time::timeout;

use super::DeviceConfig;

/// The label that says which PyTorch serves; a program needs the same.
pub const VERSION_LABEL: &str = "tessera.pytorch";
/// How long Python may take to load PyTorch.
const PATIENCE: Duration = Duration::from_secs(60);

/// How slice servers are started here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The interpreter.
    pub python: PathBuf,
    /// Where the dispatcher lies.
    pub build: PathBuf,
    /// Variables of the servers.
    pub environment: BTreeMap<String, String>,
    /// How long one may take until it listens.
    pub start_within: Duration,
    /// Version of PyTorch.
    pub version: String,
}

impl Served {
    /// What the node serves; `None` when it is not configured to, or cannot: that is said, and the node does without.
    pub async fn find(config: &DeviceConfig, data: &Path) -> Option<Self> {
        let python = config.python.clone()?;
        let mut served = Self {
            python,
            build: config.build.clone().unwrap_or_else(|| data.join("torch")),
            environment: config.environment.clone(),
            start_within: config.start_within,
            version: String::new(),
        };
        match served.ask().await {
            Ok(version) => {
                tracing::info!(version, python = %served.python.display(), "this node serves devices of PyTorch");
                served.version = version;
                Some(served)
            }
            Err(problem) => {
                tracing::warn!(
                    problem,
                    python = %served.python.display(),
                    "this node serves no devices of PyTorch: install what is missing, and start the agent again"
                );
                None
            }
        }
    }

    /// The command of a slice server, before the words of its slice.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        [&*self.python.display().to_string(), "-m", "tessera.slice"].map(str::to_owned).to_vec()
    }

    /// The labels by which jobs find the node.
    #[must_use]
    pub fn labels(&self) -> [(String, String); 2] {
        let (key, value) = DEVICE_LABEL;
        [(key.to_owned(), value.to_owned()), (VERSION_LABEL.to_owned(), self.version.clone())]
    }

    /// Asks the interpreter which PyTorch it has; says what is missing.
    async fn ask(&self) -> Result<String, String> {
        let command = self.command();
        let mut asked = Command::new(&command[0]);
        asked.args(&command[1..]).arg("--check").envs(&self.environment).env("TESSERA_BUILD", &self.build);
        asked.stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(PATIENCE, asked.output()).await;
        let output = output.map_err(|_| format!("it said nothing within {} s", PATIENCE.as_secs()))?;
        let Output { status, stdout, stderr } = output.map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&stdout);
        match said.lines().last().and_then(|line| line.strip_prefix("pytorch ")) {
            Some(version) if status.success() => Ok(version.trim().to_owned()),
            _ => {
                let why = String::from_utf8_lossy(&stderr);
                Err(why.lines().last().map_or_else(|| format!("it ended with {status}"), |line| line.trim().to_owned()))
            }
        }
    }
}
