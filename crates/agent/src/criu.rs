//! CRIU, which dumps and restores the processes of programs that know nothing of it: tried once, when the agent starts,
//! and only where the operator names it. It restores as root, so a host that happens to have it does not use it.
//!
//! What is found is told as labels of the node. Jobs in checkpoint mode `transparent` want a node with
//! [`TRANSPARENT_LABEL`]; [`VERSION_LABEL`] says which version it is, or why there is none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tessera_ledger::TRANSPARENT_LABEL;
use tokio::process::Command;
use tokio::time::timeout;

use crate::supervisor::image::{PLACE, links, make_place, reason};

/// The label that says which version of CRIU is here, or why none can be used.
pub const VERSION_LABEL: &str = "tessera.criu";
/// The right to exceed limits, as the kernel counts rights.
pub(crate) const SYS_RESOURCE: u32 = 24;
/// Rights that CRIU needs and does not look for itself, with their numbers: to restore connections, rights and clocks,
/// and to see what a worker sees.
const RIGHTS: [(&str, u32); 6] = [
    ("CAP_SETPCAP", 8),
    ("CAP_NET_ADMIN", 12),
    ("CAP_SYS_CHROOT", 18),
    ("CAP_SYS_PTRACE", 19),
    ("CAP_SYS_ADMIN", 21),
    ("CAP_SYS_TIME", 25),
];
/// Oldest release that is used: the ones before fail on kernels of today.
const OLDEST: u32 = 4;
/// The longest time that CRIU may take to examine the kernel.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest reason that is told in a label.
const LONGEST_REASON: usize = 200;

/// A CRIU that works here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Criu {
    pub program: PathBuf,
    pub version: String,
}

impl Criu {
    /// Tries the program that is configured. `uncontained`: why workers have no PID namespace here, if they have none.
    ///
    /// # Errors
    /// Why no process can be dumped here.
    pub async fn find(configured: Option<&Path>, uncontained: &str) -> Result<Self, String> {
        if !uncontained.is_empty() {
            return Err(format!("workers have no PID namespace here: {uncontained}"));
        }
        let program = configured.ok_or("the agent's configuration names no program ([checkpoints] criu)")?.to_owned();
        let said = asked(&program, "--version").await?;
        let version = version_in(&said).ok_or_else(|| format!("{} does not say its version", program.display()))?;
        let major: u32 = version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0);
        if major < OLDEST {
            return Err(format!("version {version} is older than {OLDEST}"));
        }
        asked(&program, "check").await?;
        if let Some((name, _)) = RIGHTS.iter().find(|(_, number)| !has_right(*number)) {
            return Err(format!("the agent has no {name}, which CRIU needs"));
        }
        links::can_be_refused()
            .map_err(|error| format!("no mount can refuse to follow links (Linux 5.14): {error}"))?;
        make_place().map_err(|error| format!("{PLACE} cannot be made: {error}"))?;
        Ok(Self { program, version })
    }

    /// The labels of a node where this was found.
    #[must_use]
    pub fn labels(found: &Result<Self, String>) -> Vec<(String, String)> {
        let version = |value: String| (VERSION_LABEL.to_owned(), value);
        match found {
            Ok(criu) => {
                let (key, value) = TRANSPARENT_LABEL;
                vec![(key.to_owned(), value.to_owned()), version(criu.version.clone())]
            }
            Err(why) => vec![version(format!("none: {}", why.chars().take(LONGEST_REASON).collect::<String>()))],
        }
    }
}

/// Returns whether this process has the capability with this number.
pub(crate) fn has_right(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let rights = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = rights.and_then(|rights| u64::from_str_radix(rights.trim(), 16).ok()).unwrap_or_default();
    rights & (1 << number) != 0
}

/// Runs a program with one argument; returns its standard output, or the reason of the failure.
async fn asked(program: &Path, word: &str) -> Result<String, String> {
    let shown = program.display();
    let mut command = Command::new(program);
    command.arg(word).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await;
    let output = output.map_err(|_| format!("`{shown} {word}` said nothing within {} s", PATIENCE.as_secs()))?;
    let Output { status, stdout, stderr } = output.map_err(|error| format!("`{shown}` cannot be run: {error}"))?;
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout).into_owned());
    }
    Err(format!("`criu {word}` failed: {}", reason(&String::from_utf8_lossy(&stderr))))
}

fn version_in(said: &str) -> Option<String> {
    let version = said.lines().find_map(|line| line.strip_prefix("Version:"))?.trim();
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that answers like CRIU.
    fn pretender(folder: &Path, version: &str, check: &str) -> PathBuf {
        let program = folder.join(format!("criu-{version}"));
        let text = format!("#!/bin/sh\ncase $1 in --version) echo 'Version: {version}';; check) {check};; esac\n");
        fs::write(&program, text).expect("writable");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("changeable");
        program
    }

    #[tokio::test]
    async fn what_cannot_be_used_says_why() {
        let folder = tempfile::tempdir().expect("a folder");
        let fails = "echo '(00.1) Error (criu/a.c:1): no such kernel' >&2; exit 1";
        for (program, uncontained, why) in [
            (None, "", "[checkpoints] criu"),
            (Some(folder.path().join("nowhere")), "", "cannot be run"),
            (Some(pretender(folder.path(), "3.17.1", "true")), "", "version 3.17.1 is older than 4"),
            (Some(pretender(folder.path(), "4.1", fails)), "", "`criu check` failed: no such kernel"),
            (Some(pretender(folder.path(), "4.2", "true")), "run the agent as root", "run the agent as root"),
        ] {
            let found = Criu::find(program.as_deref(), uncontained).await;
            let labels = Criu::labels(&found);
            assert!(found.expect_err("it cannot be used").contains(why), "{why}");
            assert!(labels.len() == 1 && labels[0].1.starts_with("none: "), "{labels:?}");
        }
    }

    #[test]
    fn versions_are_read() {
        assert_eq!(version_in("Version: 4.2.1\n").as_deref(), Some("4.2.1"));
        assert_eq!(version_in("Version: 4.1\nGitID: v4.1\n").as_deref(), Some("4.1"));
        assert_eq!(version_in("criu\n"), None);
    }
}
