//! The pool as operators see it and what they do with it; queues.

use tessera_api::v1::node_ref::Ref;
use tessera_api::v1::{self, BlockState, Eligibility, ErrorReason, NodeState};
use tessera_ledger::Command;
use tonic::Code;

use crate::services::support::fixture::{grant, node, submit};
use crate::services::support::{Cluster, assert_refused, id};

fn named(name: &str) -> Option<v1::NodeRef> {
    Some(v1::NodeRef { r#ref: Some(Ref::Name(name.to_owned())) })
}

fn numbered(id: u32) -> Option<v1::NodeRef> {
    Some(v1::NodeRef { r#ref: Some(Ref::Id(id)) })
}

#[tokio::test]
async fn the_pool_is_seen_in_numbers_by_node_card_and_block() {
    let cluster = Cluster::of(1).await;
    let first = node(&cluster, "n0", &[10, 6]).await;
    node(&cluster, "n1", &[4]).await;
    let clients = &cluster.members[0].clients;
    let job = submit(clients, 4).await;
    let allocation = grant(&cluster, job, first, 4).await;
    let mut pool = clients.pool.clone();

    let seen =
        pool.get_pool(v1::GetPoolRequest::default()).await.expect("it is there").into_inner().pool.expect("a pool");
    let blocks = seen.blocks.expect("counts");
    assert_eq!((seen.cluster_id.as_str(), blocks.free, blocks.held), ("test", 16, 4));
    assert_eq!((seen.kinds[0].cards, seen.nodes[0].count), (3, 2));

    let request = v1::GetNodeRequest { node: named("n0"), ..Default::default() };
    let answer = pool.get_node(request).await.expect("it exists").into_inner();
    let seen = answer.node.expect("a node");
    assert_eq!((seen.id, seen.first_block_number, seen.job_ids), (first.0, 1, vec![job.0]));
    assert_eq!(answer.cards.len(), 2);
    assert!(!seen.session.expect("the leader knows").connected);

    let request = v1::GetCardRequest { node: numbered(first.0), index: 0, ..Default::default() };
    let answer = pool.get_card(request).await.expect("it exists").into_inner();
    let runs = answer.blocks.expect("blocks").runs;
    assert_eq!(runs.len(), 2);
    assert_eq!((runs[0].state(), runs[0].first_block_number, runs[0].last_block_number), (BlockState::Held, 1, 4));
    let owner = runs[0].owner.expect("somebody holds them");
    assert_eq!((owner.job_id, owner.allocation_id, owner.priority), (job.0, allocation.0, 50));
    assert_eq!((runs[1].state(), runs[1].first_block_number, runs[1].last_block_number), (BlockState::Free, 5, 10));

    let map = pool.get_block_map(v1::GetBlockMapRequest::default()).await.expect("a map").into_inner();
    let places: Vec<_> = map.cards.iter().map(|card| (card.node_name.as_str(), card.card_index)).collect();
    assert_eq!(places, [("n0", 0), ("n0", 1), ("n1", 0)]);
    assert_eq!(map.cards[2].runs[0].first_block_number, 17, "numbers go on from node to node");
    let one = v1::GetBlockMapRequest { node: named("n1"), ..Default::default() };
    assert_eq!(pool.get_block_map(one).await.expect("a map").into_inner().cards.len(), 1);

    let verified = pool.verify_pool(v1::VerifyPoolRequest::default()).await.expect("it can be checked").into_inner();
    assert_eq!(verified.violations, []);
    assert_eq!(verified.blocks.expect("counts").free, 16);
    assert_eq!(verified.digest, format!("{:032x}", cluster.members[0].pool.view().current().digest()));
}

#[tokio::test]
async fn an_operator_closes_empties_opens_and_forgets_nodes() {
    let cluster = Cluster::of(1).await;
    let first = node(&cluster, "n0", &[10]).await;
    let mut pool = cluster.members[0].clients.pool.clone();
    let reason = "a new fan".to_owned();
    let cordon = v1::CordonNodeRequest { request_id: id(), node: named("n0"), reason: reason.clone() };
    pool.cordon_node(cordon).await.expect("it exists");
    let get = || v1::GetNodeRequest { node: numbered(first.0), ..Default::default() };
    let seen = pool.get_node(get()).await.expect("it exists").into_inner().node.expect("a node");
    assert_eq!((seen.eligibility(), seen.eligibility_reason), (Eligibility::Cordoned, reason));
    let drain =
        v1::DrainNodeRequest { request_id: id(), node: numbered(first.0), reason: String::new(), deadline: None };
    pool.drain_node(drain).await.expect("it exists");
    let filter = v1::ListNodesRequest { eligibilities: vec![Eligibility::Draining.into()], ..Default::default() };
    assert_eq!(pool.list_nodes(filter.clone()).await.expect("a list").into_inner().nodes.len(), 1);
    pool.uncordon_node(v1::UncordonNodeRequest { request_id: id(), node: named("n0") }).await.expect("it exists");
    assert_eq!(pool.list_nodes(filter).await.expect("a list").into_inner().nodes.len(), 0);
    pool.confirm_stopped(v1::ConfirmStoppedRequest { request_id: id(), node: named("n0") }).await.expect("it exists");

    let epoch = cluster.members[0].pool.view().current().node(first).expect("it is there").epoch;
    cluster.apply(Command::NodeLost { node: first, epoch }).await;
    let forget = v1::ForgetNodeRequest { request_id: id(), node: named("n0") };
    let done = pool.forget_node(forget.clone()).await.expect("it is lost").into_inner();
    let again =
        pool.forget_node(forget).await.expect("its name is unknown now, and the answer is the same").into_inner();
    assert_eq!(done, again);
    let gone = v1::ForgetNodeRequest { request_id: id(), node: named("n0") };
    assert_refused(pool.forget_node(gone).await, Code::NotFound, ErrorReason::NodeUnknown);
    assert_eq!(pool.list_nodes(v1::ListNodesRequest::default()).await.expect("a list").into_inner().nodes, []);
    let states = vec![NodeState::Forgotten.into()];
    let forgotten = pool.list_nodes(v1::ListNodesRequest { states, ..Default::default() }).await.expect("a list");
    assert_eq!(forgotten.into_inner().nodes[0].name, "n0");
}

#[tokio::test]
async fn settings_and_queues_are_read_and_changed() {
    let cluster = Cluster::of(1).await;
    let clients = &cluster.members[0].clients;
    let (mut pool, mut queues) = (clients.pool.clone(), clients.queues.clone());
    let get = v1::GetPoolConfigRequest::default;
    let mut config = pool.get_pool_config(get()).await.expect("settings").into_inner().config.expect("settings");
    config.job_limit = 7;
    let set = v1::SetPoolConfigRequest { request_id: id(), config: Some(config.clone()), expected: None };
    pool.set_pool_config(set).await.expect("they are acceptable");
    assert_eq!(pool.get_pool_config(get()).await.expect("settings").into_inner().config, Some(config.clone()));

    // Two operators read the same settings, and each changes another one.
    let mut rivals = [config.clone(), config.clone()];
    rivals[0].preemptions_per_hour = 1;
    rivals[1].event_limit = 1_000;
    let [first, second] = rivals.map(|changed| v1::SetPoolConfigRequest {
        request_id: id(),
        config: Some(changed),
        expected: Some(config.clone()),
    });
    let repeated = first.clone();
    pool.set_pool_config(first).await.expect("nobody was faster");
    assert_refused(pool.set_pool_config(second.clone()).await, Code::Aborted, ErrorReason::ConfigChanged);
    pool.set_pool_config(repeated).await.expect("the same request is answered the same");
    let now = pool.get_pool_config(get()).await.expect("settings").into_inner().config.expect("settings");
    assert_eq!((now.preemptions_per_hour, now.event_limit), (1, config.event_limit), "the first change stands");
    let changed = v1::PoolConfig { event_limit: 1_000, ..now.clone() };
    let again = v1::SetPoolConfigRequest { config: Some(changed), expected: Some(now), ..second };
    pool.set_pool_config(v1::SetPoolConfigRequest { request_id: id(), ..again })
        .await
        .expect("made from what is there");
    let incomplete =
        v1::SetPoolConfigRequest { request_id: id(), config: Some(config), expected: Some(v1::PoolConfig::default()) };
    assert_refused(pool.set_pool_config(incomplete).await, Code::InvalidArgument, ErrorReason::InvalidField);

    // Blocks can be chosen while none is counted, and never again.
    let present = pool.get_pool_config(get()).await.expect("settings").into_inner().config.expect("settings");
    let sized = |size| v1::SetPoolConfigRequest {
        request_id: id(),
        config: Some(v1::PoolConfig { block_milli_tflops: size, ..present.clone() }),
        expected: None,
    };
    pool.set_pool_config(sized(500)).await.expect("no card is registered");
    node(&cluster, "counted", &[10]).await;
    let late = pool.set_pool_config(sized(250)).await;
    let text = late.as_ref().map_err(|status| status.message().to_owned()).err().unwrap_or_default();
    assert!(
        text.contains("blocks of 0.5 TFLOPS fp16") && text.contains("`tessera cluster init --block-size"),
        "{text}"
    );
    assert_refused(late, Code::InvalidArgument, ErrorReason::InvalidField);
    pool.set_pool_config(sized(500)).await.expect("the same blocks");

    let settings = v1::QueueSettings { name: "vision".to_owned(), weight: 3, ..Default::default() };
    let set = v1::SetQueueRequest { request_id: id(), queue: Some(settings) };
    queues.set_queue(set).await.expect("it is acceptable");
    let one = v1::GetQueueRequest { name: "vision".to_owned(), ..Default::default() };
    let queue = queues.get_queue(one.clone()).await.expect("it exists").into_inner().queue.expect("a queue");
    assert_eq!(queue.settings.expect("settings").weight, 3);
    let list = queues.list_queues(v1::ListQueuesRequest::default()).await.expect("a list").into_inner().queues;
    assert_eq!(list.len(), 2);
    let remove = v1::RemoveQueueRequest { request_id: id(), name: "vision".to_owned() };
    queues.remove_queue(remove).await.expect("it is empty");
    assert_refused(queues.get_queue(one).await, Code::NotFound, ErrorReason::QueueUnknown);
}
