//! The accelerators of this host, recorded over restarts: the same card has the same number and rate, and a card that
//! is not found any more counts as missing. To have all of them found and measured anew, remove the file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ask::{Found, Interpreter};
use super::bus;
use crate::error::DeviceError;
use crate::host::HostRoot;

/// Name of the file in the data folder.
const FILE: &str = "accelerators.json";
/// Names the start of the host: another text after each.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// One card that was found once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Card {
    /// An identity that no other card of the pool has.
    pub(super) identity: String,
    /// As it was found last, with the rate that was measured first.
    pub(super) found: Found,
    /// True if the host listed the card on its bus when it was found.
    pub(super) on_bus: bool,
    /// True if the card was not found when the interpreter was last asked.
    pub(super) is_missing: bool,
}

/// Under which circumstances something was found: under others it is looked for again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Circumstances {
    /// The start of the host.
    boot: String,
    node: String,
    python: PathBuf,
    environment: BTreeMap<String, String>,
}

/// The content of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Known {
    when: Circumstances,
    pub(super) cards: Vec<Card>,
}

impl Known {
    /// Reads the file; if there is none, no card is known.
    ///
    /// # Errors
    /// When there is something that cannot be read: cards that are forgotten are lost to their workers.
    pub(super) fn load(host: &HostRoot) -> Result<Self, DeviceError> {
        let path = host.data_file(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(DeviceError::Host { path, source }),
        };
        serde_json::from_str(&text).map_err(|error| DeviceError::Kept { path, problem: error.to_string() })
    }

    /// Returns whether the cards were found since this host started, by this interpreter: then nobody has to be waited
    /// for.
    pub(super) fn is_of(&self, host: &HostRoot, interpreter: &Interpreter) -> bool {
        !self.cards.is_empty() && !self.when.boot.is_empty() && self.when == circumstances(host, interpreter)
    }

    /// Returns whether asking again may find a card that is missing, or measure one that was not measured.
    pub(super) fn is_incomplete(&self) -> bool {
        self.cards.iter().any(|card| card.is_missing || !card.found.is_measured())
    }

    /// Asks the interpreter, and takes over what it finds. Cards that are known stay what they were, wherever they are
    /// found now; others come after them. Where it says nothing, all that are known are missed. Gives the identities of
    /// what was found, in its order.
    ///
    /// # Errors
    /// When it says nothing, or finds nothing, and nothing is known.
    pub(super) fn look(&mut self, host: &HostRoot, interpreter: &Interpreter) -> Result<Vec<String>, DeviceError> {
        let refused = |reason: String| DeviceError::NotAsked { python: interpreter.python.clone(), reason };
        let found = match interpreter.cards(&[]) {
            Ok(found) if found.is_empty() && self.cards.is_empty() => {
                return Err(refused("PyTorch finds no accelerator here".to_owned()));
            }
            Ok(found) => found,
            Err(error) if self.cards.is_empty() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "the accelerators that this host had are taken for missing");
                self.cards.iter_mut().for_each(|card| card.is_missing = true);
                return Ok(Vec::new());
            }
        };
        let identities: Vec<String> = found.iter().map(|card| card.identity(host.node())).collect();
        if let Some(twice) = identities.iter().enumerate().find(|(place, one)| identities[..*place].contains(*one)) {
            return Err(refused(format!("two cards are both `{}`", twice.1)));
        }
        self.when = circumstances(host, interpreter);
        for card in &mut self.cards {
            card.is_missing = !identities.contains(&card.identity);
        }
        for (identity, found) in identities.iter().zip(found) {
            let on_bus = bus::knows(host, &found.pci_address);
            let card = Card { identity: identity.clone(), found, on_bus, is_missing: false };
            match self.cards.iter_mut().find(|known| known.identity == card.identity) {
                // Another one in its place has no rate yet.
                Some(known) if known.found.model != card.found.model => *known = card,
                Some(known) => {
                    let tflops = known.found.tflops.clone();
                    *known = Card { found: Found { tflops, ..card.found }, ..card };
                }
                None => self.cards.push(card),
            }
        }
        Ok(identities)
    }

    /// Measures what was not, of the cards that were found just now. A card whose measurement is none offers nothing.
    pub(super) fn measure(&mut self, host: &HostRoot, interpreter: &Interpreter, found: &[String]) {
        let unmeasured = |card: &Card| !card.is_missing && !card.found.is_measured();
        let is_wanted =
            |identity: &String| self.cards.iter().any(|card| card.identity == *identity && unmeasured(card));
        let places: Vec<usize> = (0..found.len()).filter(|place| is_wanted(&found[*place])).collect();
        if places.is_empty() {
            return;
        }
        let measured = interpreter.cards(&places);
        let measured = measured.unwrap_or_else(|error| {
            tracing::warn!(%error, "accelerators cannot be measured");
            Vec::new()
        });
        for card in self.cards.iter_mut().filter(|card| unmeasured(card)) {
            match measured.iter().find(|found| found.identity(host.node()) == card.identity && found.is_measured()) {
                Some(found) => card.found.tflops.clone_from(&found.tflops),
                None => tracing::warn!(card = card.identity, "it is not measured, and offers nothing"),
            }
        }
    }

    /// Keeps it.
    ///
    /// # Errors
    /// When the data folder cannot be written.
    pub(super) fn store(&self, host: &HostRoot) -> Result<(), DeviceError> {
        host.keep(FILE, &serde_json::to_string_pretty(self).expect("texts and numbers are JSON"))
    }
}

fn circumstances(host: &HostRoot, interpreter: &Interpreter) -> Circumstances {
    Circumstances {
        boot: host.read(BOOT).map(|boot| boot.trim().to_owned()).unwrap_or_default(),
        node: host.node().to_owned(),
        python: interpreter.python.clone(),
        environment: interpreter.environment.clone(),
    }
}
