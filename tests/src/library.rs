//! Libraries that tests put in the place of others, or let programs load.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

/// Builds a shared library of this text in C; the text lies beside it afterwards.
///
/// # Errors
/// There is no compiler, or it does not take the text.
pub fn build(text: &str, library: &Path) -> Result<()> {
    let source = library.with_extension("c");
    std::fs::write(&source, text)?;
    ensure!(Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([library, &source]).status()?.success());
    Ok(())
}
