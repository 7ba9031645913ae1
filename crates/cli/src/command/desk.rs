//! The connection and the printer, with which every command of the client works.

use std::time::Duration;

use tessera_api::v1::{Consistency, NodeRef, node_ref};
use tessera_client::{Client, ClientError};

use crate::args::ClientArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::Printer;
use crate::settings::{Connection, Origin, Wishes, connect};
use crate::view::MutationView;

/// Things asked for at once when a list is read.
pub const PAGE: u32 = 500;

/// A connection and a printer.
pub struct Desk {
    /// The control plane.
    pub client: Client,
    pub printer: Printer,
    /// The consistency that answers must have.
    pub consistency: i32,
    /// Time for one request.
    pub timeout: Duration,
    /// The time that the user gives to a command that stays, or to a change that takes long; `None`: nothing was said.
    pub patience: Option<Duration>,
}

impl Desk {
    /// Finds the settings and makes the client; nothing is sent yet.
    ///
    /// # Errors
    /// A [`Failure`] when a setting cannot be used.
    pub fn open(args: &ClientArgs) -> Result<Self, Failure> {
        daemon_free_logging(args.verbose);
        let connection = Connection::resolve(&Wishes::from(args), &|name| std::env::var(name).ok())?;
        let consistency = if args.stale { Consistency::Stale } else { Consistency::Linearizable };
        Ok(Self {
            client: connect(&connection)?,
            printer: Printer::to_stdout(connection.output.value, args.color),
            consistency: consistency.into(),
            timeout: connection.timeout.value,
            patience: (connection.timeout.origin != Origin::Default).then_some(connection.timeout.value),
        })
    }

    /// Prints what was done to several things, and remembers whether anything failed.
    ///
    /// # Errors
    /// The last [`Failure`]; those before it are printed as they come.
    pub fn report(mut self, results: Vec<Result<MutationView, Failure>>) -> Result<Exit, Failure> {
        let (mut done, mut failures) = (Vec::new(), Vec::new());
        for result in results {
            match result {
                Ok(view) => done.push(view),
                Err(failure) => failures.push(failure),
            }
        }
        if self.printer.for_people() {
            for view in &done {
                self.printer.write(&format!("{} {}\n", view.name, view.done))?;
            }
        } else {
            self.printer.list(&done)?;
        }
        let Some(last) = failures.pop() else { return Ok(Exit::Done) };
        for failure in &failures {
            crate::print::remark(&failure.to_string());
        }
        Err(last)
    }
}

pub fn node_named(name: &str) -> NodeRef {
    NodeRef { r#ref: Some(node_ref::Ref::Name(name.to_owned())) }
}

/// Kinds of cards as they are asked for.
pub fn kinds(kinds: &[crate::args::KindChoice]) -> Vec<i32> {
    kinds.iter().map(|kind| (*kind).into()).collect()
}

/// The reason for which a single member could not be asked, in one line.
pub fn silence(error: &ClientError) -> String {
    let text = match error {
        ClientError::Unavailable(error) => error.members.first().map(|(_, error)| error.message.clone()),
        ClientError::Refused(_) | ClientError::NoMembers => None,
    };
    text.unwrap_or_else(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

/// Starts the log that `-v` shows on standard error.
fn daemon_free_logging(verbose: u8) {
    if verbose > 0 {
        crate::daemon::log_to_terminal(if verbose == 1 { "tessera=debug,tessera_client=debug" } else { "trace" });
    }
}

pub(super) fn wire_time(time: std::time::Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(time.subsec_nanos()).unwrap_or(0),
    }
}
