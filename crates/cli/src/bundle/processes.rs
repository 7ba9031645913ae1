//! What the kernel says of the members and agents of this host. Neither environment nor arguments are read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::parts::Parts;
use tessera_agent::process::all_pids;

/// Most processes that are looked at.
const MOST: usize = 8;
/// Most threads of one.
const THREADS: usize = 256;

/// The members and agents that run here: role and pid.
fn found() -> Vec<(String, i32)> {
    let role = |pid: &i32| {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let program = program.file_name()?.to_str()?.trim_end_matches(" (deleted)").to_owned();
        let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let word = command.split(|byte| *byte == 0).nth(1)?;
        let role = ["server", "agent"].into_iter().find(|role| role.as_bytes() == word)?;
        (program == "tessera").then(|| (role.to_owned(), *pid))
    };
    all_pids().unwrap_or_default().iter().filter_map(role).collect()
}

/// Looks at them.
pub(super) fn look() -> Parts {
    let mut parts = Parts::default();
    let processes = found();
    if processes.is_empty() {
        parts.miss("host/process-*", "neither a member nor an agent runs on this host");
    }
    if processes.len() > MOST {
        parts.miss("host/process-*, some", format!("{} run here; the first {MOST} were looked at", processes.len()));
    }
    for (role, pid) in processes.into_iter().take(MOST) {
        let folder = format!("host/process-{role}-{pid}");
        for file in ["status", "limits", "io", "schedstat", "cgroup"] {
            let path = format!("/proc/{pid}/{file}");
            parts.put(&format!("{folder}/{file}"), fs::read(&path).map_err(|error| format!("{path}: {error}")));
        }
        parts.put(&format!("{folder}/files"), files(pid).map(String::into_bytes));
        parts.put(&format!("{folder}/threads"), threads(pid).map(String::into_bytes));
        let why = format!("this program has no profiler; `perf record -g -p {pid} -- sleep 10` makes one");
        parts.miss(&format!("{folder}/cpu-profile"), why);
    }
    parts
}

/// How many files are open, by kind. Their names are not told.
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
