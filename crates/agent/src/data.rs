//! The data on the node's disks, by name: jobs that will read it are better placed here.
//!
//! An operator names folders; each entry of them (a data set's folder, a file of weights, an image's archive) is one piece of
//! data under its own name. The folders are looked at again and again, and a change is told to the pool.

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
/// How long the node may take to listen.
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
        known.clone_from(&found);
        // The node is gone only when the agent ends.
        let _ = node.tell(Input::Event(Event::CachedChanged(found)), Instant::now() + PATIENCE).await;
    }
}

/// The names of all entries of the folders. Hidden ones, and names that the pool could not print, are passed over; a folder
/// that cannot be read has none and is complained about.
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
    if names.len() > NAMES {
        tracing::warn!(
            found = names.len(),
            told = NAMES,
            "too much data to tell the pool of; name folders with fewer entries"
        );
        names = names.into_iter().take(NAMES).collect();
    }
    names
}

fn is_name(name: &str) -> bool {
    !name.starts_with('.') && name.len() <= NAME && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
