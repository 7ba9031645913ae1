//! `tessera card`.

use tessera_api::v1::{GetCardRequest, ListCardsRequest};

use super::Desk;
use super::desk::{PAGE, kinds, node_named};
use crate::args::{CardRef, CardVerb, KindChoice};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view::{CardDetailView, CardView};

pub(super) async fn run(desk: Desk, verb: CardVerb) -> Result<Exit, Failure> {
    match verb {
        CardVerb::List { node, kind } => list(desk, node.as_deref(), &kind).await,
        CardVerb::Show { card } => show(desk, &card).await,
    }
}

async fn list(mut desk: Desk, node: Option<&str>, kind: &[KindChoice]) -> Result<Exit, Failure> {
    let mut cards: Vec<CardView> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListCardsRequest {
            node: node.map(node_named),
            kinds: kinds(kind),
            page_size: PAGE,
            page_token,
            consistency: desk.consistency,
        };
        let page = desk.client.list_cards(request).await;
        let page = page.map_err(|error| Failure::call("the cards cannot be listed", &error))?;
        cards.extend(page.cards.into_iter().map(CardView::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    desk.printer.list(&cards)?;
    Ok(Exit::Done)
}

async fn show(mut desk: Desk, card: &CardRef) -> Result<Exit, Failure> {
    let request =
        GetCardRequest { node: Some(node_named(&card.node)), index: card.index, consistency: desk.consistency };
    let answer = desk.client.get_card(request).await;
    let what = || format!("card {}/{} cannot be shown", card.node, card.index);
    let answer = answer.map_err(|error| Failure::call(what(), &error))?;
    desk.printer.one(&CardDetailView::from(answer))?;
    Ok(Exit::Done)
}
