//! Limits: of the member or agent that runs with these files, else of this process, which is started like them or not.

use std::fs;
use std::path::Path;

use tessera_agent::process::all_pids;

use super::Host;
use crate::doctor::facts::{LimitFacts, Seen};

/// The limits of the member or agent of this host, or of this process.
pub(super) fn limits(host: &Host) -> Seen<LimitFacts> {
    let member = host.member.iter().map(|config| (config.data_dir.as_path(), "server"));
    let agent = host.agent.iter().map(|config| (config.data_dir.as_path(), "agent"));
    let running = member.chain(agent).find_map(|(folder, word)| running(folder, word));
    let (path, of) = match running {
        Some(pid) => (format!("/proc/{pid}/limits"), format!("of process {pid}, which runs")),
        None => ("/proc/self/limits".to_owned(), "of this process; a unit has its own".to_owned()),
    };
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // A member raises what it may open to the most that it may by itself.
    let hard = running.is_none();
    Ok(LimitFacts {
        of,
        open_files: limit(&text, "Max open files", hard),
        processes: limit(&text, "Max processes", hard),
        locked_bytes: limit(&text, "Max locked memory", hard),
    })
}

/// The process that has files open in `folder`, and was started as `tessera WORD`.
fn running(folder: &Path, word: &str) -> Option<i32> {
    let folder = folder.canonicalize().ok()?;
    let holds = |pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if command.split(|byte| *byte == 0).nth(1) != Some(word.as_bytes()) {
            return false;
        }
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        files.filter_map(|file| fs::read_link(file.path()).ok()).any(|open| open.starts_with(&folder))
    };
    all_pids().ok()?.into_iter().find(holds)
}

/// A line of `/proc/PID/limits`: `Max open files            1024                 1048576              files`.
fn limit(text: &str, name: &str, hard: bool) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_ascii_whitespace().nth(usize::from(hard))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units\n\
                    Max processes             unlimited            unlimited            processes\n\
                    Max open files            1024                 1048576              files\n";
        assert_eq!(limit(text, "Max open files", false), Some(1024));
        assert_eq!(limit(text, "Max open files", true), Some(1_048_576));
        assert_eq!(limit(text, "Max processes", true), None);
    }
}
