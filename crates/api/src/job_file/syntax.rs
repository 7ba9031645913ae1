//! YAML, TOML and JSON: reading them, and telling where something stands in them.

use serde::de::DeserializeSeed;

use super::complaint::{Complaint, JobFileError, Place};
use super::locate::{Locate, steps};
use super::model::JobFile;
use super::spelling::nearest;
use super::tree::Tree;
use super::untagged::Untagged;

/// A notation of job files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notation {
    /// YAML, the documented face.
    Yaml,
    Toml,
    Json,
}

impl Notation {
    /// The notation of a file: by the extension of its name, otherwise by what its text looks like.
    #[must_use]
    pub fn of(name: &str, text: &str) -> Self {
        match name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).as_deref() {
            Some("yaml" | "yml") => Self::Yaml,
            Some("toml") => Self::Toml,
            Some("json") => Self::Json,
            _ => Self::by_look(text),
        }
    }

    fn by_look(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let Some(first) = lines.next() else { return Self::Yaml };
        if first.starts_with('{') {
            return Self::Json;
        }
        let key = first.find(|c: char| !c.is_ascii_alphanumeric() && !"_-.\"' ".contains(c)).unwrap_or(first.len());
        if first.starts_with('[') || first[key..].starts_with('=') { Self::Toml } else { Self::Yaml }
    }
}

/// Most lists and mappings that a file may have open at once. YAML's reader looks at all of them for each word, and
/// gives up on 128 only when it has read everything; no field needs more than four.
const OPEN: usize = 100;

/// The offset in bytes of the bracket with which too many are open at once, those in texts and comments included. One
/// right behind a letter or a digit opens nothing in any notation: a script that paints (`\033[1m`) has many.
fn opens_too_many(text: &str) -> Option<usize> {
    let (mut open, mut before) = (0_usize, '\n');
    for (at, letter) in text.char_indices() {
        match letter {
            '[' | '{' if !before.is_ascii_alphanumeric() => open += 1,
            ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        if open > OPEN {
            return Some(at);
        }
        before = letter;
    }
    None
}

pub(super) fn read(text: &str, notation: Notation) -> Result<JobFile, JobFileError> {
    if let Some(at) = opens_too_many(text) {
        return Err(JobFileError::of(Complaint {
            place: Some(place_of_offset(text, at)),
            field: String::new(),
            problem: format!("has more than {OPEN} brackets open at once; {TOO_DEEP}"),
            hint: None,
        }));
    }
    let read = match notation {
        Notation::Yaml => of_yaml(text),
        Notation::Toml => {
            Tree::of_toml(text).map_err(|error| (Failure::of_toml(text, &error), String::new())).and_then(of_tree)
        }
        Notation::Json => of_json(text).and_then(of_tree),
    };
    read.map_err(|(failure, path)| JobFileError::of(complaint(text, notation, failure, &path)))
}

/// The words of a reader, and the field that they are about.
type Told = (Failure, String);

fn of_yaml(text: &str) -> Result<JobFile, Told> {
    let told = |error: serde_path_to_error::Error<serde_norway::Error>| {
        (Failure::of_yaml(error.inner()), error.path().to_string())
    };
    let file = serde_path_to_error::deserialize(serde_norway::Deserializer::from_str(text)).map_err(told)?;
    // The fields are read without their tags, which nobody may have written in vain.
    serde_path_to_error::deserialize(serde_norway::Deserializer::from_str(text)).map_err(told).map(|Untagged| file)
}

fn of_json(text: &str) -> Result<Tree, Told> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let tree = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| (Failure::of_json(error.inner()), error.path().to_string()))?;
    reader.end().map_err(|error| (Failure::of_json(&error), String::new())).map(|()| tree)
}

fn of_tree(tree: Tree) -> Result<JobFile, Told> {
    serde_path_to_error::deserialize(tree)
        .map_err(|error| (Failure { message: error.inner().to_string(), place: None }, error.path().to_string()))
}

/// The error of a reader. The message does not repeat the place.
struct Failure {
    message: String,
    place: Option<Place>,
}

impl Failure {
    fn of_yaml(error: &serde_norway::Error) -> Self {
        let place = error.location().map(|at| Place { line: at.line(), column: at.column() });
        let mut message = error.to_string();
        if let Some(place) = place {
            message = message.replacen(&format!(" at line {} column {}", place.line, place.column), "", 1);
        }
        if let Some(at) = message.rfind(" at line ") {
            message.truncate(at);
        }
        // The reader begins with the path, which is known from elsewhere: one word and a colon.
        if let Some((path, rest)) = message.split_once(": ")
            && !path.contains(' ')
        {
            message = rest.to_owned();
        }
        Self { message, place }
    }

    fn of_toml(text: &str, error: &toml::de::Error) -> Self {
        let place = error.span().map(|span| place_of_offset(text, span.start));
        Self { message: error.message().replace('\n', ", "), place }
    }

    fn of_json(error: &serde_json::Error) -> Self {
        let mut message = error.to_string();
        if let Some(at) = message.rfind(" at line ") {
            message.truncate(at);
        }
        let place = (error.line() > 0).then(|| Place { line: error.line(), column: error.column().max(1) });
        Self { message, place }
    }
}

/// The line and column of an offset in bytes.
fn place_of_offset(text: &str, offset: usize) -> Place {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = &text[..offset];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    Place { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
}

/// Makes a reader's words into a complaint in ours.
fn complaint(text: &str, notation: Notation, failure: Failure, path: &str) -> Complaint {
    let path = if path == "." { "" } else { path };
    if let Some((field, known)) = words_of(&failure.message, "unknown field ") {
        let parent = path.strip_suffix(field).map_or(path, |parent| parent.trim_end_matches('.'));
        let full = if parent.is_empty() { field.to_owned() } else { format!("{parent}.{field}") };
        let hint = nearest(field, &known).map(str::to_owned).or_else(|| belongs_elsewhere(parent, field));
        let problem = match hint {
            Some(_) => "is not a field of a job file".to_owned(),
            None => format!("is not a field of a job file; known here are {}", known.join(", ")),
        };
        let place = failure.place.or_else(|| located(text, notation, Locate::name(&steps(&full))));
        let place = place.or_else(|| place_of(text, notation, path));
        return Complaint { place, field: shortened(&full), problem, hint };
    }
    let place = failure.place.or_else(|| place_of(text, notation, path));
    let field = path.to_owned();
    if let Some((word, known)) = words_of(&failure.message, "unknown variant ") {
        let hint = nearest(word, &known).map(str::to_owned);
        let problem = format!("must be one of {}, is {}", known.join(", "), crate::fields::quoted(word));
        return Complaint { place, field, problem, hint };
    }
    if let Some(missing) = failure.message.strip_prefix("missing field `") {
        let missing = missing.trim_end_matches('`');
        let field = if path.is_empty() { missing.to_owned() } else { format!("{path}.{missing}") };
        return Complaint { place, field, problem: "must be set".to_owned(), hint: None };
    }
    if let Some(twice) = failure.message.strip_prefix("duplicate field `") {
        let twice = twice.trim_end_matches('`');
        let field = if path.is_empty() { twice.to_owned() } else { format!("{path}.{twice}") };
        let place = place_of(text, notation, &field);
        return Complaint { place, field, problem: "must be there only once".to_owned(), hint: None };
    }
    Complaint { place, field, problem: shortened(&plain(&failure.message)), hint: None }
}

/// The reason for which a reader goes no further.
const TOO_DEEP: &str = "no field of a job file has lists or mappings more than four deep";

/// A reader's words without the names of our types.
fn plain(message: &str) -> String {
    if message.starts_with("recursion limit") || message.starts_with("cannot recurse further") {
        return format!("has too many lists or mappings within each other; {TOO_DEEP}");
    }
    if message.ends_with("more than one document is not supported") {
        return "has more than one document, and a job file is one job".to_owned();
    }
    if let Some((found, expected)) =
        message.strip_prefix("invalid type: ").and_then(|rest| rest.split_once(", expected"))
        && ["a string", "a word", "a list of words"].iter().any(|text| expected.trim_start().starts_with(text))
        && ["integer", "floating point", "boolean"].iter().any(|sort| found.starts_with(sort))
    {
        return format!("{message}; put it in quotes, so that it arrives as it is written");
    }
    let message = message.replace("expected u32", "expected a whole number that is not negative");
    if let Some((beginning, _)) = message.split_once("expected struct ") {
        return format!("{beginning}expected a mapping of fields to values");
    }
    match message.split_once("expected enum ") {
        Some((beginning, _)) => format!("{beginning}expected a word"),
        None => message,
    }
}

/// Taken apart: "unknown field `a`, expected one of `b`, `c`".
fn words_of<'a>(message: &'a str, beginning: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let rest = message.strip_prefix(beginning)?.strip_prefix('`')?;
    let (word, expected) = rest.rsplit_once("`, expected ")?;
    Some((word, expected.split('`').skip(1).step_by(2).collect()))
}

/// Fields of the virtual card that were written a level too high, and the other way round.
fn belongs_elsewhere(parent: &str, field: &str) -> Option<String> {
    const OF_CARD: [&str; 9] =
        ["tflops", "memory", "precision", "span", "kinds", "mixed", "isolation", "vendors", "models"];
    (parent.is_empty() && OF_CARD.contains(&field)).then(|| format!("virtual_card.{field}"))
}

/// Cuts a text that quotes too much of the file.
fn shortened(text: &str) -> String {
    const SHOWN: usize = 300;
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The place of a field, or of the nearest element around it that the file has.
pub(super) fn place_of(text: &str, notation: Notation, path: &str) -> Option<Place> {
    let steps = steps(path);
    (0..=steps.len()).rev().find_map(|length| located(text, notation, Locate::value(&steps[..length])))
}

fn located(text: &str, notation: Notation, seed: Locate<'_>) -> Option<Place> {
    match notation {
        Notation::Yaml => {
            let error = seed.deserialize(serde_norway::Deserializer::from_str(text)).err()?;
            Failure::of_yaml(&error).place
        }
        Notation::Toml => {
            let error = seed.deserialize(toml::Deserializer::parse(text).ok()?).err()?;
            Failure::of_toml(text, &error).place
        }
        Notation::Json => {
            let error = seed.deserialize(&mut serde_json::Deserializer::from_str(text)).err()?;
            Failure::of_json(&error).place
        }
    }
}
