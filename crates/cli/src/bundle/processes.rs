//! The kernel's view of the members and agents of this host. Neither environment nor arguments are read.

use std::fs;

use super::parts::Parts;
use tessera_agent::process::all_pids;
use tessera_diagnostics::of_process;

/// Most processes that are looked at.
const MOST: usize = 8;

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
        for part in of_process(pid) {
            parts.put(&format!("{folder}/{}", part.name), part.content);
        }
    }
    parts
}
