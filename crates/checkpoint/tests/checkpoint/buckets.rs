//! Checkpoints in a bucket, on a server that speaks S3.

use std::time::Duration;

use object_store::ObjectStoreExt;
use tessera_checkpoint::{Error, Objects, Store, copy, read_published, restore, save};
use tessera_objects::Place;
use tessera_testkit::BucketServer;

use crate::support::{Shelf, content, id, small_chunks, trained};

#[tokio::test]
async fn a_bucket_keeps_what_a_folder_keeps() {
    let server = BucketServer::start().expect("deploy/setup.sh test installs it");
    let open = |prefix: &str| Place::open_with(&server.url(prefix), server.variables()).map(Objects::at);
    let (store, beside) = (open("pool/checkpoints").expect("a place"), open("pool").expect("a place"));
    let folder = trained();
    for sequence in 1..=3 {
        save(&store, &id(sequence), folder.path(), &small_chunks()).await.expect("it is saved");
    }
    assert_eq!(store.list(Some(12)).await.expect("it answers"), [id(1), id(2), id(3)]);
    assert_eq!(store.list(Some(1)).await.expect("it answers"), [], "a number is not a beginning of another");
    assert_eq!(beside.list(None).await.expect("it answers"), [], "another prefix is another store");
    let exists = save(&store, &id(3), folder.path(), &small_chunks()).await;
    assert!(matches!(exists, Err(Error::Exists { .. })), "{exists:?}");
    let published = read_published(&store, &id(3)).await.expect("it is whole");
    let (above, shelf) = (tempfile::tempdir().expect("a folder"), Shelf::new());
    restore(&store, None, &published, &above.path().join("again"), None, &small_chunks())
        .await
        .expect("it is restored");
    assert_eq!(content(&above.path().join("again")), content(folder.path()));
    copy(&store, &shelf.objects, &id(3), &small_chunks()).await.expect("it is copied");
    for sequence in 1..=2 {
        store.delete(&id(sequence)).await.expect("it is removed");
    }
    let manifest = store.get_manifest(&id(3)).await.expect("it is there");
    let again = store.put_manifest(&id(3), manifest).await;
    assert!(matches!(again, Err(Error::Exists { .. })), "also when two save at once: {again:?}");

    // Of a save that ended too early there is only what is swept.
    let raw = Place::open_with(&server.url("pool/checkpoints"), server.variables()).expect("a place");
    let stray = raw.prefix().clone().join("12").join(id(4).to_string()).join("00000000-stray");
    raw.objects().put(&stray, "stray".into()).await.expect("stored");
    assert_eq!(store.list(Some(12)).await.expect("it answers"), [id(3)]);
    assert_eq!(store.sweep(Duration::ZERO).await.expect("it answers"), [id(4)]);
    store.delete(&id(3)).await.expect("it is removed");
    assert_eq!(store.used_bytes().await.expect("it answers"), 0, "nothing is left");
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_said() {
    let server = BucketServer::start().expect("deploy/setup.sh test installs it");
    let other = Place::open_with("s3://nobody/prefix", server.variables()).map(Objects::at).expect("a place");
    let refused = save(&other, &id(1), trained().path(), &small_chunks()).await.expect_err("there is none");
    assert!(refused.to_string().contains("s3://nobody/prefix"), "{refused}");
}
