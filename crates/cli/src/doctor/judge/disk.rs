//! Is there room, and is a synced write quick?

use tessera_metrics::quantile;

use crate::doctor::facts::{Facts, FolderFacts, RoomFacts};
use crate::doctor::finding::{Check, Finding};

const ROOM: Check = Check("disk.room", "a member on a full disk stops; an agent on one starts no work");
const FILES: Check = Check("disk.files", "a file system without room for files is as full as one without bytes");
const KIND: Check = Check("disk.kind", "what was acknowledged must survive a reboot and a failure of the network");
const FSYNC: Check = Check("disk.fsync", "every acknowledgement of a member waits for a synced write");
/// Bytes below which an agent is warned of.
const AGENT_ROOM: u64 = 1 << 30;
/// Thresholds of the alert `TesseraFsyncSlow`, in microseconds.
const SLOW_US: u64 = 100_000;
const TOO_SLOW_US: u64 = 500_000;
/// Files below which more are wanted.
const FEW_FILES: u64 = 10_000;

pub(super) fn judge(facts: &Facts) -> Vec<Finding> {
    if facts.folders.is_empty() {
        return vec![ROOM.not_applicable("neither a member nor an agent is configured here")];
    }
    facts.folders.iter().flat_map(|folder| judge_folder(facts, folder)).collect()
}

fn judge_folder(facts: &Facts, folder: &FolderFacts) -> Vec<Finding> {
    let of = format!("{} {}", folder.of, folder.path.display());
    let mut found = match &folder.room {
        Ok(room) => vec![judge_room(facts, folder, room), judge_files(room), judge_kind(folder, room)],
        Err(error) => {
            vec![ROOM.failure(format!("it cannot be looked at: {error}"), "make the folder, or name another")]
        }
    };
    found.push(judge_fsync(folder));
    found.into_iter().map(|finding| finding.of(of.clone())).collect()
}

fn judge_room(facts: &Facts, folder: &FolderFacts, room: &RoomFacts) -> Finding {
    let mib = room.free_bytes >> 20;
    let percent = room.free_bytes.saturating_mul(100) / room.total_bytes.max(1);
    let seen = format!("{mib} MiB free, {percent} % of the file system");
    let next = "make room, or move the data folder to a larger file system (docs/operations.md, Disk)";
    let needed = match (&facts.member, folder.of.as_str()) {
        (Some(member), "member") => member.disk_reserve_bytes,
        _ => AGENT_ROOM / 4,
    };
    if room.free_bytes < needed {
        ROOM.failure(format!("{seen}; {} MiB must be free", needed >> 20), next)
    } else if room.free_bytes < needed.saturating_mul(4) || percent < 5 {
        ROOM.warning(seen, next)
    } else {
        ROOM.ok(seen)
    }
}

fn judge_files(room: &RoomFacts) -> Finding {
    if room.total_files == 0 {
        return FILES.not_applicable("this file system has no limit of files");
    }
    let seen = format!("{} of {} files can still be made", room.free_files, room.total_files);
    match room.free_files {
        0 => FILES.failure(seen, "remove files"),
        few if few < FEW_FILES => FILES.warning(seen, "remove files, or make the file system anew with more inodes"),
        _ => FILES.ok(seen),
    }
}

fn judge_kind(folder: &FolderFacts, room: &RoomFacts) -> Finding {
    let kind = &room.kind;
    let next = "keep the data folder on a local file system that outlives a reboot";
    match kind.as_str() {
        "tmpfs" | "ramfs" => KIND.warning(format!("{kind}: gone after a reboot"), next),
        "nfs" | "nfs4" | "cifs" | "fuse" if folder.of == "member" => {
            KIND.warning(format!("{kind}: what is synced depends on another host"), next)
        }
        _ => KIND.ok(kind.clone()),
    }
}

fn judge_fsync(folder: &FolderFacts) -> Finding {
    let times = match &folder.fsync_us {
        Ok(times) if times.is_empty() => return FSYNC.not_applicable("nothing was written"),
        Ok(times) => times,
        Err(error) => {
            let next = "let the user of the service own the folder, and run this as that user or as root";
            return FSYNC.failure(format!("nothing can be written: {error}"), next);
        }
    };
    let mut sorted = times.clone();
    sorted.sort_unstable();
    let at = |share| quantile(&sorted, share).unwrap_or_default();
    let (median, high) = (at(0.5), at(0.99));
    let milliseconds = |us: u64| us as f64 / 1000.0;
    let seen = format!(
        "{} synced writes: median {:.1} ms, p99 {:.1} ms",
        sorted.len(),
        milliseconds(median),
        milliseconds(high)
    );
    let next = "give the data folder a disk of its own with a protected cache (runbook TesseraFsyncSlow)";
    match (folder.of.as_str(), high) {
        ("member", high) if high > TOO_SLOW_US => FSYNC.failure(seen, next),
        (_, high) if high > SLOW_US => FSYNC.warning(seen, next),
        _ => FSYNC.ok(seen),
    }
}
