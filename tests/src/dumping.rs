//! The common parts of tests of programs that are dumped: pools that can, and what cannot be dumped.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use tessera_testkit::config_that_dumps;

use crate::pool::{Options, Pool};

/// A pool whose nodes can dump programs.
///
/// # Errors
/// It does not start, or CRIU cannot be used here.
pub async fn pool_that_dumps(options: Options) -> Result<Pool> {
    let dumps = config_that_dumps().context("CRIU is not in PATH (deploy/setup.sh test)")?;
    let agent_config = format!("{}\n{dumps}", options.agent_config);
    let options = Options { agent_config, ..options };
    let pool = Pool::start(options).await?;
    let shown = pool.cli_ok(&["node", "show", &pool.nodes[0].name]).await?;
    ensure!(shown.contains("tessera.transparent"), "CRIU cannot be used here (deploy/setup.sh test):\n{shown}");
    Ok(pool)
}

/// A Unix socket of somebody else. Whoever connects is connected for as long as the test runs, and cannot be dumped.
///
/// # Errors
/// It cannot be made.
pub fn socket_of_a_stranger(pool: &Pool) -> Result<PathBuf> {
    let path = pool.folder().join("elsewhere.sock");
    let listener = UnixListener::bind(&path)?;
    std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777))?;
    Ok(path)
}
