//! `tessera pool`.

use futures::future::join_all;
use tessera_api::v1::{Consistency, GetBlockMapRequest, GetPoolRequest, ListMembersRequest, VerifyPoolRequest};
use tessera_client::Address;

use super::Desk;
use super::desk::{PAGE, kinds, node_named, silence};
use crate::args::{Format, MapArgs, PoolVerb};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view::{CardBlocksView, MemberVerdictView, PoolView, VerifyView};

pub(super) async fn run(desk: Desk, verb: PoolVerb) -> Result<Exit, Failure> {
    match verb {
        PoolVerb::Show => show(desk).await,
        PoolVerb::Map(args) => map(desk, args).await,
        PoolVerb::Config(verb) => super::config::run(desk, verb).await,
        PoolVerb::Compact(args) => super::compact::run(desk, args).await,
        PoolVerb::WhatIf(verb) => super::what_if::run(desk, verb).await,
        PoolVerb::Verify => verify(desk).await,
    }
}

async fn show(mut desk: Desk) -> Result<Exit, Failure> {
    let answer = desk.client.get_pool(GetPoolRequest { consistency: desk.consistency }).await;
    let answer = answer.map_err(|error| Failure::call("the pool cannot be shown", &error))?;
    desk.printer.one(&PoolView::from(answer))?;
    Ok(Exit::Done)
}

async fn map(mut desk: Desk, args: MapArgs) -> Result<Exit, Failure> {
    let mut cards: Vec<CardBlocksView> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = GetBlockMapRequest {
            node: args.node.as_deref().map(node_named),
            kinds: kinds(&args.kind),
            page_size: PAGE,
            page_token,
            consistency: desk.consistency,
        };
        let page = desk.client.get_block_map(request).await;
        let page = page.map_err(|error| Failure::call("the blocks cannot be shown", &error))?;
        cards.extend(page.cards.into_iter().map(CardBlocksView::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    match desk.printer.format() {
        Format::Table | Format::Wide => desk.printer.map(&cards)?,
        Format::Name => {
            for card in &cards {
                desk.printer.write(&format!("{}/{}\n", card.node_name, card.card_index))?;
            }
        }
        Format::Jsonl => cards.iter().try_for_each(|card| desk.printer.data(card))?,
        Format::Json | Format::Yaml => desk.printer.data(&cards)?,
    }
    Ok(Exit::Done)
}

/// Every member checks its own whole state; states at equal revisions must be equal (laws L1 and L8).
async fn verify(mut desk: Desk) -> Result<Exit, Failure> {
    let members = desk.client.list_members(ListMembersRequest {}).await;
    let members = members.map_err(|error| Failure::call("the members cannot be listed", &error))?.members;
    let verdicts = members.iter().map(|member| ask(&desk, &member.address));
    let verdict = VerifyView::over(join_all(verdicts).await);
    desk.printer.one(&verdict)?;
    Ok(if verdict.ok { Exit::Done } else { Exit::Failed })
}

async fn ask(desk: &Desk, address: &str) -> MemberVerdictView {
    let silent = |error: String| MemberVerdictView::silent(address.to_owned(), error);
    let member: Address = match address.parse() {
        Ok(member) => member,
        Err(error) => return silent(format!("{error}")),
    };
    let client = match desk.client.only(&member) {
        Ok(client) => client,
        Err(error) => return silent(error.to_string()),
    };
    match client.verify_pool(VerifyPoolRequest { consistency: Consistency::Stale.into() }).await {
        Ok(answer) => MemberVerdictView::answered(address.to_owned(), answer),
        Err(error) => silent(silence(&error)),
    }
}
