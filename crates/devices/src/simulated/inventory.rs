//! The inventory file: nodes and their simulated cards, in TOML.
//!
//! ```toml
//! [[node]]
//! name = "node-0"
//!
//! [[node.card]]
//! kind = "gpu"                     # gpu, npu, fpga or cpu
//! vendor = "nvidia"
//! model = "H100"
//! count = 2                        # 1 when not said
//! memory_gib = 80
//! tflops = { fp16 = 9, fp32 = 4.5 }  # per card; fp32, tf32, fp16, bf16, fp8, int8
//! isolation = "soft"               # shared, soft or hard; soft when not said
//! time_slicing = "freeze"          # device or freeze; device when not said
//! max_slices = 7                   # 0 when not said: as many as there are blocks
//! link = { kind = "fabric", megabytes_per_second = 450000 }  # between the cards of this entry
//! ```
//!
//! Every error names the line and the column.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tessera_ledger::{CardKind, Isolation, Link, LinkKind, Mebibytes, MilliTflops, Precision, Ratings};
use toml::Spanned;

use crate::caps::TimeSlicing;

/// Most nodes in one file, most cards on one node, highest rate and memory of one card: beyond these a file is
/// a mistake.
const MAX_NODES: usize = 100_000;
pub(crate) const MAX_CARDS: u32 = 256;
pub(crate) const MAX_TFLOPS: f64 = 1e6;
const MAX_MEMORY_GIB: f64 = 1e6;

/// A checked inventory.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Inventory {
    /// The nodes, in the order declared.
    pub nodes: Vec<DeclaredNode>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredNode {
    /// Its name.
    pub name: String,
    /// Its entries of cards, in the order declared.
    pub cards: Vec<DeclaredCard>,
}

/// Equal cards of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredCard {
    /// The kind.
    pub kind: CardKind,
    /// The maker.
    pub vendor: String,
    /// The model.
    pub model: String,
    /// The number of cards.
    pub count: u32,
    /// Memory of each.
    pub memory: Mebibytes,
    /// The compute of each.
    pub rated: Ratings,
    /// Strongest isolation between tenants.
    pub isolation: Isolation,
    /// The party that divides their time among workers.
    pub time_slicing: TimeSlicing,
    /// Most slices at once; 0: no bound.
    pub max_slices: u32,
    /// The links of the cards among themselves.
    pub link: Option<DeclaredLink>,
}

/// A link between cards of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredLink {
    /// Closeness.
    pub kind: LinkKind,
    /// Bandwidth; 0 when unknown.
    pub megabytes_per_second: u64,
}

impl DeclaredCard {
    /// Links of the card `own` to the other cards of its entry.
    #[must_use]
    pub fn links(&self, own: u32, peers: Range<usize>) -> Vec<Link> {
        let Some(link) = self.link else { return Vec::new() };
        let others = peers.filter_map(|peer| u32::try_from(peer).ok()).filter(|peer| *peer != own);
        others
            .map(|peer_index| Link { peer_index, kind: link.kind, megabytes_per_second: link.megabytes_per_second })
            .collect()
    }
}

/// An inventory that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// The file cannot be read.
    #[error("the inventory {} cannot be read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file does not say what it should.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column, from 1, in characters.
        column: usize,
        /// The problem at that place.
        message: String,
    },
}

impl Inventory {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// When it cannot be read, or where it is wrong.
    pub fn load(path: &Path) -> Result<Self, InventoryError> {
        let text =
            fs::read_to_string(path).map_err(|source| InventoryError::Unreadable { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// Checks a text; `path` is what errors call it.
    ///
    /// # Errors
    /// Where it is wrong.
    pub fn parse(text: &str, path: &Path) -> Result<Self, InventoryError> {
        let invalid = |at: usize, message: String| {
            let (line, column) = position(text, at);
            InventoryError::Invalid { path: path.to_owned(), line, column, message }
        };
        let file: File = toml::from_str(text)
            .map_err(|error| invalid(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        check(file).map_err(|fault| invalid(fault.at, fault.message))
    }

    /// The node of a name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&DeclaredNode> {
        self.nodes.iter().find(|node| node.name == name)
    }
}

/// Line and column, from 1, of a byte of a text.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
    (line, column)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    node: Vec<Spanned<FileNode>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileNode {
    name: Spanned<String>,
    #[serde(default)]
    card: Vec<Spanned<FileCard>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileCard {
    kind: Kind,
    vendor: Spanned<String>,
    model: Spanned<String>,
    count: Option<Spanned<u32>>,
    memory_gib: Spanned<f64>,
    tflops: Spanned<Rates>,
    #[serde(default)]
    isolation: Strength,
    time_slicing: Option<Spanned<TimeSlicing>>,
    #[serde(default)]
    max_slices: u32,
    link: Option<FileLink>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Gpu,
    Npu,
    Fpga,
    Cpu,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Strength {
    Shared,
    #[default]
    Soft,
    Hard,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rates {
    fp32: Option<Spanned<f64>>,
    tf32: Option<Spanned<f64>>,
    fp16: Option<Spanned<f64>>,
    bf16: Option<Spanned<f64>>,
    fp8: Option<Spanned<f64>>,
    int8: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLink {
    kind: Closeness,
    #[serde(default)]
    megabytes_per_second: u64,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Closeness {
    Fabric,
    PcieSwitch,
    Numa,
    Node,
}

/// Something wrong at a byte of the text.
struct Fault {
    at: usize,
    message: String,
}

fn fault<T>(at: Range<usize>, message: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { at: at.start, message: message.into() })
}

fn check(file: File) -> Result<Inventory, Fault> {
    let mut inventory = Inventory::default();
    let mut names = std::collections::BTreeSet::new();
    for node in file.node {
        let span = node.span();
        if inventory.nodes.len() >= MAX_NODES {
            return fault(span, format!("more than {MAX_NODES} nodes"));
        }
        let node = node.into_inner();
        let (name, name_span) = (node.name.get_ref().trim().to_owned(), node.name.span());
        if name.is_empty() {
            return fault(name_span, "a node needs a name");
        }
        if !names.insert(name.clone()) {
            return fault(name_span, format!("node `{name}` is declared twice"));
        }
        let cards = node.card.into_iter().map(check_card).collect::<Result<Vec<_>, _>>()?;
        let total = cards.iter().fold(0_u32, |sum, card| sum.saturating_add(card.count));
        if total > MAX_CARDS {
            return fault(span, format!("node `{name}` has {total} cards; {MAX_CARDS} are the most"));
        }
        inventory.nodes.push(DeclaredNode { name, cards });
    }
    Ok(inventory)
}

fn check_card(card: Spanned<FileCard>) -> Result<DeclaredCard, Fault> {
    let card = card.into_inner();
    let count = match &card.count {
        Some(count) if (1..=MAX_CARDS).contains(count.get_ref()) => *count.get_ref(),
        Some(count) => return fault(count.span(), format!("`count` must be from 1 to {MAX_CARDS}")),
        None => 1,
    };
    let time_slicing = card.time_slicing.as_ref().map_or_else(TimeSlicing::default, |slicing| *slicing.get_ref());
    if let Some(slicing) = card.time_slicing.filter(|_| time_slicing == TimeSlicing::Freeze)
        && matches!(card.isolation, Strength::Hard)
    {
        return fault(
            slicing.span(),
            "`time_slicing` must be `device` where `isolation` is `hard`: the hardware divides it",
        );
    }
    Ok(DeclaredCard {
        kind: kind(card.kind),
        vendor: check_word("vendor", &card.vendor)?,
        model: check_word("model", &card.model)?,
        count,
        memory: Mebibytes(scaled("memory_gib", &card.memory_gib, 1024.0, MAX_MEMORY_GIB)?),
        rated: check_rates(&card.tflops)?,
        isolation: match card.isolation {
            Strength::Shared => Isolation::Shared,
            Strength::Soft => Isolation::Soft,
            Strength::Hard => Isolation::Hard,
        },
        time_slicing,
        max_slices: card.max_slices,
        link: card
            .link
            .map(|link| DeclaredLink { kind: closeness(link.kind), megabytes_per_second: link.megabytes_per_second }),
    })
}

fn check_word(field: &str, word: &Spanned<String>) -> Result<String, Fault> {
    let text = word.get_ref().trim();
    if text.is_empty() { fault(word.span(), format!("`{field}` is empty")) } else { Ok(text.to_owned()) }
}

fn check_rates(rates: &Spanned<Rates>) -> Result<Ratings, Fault> {
    let named = rates.get_ref();
    let all = [
        (Precision::Fp32, &named.fp32),
        (Precision::Tf32, &named.tf32),
        (Precision::Fp16, &named.fp16),
        (Precision::Bf16, &named.bf16),
        (Precision::Fp8, &named.fp8),
        (Precision::Int8, &named.int8),
    ];
    let mut ratings = Ratings::new();
    for (precision, rate) in all {
        if let Some(rate) = rate {
            ratings.insert(precision, MilliTflops(scaled(precision.name(), rate, 1000.0, MAX_TFLOPS)?));
        }
    }
    if ratings.is_empty() { fault(rates.span(), "a card needs a rate in at least one precision") } else { Ok(ratings) }
}

/// A positive number in units `scale` times smaller.
fn scaled(field: &str, number: &Spanned<f64>, scale: f64, most: f64) -> Result<u64, Fault> {
    let value = *number.get_ref();
    let units = (value * scale).round();
    if !(units >= 1.0 && value <= most) {
        return fault(number.span(), format!("`{field}` must be above {} and at most {most}", 1.0 / scale));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be positive and below 2^53")]
    Ok(units as u64)
}

const fn kind(kind: Kind) -> CardKind {
    match kind {
        Kind::Gpu => CardKind::Gpu,
        Kind::Npu => CardKind::Npu,
        Kind::Fpga => CardKind::Fpga,
        Kind::Cpu => CardKind::Cpu,
    }
}

const fn closeness(closeness: Closeness) -> LinkKind {
    match closeness {
        Closeness::Fabric => LinkKind::Fabric,
        Closeness::PcieSwitch => LinkKind::PcieSwitch,
        Closeness::Numa => LinkKind::Numa,
        Closeness::Node => LinkKind::Node,
    }
}

#[cfg(test)]
#[path = "inventory_tests.rs"]
mod tests;
