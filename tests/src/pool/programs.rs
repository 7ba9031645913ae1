//! Programs for workers of a pool. Workers have identities of their own, and a clone may lie below a home that only its
//! owner may enter, so each pool has copies where everybody can read them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Pool;

/// Folders of the clone that are copied, and their names in the folder of a pool.
const COPIED: [(&str, &str); 2] = [
    (concat!(env!("CARGO_MANIFEST_DIR"), "/programs"), "programs"),
    (concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/agent/python"), "python"),
];

/// Stands for the folder of the programs in [`super::Options::agent_config`].
pub const PROGRAMS: &str = "{programs}";

/// A program as it lies in the clone, for tests that run it by themselves.
#[must_use]
pub fn program_here(name: &str) -> PathBuf {
    Path::new(COPIED[0].0).join(name)
}

/// The module by which programs save themselves, as it lies in the clone.
#[must_use]
pub const fn helper_here() -> &'static str {
    COPIED[1].0
}

impl Pool {
    /// A program that every worker of the pool can read.
    #[must_use]
    pub fn program(&self, name: &str) -> String {
        self.folder().join(COPIED[0].1).join(name).display().to_string()
    }

    /// `PYTHONPATH` of programs that save themselves.
    #[must_use]
    pub fn helper(&self) -> String {
        self.folder().join(COPIED[1].1).display().to_string()
    }
}

/// Copies the programs into the folder of a pool, for everybody to read and run whatever this process's umask is.
///
/// # Errors
/// A folder on the way to the copies cannot be entered by workers, or a copy cannot be made.
pub(super) fn copy_programs(pool: &Path) -> Result<()> {
    for (from, to) in COPIED {
        let to = pool.join(to);
        fs::create_dir(&to)?;
        for entry in fs::read_dir(from).with_context(|| format!("reading {from}"))? {
            let (entry, copy) = (entry?, to.join("copy"));
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), &copy)?;
                allow(&copy)?;
                fs::rename(copy, to.join(entry.file_name()))?;
            }
        }
        allow(&to)?;
    }
    Ok(())
}

fn allow(path: &Path) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Fails when a folder above the pool's own keeps workers out, which jobs would tell by a long wait. Workers of agents
/// that are not root are the user's own.
///
/// # Errors
/// The folder that keeps them out, and what to do about it.
pub(super) fn can_be_entered(pool: &Path) -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    for folder in pool.ancestors().skip(1) {
        let mode = fs::metadata(folder)?.permissions().mode();
        anyhow::ensure!(
            mode & 0o001 != 0,
            "workers run under identities of their own and cannot enter {} (mode {:03o}): set TMPDIR to a folder that everybody can reach",
            folder.display(),
            mode & 0o777
        );
    }
    Ok(())
}
