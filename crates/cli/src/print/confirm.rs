//! Asking before something is done that cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use tessera_diagnostics::shown;

use crate::exit::Exit;
use crate::failure::Failure;

/// Asks on a terminal whether to go on; elsewhere `--yes` must have been given.
///
/// # Errors
/// A [`Failure`] when the answer is not yes, or nobody can be asked.
pub fn confirm(yes: bool, question: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return Err(Failure::new(Exit::Usage, "nothing was done", "nobody can be asked here whether to go on")
            .next("add --yes when you are sure"));
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{} [y/N] ", shown::lines(question)).and_then(|()| io::stderr().flush());
    let read = asked.and_then(|()| io::stdin().lock().read_line(&mut answer));
    read.map_err(|error| Failure::from_error(Exit::Failed, "the answer cannot be read", &error))?;
    if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Failure::new(Exit::Refused, "nothing was done", "the answer was not yes"))
}
