//! The folders of data: room, and how long a synced write takes.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::join_all;
use nix::sys::statfs::statfs;
use nix::sys::statvfs::statvfs;

use super::{Host, bounded};
use crate::doctor::facts::{FolderFacts, RoomFacts, Seen};

/// Synced writes that are measured.
const WRITES: usize = 48;
/// Bytes of each.
const WRITE: [u8; 4096] = [0x5a; 4096];
/// Most time for all of them.
const ENOUGH: Duration = Duration::from_secs(5);

/// Looks at the folders of the member and of the agent.
pub(super) async fn folders(host: &Host) -> Vec<FolderFacts> {
    let member = host.member.iter().map(|config| ("member", config.data_dir.clone()));
    let agent = host.agent.iter().map(|config| ("agent", config.data_dir.clone()));
    join_all(member.chain(agent).map(|(of, path)| folder(of, path))).await
}

async fn folder(of: &str, path: PathBuf) -> FolderFacts {
    let exists = path.is_dir();
    let looked_at = path.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("/")).to_owned();
    let measured = looked_at.clone();
    FolderFacts {
        of: of.to_owned(),
        path,
        exists,
        room: bounded(move || room(&looked_at)).await,
        fsync_us: bounded(move || fsync(&measured)).await,
    }
}

fn room(folder: &Path) -> Seen<RoomFacts> {
    let room = statvfs(folder).map_err(|error| error.to_string())?;
    let unit = room.fragment_size();
    Ok(RoomFacts {
        kind: kind(folder),
        free_bytes: room.blocks_available().saturating_mul(unit),
        total_bytes: room.blocks().saturating_mul(unit),
        free_files: room.files_available(),
        total_files: room.files(),
    })
}

fn kind(folder: &Path) -> String {
    let Ok(found) = statfs(folder) else { return "unknown".to_owned() };
    // The numbers of statfs(2).
    match u64::try_from(found.filesystem_type().0).unwrap_or(0) {
        0xef53 => "ext4".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683e => "btrfs".to_owned(),
        0x2fc1_2fc1 => "zfs".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x8584_58f6 => "ramfs".to_owned(),
        0x6969 => "nfs".to_owned(),
        0xff53_4d42 | 0xfe53_4d42 => "cifs".to_owned(),
        0x6573_5546 => "fuse".to_owned(),
        0x794c_7630 => "overlay".to_owned(),
        other => format!("{other:#x}"),
    }
}

/// Appends to a file without a name, as a member does to its log.
fn fsync(folder: &Path) -> Seen<Vec<u64>> {
    let mut file = tempfile::tempfile_in(folder).map_err(|error| error.to_string())?;
    let begin = Instant::now();
    let mut times = Vec::with_capacity(WRITES);
    while times.len() < WRITES && begin.elapsed() < ENOUGH {
        let start = Instant::now();
        file.write_all(&WRITE).and_then(|()| file.sync_data()).map_err(|error| error.to_string())?;
        times.push(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_measured_and_nothing_is_left_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(fsync(folder.path()).expect("writable").len(), WRITES);
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0);
        let room = room(folder.path()).expect("a file system");
        assert!(room.free_bytes > 0 && room.free_bytes <= room.total_bytes);
        assert!(fsync(Path::new("/proc")).is_err(), "nothing can be written there");
    }
}
