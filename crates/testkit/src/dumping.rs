//! CRIU, as the setup of the tests has put it into the path.

use std::env;
use std::path::PathBuf;

/// The program `criu` in `PATH`.
#[must_use]
pub fn criu() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join("criu")).find(|program| program.exists())
}

/// The lines of an agent's configuration that have it dump programs; `None`: there is no CRIU.
#[must_use]
pub fn config_that_dumps() -> Option<String> {
    Some(format!("[checkpoints]\ncriu = '{}'\n", criu()?.display()))
}
