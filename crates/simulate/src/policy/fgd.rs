//! Fragmentation gradient descent: the node and card on which the expected fragmentation grows least.
//!
//! The fragmentation of a node, seen by one shape of work, is the free share of its cards that this shape cannot use:
//! all of it when the shape does not fit the node (or asks for no card), else the cards with less left than it asks
//! for. The expected fragmentation is the mean over the shapes seen, weighted by how often they are.

use std::collections::BTreeMap;

use super::Policy;
use super::dot_product::real;
use super::select::{HIGHEST, Order, tightest_cards, whole};
use crate::plain::{Place, PlainCluster, PlainNode, Request};

/// Takes the place with the best score; among equal ones the first node, and on it the first card.
#[derive(Debug)]
pub struct Fgd {
    order: Order,
    shapes: BTreeMap<Request, u64>,
    /// True if somebody announced the expected shapes; otherwise the requests so far are expected.
    told: bool,
    seen: BTreeMap<Request, u64>,
    seen_in_all: u64,
    /// For each request seen, what each node scored and in which state it was then.
    known: BTreeMap<Request, Vec<Option<Known>>>,
    states: Vec<PlainNode>,
    versions: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Known {
    version: u64,
    found: Option<(i64, Vec<usize>)>,
}

impl Fgd {
    /// A policy whose order of nodes the seed decides. Until it is told what to expect, it expects what it was
    /// asked for.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            order: Order::new(seed),
            shapes: BTreeMap::new(),
            told: false,
            seen: BTreeMap::new(),
            seen_in_all: 0,
            known: BTreeMap::new(),
            states: Vec::new(),
            versions: Vec::new(),
        }
    }

    /// Without anybody's word, what was asked for so far is expected; looked at anew whenever it has doubled.
    fn learn(&mut self, request: &Request) {
        if self.told {
            return;
        }
        *self.seen.entry(Request { memory: 0, ..*request }).or_insert(0) += 1;
        self.seen_in_all += 1;
        if self.seen_in_all.is_power_of_two() {
            self.shapes.clone_from(&self.seen);
            self.known.clear();
        }
    }

    /// Notes which nodes have changed since the last choice.
    fn notice_changes(&mut self, cluster: &PlainCluster) {
        self.states.resize_with(cluster.nodes.len(), || PlainNode::clone(&cluster.nodes[0]));
        self.versions.resize(cluster.nodes.len(), 0);
        for (number, node) in cluster.nodes.iter().enumerate() {
            if self.versions[number] == 0 || self.states[number] != *node {
                self.states[number] = node.clone();
                self.versions[number] += 1;
            }
        }
    }
}

/// The expected fragmentation of a node, in thousandths of a card times the weight of all shapes.
#[must_use]
pub fn fragmented_milli<'a>(node: &PlainNode, shapes: impl Iterator<Item = (&'a Request, &'a u64)>) -> u64 {
    let free = node.free_cards_milli();
    shapes
        .map(|(shape, weight)| {
            let unusable = if shape.cards == 0 || !can_host(node, shape) {
                free
            } else {
                node.cards.iter().filter(|left| **left < shape.milli).map(|left| u64::from(*left)).sum()
            };
            unusable * weight
        })
        .sum()
}

/// Returns whether the processors and the cards of a node are enough; shapes say nothing of memory.
fn can_host(node: &PlainNode, shape: &Request) -> bool {
    let room = node.cards.iter().filter(|left| **left >= shape.milli).count();
    node.cpu >= shape.cpu && node.is_accepted_by(shape) && room >= shape.cards as usize
}

/// The score of a change: a curve that is steep around no change.
fn score(before: u64, after: u64, weight: u64) -> i64 {
    let less = (real(before) - real(after)) / real(weight.max(1)) / 1000.0;
    whole(HIGHEST / (1.0 + (-less).exp()))
}

/// The best cards of a node for a request, with their score.
fn best_on(node: &PlainNode, request: &Request, shapes: &BTreeMap<Request, u64>) -> Option<(i64, Vec<usize>)> {
    if !node.fits(request) {
        return None;
    }
    let weight = shapes.values().sum();
    let before = fragmented_milli(node, shapes.iter());
    let fraction = request.cards == 1 && request.milli < crate::trace::WHOLE_CARD;
    let choices: Vec<Vec<usize>> = if fraction {
        node.fitting_cards(request).map(|card| vec![card]).collect()
    } else {
        vec![tightest_cards(node, request)]
    };
    let mut best: Option<(i64, Vec<usize>)> = None;
    for cards in choices {
        let mut after = node.clone();
        after.cpu -= request.cpu;
        for card in &cards {
            after.cards[*card] -= request.milli;
        }
        let score = score(before, fragmented_milli(&after, shapes.iter()), weight);
        if best.as_ref().is_none_or(|(known, _)| score > *known) {
            best = Some((score, cards));
        }
    }
    best
}

impl Policy for Fgd {
    fn choose(&mut self, cluster: &PlainCluster, request: &Request) -> Option<Place> {
        self.learn(request);
        self.notice_changes(cluster);
        let known = self.known.entry(*request).or_insert_with(|| vec![None; cluster.nodes.len()]);
        let mut best: Option<(i64, usize)> = None;
        for number in self.order.of(cluster).iter().copied() {
            let (node, version) = (&cluster.nodes[number], self.versions[number]);
            let slot = &mut known[number];
            if slot.as_ref().is_none_or(|known| known.version != version) {
                *slot = Some(Known { version, found: best_on(node, request, &self.shapes) });
            }
            let Some((score, _)) = slot.as_ref().and_then(|known| known.found.as_ref()) else { continue };
            if best.is_none_or(|(known, _)| *score > known) {
                best = Some((*score, number));
            }
        }
        let (_, node) = best?;
        let (_, cards) = known[node].as_ref()?.found.clone()?;
        Some(Place { node, cards })
    }

    fn expect(&mut self, shape: Request, weight: u64) {
        if !std::mem::replace(&mut self.told, true) {
            self.shapes.clear();
        }
        *self.shapes.entry(shape).or_insert(0) += weight;
        self.known.clear();
    }
}
