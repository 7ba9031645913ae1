//! The state of a process as the kernel reports it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Part;

/// Most threads that are looked at.
const THREADS: usize = 256;
/// Files of `/proc` that are told as they are.
const AS_THEY_ARE: [&str; 5] = ["status", "limits", "io", "schedstat", "cgroup"];

/// The diagnostics of a process on this host.
#[must_use]
pub fn of_process(pid: i32) -> Vec<Part> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        Part::new(file, fs::read(&path).map_err(|error| format!("{path}: {error}")))
    };
    let mut parts: Vec<Part> = AS_THEY_ARE.into_iter().map(read).collect();
    parts.push(Part::new("files", files(pid).map(String::into_bytes)));
    parts.push(Part::new("threads", threads(pid).map(String::into_bytes)));
    parts
}

/// The number of open files by kind. Their names are not reported.
fn files(pid: i32) -> Result<String, String> {
    let path = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))?;
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for target in entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()) {
        let text = target.to_string_lossy().into_owned();
        let kind = if text.starts_with('/') { "file" } else { text.split(':').next().unwrap_or("other") };
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    let mut text = String::new();
    for (kind, count) in kinds {
        let _ = writeln!(text, "{count} {kind}");
    }
    Ok(text)
}

/// Each thread: its name, its state, what it waits for, and its stack in the kernel where that may be seen.
fn threads(pid: i32) -> Result<String, String> {
    let path = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))?;
    let mut text = String::new();
    for entry in entries.flatten().take(THREADS) {
        let read = |file: &str| read_trimmed(&entry.path().join(file));
        let state = read("stat").and_then(|stat| Some(stat.rsplit_once(')')?.1.trim().chars().next()?.to_string()));
        let dash = || "-".to_owned();
        let (name, wait) = (read("comm").unwrap_or_else(dash), read("wchan").unwrap_or_else(dash));
        let _ = writeln!(text, "{} {name} {} {wait}", entry.file_name().display(), state.unwrap_or_else(dash));
        for line in read("stack").unwrap_or_else(|| "(its stack may not be seen)".to_owned()).lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    Ok(text)
}

fn read_trimmed(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}
