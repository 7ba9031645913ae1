//! The disk space that an image takes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use tessera_checkpoint::free_bytes;
use tessera_diagnostics::remark;

/// Removes what a dump that failed has written, on a thread of its own: a disk may take its time.
pub(super) fn remove_soon(folder: PathBuf) {
    let remove = move || {
        if let Err(error) = fs::remove_dir_all(&folder) {
            remark!("what a dump that failed has left cannot be removed: {error}");
        }
    };
    if let Err(error) = thread::Builder::new().spawn(remove) {
        remark!("what a dump that failed has left is removed with its worker: {error}");
    }
}

/// Bytes of all files in a folder, and not of those deeper.
pub(super) fn size_of(folder: &Path) -> io::Result<u64> {
    fs::read_dir(folder)?.try_fold(0, |sum: u64, entry| Ok(sum.saturating_add(entry?.metadata()?.len())))
}

/// Checks that a disk has room for an image of processes, and, where it is packed on the same disk, for as much again.
///
/// # Errors
/// The sentence that tells how much is missing.
pub(super) fn check(folder: &Path, processes: &[i32], is_packed_here: bool) -> Result<(), String> {
    let free = free_bytes(folder).map_err(|error| format!("the disk of its image cannot be looked at: {error}"))?;
    let image = memory_of(processes);
    if is_packed_here { fits(image.saturating_mul(2), free, " until it is packed") } else { fits(image, free, "") }
}

/// Checks that a disk has room for these folders in packed form, which is counted with their unpacked size.
///
/// # Errors
/// The sentence that tells how much is missing.
pub(super) fn check_packed(disk: &Path, folders: &[PathBuf]) -> Result<(), String> {
    let all = || folders.iter().try_fold(0, |sum: u64, folder| Ok(sum.saturating_add(size_of(folder)?)));
    let looked = all().and_then(|size| Ok((size, free_bytes(disk)?)));
    let (size, free) =
        looked.map_err(|error: io::Error| format!("the disk of its image cannot be looked at: {error}"))?;
    fits(size, free, " packed")
}

fn fits(needed: u64, free: u64, packed: &str) -> Result<(), String> {
    // A little is left to everybody else.
    if needed <= free / 20 * 19 {
        return Ok(());
    }
    let [needed, free] = [needed, free].map(|bytes| bytes >> 20);
    Err(format!("its image takes {needed} MiB{packed}, and {free} MiB are free on the disk of the agent's data folder"))
}

/// Bytes that the image of processes takes, or a little less: their own memory, and the most that one shares.
pub(super) fn memory_of(processes: &[i32]) -> u64 {
    let (own, shared) = processes.iter().fold((0, 0), |(own, shared): (u64, u64), pid| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let bytes = |names| memory_in(&status, names);
        (own.saturating_add(bytes(&["RssAnon:", "VmSwap:"])), shared.max(bytes(&["RssShmem:"])))
    });
    own.saturating_add(shared)
}

/// The bytes of these kinds of memory that a process has, according to the kernel's file `status`.
fn memory_in(status: &str, names: &[&str]) -> u64 {
    let kib = |line: &str| -> Option<u64> {
        let value = names.iter().find_map(|name| line.strip_prefix(name))?;
        value.trim().strip_suffix(" kB")?.parse().ok()
    };
    status.lines().filter_map(kib).fold(0, |sum: u64, kib| sum.saturating_add(kib.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_begun_where_there_is_room_for_it_and_for_what_is_packed_of_it() {
        assert_eq!(fits(100 << 20, 106 << 20, ""), Ok(()));
        let refused = fits(200 << 20, 106 << 20, " until it is packed").expect_err("it is full");
        assert!(refused.contains("takes 200 MiB until it is packed, and 106 MiB are free"), "{refused}");
        assert!(fits(100 << 20, 100 << 20, "").is_err(), "it is not filled up");
    }

    #[test]
    fn what_is_packed_of_folders_takes_what_all_of_them_hold() {
        let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
        let paths = folders.each_ref().map(|folder| folder.path().to_owned());
        assert_eq!(check_packed(&paths[0], &paths), Ok(()));
        // Two halves of more than there is, of which nothing is on the disk.
        let half = free_bytes(&paths[0]).expect("readable") / 2 + 1;
        for path in &paths {
            fs::File::create(path.join("pages")).and_then(|file| file.set_len(half)).expect("a hole");
        }
        let refused = check_packed(&paths[0], &paths).expect_err("it is too much");
        assert!(refused.contains("MiB packed, and"), "{refused}");
        assert!(check_packed(&paths[0], &[paths[0].join("away")]).is_err(), "nobody knows how much that is");
    }

    #[test]
    fn memory_is_what_a_process_alone_has_and_what_was_swapped_out() {
        let status = "Name:\tpython3\nVmRSS:\t   14336 kB\nRssAnon:\t    9000 kB\nRssFile:\t    5000 kB\n\
                      RssShmem:\t     336 kB\nVmSwap:\t     512 kB\n";
        assert_eq!(memory_in(status, &["RssAnon:", "VmSwap:"]), (9_000 + 512) << 10);
        assert_eq!(memory_in("Name:\tkthreadd\n", &["RssAnon:"]), 0, "the kernel's own have none");
        let own = i32::try_from(std::process::id()).expect("a number");
        assert!(memory_of(&[own]) > 1 << 16);
    }
}
