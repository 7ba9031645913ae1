//! The output of commands.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::pool::Pool;

/// A path made by a test as a word of a command.
///
/// # Errors
/// When it is not text.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path made here is text")
}

/// The field of what a command printed as JSON.
///
/// # Errors
/// When the command fails or prints something else.
pub async fn field(pool: &Pool, arguments: &[&str], name: &str) -> Result<String> {
    let printed = pool.cli_ok(&[arguments, &["-o", "json"]].concat()).await?;
    let printed: serde_json::Value = serde_json::from_str(&printed)?;
    let value = &printed[name];
    Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// The error output of a command that must not succeed.
///
/// # Errors
/// When it succeeds.
pub async fn refusal(pool: &Pool, arguments: &[&str]) -> Result<String> {
    let printed = pool.cli(arguments).await?;
    ensure!(!printed.status.success(), "tessera {arguments:?} succeeded");
    Ok(String::from_utf8_lossy(&printed.stderr).into_owned())
}
