use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use tessera_api::agent::part_name;
use tessera_connection::Inbound;
use tessera_ledger::{CheckpointKey, Epoch, JobId, Rank};

use super::*;

fn part(sequence: u64) -> PartKey {
    PartKey { job: JobId(7), checkpoint: CheckpointKey { attempt: 1, sequence }, epoch: Epoch(40), rank: Rank(0) }
}

/// An agent's shelf, and a folder with something that a program wrote.
struct Place {
    data: TempDir,
    shelf: Shelf,
}

impl Place {
    async fn with(store: Option<String>) -> Self {
        let data = tempfile::tempdir().expect("a folder");
        let config = CheckpointConfig { store, ..CheckpointConfig::default() };
        let shelf = Shelf::open(data.path(), &config).await.expect("it opens");
        // The leader says that the pool has no checkpoints in stores.
        shelf.tend(wire::CheckpointOrders::default()).await;
        Self { data, shelf }
    }

    fn written(&self, text: &str) -> PathBuf {
        let folder = self.data.path().join("written");
        fs::create_dir_all(&folder).expect("writable");
        fs::write(folder.join("state"), text).expect("writable");
        folder
    }

    /// Brings a checkpoint here; what is in it then.
    async fn fetched(&self, from: &wire::CheckpointSource) -> Result<String, Unusable> {
        let into = self.data.path().join(format!("fetched-{}", rand::random::<u64>()));
        self.shelf.fetch(from, &into, None).await?;
        Ok(fs::read_to_string(into.join("state")).expect("it is there"))
    }

    /// Serves what is here to others; answers the address.
    async fn served(&self) -> String {
        let inbound = Inbound::bind("127.0.0.1:0".parse().expect("an address")).await.expect("a port");
        let address = inbound.local_address().expect("it has one").to_string();
        let server = tonic::transport::Server::builder().add_routes(self.shelf.service());
        tokio::spawn(server.serve_with_incoming(inbound.incoming()));
        address
    }
}

fn source(part: &PartKey, saved: &SavedPart, addresses: Vec<String>) -> wire::CheckpointSource {
    wire::CheckpointSource {
        name: Some(part_name(part)),
        hash: saved.hash.to_vec().into(),
        shared: saved.shared,
        addresses,
        ticket: saved.ticket.to_be_bytes().to_vec().into(),
        progress: saved.progress,
        mode: wire::CheckpointMode::Cooperative.into(),
    }
}

#[tokio::test]
async fn what_one_node_saved_another_fetches_and_keeps_a_copy_of() {
    let (one, two) = (Place::with(None).await, Place::with(None).await);
    let saved = one.shelf.save(&part(1), Made::written(12), &one.written("so far")).await.expect("it is saved");
    assert_eq!(one.shelf.kept(), BTreeSet::from([part(1)]));
    let from = source(&part(1), &saved, vec![one.served().await]);
    assert_eq!(two.fetched(&from).await.expect("it is fetched"), "so far");
    assert!(two.shelf.kept().is_empty(), "fetched is not kept");
    two.shelf.tend(wire::CheckpointOrders { copies: vec![from.clone()], ..wire::CheckpointOrders::default() }).await;
    assert_eq!(two.shelf.kept(), BTreeSet::from([part(1)]));
    let needless = vec![part_name(&part(1))];
    one.shelf.tend(wire::CheckpointOrders { needless, ..wire::CheckpointOrders::default() }).await;
    assert!(one.shelf.kept().is_empty());
    let from_copy = source(&part(1), &saved, vec![two.served().await]);
    assert_eq!(one.fetched(&from_copy).await.expect("the copy is given under the same ticket"), "so far");
}

/// Its job may be over before a copy can be made.
#[tokio::test]
async fn a_copy_that_cannot_be_made_leaves_no_ticket() {
    let (one, two) = (Place::with(None).await, Place::with(None).await);
    let saved = one.shelf.save(&part(1), Made::written(12), &one.written("so far")).await.expect("it is saved");
    let copies = vec![source(&part(1), &saved, vec!["127.0.0.1:1".to_owned()])];
    two.shelf.tend(wire::CheckpointOrders { copies, ..wire::CheckpointOrders::default() }).await;
    assert_eq!(two.shelf.0.tickets.of(&id_of(&part(1))), None);
}

/// Neither a program that leaves something there that cannot be kept, nor one that ends while it is saved.
#[tokio::test]
async fn a_save_that_does_not_come_to_its_end_leaves_no_ticket() {
    let place = Place::with(None).await;
    let written = place.written("so far");
    let tickets = || fs::read_dir(place.data.path().join(TICKETS_FOLDER)).expect("readable").count();
    {
        let first = part(1);
        let mut saving = std::pin::pin!(place.shelf.save(&first, Made::written(0), &written));
        assert!(futures::poll!(&mut saving).is_pending());
        assert_eq!(tickets(), 1, "it is announced");
    }
    assert_eq!((place.shelf.0.tickets.of(&id_of(&part(1))), tickets()), (None, 0), "the agent gave it up");
    let _socket = std::os::unix::net::UnixListener::bind(written.join("socket")).expect("it can be made");
    place.shelf.save(&part(2), Made::written(0), &written).await.expect_err("a socket cannot be kept");
    assert_eq!((place.shelf.0.tickets.of(&id_of(&part(2))), tickets()), (None, 0), "it failed");
}

/// A store may have taken all of what nobody waited for: its ticket stays until the store says what it has.
#[tokio::test]
async fn a_save_into_the_shared_store_that_is_given_up_leaves_nothing_there_without_a_ticket() {
    let store = tempfile::tempdir().expect("a folder");
    let place = Place::with(Some(format!("file://{}", store.path().display()))).await;
    let saved = place.shelf.save(&part(1), Made::written(0), &place.written("for all")).await.expect("it is saved");
    let tickets = &place.shelf.0.tickets;
    for number in [1, 2] {
        tickets.is_gone(&id_of(&part(number))).expect("removable");
        drop(tickets.announce(id_of(&part(number)), saved.ticket, true).expect("writable"));
    }
    assert_eq!(place.shelf.kept(), BTreeSet::new(), "nobody has looked yet");
    assert_eq!(fs::read_dir(place.data.path().join(TICKETS_FOLDER)).expect("readable").count(), 2);
    place.shelf.sweep().await;
    assert_eq!(place.shelf.kept(), BTreeSet::from([part(1)]), "it had come there");
    assert_eq!(tickets.of(&id_of(&part(2))), None, "it had not");
    assert_eq!(fs::read_dir(place.data.path().join(TICKETS_FOLDER)).expect("readable").count(), 1);
}

/// An agent ends in the middle of a save: the next one does not call it whole.
#[tokio::test]
async fn what_an_agent_did_not_bring_to_the_shared_store_is_not_called_whole_by_the_next() {
    let store = tempfile::tempdir().expect("a folder");
    let url = format!("file://{}", store.path().display());
    let place = Place::with(Some(url.clone())).await;
    let saved = place.shelf.save(&part(1), Made::written(0), &place.written("for all")).await.expect("it is saved");
    let begun = place.shelf.0.tickets.announce(id_of(&part(2)), saved.ticket, true).expect("writable");
    std::mem::forget(begun);
    let config = CheckpointConfig { store: Some(url), ..CheckpointConfig::default() };
    let next = Shelf::open(place.data.path(), &config).await.expect("it opens");
    assert_eq!(next.kept(), BTreeSet::new(), "nobody has looked yet");
    fs::rename(store.path().join("identity"), store.path().join("away")).expect("another share is mounted there");
    next.sweep().await;
    assert_eq!(next.0.tickets.unseen().len(), 2, "what another store lacks is not gone");
    fs::rename(store.path().join("away"), store.path().join("identity")).expect("it is back");
    next.sweep().await;
    assert_eq!(next.kept(), BTreeSet::from([part(1)]));
    assert_eq!(next.0.tickets.of(&id_of(&part(2))), None, "its ticket is gone");
    assert_eq!(fs::read_dir(place.data.path().join(TICKETS_FOLDER)).expect("readable").count(), 1);
}

/// A store may be large: it is not looked through each time that expired output is looked for.
#[tokio::test(start_paused = true)]
async fn a_store_is_looked_through_now_and_then() {
    let place = Place::with(None).await;
    let left = place.data.path().join(STORE_FOLDER).join("7").join(id_of(&part(1)).to_string());
    let leave = || {
        fs::create_dir_all(&left).expect("writable");
        fs::write(left.join("half"), "").expect("writable");
        for path in [left.join("half"), left.clone()] {
            let long_ago = std::time::SystemTime::now() - 2 * LEFT_OVER;
            fs::File::open(path).expect("there").set_modified(long_ago).expect("writable");
        }
    };
    leave();
    place.shelf.sweep().await;
    assert!(!left.exists(), "an agent that starts looks at once");
    leave();
    place.shelf.sweep().await;
    assert!(left.exists());
    tokio::time::advance(LEFT_OVER).await;
    place.shelf.sweep().await;
    assert!(!left.exists());
}

/// A checkpoint that the ledger has on a node is there or not, whatever became of the ticket beside it.
#[tokio::test]
async fn what_the_leader_misses_is_found_on_the_disk_or_said_not_to_be_there() {
    let place = Place::with(None).await;
    let saved = place.shelf.save(&part(1), Made::written(1), &place.written("so far")).await.expect("it is saved");
    let from = |sequence| source(&part(sequence), &saved, vec![]);
    assert_eq!(place.shelf.look_for(&[from(1), from(2)]).await, [part(2)]);
    let tickets = &place.shelf.0.tickets;
    tickets.is_gone(&id_of(&part(1))).expect("removable");
    assert_eq!(place.shelf.look_for(&[from(1)]).await, []);
    assert_eq!(place.shelf.kept(), BTreeSet::from([part(1)]));
    let known = tickets.of(&id_of(&part(1))).expect("it is known");
    assert_eq!(known.ticket, saved.ticket, "others are given it as before");
    tickets.is_gone(&id_of(&part(1))).expect("removable");
    let other = SavedPart { hash: [9; 32], ..saved };
    assert_eq!(place.shelf.look_for(&[source(&part(1), &other, vec![])]).await, [part(1)], "another one lies there");
}

/// Whoever has it was started anew at another address, and the leader says so.
#[tokio::test]
async fn what_is_not_where_it_was_is_fetched_from_where_it_is_now() {
    let (one, two) = (Place::with(None).await, Place::with(None).await);
    let saved = one.shelf.save(&part(1), Made::written(12), &one.written("so far")).await.expect("it is saved");
    let before = source(&part(1), &saved, vec!["127.0.0.1:1".to_owned()]);
    let now = source(&part(1), &saved, vec![one.served().await]);
    let told = two.shelf.tend(wire::CheckpointOrders { sources: vec![now], ..wire::CheckpointOrders::default() });
    // It is told after the first try has begun.
    let (fetched, ()) = tokio::join!(two.fetched(&before), told);
    assert_eq!(fetched.expect("it is fetched"), "so far");
}

#[tokio::test]
async fn a_stranger_without_the_ticket_is_given_nothing() {
    let (one, two) = (Place::with(None).await, Place::with(None).await);
    let saved = one.shelf.save(&part(1), Made::written(0), &one.written("secret")).await.expect("it is saved");
    let stranger = SavedPart { ticket: saved.ticket ^ 1, ..saved };
    let from = source(&part(1), &stranger, vec![one.served().await]);
    let refused = two.shelf.fetch_once(&id_of(&part(1)), &from, &two.data.path().join("x"), None).await;
    let Unusable { why, message } = refused.expect_err("it is refused");
    assert!(why == Hindrance::Away && message.contains("is not given out"), "{message}");
}

#[tokio::test]
async fn what_is_gone_or_another_one_everywhere_is_given_up_for_good() {
    let place = Place::with(None).await;
    let saved = place.shelf.save(&part(1), Made::written(0), &place.written("a")).await.expect("it is saved");
    let other = SavedPart { hash: [9; 32], ..saved.clone() };
    let damaged = place.fetched(&source(&part(1), &other, vec![])).await.expect_err("it is another one");
    assert_eq!(damaged.why, Hindrance::Gone, "{damaged}");
    fs::remove_dir_all(place.data.path().join(STORE_FOLDER)).expect("removable");
    let gone = place.fetched(&source(&part(1), &saved, vec![])).await.expect_err("the disk was emptied");
    assert_eq!(gone.why, Hindrance::Gone, "{gone}");
}

/// On a host that has not mounted the share, an empty folder stands in its place.
#[tokio::test]
async fn what_is_not_in_another_store_is_not_gone() {
    let store = tempfile::tempdir().expect("a folder");
    let (mounted, folder) = (store.path().join("mounted"), store.path().join("not-mounted"));
    let url = |folder: &Path| Some(format!("file://{}", folder.display()));
    let (one, two) = (Place::with(url(&mounted)).await, Place::with(url(&folder)).await);
    let saved = one.shelf.save(&part(1), Made::written(0), &one.written("for all")).await.expect("it is saved");
    let from = source(&part(1), &saved, vec![]);
    let into = two.data.path().join("into");
    let without = Place::with(None).await;
    for (place, says) in [(&two, "another store"), (&without, "has none")] {
        let missed = place.shelf.fetch_once(&id_of(&part(1)), &from, &into, None).await.expect_err("it is not there");
        assert!(missed.why == Hindrance::Away && missed.message.contains(says), "{missed}");
    }
    fs::remove_dir_all(&folder).expect("removable");
    fs::rename(&mounted, &folder).expect("it can be mounted elsewhere");
    assert_eq!(two.fetched(&from).await.expect("it is mounted"), "for all");
    // Nor is anything saved where the store was that this node knows.
    fs::create_dir(&mounted).expect("it is where the share was");
    let kept = one.shelf.save(&part(2), Made::written(0), &one.written("here")).await.expect("the node keeps it");
    assert!(!kept.shared && fs::read_dir(&mounted).expect("it is there").next().is_none(), "nothing is made there");
}

/// A node that joins where the share is not mounted takes the empty folder for no new store, and one that is told to
/// use another store begins it.
#[tokio::test]
async fn a_new_node_begins_no_store_where_the_pool_has_one() {
    let stores = tempfile::tempdir().expect("a folder");
    let url = |name: &str| format!("file://{}", stores.path().join(name).display());
    let (old, new) = (Place::with(Some(url("old"))).await, Place::with(Some(url("not-mounted"))).await);
    let saved = old.shelf.save(&part(1), Made::written(0), &old.written("for all")).await.expect("it is saved");
    let told = || wire::CheckpointOrders {
        stores: vec![saved.ticket.to_be_bytes().to_vec().into()],
        ..wire::CheckpointOrders::default()
    };
    let config = CheckpointConfig { store: Some(url("not-mounted")), ..CheckpointConfig::default() };
    let untold = Shelf::open(new.data.path(), &config).await.expect("it opens");
    let kept = untold.save(&part(9), Made::written(0), &new.written("soon")).await.expect("the node keeps it");
    assert!(!kept.shared, "it is not known yet whether the pool has one");
    new.shelf.tend(told()).await;
    let kept = new.shelf.save(&part(2), Made::written(0), &new.written("here")).await.expect("the node keeps it");
    assert!(!kept.shared && !stores.path().join("not-mounted/identity").exists());
    fs::remove_dir_all(stores.path().join("not-mounted")).expect("removable");
    fs::rename(stores.path().join("old"), stores.path().join("not-mounted")).expect("it is mounted");
    let kept = new.shelf.save(&part(3), Made::written(0), &new.written("there")).await.expect("it is saved");
    assert_eq!((kept.shared, kept.ticket), (true, saved.ticket));
    // Operators give a node another store, and exchange what lies under the same name.
    let config = CheckpointConfig { store: Some(url("next")), ..CheckpointConfig::default() };
    let shelf = Shelf::open(new.data.path(), &config).await.expect("it opens");
    let mut before = saved.clone();
    for sequence in [4, 5] {
        shelf.tend(told()).await;
        let kept = shelf.save(&part(sequence), Made::written(0), &new.written("next")).await.expect("it is saved");
        assert!(kept.shared && kept.ticket != before.ticket);
        before = kept;
        fs::remove_dir_all(stores.path().join("next")).expect("removable");
        fs::create_dir(stores.path().join("next")).expect("another one");
        fs::write(new.data.path().join("checkpoint-store"), "").expect("writable");
    }
}

/// The node's own disk takes nothing more: that is no fault of the checkpoint.
#[tokio::test]
async fn what_this_node_cannot_take_is_the_node_s_fault() {
    let place = Place::with(None).await;
    let saved = place.shelf.save(&part(1), Made::written(0), &place.written("a")).await.expect("it is saved");
    let (from, in_the_way) = (source(&part(1), &saved, vec![]), place.data.path().join("file"));
    fs::write(&in_the_way, "").expect("writable");
    let refused = place.shelf.fetch_once(&id_of(&part(1)), &from, &in_the_way.join("into"), None).await;
    let refused = refused.expect_err("no folder can be made there");
    assert_eq!(refused.why, Hindrance::Node, "{refused}");
}

/// A copy that does not come to its end keeps nothing from being removed, and what is more urgent comes next.
#[tokio::test]
async fn removals_do_not_wait_for_copies() {
    let (one, two) = (Place::with(None).await, Place::with(None).await);
    let saved = two.shelf.save(&part(1), Made::written(0), &two.written("old")).await.expect("it is saved");
    // Somebody who accepts connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = silent.local_addr().expect("it has one").to_string();
    let copy = |sequence, addresses| source(&part(sequence), &saved, addresses);
    let orders = |copies, needless| wire::CheckpointOrders { copies, needless, ..wire::CheckpointOrders::default() };
    let copying = two.shelf.tend(orders(vec![copy(2, vec![address])], vec![]));
    let urgent = one.shelf.save(&part(3), Made::written(0), &one.written("new")).await.expect("it is saved");
    let urgent = source(&part(3), &urgent, vec![one.served().await]);
    let meanwhile = async {
        let accepted = silent.accept().await.expect("it is asked");
        two.shelf.tend(orders(vec![urgent], vec![part_name(&part(1))])).await;
        assert!(two.shelf.kept().is_empty(), "it is removed");
        drop((accepted, silent));
    };
    tokio::join!(copying, meanwhile);
    assert_eq!(two.shelf.kept(), BTreeSet::from([part(3)]), "what was said last is copied next");
}

#[tokio::test]
async fn what_a_shared_store_does_not_take_the_node_keeps() {
    let store = tempfile::tempdir().expect("a folder");
    let shared = store.path().join("shared");
    let url = format!("file://{}", shared.display());
    let (one, two) = (Place::with(Some(url.clone())).await, Place::with(Some(url)).await);
    let saved = one.shelf.save(&part(1), Made::written(0), &one.written("for all")).await.expect("it is saved");
    assert!(saved.shared);
    assert_eq!(two.fetched(&source(&part(1), &saved, vec![])).await.expect("it is shared"), "for all");
    // The share is gone: a file lies where it was.
    fs::remove_dir_all(&shared).expect("removable");
    fs::write(&shared, "").expect("writable");
    let saved = one.shelf.save(&part(2), Made::written(0), &one.written("here")).await.expect("the node keeps it");
    assert!(!saved.shared);
    assert_eq!(one.fetched(&source(&part(2), &saved, vec![])).await.expect("it is here"), "here");
}
