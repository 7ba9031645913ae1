//! The supervisor as a program of its own: `supervise FOLDER`. The tests start it where an agent would start itself.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: supervise FOLDER");
        return ExitCode::from(2);
    };
    tessera_agent::supervisor::main(Path::new(&folder))
}
