//! The policies against their definitions, computed anew for every node.

use proptest::prelude::*;
use tessera_simulate::plain::{Place, PlainCluster, PlainNode, Request};
use tessera_simulate::policy::{Named, fragmented_milli};
use tessera_simulate::trace::{Ask, TraceNode};

fn nodes() -> impl Strategy<Value = Vec<TraceNode>> {
    let node = (1u64..33, 1u64..65, 0u32..5, prop::sample::select(vec!["T4", "P100"]));
    prop::collection::vec(node, 1..8).prop_map(|list| {
        let node = |(number, (cpu, memory, cards, model)): (usize, (u64, u64, u32, &str))| TraceNode {
            name: format!("n{number}"),
            cpu_milli: cpu * 1000,
            memory_mib: memory * 1024,
            cards,
            model: model.to_owned(),
            card_memory_mib: None,
        };
        list.into_iter().enumerate().map(node).collect()
    })
}

fn asks() -> impl Strategy<Value = Vec<Ask>> {
    let share = (1u32..1000).prop_map(|milli| (1, milli));
    let cards = prop_oneof![Just((0u32, 0u32)), share, (1u32..4).prop_map(|count| (count, 1000))];
    let ask = (0u64..9000, 0u64..9000, cards, any::<bool>());
    prop::collection::vec(ask, 1..40).prop_map(|list| {
        let ask = |(cpu_milli, memory_mib, (cards, card_milli), any): (u64, u64, (u32, u32), bool)| Ask {
            cpu_milli,
            memory_mib,
            cards,
            card_milli,
            card_memory_mib: 0,
            models: if any || cards == 0 { Default::default() } else { ["T4".to_owned()].into() },
        };
        list.into_iter().map(ask).collect()
    })
}

fn real(amount: u64) -> f64 {
    u32::try_from(amount).map(f64::from).expect("small amounts")
}

fn cut(score: f64) -> i64 {
    #[allow(clippy::cast_possible_truncation, reason = "scores are small")]
    let cut = score as i64;
    cut
}

fn count(of: usize) -> i64 {
    i64::try_from(of).expect("few cards")
}

/// A cluster as it is before a choice, what is asked for, and the shapes that were expected.
struct Case<'a> {
    cluster: &'a PlainCluster,
    shapes: &'a [(Request, u64)],
    ask: Request,
}

impl Case<'_> {
    /// The quantity that each policy maximizes, from its definition.
    fn merit(&self, named: Named, place: &Place) -> i64 {
        let node = &self.cluster.nodes[place.node];
        let nodes = || self.cluster.nodes.iter();
        let most_cpu = real(nodes().map(|node| node.cpu_capacity).max().unwrap_or(1));
        let most_cards = real(nodes().map(|node| node.cards.len() as u64 * 1000).max().unwrap_or(1).max(1));
        let (free_cpu, free_cards) = (real(node.cpu), real(node.free_cards_milli()));
        let (cpu, all) = (real(self.ask.cpu), real(self.ask.all_cards_milli()));
        match named {
            Named::Random => 0,
            Named::BestFit => {
                cut(100.0 * (1.0 - f64::midpoint((free_cpu - cpu) / most_cpu, (free_cards - all) / most_cards)))
            }
            Named::DotProduct => {
                let products = (free_cpu / most_cpu * cpu / most_cpu, free_cards / most_cards * all / most_cards);
                cut(100.0 * (1.0 - f64::midpoint(products.0, products.1)))
            }
            Named::Packing => self.packing(node, &place.cards),
            Named::Fgd => {
                let mut after = node.clone();
                after.cpu -= self.ask.cpu;
                place.cards.iter().for_each(|card| after.cards[*card] -= self.ask.milli);
                let weight: u64 = self.shapes.iter().map(|(_, weight)| weight).sum();
                let less = (real(self.fragmented(node)) - real(self.fragmented(&after))) / real(weight) / 1000.0;
                cut(100.0 / (1.0 + (-less).exp()))
            }
        }
    }

    fn fragmented(&self, node: &PlainNode) -> u64 {
        fragmented_milli(node, self.shapes.iter().map(|(shape, weight)| (shape, weight)))
    }

    fn packing(&self, node: &PlainNode, cards: &[usize]) -> i64 {
        let idle = node.cards.iter().filter(|free| **free == 1000).count();
        let used: Vec<u32> = cards.iter().map(|card| node.cards[*card]).filter(|free| *free < 1000).collect();
        if self.ask.cards == 0 {
            0
        } else if idle == node.cards.len() {
            33 - count(idle)
        } else if used.len() == cards.len() {
            100 - used.iter().map(|free| i64::from(free / 100)).sum::<i64>()
        } else {
            (50 - count(cards.len() - used.len())).max(33)
        }
    }

    /// All ways to place one worker, as far as a policy could tell them apart.
    fn ways(&self) -> Vec<Place> {
        let mut ways = Vec::new();
        for (number, node) in self.cluster.nodes.iter().enumerate().filter(|(_, node)| node.fits(&self.ask)) {
            let cards: Vec<usize> = node.fitting_cards(&self.ask).collect();
            match self.ask.cards {
                1 => ways.extend(cards.into_iter().map(|card| Place { node: number, cards: vec![card] })),
                count => ways.push(Place { node: number, cards: cards[..count as usize].to_vec() }),
            }
        }
        ways
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever came before, each choice fits and no other way has more merit; nothing is chosen only when there is
    /// no way.
    #[test]
    fn choices_are_the_best_by_definition(
        nodes in nodes(),
        asks in asks(),
        seed in any::<u64>(),
        named in prop::sample::select(Named::ALL.to_vec()),
    ) {
        let mut cluster = PlainCluster::new(&nodes);
        let mut policy = named.make(seed);
        let mut shapes = std::collections::BTreeMap::new();
        for (weight, ask) in (1u64..).zip(&asks) {
            *shapes.entry(cluster.request(ask)).or_insert(0) += weight;
        }
        let shapes: Vec<(Request, u64)> = shapes.into_iter().collect();
        shapes.iter().for_each(|(shape, weight)| policy.expect(*shape, *weight));
        for ask in &asks {
            let ask = cluster.request(ask);
            let case = Case { cluster: &cluster, shapes: &shapes, ask };
            let ways = case.ways();
            let choice = policy.choose(&cluster, &ask);
            prop_assert_eq!(choice.is_none(), ways.is_empty());
            let Some(place) = choice else { continue };
            let best = ways.iter().map(|way| case.merit(named, way)).max().expect("there is a way");
            prop_assert_eq!(case.merit(named, &place), best, "{:?} chose {:?}", named, place);
            cluster.take(&ask, &place).expect("it fits");
        }
    }

    /// The same seed makes the same choices.
    #[test]
    fn the_same_seed_chooses_the_same(
        nodes in nodes(),
        asks in asks(),
        seed in any::<u64>(),
        named in prop::sample::select(Named::ALL.to_vec()),
    ) {
        let run = || {
            let mut cluster = PlainCluster::new(&nodes);
            let mut policy = named.make(seed);
            let mut places = Vec::new();
            for ask in &asks {
                let request = cluster.request(ask);
                let place = policy.choose(&cluster, &request);
                if let Some(place) = &place {
                    cluster.take(&request, place).expect("it fits");
                }
                places.push(place);
            }
            places
        };
        prop_assert_eq!(run(), run());
    }
}

/// Fragmentation by hand: a node with 300 and 1000 free, seen by one shape at a time.
#[test]
fn fragmentation_is_what_a_shape_cannot_use() {
    let cluster = PlainCluster::new(&[TraceNode {
        name: "n".to_owned(),
        cpu_milli: 4000,
        memory_mib: 1,
        cards: 2,
        model: "T4".to_owned(),
        card_memory_mib: None,
    }]);
    let ask = |cpu_milli, cards, card_milli, model: &str| {
        let models = if model.is_empty() { Default::default() } else { [model.to_owned()].into() };
        cluster.request(&Ask { cpu_milli, cards, card_milli, models, ..Ask::default() })
    };
    let mut node = cluster.nodes[0].clone();
    node.cards = vec![300, 1000];
    let of = |request: Request| fragmented_milli(&node, [(&request, &1)].into_iter());
    assert_eq!(of(ask(1000, 1, 500, "")), 300, "the card with too little");
    assert_eq!(of(ask(1000, 1, 200, "")), 0, "both cards will do");
    assert_eq!(of(ask(1000, 2, 1000, "")), 1300, "it does not fit at all");
    assert_eq!(of(ask(5000, 1, 200, "")), 1300, "too few processors");
    assert_eq!(of(ask(1000, 1, 200, "P100")), 1300, "another model");
    assert_eq!(of(ask(1000, 0, 0, "")), 1300, "it has no use for cards");
}
