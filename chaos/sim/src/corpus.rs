//! Seeds that once found something: one a line, the rest of the line says what.

use std::path::Path;

use anyhow::Context as _;

/// Reads the seeds of a file; what follows `#` is for people.
///
/// # Errors
/// When the file cannot be read or a line does not begin with a number.
pub fn read(path: &Path) -> anyhow::Result<Vec<u64>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let lines =
        text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()).filter(|line| !line.is_empty());
    lines.map(|line| line.parse().with_context(|| format!("{line:?} in {} is no seed", path.display()))).collect()
}
