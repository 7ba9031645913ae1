//! `tessera pool compact` and `tessera pool what-if`.

use std::str::FromStr;

use clap::{ArgGroup, Args, Subcommand};

use super::queue::SetQueueArgs;
use super::run::KindChoice;
use super::values::{cpus, memory, pair, tflops};

/// `tessera pool compact`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").args(["plan", "apply", "status", "stop"])))]
pub struct CompactArgs {
    /// Show what would be done: moves, gain and cost (so it is without --apply too)
    #[arg(long)]
    pub plan: bool,
    /// Begin to do it
    #[arg(long)]
    pub apply: bool,
    /// Show how far it is
    #[arg(long)]
    pub status: bool,
    /// Begin no further move; those that were begun come to their end
    #[arg(long)]
    pub stop: bool,
    /// Most moves
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub moves: u32,
    /// Most moves at once
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub at_once: u32,
    /// Move jobs too that save nothing on the way out: they start again from the beginning
    #[arg(long)]
    pub losing_work: bool,
    /// Move jobs too that are not preemptible
    #[arg(long)]
    pub not_preemptible: bool,
}

/// `tessera pool what-if`.
#[derive(Debug, Subcommand)]
pub enum WhatIfVerb {
    /// Which jobs would have to leave these nodes, where they would go, and which would wait
    Drain {
        /// The nodes
        #[arg(required = true)]
        node: Vec<String>,
    },
    /// Which waiting jobs would start on nodes with these cards
    Add {
        /// Cards as KIND:MODEL, like a card of the pool, or KIND:MODEL:TFLOPS:MEMORY; xN after it: so many on each node
        #[arg(required = true, value_name = "CARDS [xN]")]
        cards: Vec<CardsOrCount>,
        /// Number of such nodes
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10000))]
        nodes: u32,
        /// Take what is not said of hosts, labels and links from this node; without it from the one whose cards are
        /// most like these
        #[arg(long, value_name = "NODE")]
        like: Option<String>,
        /// Processors of each host, such as 64
        #[arg(long, value_name = "N", value_parser = cpus, default_value = "0", hide_default_value = true)]
        host_cpus: u64,
        /// Memory of each host, such as 512GiB
        #[arg(long, value_name = "SIZE", value_parser = memory, default_value = "0", hide_default_value = true)]
        host_memory: u64,
        /// Label of each node
        #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
        label: Vec<(String, String)>,
    },
    /// What other settings of a queue would change
    Queue(Box<SetQueueArgs>),
}

/// Cards, or how many of the cards before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardsOrCount {
    /// Cards of one model.
    Cards {
        /// Their kind.
        kind: KindChoice,
        /// Their model.
        model: String,
        /// Compute of each in thousandths of a TFLOPS; 0: as the pool's cards of the model.
        milli_tflops: u64,
        /// Memory of each in MiB.
        memory_mib: u64,
    },
    /// The number of cards of the kind given before it.
    Count(u32),
}

impl FromStr for CardsOrCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(count) = text.strip_prefix('x').and_then(|count| count.parse().ok()) {
            return Ok(Self::Count(count));
        }
        let usage =
            "write cards as `gpu:H100`, or `gpu:H200:990:141GiB` when the pool has none, and `x8` for their number";
        let parts: Vec<&str> = text.split(':').collect();
        let (kind, model, milli_tflops, memory_mib) = match parts[..] {
            [kind, model] => (kind, model, 0, 0),
            [kind, model, compute, size] => (kind, model, tflops(compute)?, memory(size)?),
            _ => return Err(usage.to_owned()),
        };
        let kind = <KindChoice as clap::ValueEnum>::from_str(kind, true).map_err(|_| usage.to_owned())?;
        if model.is_empty() {
            return Err(usage.to_owned());
        }
        Ok(Self::Cards { kind, model: model.to_owned(), milli_tflops, memory_mib })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_written_by_model_or_in_full() {
        let cards = |text: &str| text.parse::<CardsOrCount>();
        assert_eq!(cards("x8"), Ok(CardsOrCount::Count(8)));
        let (kind, model) = (KindChoice::Gpu, "H100".to_owned());
        assert_eq!(cards("gpu:H100"), Ok(CardsOrCount::Cards { kind, model, milli_tflops: 0, memory_mib: 0 }));
        let full = cards("npu:910B:320:64GiB").expect("four parts");
        let CardsOrCount::Cards { kind, milli_tflops, memory_mib, .. } = full else { panic!("{full:?}") };
        assert_eq!((kind, milli_tflops, memory_mib), (KindChoice::Npu, 320_000, 65_536));
        for wrong in ["", "gpu", "gpu:", "tpu:v5", "gpu:H100:1", "x", "gpu:H100:no:64GiB"] {
            assert!(cards(wrong).is_err(), "{wrong}");
        }
    }
}
