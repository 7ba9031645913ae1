//! The data on the node's disks, by name: jobs that will read it are better placed here.
//!
//! An operator names folders; each entry of them (a data set's folder, a file of weights, an image's archive) is one
//! piece of data under its own name. The folders are looked at again and again, and a change is told to the pool.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use tessera_actor::Address;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::node::Event;
use crate::shell::Input;

/// Longest name of a piece of data in bytes, as the pool takes it.
const NAME: usize = 253;
/// Most pieces of data, as the pool takes them.
const NAMES: usize = 10_000;
/// Most bytes of their names: with all else that is said of a node they fit into one entry of the log.
const BYTES: usize = 512 << 10;
/// The longest wait for room in the node's mailbox.
const PATIENCE: Duration = Duration::from_secs(60);

/// Looks into the folders every `interval` until `end`, and tells the node what it finds whenever that has changed.
pub async fn watch_data(
    folders: Vec<PathBuf>,
    mut known: BTreeSet<String>,
    interval: Duration,
    node: Address<Input>,
    end: CancellationToken,
) {
    loop {
        tokio::select! {
            () = end.cancelled() => return,
            () = sleep(interval) => {}
        }
        let own = folders.clone();
        let Ok(found) = tokio::task::spawn_blocking(move || names_in(&own)).await else { continue };
        if found == known {
            continue;
        }
        let added = found.difference(&known).count();
        let gone = known.difference(&found).count();
        tracing::info!(added, gone, "the data on this node changed");
        let news = Input::Event(Event::CachedChanged(found.clone()));
        match node.tell(news, Instant::now() + PATIENCE).await {
            Ok(()) => known = found,
            // What was not told is told at the next look.
            Err(error) => tracing::warn!(%error, "the change is told later"),
        }
    }
}

/// The names of all entries of the folders. Hidden ones, and names that the pool could not print, are passed over; a
/// folder that cannot be read has none and is complained about.
pub fn names_in(folders: &[PathBuf]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for folder in folders {
        match fs::read_dir(folder) {
            Ok(entries) => {
                let entries = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
                names.extend(entries.filter(|name| is_name(name)));
            }
            Err(error) => tracing::warn!(folder = %folder.display(), %error, "a data folder cannot be read"),
        }
    }
    let found = names.len();
    let names = first_of(names);
    if names.len() < found {
        let told = names.len();
        tracing::warn!(found, told, "too much data to tell the pool of; name folders with fewer entries");
    }
    names
}

/// The first of the names, as many as the pool can be told of.
fn first_of(names: BTreeSet<String>) -> BTreeSet<String> {
    let mut bytes = 0;
    let fits = |name: &String| {
        bytes += name.len();
        bytes <= BYTES
    };
    names.into_iter().take(NAMES).take_while(fits).collect()
}

fn is_name(name: &str) -> bool {
    !name.starts_with('.') && name.len() <= NAME && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use tessera_actor::{ActorMeters, WhenFull, mailbox};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_busy_node_did_not_hear_is_told_again() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("imagenet")).expect("made");
        let (address, mut mailbox) = mailbox("node", 1, WhenFull::Wait, &ActorMeters::default());
        address.offer(Input::Event(Event::HeartbeatDue)).expect("there is room for one");
        let (folders, interval, end) =
            (vec![folder.path().to_owned()], Duration::from_secs(1), CancellationToken::new());
        let watch = watch_data(folders, BTreeSet::new(), interval, address, end.clone());
        let listen = async {
            // The node hears nothing for longer than the watch waits for it.
            sleep(PATIENCE * 2).await;
            let mut told = Vec::new();
            for _ in 0..2 {
                let delivery = timeout(PATIENCE, mailbox.next()).await.expect("it is told").expect("somebody tells");
                delivery.handle(|input| told.push(input));
            }
            end.cancel();
            told
        };
        let ((), told) = tokio::join!(watch, listen);
        assert!(
            matches!(&told[..], [_, Input::Event(Event::CachedChanged(names))] if names.contains("imagenet")),
            "{told:?}"
        );
    }

    #[test]
    fn the_pool_is_told_of_no_more_names_and_bytes_than_it_takes() {
        let names = |count: usize, length: usize| -> BTreeSet<String> {
            (0..count).map(|number| format!("{number:0>length$}")).collect()
        };
        assert_eq!(first_of(names(NAMES, 8)), names(NAMES, 8));
        assert_eq!(first_of(names(NAMES + 1, 8)), names(NAMES, 8), "the first by name");
        let told = first_of(names(NAMES, NAME));
        assert_eq!(told, names(BYTES / NAME, NAME));
    }

    #[test]
    fn entries_are_data_under_their_own_names() {
        let (one, two) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        fs::create_dir(one.path().join("imagenet")).expect("made");
        fs::write(one.path().join(".partial"), "").expect("made");
        fs::write(one.path().join("two\nlines"), "").expect("made");
        fs::write(two.path().join("llama.safetensors"), "").expect("made");
        fs::create_dir(two.path().join("imagenet")).expect("made");
        let folders = [one.path().to_owned(), two.path().to_owned(), PathBuf::from("/nowhere/at/all")];
        let names: Vec<String> = names_in(&folders).into_iter().collect();
        assert_eq!(names, ["imagenet", "llama.safetensors"]);
    }

    #[tokio::test(start_paused = true)]
    async fn folders_are_looked_into_as_often_as_is_set() {
        for data_scan in [Duration::from_secs(1), Duration::from_secs(30)] {
            let folder = tempfile::tempdir().expect("a folder");
            fs::create_dir(folder.path().join("imagenet")).expect("made");
            let (address, mut mailbox) = mailbox("node", 1, WhenFull::Wait, &ActorMeters::default());
            let end = CancellationToken::new();
            let began = Instant::now();
            let folders = vec![folder.path().to_owned()];
            let watch = watch_data(folders, BTreeSet::new(), data_scan, address, end.clone());
            let listen = async {
                let delivery = mailbox.next().await.expect("somebody tells");
                delivery.handle(|_| end.cancel());
                began.elapsed()
            };
            let ((), told_after) = tokio::join!(watch, listen);
            assert!(told_after >= data_scan && told_after < data_scan * 2, "{told_after:?} of {data_scan:?}");
        }
    }
}
