//! Runs the first process of a worker with a device as a program of its own: `with_device PLAN PROGRAM [ARGUMENT...]`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tessera_agent::device::run::main(std::env::args_os().skip(1))
}
