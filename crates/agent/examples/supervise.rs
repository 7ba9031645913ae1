//! The supervisor as a program of its own: `supervise [--stays] [FOLDER]`. The tests start it where an agent would
//! start itself. With `--stays` it does not end when its worker is over, but when nothing is left of its folder.

use std::path::Path;
use std::process::ExitCode;
use std::thread::park_timeout;
use std::time::Duration;

use tessera_agent::supervisor::status::STATUS_FILE;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    let stays = words.next_if(|word| word == "--stays").is_some();
    let ended = tessera_agent::supervisor::main(words.next().as_deref().map(Path::new));
    // It has entered the worker's folder, if it was told of one.
    while stays && Path::new(STATUS_FILE).exists() {
        park_timeout(Duration::from_millis(20));
    }
    ended
}
