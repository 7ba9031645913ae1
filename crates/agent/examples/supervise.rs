//! The supervisor as a program of its own: `supervise [FOLDER]`. The tests start it where an agent would start itself.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let folder = std::env::args_os().nth(1);
    tessera_agent::supervisor::main(folder.as_deref().map(Path::new))
}
