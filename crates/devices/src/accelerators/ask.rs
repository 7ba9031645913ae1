//! The interpreter with PyTorch, asked which accelerators it finds.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tessera_ledger::{CardKind, MilliTflops, Precision};

use crate::error::DeviceError;
use crate::inventory::{MAX_CARDS, MAX_TFLOPS};

/// Limits on the time to load PyTorch and to wake up the cards, and to measure each of them.
const PATIENCE: Duration = Duration::from_secs(100);
const FOR_EACH_CARD: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The longest wait for the remaining output of the interpreter once it has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The Python that slice servers are run by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Its program.
    pub python: PathBuf,
    /// All variables that it has.
    pub environment: BTreeMap<String, String>,
}

/// One card, as PyTorch tells of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Found {
    /// The name of the device, for a process that has `environment`.
    pub(super) device: String,
    pub(super) environment: BTreeMap<String, String>,
    /// Variables of a process that sees no card of this kind.
    pub(super) hidden: BTreeMap<String, String>,
    pub(super) vendor: String,
    pub(super) kind: Kind,
    pub(super) model: String,
    /// Empty where PyTorch does not tell it.
    pub(super) uuid: String,
    pub(super) memory_bytes: u64,
    /// Empty where PyTorch does not tell it.
    pub(super) pci_address: String,
    /// By precision; empty unless it was measured.
    #[serde(default)]
    pub(super) tflops: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Gpu,
    Npu,
}

impl From<Kind> for CardKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Gpu => Self::Gpu,
            Kind::Npu => Self::Npu,
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    cards: Vec<Found>,
}

impl Found {
    /// An identity that no other card of the pool has. Only NVIDIA's identities are of one card in the world; others
    /// are of a model, or of a place, so that the node's name has to tell them apart.
    pub(super) fn identity(&self, node: &str) -> String {
        if self.is_known_to_nvml() {
            return self.uuid.clone();
        }
        let place = Some(&self.pci_address).filter(|address| !address.is_empty());
        let number = || self.environment.values().next().map_or(&self.device, |number| number);
        format!("{node}-{}-{}", self.vendor, place.unwrap_or_else(number))
    }

    /// Returns whether the card has an identity by which the library of NVIDIA's driver (NVML) knows it.
    pub(super) fn is_known_to_nvml(&self) -> bool {
        self.vendor == "NVIDIA" && self.uuid.starts_with("GPU-")
    }

    /// The measured rate in this precision; `None` where there is no valid measurement above zero.
    pub(super) fn rate(&self, precision: Precision) -> Option<MilliTflops> {
        let tflops = self.tflops.get(precision.name()).filter(|tflops| (0.0..=MAX_TFLOPS).contains(*tflops))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is between 0 and 10^9")]
        let rate = MilliTflops((tflops * 1000.0).round() as u64);
        Some(rate).filter(|rate| *rate > MilliTflops::ZERO)
    }

    /// Returns whether the card has a valid measurement: every card computes in 32 bits.
    pub(super) fn is_measured(&self) -> bool {
        self.rate(Precision::Fp32).is_some()
    }
}

impl Interpreter {
    /// The cards that it finds; those at the places of `measure` in that list are measured.
    ///
    /// # Errors
    /// When it does not start, does not answer in time, or says something else; the error has its last words.
    pub(super) fn cards(&self, measure: &[usize]) -> Result<Vec<Found>, DeviceError> {
        let failed = |reason: String| DeviceError::NotAsked { python: self.python.clone(), reason };
        let mut asked = Command::new(&self.python);
        asked.args(["-m", "tessera.devices", "--held"]);
        if !measure.is_empty() {
            asked.arg("--measure").args(measure.iter().map(usize::to_string));
        }
        asked.env_clear().envs(&self.environment).current_dir("/").process_group(0);
        // Whoever holds the other end of its input is there: it ends with the agent.
        asked.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = asked.spawn().map_err(|error| failed(error.to_string()))?;
        let (said, errors) = (read(child.stdout.take()), read(child.stderr.take()));
        let patience = PATIENCE + FOR_EACH_CARD * u32::try_from(measure.len()).unwrap_or(u32::MAX);
        let end = Instant::now() + patience;
        let status = ended(child, end).map_err(|error| failed(error.to_string()))?;
        let last = |text: &str| text.lines().last().unwrap_or_default().trim().to_owned();
        let words = || errors.recv_timeout(LAST_WORDS).map(|errors| last(&errors)).unwrap_or_default();
        match status {
            None => Err(failed(format!("it said nothing within {} s", patience.as_secs()))),
            Some(status) if !status.success() => {
                let why = words();
                Err(failed(if why.is_empty() { format!("it ended with {status}") } else { why }))
            }
            Some(_) => {
                let said = said.recv_timeout(end.saturating_duration_since(Instant::now())).unwrap_or_default();
                let answer: Answer = serde_json::from_str(&last(&said)).map_err(|error| failed(error.to_string()))?;
                let warned = words();
                if !warned.is_empty() {
                    tracing::warn!(python = %self.python.display(), warned, "of the accelerators of this host");
                }
                if answer.cards.len() > MAX_CARDS as usize {
                    return Err(failed(format!("it names {} cards; {MAX_CARDS} are the most", answer.cards.len())));
                }
                Ok(answer.cards)
            }
        }
    }
}

/// Waits for the exit status of the interpreter; kills it and returns `None` if it still runs at `by`. A process that
/// is stuck in a driver does not end even when it is killed, and is not waited for.
fn ended(mut child: Child, by: Instant) -> std::io::Result<Option<ExitStatus>> {
    while Instant::now() < by {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(LOOK_EVERY);
    }
    child.kill()?;
    thread::spawn(move || child.wait());
    Ok(None)
}

/// All that comes, read beside the wait: whoever says more than a pipe holds would wait for us, and we for it. A
/// process that it has left behind may keep the pipe open, and is not waited for.
fn read(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before it broke is all that is known.
        let _ = from.map(|mut from| from.read_to_end(&mut bytes));
        let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    told
}
