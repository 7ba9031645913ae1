//! `tessera context`: which control plane the other commands talk to.

use serde::Serialize;

use crate::args::{ContextCommand, ContextVerb};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print::{Column, Printer, Tabular, text};
use crate::settings::{Connection, Context, Contexts, Wishes};
use crate::view::Clock;

/// A context as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ContextView {
    pub name: String,
    /// Tells whether the context is in use.
    pub current: bool,
    /// Its members.
    pub server: Vec<String>,
}

impl Tabular for ContextView {
    fn columns() -> &'static [Column] {
        const COLUMNS: &[Column] = &[Column::left("IN USE"), Column::left("CONTEXT"), Column::left("SERVER")];
        COLUMNS
    }

    fn cells(&self, _: &Clock) -> Vec<String> {
        vec![if self.current { "*" } else { "" }.to_owned(), self.name.clone(), self.server.join(",")]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// Does a verb of `tessera context`.
pub(super) fn run(command: ContextCommand) -> Result<Exit, Failure> {
    let wishes = Wishes { contexts_file: command.contexts_file, ..Wishes::default() };
    let variable = |name: &str| std::env::var(name).ok();
    match command.verb {
        ContextVerb::Use { name, server } => choose(&wishes, &variable, name, server),
        ContextVerb::List => list(&wishes, &variable),
        ContextVerb::Show => show(&wishes, &variable),
    }
}

fn load(wishes: &Wishes, variable: &dyn Fn(&str) -> Option<String>) -> Result<(std::path::PathBuf, Contexts), Failure> {
    // The file is needed even when the context in use is one that does not exist.
    let anyone = Wishes { context: None, ..wishes.clone() };
    let quiet = |name: &str| if name == "TESSERA_CONTEXT" { None } else { variable(name) };
    let path = Connection::contexts_path(&anyone, &quiet).ok_or_else(|| {
        Failure::new(Exit::Usage, "the contexts cannot be read", "this user has no configuration folder")
            .next("name a file with --contexts-file or TESSERA_CONFIG")
    })?;
    let contexts = Contexts::load(&path)
        .map_err(|error| Failure::from_error(Exit::Usage, "the contexts cannot be read", &error))?;
    Ok((path, contexts))
}

fn choose(
    wishes: &Wishes,
    variable: &dyn Fn(&str) -> Option<String>,
    name: String,
    server: Vec<String>,
) -> Result<Exit, Failure> {
    let (path, mut contexts) = load(wishes, variable)?;
    for address in &server {
        address
            .parse::<tessera_client::Address>()
            .map_err(|error| Failure::from_error(Exit::Usage, format!("context {name} was not made"), &error))?;
    }
    if !server.is_empty() {
        let context = contexts.context.entry(name.clone()).or_insert_with(Context::default);
        context.server = server;
    } else if !contexts.context.contains_key(&name) {
        return Err(Failure::new(
            Exit::NotFound,
            format!("there is no context `{name}`"),
            "no member was named for it",
        )
        .next(format!("make it with `tessera context use {name} --server HOST:PORT`")));
    }
    contexts.current = Some(name.clone());
    contexts.save(&path).map_err(|error| Failure::from_error(Exit::Failed, "the context was not kept", &error))?;
    text(&format!("context {name} is in use\n"))?;
    Ok(Exit::Done)
}

fn list(wishes: &Wishes, variable: &dyn Fn(&str) -> Option<String>) -> Result<Exit, Failure> {
    let (_, contexts) = load(wishes, variable)?;
    let views: Vec<ContextView> = contexts
        .context
        .iter()
        .map(|(name, context)| ContextView {
            name: name.clone(),
            current: contexts.current.as_ref() == Some(name),
            server: context.server.clone(),
        })
        .collect();
    Printer::to_stdout(crate::args::Format::Table, None).list(&views)?;
    Ok(Exit::Done)
}

/// Every setting of a connection, with where it comes from.
fn show(wishes: &Wishes, variable: &dyn Fn(&str) -> Option<String>) -> Result<Exit, Failure> {
    let connection = Connection::resolve(wishes, variable)?;
    let servers: Vec<String> = connection.server.value.iter().map(ToString::to_string).collect();
    let file = connection.contexts_file.as_ref().map(|path| path.display().to_string());
    let (server, timeout) = (connection.server.origin, connection.timeout.origin);
    text(&format!(
        "server   {}  (from: {server})\ntimeout  {}  (from: {timeout})\ncontext  {}\nfile     {}\n",
        servers.join(","),
        humantime::format_duration(connection.timeout.value),
        connection.context.map_or_else(|| "none".to_owned(), |context| context.value),
        file.unwrap_or_else(|| "none".to_owned()),
    ))?;
    Ok(Exit::Done)
}
