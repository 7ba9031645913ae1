//! The documents generated from the tree of commands: manual pages, the reference in docs/cli, the schema of job files.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use clap::{Arg, Command};
use tessera_api::job_file;

use crate::args;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::print;

/// Prints the JSON Schema of job files.
///
/// # Errors
/// A [`Failure`] when it cannot be shown.
pub fn print_schema() -> Result<Exit, Failure> {
    print::text(&format!("{}\n", schema()?))?;
    Ok(Exit::Done)
}

/// The JSON Schema of job files.
///
/// # Errors
/// A [`Failure`] when it cannot be written as JSON.
pub fn schema() -> Result<String, Failure> {
    serde_json::to_string_pretty(&job_file::schema())
        .map_err(|error| Failure::from_error(Exit::Failed, "the schema cannot be shown", &error))
}

/// Writes a manual page for every command into `folder`.
///
/// # Errors
/// A [`Failure`] when the folder cannot be written.
pub fn write_manual(folder: &Path) -> Result<Exit, Failure> {
    let failed = |error: std::io::Error| Failure::from_error(Exit::Failed, "the manual was not written", &error);
    fs::create_dir_all(folder).map_err(failed)?;
    let mut command = args::command();
    command.build();
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    Ok(Exit::Done)
}

/// The pages of the reference: name of the file and text, one per top command.
#[must_use]
pub fn pages() -> Vec<(String, String)> {
    let mut command = args::command();
    command.build();
    let mut pages = vec![("README.md".to_owned(), index(&command))];
    for group in command.get_subcommands().filter(|group| !group.is_hide_set()) {
        let mut page = format!("# tessera {}\n", group.get_name());
        section(&mut page, group, &format!("tessera {}", group.get_name()), 1);
        pages.push((format!("{}.md", group.get_name()), page));
    }
    pages
}

// Writing to a string cannot fail: results of `write!` are dropped in what follows.

fn index(command: &Command) -> String {
    let mut page = format!(
        "# tessera\n\n{}\n\nMade from the program itself; `tessera COMMAND --help` prints the same.\n\n\
         | command | what it does |\n|---|---|\n",
        about(command)
    );
    for group in command.get_subcommands().filter(|group| !group.is_hide_set()) {
        let name = group.get_name();
        let _ = writeln!(page, "| [`tessera {name}`]({name}.md) | {} |", about(group));
    }
    if let Some(help) = command.get_after_help() {
        let _ = write!(page, "\n```text\n{help}\n```\n");
    }
    page
}

fn section(page: &mut String, command: &Command, path: &str, depth: usize) {
    if depth > 1 {
        let _ = write!(page, "\n{} {path}\n", "#".repeat(depth.min(4)));
    }
    let _ = write!(page, "\n{}\n", about(command));
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    if verbs.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").trim().to_owned();
        let _ = write!(page, "\n```text\n{usage}\n```\n");
    }
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    if !aliases.is_empty() {
        let _ = write!(page, "\nAlso: `{}`\n", aliases.join("`, `"));
    }
    // What a group passes on to its verbs is described once, at the group.
    let own: Vec<&Arg> =
        command.get_arguments().filter(|arg| shown(arg) && (depth == 1 || !arg.is_global_set())).collect();
    if !own.is_empty() {
        page.push('\n');
    }
    for arg in own {
        let _ = writeln!(page, "* {}", described(arg));
    }
    for verb in verbs {
        section(page, verb, &format!("{path} {}", verb.get_name()), depth + 1);
    }
}

fn shown(arg: &Arg) -> bool {
    !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version")
}

fn described(arg: &Arg) -> String {
    let values: Vec<String> = arg.get_value_names().unwrap_or_default().iter().map(|name| name.to_string()).collect();
    let takes = arg.get_action().takes_values();
    let value = if takes { format!(" <{}>", values.join("> <")) } else { String::new() };
    let names = match (arg.get_short(), arg.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}{value}`"),
        (None, Some(long)) => format!("`--{long}{value}`"),
        (Some(short), None) => format!("`-{short}{value}`"),
        (None, None) => format!("`<{}>`", values.join("> <")),
    };
    let mut text = format!("{names}: {}", arg.get_help().map(ToString::to_string).unwrap_or_default());
    let words: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    if takes && !words.is_empty() {
        let _ = write!(text, " (`{}`)", words.join("`, `"));
    }
    if let Some(variable) = arg.get_env() {
        let _ = write!(text, " [env: {}]", variable.to_string_lossy());
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if takes && !defaults.is_empty() && defaults != [String::new()] {
        let _ = write!(text, " [default: {}]", defaults.join(" "));
    }
    text
}

fn about(command: &Command) -> String {
    command.get_about().map(ToString::to_string).unwrap_or_default()
}
