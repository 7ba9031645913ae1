//! The map of the pool: a row for each card, and the rows that change.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tessera_api::v1;

use crate::services::support::Cluster;
use crate::services::support::fixture::{grant, node, submit};
use crate::services::support::http::{Events, PlainPages, get};

fn sum(cards: &Value, column: &str) -> u64 {
    cards[column].as_array().expect("a column").iter().map(|some| some.as_u64().expect("a number")).sum()
}

#[tokio::test]
async fn the_columns_say_what_the_pool_says() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let first = node(&cluster, "n0", &[10, 20]).await;
    node(&cluster, "n1", &[5]).await;
    let job = submit(&member.clients, 4).await;
    grant(&cluster, job, first, 4).await;
    let pages = PlainPages::of(member).await;
    let map = get(&pages.address, "/v1/map").await.json();
    let cards = &map["cards"];
    let pool = member.clients.pool.clone().get_pool(v1::GetPoolRequest::default()).await.expect("it answers");
    let blocks = pool.into_inner().pool.expect("a pool").blocks.expect("blocks");
    let told = ["free", "held", "running", "draining", "lost", "offline"].map(|state| sum(cards, state));
    assert_eq!(told, [blocks.free, blocks.held, blocks.running, blocks.draining, blocks.lost, blocks.offline]);
    assert_eq!(cards["offered"], json!([10, 20, 5]));
    assert_eq!(cards["index"], json!([0, 1, 0]));
    assert_eq!((&cards["job"], &cards["jobs"]), (&json!([job.0, 0, 0]), &json!([1, 0, 0])));
    assert_eq!(map["queues"], json!(["default"]));
    let ready = |name: &str, cards: u32| json!([name, "NODE_STATE_READY", "ELIGIBILITY_ELIGIBLE", cards]);
    assert_eq!(map["nodes"], json!([ready("n0", 2), ready("n1", 1)]));
    let described = get(&pages.address, "/v1/openapi.json").await.json();
    let described = &described["components"]["schemas"]["Map"]["properties"];
    assert_eq!(names(&map), names(described), "the description says what is there");
    assert_eq!(names(&map["cards"]), names(&described["cards"]["properties"]));
}

fn names(of: &Value) -> BTreeSet<&String> {
    of.as_object().into_iter().flat_map(|object| object.keys()).collect()
}

#[tokio::test]
async fn a_watcher_sees_rows_change_and_nodes_come() {
    let cluster = Cluster::of(1).await;
    let member = &cluster.members[0];
    let first = node(&cluster, "n0", &[10, 20]).await;
    let job = submit(&member.clients, 4).await;
    let pages = PlainPages::of(member).await;
    let mut watch = Events::open(&pages.address, "/v1/map:watch", &[]).await;
    let whole = watch.next().await.expect("the map");
    assert_eq!((whole.name.as_str(), &whole.data["cards"]["free"]), ("map", &json!([10, 20])));
    grant(&cluster, job, first, 4).await;
    let changed = watch.next().await.expect("a change");
    assert_eq!(changed.name, "changed");
    // Its place and model; blocks offered, free, held, running, draining, lost, offline; job, queue, number of jobs;
    // use, which nobody told.
    assert_eq!(changed.data["cards"], json!([[0, 0, 10, 6, 4, 0, 0, 0, 0, job.0, 0, 1, 255]]));
    assert_eq!(changed.data["queues"], json!(["default"]), "a name that is new is sent with the row that uses it");
    let drain = v1::DrainNodeRequest {
        request_id: crate::services::support::id(),
        node: Some(v1::NodeRef { r#ref: Some(v1::node_ref::Ref::Name("n0".to_owned())) }),
        reason: "repair".to_owned(),
        deadline: None,
    };
    member.clients.pool.clone().drain_node(drain).await.expect("it is drained");
    let drained = watch.next_like(|event| event.data["nodes"] != json!([])).await;
    assert_eq!(drained.data["nodes"], json!([[0, "NODE_STATE_READY", "ELIGIBILITY_DRAINING"]]));
    node(&cluster, "n1", &[5]).await;
    let anew = watch.next_like(|event| event.name == "map").await;
    assert_eq!(anew.data["nodes"].as_array().map(Vec::len), Some(2));
    let mut second = Events::open(&pages.address, "/v1/map:watch", &[]).await;
    assert_eq!(second.next().await.expect("the map").data["cards"], anew.data["cards"], "all watchers see the same");
}
