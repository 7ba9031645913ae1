//! Names of the functions at addresses, by a short-lived process of the same program.
//!
//! It is asked with lines on its standard input, each a place: how far into a file, and which. The files lie elsewhere
//! in its memory, and are the same.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::process::{Command, Stdio};

use super::maps::Maps;

/// The hidden word with which a program is started as that process; it calls [`answer`] then.
pub const WORD: &str = "name-addresses";
/// The first line of its answer. A program that does not know the word, as the tests of libraries do not, says another.
const ANSWER: &str = "names of addresses";

/// The functions at addresses, with those that were inlined there, outermost first and separated by semicolons. What
/// has no name has its file's, and how far into it.
pub(super) fn of(maps: &Maps, addresses: &[usize]) -> HashMap<usize, String> {
    let places: Vec<(usize, &str, usize)> = addresses
        .iter()
        .filter_map(|address| maps.place(*address).map(|(file, offset)| (*address, file, offset)))
        .collect();
    let question: String = places.iter().map(|(_, file, offset)| format!("{offset:x} {file}\n")).collect();
    let answer = asked(&question).unwrap_or_default();
    let mut named = answer.strip_prefix(ANSWER).and_then(|rest| rest.strip_prefix('\n')).unwrap_or_default().lines();
    let mut names: HashMap<usize, String> = addresses.iter().map(|address| (*address, "?".to_owned())).collect();
    for (address, file, offset) in places {
        let bare = || format!("{}+{offset:#x}", clean(file.rsplit('/').next().unwrap_or(file)));
        let name = named.next().filter(|name| !name.is_empty());
        names.insert(address, name.map_or_else(bare, ToOwned::to_owned));
    }
    names
}

fn asked(question: &str) -> io::Result<String> {
    let mut child = Command::new("/proc/self/exe")
        .arg(WORD)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut answer = String::new();
    // It reads all of the question before it answers.
    let told = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(question.as_bytes()));
    let heard = told.and_then(|()| child.stdout.take().map_or(Ok(0), |mut output| output.read_to_string(&mut answer)));
    // Whoever collects all children of this process may have been first.
    drop(child.wait());
    heard.map(|_| answer)
}

/// The process that is asked: gives names to the places on its standard input.
///
/// # Errors
/// Standard input or output is not what it should be.
pub fn answer() -> io::Result<()> {
    let mut question = String::new();
    io::stdin().read_to_string(&mut question)?;
    let maps = Maps::of_this_process()?;
    let mut answer = format!("{ANSWER}\n");
    for line in question.lines() {
        answer.push_str(&name(&maps, line));
        answer.push('\n');
    }
    io::stdout().write_all(answer.as_bytes())
}

/// The functions at a place; empty: they have no names.
fn name(maps: &Maps, place: &str) -> String {
    let address = place.split_once(' ').and_then(|(offset, file)| {
        let offset = usize::from_str_radix(offset, 16).ok()?;
        maps.address(file, offset)
    });
    let mut names = Vec::new();
    if let Some(address) = address {
        backtrace::resolve(std::ptr::with_exposed_provenance_mut(address), |symbol| {
            names.extend(symbol.name().map(|name| clean(&format!("{name:#}"))));
        });
    }
    names.reverse();
    names.join(";")
}

fn clean(name: &str) -> String {
    name.replace([';', '\n'], ",")
}
