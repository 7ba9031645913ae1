//! Fetching from another agent.

use std::fs;
use std::sync::Arc;

use tessera_checkpoint::{Error, Guard, Limits, Remote, Store, copy, read_published, restore, save, serve};
use tessera_connection::{Inbound, Outbound};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::breaking::{Breaking, How};
use crate::support::{Shelf, content, id, small_chunks, trained};

/// Gives the checkpoints of job 12 to whoever says the word.
struct Word;

impl Guard for Word {
    fn permits(&self, ticket: &str, job: u64) -> bool {
        ticket == "word" && job == 12
    }
}

/// An agent that hands out what it has.
async fn agent(shelf: &Shelf) -> (String, DropGuard) {
    agent_within(shelf, Limits::new()).await
}

async fn agent_within(shelf: &Shelf, limits: Limits) -> (String, DropGuard) {
    let inbound = Inbound::bind(([127, 0, 0, 1], 0).into()).await.expect("a free port");
    let address = inbound.local_address().expect("an address").to_string();
    let end = CancellationToken::new();
    let service = serve(Arc::new(shelf.objects.clone()), Arc::new(Word), limits);
    let server = tonic::transport::Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming_shutdown(inbound.incoming(), end.clone().cancelled_owned()));
    (address, end.drop_guard())
}

fn remote(address: &str, ticket: &str) -> Remote {
    Remote::new(&Outbound::default(), address, ticket).expect("it is an address")
}

#[tokio::test]
async fn a_checkpoint_is_fetched_from_the_agent_that_has_it() {
    let (folder, source, target) = (trained(), Shelf::new(), Shelf::new());
    // Chunks of several pieces.
    fs::write(folder.path().join("large"), vec![3; 3 << 20]).expect("written");
    let mut noise = vec![0; 3 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut noise);
    fs::write(folder.path().join("noise"), noise).expect("written");
    let published = save(&source.objects, &id(1), folder.path(), &Limits::new()).await.expect("it is saved");
    let (address, _agent) = agent(&source).await;
    let remote = remote(&address, "word");
    assert_eq!(remote.list(Some(12)).await.expect("it answers"), [id(1)]);
    assert_eq!(read_published(&remote, &id(1)).await.expect("it answers"), published);
    assert_eq!(copy(&remote, &target.objects, &id(1), &Limits::new()).await.expect("it is copied"), published);
    let above = tempfile::tempdir().expect("a folder");
    for store in [&remote as &dyn Store, &target.objects] {
        let into = above.path().join(store.place().replace('/', "-"));
        restore(store, None, &published, &into, None, &Limits::new()).await.expect("it is restored");
        assert_eq!(content(&into), content(folder.path()));
    }
    let missing = copy(&remote, &target.objects, &id(2), &Limits::new()).await;
    assert!(matches!(missing, Err(Error::Missing { .. })), "{missing:?}");
    assert!(matches!(remote.delete(&id(1)).await, Err(Error::ReadOnly { .. })), "it is not ours");
}

#[tokio::test]
async fn without_the_ticket_nothing_is_handed_out() {
    let (folder, source) = (trained(), Shelf::new());
    let published = save(&source.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let (address, _agent) = agent(&source).await;
    let remote = remote(&address, "guess");
    let refused = remote.list(Some(12)).await.expect_err("no ticket");
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    let not_given = |error: Error| assert!(matches!(error, Error::NotGiven { .. }) && error.is_gone(), "{error}");
    not_given(remote.get_manifest(&id(1)).await.expect_err("no ticket"));
    not_given(remote.get_chunk(&published.stored(0).expect("it has chunks")).await.expect_err("no ticket"));
}

#[tokio::test]
async fn what_is_damaged_there_is_not_taken_and_what_broke_off_goes_on() {
    let (folder, source, target) = (trained(), Shelf::new(), Shelf::new());
    let published = save(&source.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let (address, _agent) = agent(&source).await;
    let remote = remote(&address, "word");
    let broken = &source.files(&id(1))[3];
    let right = fs::read(broken).expect("it is there");
    fs::write(broken, vec![0; right.len()]).expect("written");
    let refused = copy(&remote, &target.objects, &id(1), &small_chunks()).await;
    assert!(matches!(refused, Err(Error::Damaged { .. })), "{refused:?}");
    assert_eq!(target.objects.list(None).await.expect("it answers"), []);
    assert_eq!(target.files(&id(1)).len(), 3, "what came before it is kept");
    fs::write(broken, right).expect("written");
    // Its manifest and the other chunks.
    let sparing = Breaking::after(1 + published.chunks.len() as i64 - 3, How::Fails, &remote);
    copy(&sparing, &target.objects, &id(1), &small_chunks()).await.expect("what is there is not fetched again");
}

#[tokio::test]
async fn agents_that_copy_from_each_other_do_not_wait_for_each_other() {
    let (folder, one, other) = (trained(), Shelf::new(), Shelf::new());
    save(&one.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    save(&other.objects, &id(2), folder.path(), &small_chunks()).await.expect("it is saved");
    // All seats of each agent are taken by its copy, and the other's copy needs it to answer.
    let (of_one, of_other) = (small_chunks().at_once(1), small_chunks().at_once(1));
    let (to_one, _one) = agent_within(&one, of_one.clone()).await;
    let (to_other, _other) = agent_within(&other, of_other.clone()).await;
    let (to_one, to_other) = (remote(&to_one, "word"), remote(&to_other, "word"));
    let (first, second) = (id(1), id(2));
    let (there, here) =
        tokio::join!(copy(&to_one, &other.objects, &first, &of_other), copy(&to_other, &one.objects, &second, &of_one));
    there.and(here).expect("both are copied");
}

#[tokio::test]
async fn an_agent_that_is_gone_is_unreachable_and_not_without_checkpoints() {
    let (folder, source) = (trained(), Shelf::new());
    save(&source.objects, &id(1), folder.path(), &small_chunks()).await.expect("it is saved");
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let remote = remote(&free.expect("a port").to_string(), "word");
    let unknown = read_published(&remote, &id(1)).await;
    assert!(matches!(&unknown, Err(error @ Error::Unreachable { .. }) if error.is_passing()), "{unknown:?}");
}
