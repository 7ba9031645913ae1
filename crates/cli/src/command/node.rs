//! `tessera node`.

use tessera_api::v1::{
    ConfirmStoppedRequest, CordonNodeRequest, DrainNodeRequest, ForgetNodeRequest, GetNodeRequest, ListNodesRequest,
    UncordonNodeRequest,
};
use tessera_client::ClientError;
use tessera_client::watch::Start;
use tessera_ledger::wire::duration_to_wire;

use super::Desk;
use super::desk::{PAGE, node_named};
use crate::args::NodeVerb;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::outage::Outage;
use crate::print::{confirm, end_without_reader, remark};
use crate::view::{MutationView, NodeDetailView, NodeView, PoolUpdateView};

pub(super) async fn run(desk: Desk, verb: NodeVerb) -> Result<Exit, Failure> {
    let request_id = desk.client.new_request_id();
    match verb {
        NodeVerb::List { watch: false } => list(desk).await,
        NodeVerb::List { watch: true } => watch(desk).await,
        NodeVerb::Show { node } => show(desk, &node).await,
        NodeVerb::Drain { node, reason, deadline, yes } => {
            let how = match deadline {
                None => "Its jobs are stopped and resumed elsewhere.".to_owned(),
                Some(time) => format!(
                    "Jobs that save themselves are moved away, and what is left is stopped after {}.",
                    humantime::format_duration(time)
                ),
            };
            confirm(yes, &format!("Drain {node}? {how}"))?;
            let deadline = deadline.map(duration_to_wire);
            let request = DrainNodeRequest { request_id, node: Some(node_named(&node)), reason, deadline };
            let answer = desk.client.drain_node(request).await.map(|answer| answer.revision);
            done(desk, &node, "is being drained", "drained", answer)
        }
        NodeVerb::Cordon { node, reason } => {
            let request = CordonNodeRequest { request_id, node: Some(node_named(&node)), reason };
            let answer = desk.client.cordon_node(request).await.map(|answer| answer.revision);
            done(desk, &node, "takes no new work", "cordoned", answer)
        }
        NodeVerb::Uncordon { node } => {
            let request = UncordonNodeRequest { request_id, node: Some(node_named(&node)) };
            let answer = desk.client.uncordon_node(request).await.map(|answer| answer.revision);
            done(desk, &node, "takes new work", "uncordoned", answer)
        }
        NodeVerb::Forget { node, yes } => {
            confirm(
                yes,
                &format!("Forget {node}? Be sure that nothing runs on it any more: its work is started elsewhere."),
            )?;
            let request = ForgetNodeRequest { request_id, node: Some(node_named(&node)) };
            let answer = desk.client.forget_node(request).await.map(|answer| answer.revision);
            done(desk, &node, "is forgotten", "forgotten", answer)
        }
        NodeVerb::ConfirmStopped { node, yes } => {
            confirm(
                yes,
                &format!(
                    "Are you sure that no worker runs on {node} whose stop was not confirmed? Its blocks are granted again."
                ),
            )?;
            let request = ConfirmStoppedRequest { request_id, node: Some(node_named(&node)) };
            let answer = desk.client.confirm_stopped(request).await.map(|answer| answer.revision);
            done(desk, &node, "gave its unconfirmed blocks back", "changed", answer)
        }
    }
}

fn done(desk: Desk, node: &str, done: &str, failed: &str, answer: Result<u64, ClientError>) -> Result<Exit, Failure> {
    let result = match answer {
        Ok(revision) => Ok(MutationView { name: node.to_owned(), done: done.to_owned(), revision }),
        Err(error) => Err(Failure::call(format!("node {node} was not {failed}"), &error)),
    };
    desk.report(vec![result])
}

async fn list(mut desk: Desk) -> Result<Exit, Failure> {
    let mut nodes: Vec<NodeView> = Vec::new();
    let mut page_token = String::new();
    loop {
        let request =
            ListNodesRequest { page_size: PAGE, page_token, consistency: desk.consistency, ..Default::default() };
        let page = desk.client.list_nodes(request).await;
        let page = page.map_err(|error| Failure::call("the nodes cannot be listed", &error))?;
        nodes.extend(page.nodes.into_iter().map(NodeView::from));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    desk.printer.list(&nodes)?;
    Ok(Exit::Done)
}

async fn show(mut desk: Desk, node: &str) -> Result<Exit, Failure> {
    let request = GetNodeRequest { node: Some(node_named(node)), consistency: desk.consistency };
    let answer = desk.client.get_node(request).await;
    let answer = answer.map_err(|error| Failure::call(format!("node {node} cannot be shown"), &error))?;
    desk.printer.one(&NodeDetailView::from(answer))?;
    Ok(Exit::Done)
}

/// The list, and then every change of the pool, for ever.
async fn watch(mut desk: Desk) -> Result<Exit, Failure> {
    desk.printer.streaming();
    end_without_reader();
    let mut listed: Vec<NodeView> = Vec::new();
    let mut watch = desk.client.watch_pool(Start::List);
    let mut outage = Outage::before_an_answer(&desk);
    loop {
        let next = async |patience| watch.within(patience).next().await;
        let update = PoolUpdateView::from(outage.through("the nodes cannot be watched", next).await?);
        if !desk.printer.by_rows() {
            desk.printer.data(&update)?;
            continue;
        }
        match update {
            PoolUpdateView::ListedNode { node } => listed.push(*node),
            PoolUpdateView::Synced { .. } => desk.printer.list(&std::mem::take(&mut listed))?,
            PoolUpdateView::Event(change) => desk.printer.row(&change)?,
            PoolUpdateView::Relisting { .. } => {
                listed.clear();
                remark("[the list begins anew]");
            }
            PoolUpdateView::ListedCard { .. } | PoolUpdateView::Progress { .. } => {}
        }
    }
}
