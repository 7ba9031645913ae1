//! The one program `tessera`: it parses what was typed ([`args`]), finds the settings ([`settings`]), asks the control
//! plane or runs a part of it ([`command`], [`daemon`]), and prints the answer ([`view`], [`mod@print`]). It decides
//! nothing about jobs or the pool.
//!
//! How it ends is a promise to scripts: [`exit`] has the codes, [`failure`] the shape of every error: what failed, why,
//! what to do next.

pub mod args;
pub mod bundle;
pub mod command;
pub mod daemon;
pub mod doctor;
pub mod exit;
pub mod failure;
mod outage;
mod position;
pub mod print;
pub mod reference;
pub mod settings;
mod survey;
mod told;
mod top;
mod trace;
mod uses;
pub mod view;
mod waits;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::exit::Exit;
use crate::failure::Failure;

/// Runs the program: what `main` does.
#[must_use]
pub fn main() -> ExitCode {
    // A supervisor must be small and start at once: neither the tree of commands nor a runtime is made for it.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == "supervise")
        && let (folder, None) = (words.next(), words.next())
    {
        return tessera_agent::supervisor::main(folder.as_deref().map(Path::new));
    }
    // Nor for what starts the slice servers of a worker.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == tessera_agent::device::WORD) {
        return tessera_agent::device::run::main(words);
    }
    // Nor for what speaks with the driver of graphics cards, whose programs are dumped.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == tessera_agent::supervisor::image::driver::WORD) {
        return tessera_agent::supervisor::image::driver::main(words);
    }
    let ended = match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(said) => explain(&said),
    };
    let exit = ended.unwrap_or_else(|failure| {
        // Whoever has read enough wants to hear of nothing.
        if failure.exit != Exit::ReaderGone {
            print::remark(&failure.to_string());
        }
        failure.exit
    });
    exit.end()
}

/// Prints what the parser says: a help text that was asked for, or what is wrong.
fn explain(said: &clap::Error) -> Result<Exit, Failure> {
    if said.use_stderr() {
        // Without its colours: what was typed is quoted in it, and a script may have typed it for somebody else.
        print::remark(said.render().to_string().trim_end());
        return Ok(Exit::Usage);
    }
    let printed = said.print().and_then(|()| std::io::stdout().flush());
    printed.map(|()| Exit::Done).map_err(|error| print::unwritten(&error))
}

/// Threads of a member besides that of consensus, one for each processor in all. More of them wake each other for work
/// that one had done by then: with two processors that was a third of a member's switches between threads.
fn threads_beside_consensus() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get() - 1).max(1)
}

/// Members and agents get a runtime with threads; a command of the client needs none.
fn run(cli: Cli) -> Result<Exit, Failure> {
    // What the builder said; another build without it goes without.
    if let Some(revision) = option_env!("TESSERA_REVISION").filter(|revision| !revision.is_empty()) {
        tessera_metrics::revision::set(revision);
    }
    let long_running = matches!(cli.command, Command::Server(_) | Command::Agent(_) | Command::Dev(_));
    let mut builder = if long_running {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    if let Command::Server(_) = cli.command {
        builder.worker_threads(threads_beside_consensus());
    }
    if let Command::Agent(_) = cli.command {
        tessera_agent::supervisor::inheritance::hear_of_ends();
    }
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(Exit::Failed, "the program cannot start", &error))?;
    let result = runtime.block_on(command::run(cli));
    runtime.shutdown_background();
    result
}
