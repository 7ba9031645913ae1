//! Programs that compute as far as they are let, and the folder in which they are told how far and tell where they are.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};

use crate::wait::until;

/// Python with numpy: Debian's, which every account finds.
pub const PYTHON: &str = "/usr/bin/python3";

/// A program in Python with numpy, as workers run it: with nothing of this environment, in which numpy's libraries may
/// be told to compute in other steps, to other bits.
#[must_use]
pub fn python(program: &Path) -> Command {
    let mut run = Command::new(PYTHON);
    run.env_clear().arg(program);
    run
}

/// The folder of such a program.
pub struct Paced(PathBuf);

impl Paced {
    /// One that is there.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Writes one of its files, whole or not at all.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        let whole = self.0.join(format!("{name}.new"));
        std::fs::write(&whole, text)?;
        Ok(std::fs::rename(whole, self.0.join(name))?)
    }

    /// Lets the program go on to this step and no further.
    ///
    /// # Errors
    /// That cannot be written.
    pub fn limit(&self, step: u64) -> Result<()> {
        self.write("limit", &step.to_string())
    }

    /// The lines of one of its files; none when it is not there.
    #[must_use]
    pub fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.0.join(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the program says that it is there.
    ///
    /// # Errors
    /// It does not come to that.
    pub async fn is_at(&self, place: &str) -> Result<()> {
        until(&format!("the program to be at {place}"), async || {
            (std::fs::read_to_string(self.0.join("at")).ok()? == place).then_some(())
        })
        .await
    }
}

/// The output of a program that is run here to its end.
///
/// # Errors
/// It does not run here, or ends badly.
pub fn comes_to(program: &mut Command) -> Result<String> {
    let run = program.output()?;
    ensure!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    Ok(String::from_utf8(run.stdout)?)
}
