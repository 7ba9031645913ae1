//! Clearing cards for virtual cards that each need one. How many of them fit is counted node by node, so that
//! exactly as many rooms are made as the gang lacks, and nobody gives way who makes none.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tessera_ledger::{CardId, NodeId};

use super::cards::{COMPARED, cheapest_of, clearable_cards, room_without, victims_on};
use super::trial::{attempt, workers_without};
use super::{Found, Hunt, Victim};
use crate::demand::Demand;
use crate::fit;
use crate::index::Index;
use crate::loss::Cost;
use crate::victims::live_workers;

/// Most counts of the rooms that are missing. The first counts may be too small.
const COUNTED: usize = 16;

/// A way to make room on a card.
struct Clearing {
    cost: Cost,
    rooms: u64,
    victims: Vec<Arc<Victim>>,
}

/// Makes as many rooms as the gang lacks, the cheapest first. `None`: it lacks none, or they cannot be made so.
pub(super) fn clear(index: &mut Index, hunt: &mut Hunt<'_>) -> Option<Found> {
    let demand = &hunt.job.least;
    let mut missing = u64::from(hunt.missing);
    if missing == 0 {
        missing = u64::from(attempt(index, &[], |index| fit::place(index, demand)).err()?.missing);
    }
    let mut cleared = Cleared::default();
    let mut open = None;
    for _ in 0..COUNTED {
        let open = open.get_or_insert_with(|| cleared.compare(index, hunt, missing));
        cleared.make(index, hunt, open, missing)?;
        let fewer = cleared.without_needless(index, hunt, missing);
        match attempt(index, &fewer.victims, |index| fit::place(index, demand)) {
            Ok(placement) => return hunt.take_or_beside(index, placement, &fewer.victims),
            Err(short) => missing = fewer.rooms.saturating_add(u64::from(short.missing)),
        }
    }
    None
}

/// Victims that were chosen, and the rooms that they make.
#[derive(Clone, Default)]
struct Cleared {
    /// In an order in which all of them may give way.
    victims: Vec<Arc<Victim>>,
    by_node: BTreeMap<NodeId, Vec<Arc<Victim>>>,
    rooms: u64,
}

impl Cleared {
    fn chosen_on(&self, node: NodeId) -> &[Arc<Victim>] {
        self.by_node.get(&node).map_or(&[], |chosen| chosen)
    }

    /// The ways to clear one card each, by what a room costs: at least [`COMPARED`], and more than are missing.
    fn compare(&self, index: &Index, hunt: &mut Hunt<'_>, missing: u64) -> BTreeSet<(Cost, CardId)> {
        let most = COMPARED.max(usize::try_from(missing.saturating_mul(4)).unwrap_or(usize::MAX));
        let cards = clearable_cards(index, hunt, &hunt.job.least, most);
        cards.filter_map(|card| Some((self.clearing_of(index, hunt, card, missing)?.cost, card))).take(most).collect()
    }

    /// Chooses further victims until they make so many rooms.
    fn make(
        &mut self,
        index: &Index,
        hunt: &mut Hunt<'_>,
        open: &mut BTreeSet<(Cost, CardId)>,
        missing: u64,
    ) -> Option<()> {
        while self.rooms < missing {
            let (_, card) = open.pop_first()?;
            // What was chosen meanwhile may have changed what it makes and costs.
            let Some(clearing) = self.clearing_of(index, hunt, card, missing) else { continue };
            if open.first().is_some_and(|next| (clearing.cost, card) > *next) {
                open.insert((clearing.cost, card));
                continue;
            }
            if !hunt.enter(&mut self.victims, &clearing.victims) {
                continue;
            }
            for victim in &clearing.victims {
                nodes_of(victim)
                    .into_iter()
                    .for_each(|node| self.by_node.entry(node).or_default().push(Arc::clone(victim)));
            }
            self.rooms = self.rooms.saturating_add(clearing.rooms);
            open.extend(self.clearing_of(index, hunt, card, missing).map(|next| (next.cost, card)));
        }
        Some(())
    }

    /// The cheapest way to make at least one more room where a card is: by victims on it, or, where the host lacks
    /// something, on its node.
    fn clearing_of(&self, index: &Index, hunt: &mut Hunt<'_>, card: CardId, missing: u64) -> Option<Clearing> {
        let demand = &hunt.job.least;
        let mut victims = victims_on(index, hunt, card)?;
        let chosen = self.chosen_on(card.node);
        let is_open = |victim: &Arc<Victim>| chosen.iter().all(|other| other.job.id != victim.job.id);
        victims.retain(is_open);
        let (entry, node) = (index.card(card)?, index.node(card.node)?);
        let limited = !demand.host.is_zero() && node.host.is_some();
        let rooms = |gone: &[Arc<Victim>]| match limited {
            true => rooms_on(index, demand, card.node, chosen.iter().chain(gone)),
            false => room_without(entry, demand, chosen.iter().chain(gone)).into(),
        };
        if victims.is_empty() && !limited {
            return None;
        }
        let before = rooms(&[]);
        let more = |gone: &[Arc<Victim>]| rooms(gone) > before;
        if limited && !more(&victims) {
            let holders = node.cards.iter().flat_map(|card| card.holders.iter().map(|(holder, _)| *holder));
            let holders: BTreeSet<_> = holders.collect();
            victims = holders.into_iter().filter_map(|holder| hunt.victim(holder)).filter(is_open).collect();
        }
        let victims = cheapest_of(hunt, victims, more)?;
        let cost: Cost = victims.iter().map(|victim| victim.cost).sum();
        if missing == 1 {
            // There is one now, and how many more there are on all the nodes of the victims would be counted in vain.
            return Some(Clearing { cost, rooms: 1, victims });
        }
        let nodes: BTreeSet<NodeId> = victims.iter().flat_map(nodes_of).collect();
        let made = |node: NodeId| {
            let chosen = self.chosen_on(node);
            let before = rooms_on(index, demand, node, chosen.iter());
            rooms_on(index, demand, node, chosen.iter().chain(&victims)).saturating_sub(before)
        };
        let rooms = nodes.into_iter().map(made).fold(0, u64::saturating_add);
        // More rooms than are still missing are worth nothing.
        let useful = rooms.min(missing.saturating_sub(self.rooms)).max(1);
        (rooms > 0).then(|| Clearing { cost: cost.per_block(useful), rooms, victims })
    }

    /// Without those who make no more rooms than there are beyond `missing`, the dearest left out first.
    fn without_needless(&self, index: &Index, hunt: &Hunt<'_>, missing: u64) -> Self {
        let mut rest = self.clone();
        let mut order = self.victims.clone();
        order.sort_by_key(|victim| (Reverse(victim.cost), victim.allocation.granted_at, victim.job.id));
        for victim in order {
            let made = rest.made_by(index, &hunt.job.least, &victim);
            if rest.rooms.saturating_sub(made) < missing || rest.victims.len() < 2 {
                continue;
            }
            let fewer = rest.victims.iter().filter(|other| other.job.id != victim.job.id).cloned().collect();
            if let Some(victims) = hunt.in_order(fewer) {
                rest.victims = victims;
                rest.rooms = rest.rooms.saturating_sub(made);
                for node in nodes_of(&victim) {
                    rest.by_node.entry(node).or_default().retain(|other| other.job.id != victim.job.id);
                }
            }
        }
        rest
    }

    /// The rooms that are lost when a victim stays.
    fn made_by(&self, index: &Index, demand: &Demand, victim: &Arc<Victim>) -> u64 {
        let lost = |node: NodeId| {
            let all = self.chosen_on(node);
            let others = all.iter().filter(|other| other.job.id != victim.job.id);
            rooms_on(index, demand, node, all.iter()).saturating_sub(rooms_on(index, demand, node, others))
        };
        nodes_of(victim).into_iter().map(lost).fold(0, u64::saturating_add)
    }
}

fn nodes_of(victim: &Arc<Victim>) -> BTreeSet<NodeId> {
    live_workers(&victim.allocation).map(|worker| worker.node).collect()
}

/// Returns the number of virtual cards, each on one card, that fit on a node once the victims `gone` have left.
fn rooms_on<'v>(
    index: &Index,
    demand: &Demand,
    node: NodeId,
    gone: impl Iterator<Item = &'v Arc<Victim>> + Clone,
) -> u64 {
    let Some(entry) = index.node(node) else { return 0 };
    if !entry.is_grantable() || !demand.accepts(entry) {
        return 0;
    }
    let on_cards = entry.cards.iter().map(|card| u64::from(room_without(card, demand, gone.clone())));
    on_cards.sum::<u64>().min(u64::from(workers_without(entry, demand, gone.map(|victim| victim.held()))))
}
