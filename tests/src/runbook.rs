//! Runbooks as tests follow them: every command in one is run, as it stands there.

use std::path::Path;

use anyhow::{Context, Result};

/// A runbook that is being followed.
#[derive(Debug)]
pub struct Runbook {
    name: String,
    /// Its commands without the program, and whether they were run.
    commands: Vec<(String, bool)>,
}

impl Runbook {
    /// Reads one by its name.
    ///
    /// # Errors
    /// When there is none.
    pub fn read(name: &str) -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbooks").join(format!("{name}.md"));
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let said = text.lines().filter_map(|line| line.strip_prefix("tessera "));
        let commands = said.map(|line| (line.split(" #").next().unwrap_or(line).trim().to_owned(), false));
        Ok(Self { name: name.to_owned(), commands: commands.collect() })
    }

    /// The words of the command that begins like this, with what stands for the words in capitals.
    ///
    /// # Panics
    /// When the runbook has no such command.
    pub fn command(&mut self, beginning: &str, meanings: &[(&str, &str)]) -> Vec<String> {
        let found = self.commands.iter_mut().find(|(command, _)| command.starts_with(beginning));
        let (command, run) = found.unwrap_or_else(|| panic!("{} has no command {beginning:?}", self.name));
        *run = true;
        let meaning = |word: &str| {
            let known = meanings.iter().find(|(stands, _)| *stands == word);
            known.map_or_else(|| word.to_owned(), |(_, means)| (*means).to_owned())
        };
        command.split_whitespace().map(meaning).collect()
    }

    /// Every command was run.
    ///
    /// # Panics
    /// When one was not.
    pub fn was_followed(&self) {
        let left: Vec<&str> =
            self.commands.iter().filter(|(_, run)| !run).map(|(command, _)| command.as_str()).collect();
        assert!(left.is_empty(), "{} was not followed: {left:?}", self.name);
    }
}
