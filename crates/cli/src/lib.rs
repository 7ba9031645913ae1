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
mod signals;
mod survey;
mod top;
mod trace;
mod uses;
pub mod view;
mod waits;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::Styles;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use tessera_diagnostics::{profile, shown};

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
    // Nor for what gives the addresses of a profile their names.
    if std::env::args_os().nth(1).is_some_and(|word| word == profile::WORD) {
        return if profile::answer().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let ended = match Cli::try_parse() {
        Ok(cli) => run(cli),
        Err(said) => explain(&said, std::env::args_os()),
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

/// Prints what the parser says about what was typed: a help text that was asked for, or what is wrong.
fn explain(said: &clap::Error, typed: impl IntoIterator<Item = OsString>) -> Result<Exit, Failure> {
    if said.use_stderr() {
        print::remark(refusal(typed).trim_end());
        return Ok(Exit::Usage);
    }
    let printed = said.print().and_then(|()| std::io::stdout().flush());
    printed.map(|()| Exit::Done).map_err(|error| print::unwritten(&error))
}

/// The parser's complaint about what was typed, spelled: it quotes that, and a script may have typed it for somebody
/// else. It is made without styles, so that everything in it that a terminal would obey was typed.
fn refusal(typed: impl IntoIterator<Item = OsString>) -> String {
    let typed: Vec<OsString> = typed.into_iter().collect();
    let mut plain = Cli::command().styles(Styles::plain());
    let parsed = plain
        .try_get_matches_from_mut(&typed)
        .and_then(|mut found| Cli::from_arg_matches_mut(&mut found).map_err(|said| said.format(&mut plain)));
    let said = parsed.err().map(|said| match said.kind() {
        ErrorKind::InvalidUtf8 => no_text(&typed),
        _ => said.render().ansi().to_string(),
    });
    shown::lines(&said.unwrap_or_default()).into_owned()
}

/// The complaint about words that are not text, which the parser does not name.
fn no_text(typed: &[OsString]) -> String {
    let words = typed.iter().enumerate().filter(|(_, word)| word.to_str().is_none());
    let words = words.map(|(place, word)| format!("argument {place}: {}", spelled(word.as_bytes())));
    let why = format!("only text in UTF-8 can be sent to a member\n{}", words.collect::<Vec<_>>().join("\n"));
    let next = "write them as text; a program finds files of such names by a pattern, or by a script of its own";
    Failure::new(Exit::Usage, "not everything that was typed is text", why).next(next).to_string()
}

/// Bytes of which those that are no UTF-8 are spelled.
fn spelled(bytes: &[u8]) -> String {
    let chunks = bytes.utf8_chunks();
    chunks.map(|chunk| format!("{}{}", chunk.valid(), chunk.invalid().escape_ascii())).collect()
}

/// Threads of a member besides that of consensus, one for each processor in all. More of them wake each other for work
/// that one had done by then: with two processors that was a third of a member's switches between threads.
fn threads_beside_consensus() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get() - 1).max(1)
}

/// Tells the kernel not to back this process with huge pages; workers may have them. The memory of a member or an agent
/// grows by small pieces all over the address space. With a huge page behind each of them, a fifth of a busy member's
/// time went into clearing what is never used, and an agent kept ten times of what it used after many jobs at once: a
/// huge page is given back only when nothing at all in it is used.
fn without_huge_pages() {
    // A kernel that does not know this works all the same.
    let _ = nix::sys::prctl::set_thp_disable(true);
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
    if long_running {
        without_huge_pages();
    }
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

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn what_was_typed_is_spelled_whatever_sort_of_character_it_has() {
        let sorts = [
            ("\u{1b}[31m", r"\u{1b}[31m"),
            ("\u{1b}]0;owned\u{7}", r"\u{1b}]0;owned\u{7}"),
            ("\u{1b}(0", r"\u{1b}(0"),
            ("\u{9b}2J", r"\u{9b}2J"),
            ("\u{7f}\u{8}", r"\u{7f}\u{8}"),
            ("\r", r"\r"),
            ("\u{202e}", r"\u{202e}"),
            ("\u{2066}", r"\u{2066}"),
            ("\u{200f}", r"\u{200f}"),
            ("\u{2028}", r"\u{2028}"),
            ("\u{feff}", r"\u{feff}"),
            ("\u{200b}", r"\u{200b}"),
        ];
        for (sort, spelled) in sorts {
            let evil = format!("a{sort}b");
            let evil = evil.as_str();
            for typed in [&["job", "show", evil][..], &["job", evil], &["job", "list", "--state", evil], &[evil]] {
                let said = refusal(["tessera"].iter().chain(typed).map(OsString::from));
                assert!(said.contains(&format!("a{spelled}b")), "{typed:?}: {said}");
                assert!(!said.contains(|letter: char| letter != '\n' && shown::is_obeyed(letter)), "{said:?}");
            }
        }
    }
    #[test]
    fn an_argument_that_is_no_text_is_named() {
        let typed = ["tessera", "job", "run", "--", "echo"].map(OsString::from);
        let evil = OsString::from_vec(b"gr\xc3\xb6\xc3\x9fe\xff\x1b[2J".to_vec());
        let said = refusal(typed.into_iter().chain([evil, OsString::from("after")]));
        assert!(said.contains(r"argument 5: größe\xff\u{1b}[2J"), "{said}");
        assert!(said.starts_with("error: ") && said.contains("\n  next: ") && !said.contains("after"), "{said}");
    }
}
