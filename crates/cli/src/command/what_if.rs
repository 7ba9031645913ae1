//! `tessera pool what-if`.

use tessera_api::v1::{AddedCards, AddedNodes, DrainedNodes, WhatIfRequest, what_if_request::Change};

use super::Desk;
use super::desk::node_named;
use crate::args::{CardsOrCount, WhatIfVerb};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::view::WhatIfView;

/// Says what a change would do.
pub(super) async fn run(mut desk: Desk, verb: WhatIfVerb) -> Result<Exit, Failure> {
    let change = match verb {
        WhatIfVerb::Drain { node } => {
            Change::Drain(DrainedNodes { nodes: node.iter().map(|name| node_named(name)).collect() })
        }
        WhatIfVerb::Add { cards, nodes, like, host_cpus, host_memory, label } => Change::Add(AddedNodes {
            cards: added(&cards)?,
            nodes,
            like: like.map(|name| node_named(&name)),
            host_milli_cpus: host_cpus,
            host_memory_mib: host_memory,
            labels: label.into_iter().collect(),
        }),
        WhatIfVerb::Queue(args) => Change::Queue(super::queue::wished(&desk, &args).await?),
    };
    let request = WhatIfRequest { change: Some(change), consistency: desk.consistency };
    let answer = desk.client.what_if(request).await;
    let answer = answer.map_err(|error| Failure::call("the change cannot be thought through", &error))?;
    desk.printer.one(&WhatIfView::from(answer))?;
    Ok(Exit::Done)
}

/// Cards with their numbers; one of each where no number follows.
fn added(words: &[CardsOrCount]) -> Result<Vec<AddedCards>, Failure> {
    let mut cards: Vec<AddedCards> = Vec::new();
    for word in words {
        match word {
            CardsOrCount::Cards { kind, model, milli_tflops, memory_mib } => cards.push(AddedCards {
                model: model.clone(),
                kind: (*kind).into(),
                milli_tflops: *milli_tflops,
                memory_mib: *memory_mib,
                count: 1,
            }),
            CardsOrCount::Count(count) => {
                let Some(last) = cards.last_mut() else {
                    let why = "a number of cards stands before any cards";
                    return Err(Failure::new(Exit::Usage, "the cards cannot be used", why).next("write `gpu:H100 x8`"));
                };
                last.count = *count;
            }
        }
    }
    Ok(cards)
}
