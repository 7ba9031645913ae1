//! A cluster as large as the one of the Alibaba `openb` traces, and jobs like its pods: numbers of nodes and cards,
//! hosts, and how often what is asked for are the trace's in round figures; which job comes when is drawn. One card is
//! 1,000 blocks.

use std::collections::{BTreeMap, BTreeSet};

use tessera_ledger::*;

use super::{Cluster, Numbers, job};

/// Nodes of the pool: how many, processors, GiB, cards, model. 1,213 nodes with 6,212 cards.
const NODES: [(u32, u64, u64, u32, &str); 15] = [
    (549, 96, 384, 8, "G2"),
    (387, 104, 512, 2, "T4"),
    (107, 16, 120, 2, "P100"),
    (39, 128, 768, 8, "G3"),
    (28, 32, 128, 4, "V100M16"),
    (22, 64, 256, 2, "P100"),
    (21, 96, 768, 8, "V100M32"),
    (19, 8, 32, 1, "V100M16"),
    (17, 96, 384, 4, "T4"),
    (9, 48, 368, 4, "V100M32"),
    (7, 64, 256, 8, "V100M16"),
    (3, 8, 60, 1, "P100"),
    (2, 8, 60, 2, "P100"),
    (2, 128, 1024, 1, "A10"),
    (1, 82, 336, 8, "V100M16"),
];

/// The requests of jobs: jobs in a thousand, cards (zero: the processor card), compute per card in thousandths of a
/// GPU.
const REQUESTS: [(u64, u32, u64); 16] = [
    (480, 1, 1000),
    (132, 1, 810),
    (92, 1, 470),
    (40, 1, 320),
    (31, 1, 650),
    (17, 1, 230),
    (16, 1, 460),
    (9, 1, 590),
    (9, 1, 160),
    (9, 1, 550),
    (8, 1, 220),
    (14, 1, 370),
    (5, 8, 1000),
    (2, 4, 1000),
    (2, 2, 1000),
    (134, 0, 1),
];

fn card(index: u32, kind: CardKind, model: &str, tflops: u64) -> CardDescription {
    CardDescription {
        kind,
        model: model.to_owned(),
        memory: Mebibytes(0),
        rated: BTreeMap::from([(Precision::Fp16, MilliTflops::from_tflops(tflops))]),
        ..super::card(index, 0)
    }
}

/// The pool, empty. Every node has a processor card beside the others, for jobs that ask for no card.
pub fn pool() -> Cluster {
    let mut cluster = Cluster::empty();
    let mut commands = Vec::new();
    for (count, processors, gibibytes, cards, model) in NODES {
        for _ in 0..count {
            let mut all: Vec<CardDescription> = (0..cards).map(|i| card(i, CardKind::Gpu, model, 1_000)).collect();
            all.push(card(cards, CardKind::Cpu, "cpu", 100));
            let host = HostCapacity { cpu: MilliCpus(processors * 1_000), memory: Mebibytes(gibibytes * 1_024) };
            let node = NodeDescription { host: Some(host), ..super::node(commands.len()) };
            commands.push(Command::RegisterNode { node, cards: all });
        }
    }
    cluster.apply(commands);
    cluster
}

pub fn request(numbers: &mut Numbers) -> JobSpec {
    let mut left = numbers.next() % 1_000;
    let drawn = REQUESTS.iter().find(|(share, ..)| {
        let here = left < *share;
        left = left.saturating_sub(*share);
        here
    });
    let (_, cards, milli) = *drawn.expect("the shares add up to a thousand");
    let kind = if cards == 0 { CardKind::Cpu } else { CardKind::Gpu };
    let processors = numbers.choose(&[4, 6, 8, 10, 11, 12]) * u64::from(cards.max(1));
    let mut spec = job(milli * u64::from(cards.max(1)), 0, &[kind]);
    spec.host = HostRequest { cpu: MilliCpus(processors * 1_000), memory: Mebibytes(processors * 3_072) };
    if cards > 1 {
        spec.virtual_card.span = Span::Node;
        spec.virtual_card.whole_cards = true;
    }
    spec.virtual_card.kinds = BTreeSet::from([kind]);
    spec
}
