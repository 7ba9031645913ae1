//! Lists of nodes, cards and blocks, page by page.

use std::sync::Arc;

use tessera_api::error::Refusal;
use tessera_api::fields::{count, sought_labels};
use tessera_api::page::Page;
use tessera_api::pool_view::{self, node_of_ref};
use tessera_api::{limits, v1};
use tessera_ledger::wire::{FieldError, WireEnum, enum_from_wire};
use tessera_ledger::{Card, CardId, CardKind, Eligibility, Node, NodeId, NodeState, State};
use tokio::time::Instant;
use tonic::Status;

use crate::services::{Desk, scan};

/// One page of nodes, in order of registration.
pub(super) async fn nodes(
    desk: &Desk,
    deadline: Instant,
    request: &v1::ListNodesRequest,
) -> Result<v1::ListNodesResponse, Status> {
    let states = each::<NodeState>("states", &request.states)?;
    let eligibilities = each::<Eligibility>("eligibilities", &request.eligibilities)?;
    sought_labels("labels", &request.labels).map_err(Refusal::from)?;
    let page = Page::<NodeId>::of(request)?;
    let reading = desk.read(request.consistency, deadline).await?;
    let state = &reading.state;
    let takes = |node: &Node| {
        let in_state =
            if states.is_empty() { node.state != NodeState::Forgotten } else { states.contains(&node.state) };
        in_state
            && (eligibilities.is_empty() || eligibilities.contains(&node.eligibility))
            && node.description.carries(&request.labels)
    };
    // Nodes are numbered without gap and never leave the ledger.
    let first = page.after.map_or(0, |after| after.0.saturating_add(1));
    let rest = (first..).map_while(|id| state.node(NodeId(id)));
    let view = |node: &&Arc<Node>| takes(node).then(|| desk.live_node(state, node));
    let (nodes, next_page_token) = scan::page(&page, rest, |node| node.id, view);
    Ok(v1::ListNodesResponse { nodes, next_page_token, read: reading.read_state() })
}

/// One page of cards, by node and index.
pub(super) async fn cards(
    desk: &Desk,
    deadline: Instant,
    request: &v1::ListCardsRequest,
) -> Result<v1::ListCardsResponse, Status> {
    let kinds = each::<CardKind>("kinds", &request.kinds)?;
    let page = Page::<CardId>::of(request)?;
    let reading = desk.read(request.consistency, deadline).await?;
    let state = &reading.state;
    let some = cards_after(state, request.node.as_ref(), page.after)?;
    let view = |(id, card): &(CardId, &Arc<Card>)| takes(&kinds, card).then(|| desk.live_card(state, *id, card));
    let (cards, next_page_token) = scan::page(&page, some, |(id, _)| *id, view);
    Ok(v1::ListCardsResponse { cards, next_page_token, read: reading.read_state() })
}

/// One page of the blocks of cards, by node and index (patent statement P4).
pub(super) async fn blocks(
    desk: &Desk,
    deadline: Instant,
    request: &v1::GetBlockMapRequest,
) -> Result<v1::GetBlockMapResponse, Status> {
    let kinds = each::<CardKind>("kinds", &request.kinds)?;
    let page = Page::<CardId>::of(request)?;
    let reading = desk.read(request.consistency, deadline).await?;
    let state = &reading.state;
    let some = cards_after(state, request.node.as_ref(), page.after)?;
    let view =
        |(id, card): &(CardId, &Arc<Card>)| takes(&kinds, card).then(|| pool_view::card_blocks(state, *id, card));
    let (cards, next_page_token) = scan::page(&page, some, |(id, _)| *id, view);
    Ok(v1::GetBlockMapResponse { cards, next_page_token, read: reading.read_state() })
}

fn takes(kinds: &[CardKind], card: &Card) -> bool {
    kinds.is_empty() || kinds.contains(&card.description.kind)
}

/// The cards after one, of one node or of all, node by node.
fn cards_after<'a>(
    state: &'a State,
    node: Option<&v1::NodeRef>,
    after: Option<CardId>,
) -> Result<impl Iterator<Item = (CardId, &'a Arc<Card>)>, Refusal> {
    let (first, last) = match node {
        Some(node) => {
            let id = node_of_ref("node", state, Some(node))?.0;
            (id, id)
        }
        None => (after.map_or(0, |after| after.node.0), u32::MAX),
    };
    let nodes = (first..=last).map_while(|id| state.node(NodeId(id)));
    let cards = nodes.flat_map(|node| state.cards_of(node.id));
    Ok(cards.filter(move |(id, _)| after.is_none_or(|after| *id > after)))
}

/// The values of a filter.
fn each<T: WireEnum>(field: &str, numbers: &[i32]) -> Result<Vec<T>, Refusal> {
    count(field, numbers.len(), limits::FILTER)?;
    let value = |(place, number): (usize, &i32)| {
        let field = format!("{field}[{place}]");
        enum_from_wire(&field, *number)?.ok_or_else(|| FieldError::missing(field))
    };
    let values: Result<Vec<T>, FieldError> = numbers.iter().enumerate().map(value).collect();
    Ok(values?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_names_so_many_values_and_no_more() {
        let named = |count| each::<CardKind>("kinds", &vec![v1::CardKind::Gpu.into(); count]);
        assert_eq!(named(limits::FILTER).map(|kinds| kinds.len()), Ok(limits::FILTER));
        let refused = named(limits::FILTER + 1).expect_err("each card is compared with each of them");
        assert_eq!(refused.message(), "kinds: must be at most 1000, are 1001");
    }
}
