//! The commands: each asks the control plane and prints the answer.

mod backup;
mod card;
mod cluster;
mod compact;
mod config;
mod context;
mod debug;
mod desk;
mod doctor;
mod job;
mod node;
mod operator;
mod pool;
mod queue;
mod simulate;
mod top;
mod usage;
mod what_if;

use clap::CommandFactory;

use crate::args::{Cli, Command};
use crate::daemon;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print;

pub use context::ContextView;
pub use desk::Desk;
pub(crate) use desk::{PAGE, node_named, silence};

/// Does what was typed.
///
/// # Errors
/// The [`Failure`] to be shown.
pub async fn run(cli: Cli) -> Result<Exit, Failure> {
    match cli.command {
        Command::Job(command) => job::job(Desk::open(&command.client)?, command.verb).await,
        Command::Run(command) => job::run(Desk::open(&command.client)?, command.run).await,
        Command::Pool(command) => pool::run(Desk::open(&command.client)?, command.verb).await,
        Command::Node(command) => node::run(Desk::open(&command.client)?, command.verb).await,
        Command::Card(command) => card::run(Desk::open(&command.client)?, command.verb).await,
        Command::Usage(command) => usage::run(Desk::open(&command.client)?, command.what).await,
        Command::Queue(command) => queue::run(Desk::open(&command.client)?, command.verb).await,
        Command::Cluster(command) => cluster::run(Desk::open(&command.client)?, command.verb).await,
        Command::Top(command) => top::run(Desk::open(&command.client)?, command.view).await,
        Command::Dev(args) => daemon::dev(args).await,
        Command::Server(args) => Box::pin(daemon::server(*args)).await,
        Command::Agent(args) => daemon::agent(*args).await,
        Command::Simulate(command) => simulate::run(*command),
        Command::Operator(command) => operator::run(command).await,
        Command::Context(command) => context::run(command),
        Command::Schema => crate::reference::print_schema(),
        Command::Completions { shell } => {
            // Into memory first: it panics where it cannot write.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "tessera", &mut script);
            print::text(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Done)
        }
        Command::Man { dir } => crate::reference::write_manual(&dir),
        Command::Version => {
            print::text(concat!("tessera ", env!("CARGO_PKG_VERSION"), "\n"))?;
            Ok(Exit::Done)
        }
        Command::Supervise { folder } => Err(Failure::new(
            Exit::Usage,
            format!("the worker in {} is not supervised", folder.display()),
            "`supervise` must be the first word after the program",
        )),
    }
}
