//! The kinds of fields that come in, with one validator each: whoever takes a field in says what kind it is, and what
//! it may be is said here. Each answers with the path of the field and with what would be right.
//!
//! The ledger checks again what must hold for the log.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use tessera_calendar::Calendar;
use tessera_ledger::wire::{FieldError, duration_from_wire};
use tessera_ledger::{HostRequest, Mebibytes, MilliCpus};

use crate::error::Refusal;
use crate::limits;

/// Checks a name for machines: it must fit into a path, a label and a command line.
///
/// # Errors
/// A [`FieldError`] when it is empty, too long, has other characters, or would lead elsewhere as a path.
pub fn name(field: &str, name: &str) -> Result<(), FieldError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    if !(1..=limits::NAME).contains(&name.len()) || !name.chars().all(allowed) {
        let problem = "letters, digits, '-', '_', '.' or '/'";
        let problem = format!("must be 1 to {} {problem}, is {}", limits::NAME, quoted(name));
        return Err(FieldError::invalid(field, problem));
    }
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        let problem = format!("must not have an empty part, '.' or '..' beside a '/', is {}", quoted(name));
        return Err(FieldError::invalid(field, problem));
    }
    Ok(())
}

/// Checks a text for people, or the name of something that may be there: one line, as long as names may be.
///
/// # Errors
/// As [`line_within`].
pub fn line(field: &str, text: &str) -> Result<(), FieldError> {
    line_within(field, text, limits::NAME)
}

/// Checks a text for people of at most `limit` bytes.
///
/// # Errors
/// A [`FieldError`] when it is too long, or has characters that break its line or turn its direction: shown to people,
/// it would say something else than it is.
pub fn line_within(field: &str, text: &str, limit: usize) -> Result<(), FieldError> {
    let unseen = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if text.len() <= limit && !text.contains(unseen) {
        return Ok(());
    }
    Err(FieldError::invalid(field, format!("must have at most {limit} bytes in one line, is {}", quoted(text))))
}

/// Checks what a card is called by who made it.
///
/// # Errors
/// A [`FieldError`] when it is no line, or has quotes.
pub fn designation(field: &str, text: &str) -> Result<(), FieldError> {
    line(field, text)?;
    if text.contains(['"', '\'', '`', '\\']) {
        return Err(FieldError::invalid(field, format!("must not have quotes or '\\', is {}", quoted(text))));
    }
    Ok(())
}

/// A text that a maker of cards has in them, as a [`designation`]: what one may not have is left out, and what is too
/// long is cut.
#[must_use]
pub fn as_designation(text: &str) -> String {
    let allowed = |c: &char| designation("", c.encode_utf8(&mut [0; 4])).is_ok();
    let mut kept: String = text.chars().filter(allowed).collect();
    kept.truncate(kept.floor_char_boundary(limits::NAME));
    kept
}

/// Checks the name or address of a host.
///
/// # Errors
/// A [`FieldError`] when it is empty, too long, or has characters that no host has.
pub fn host(field: &str, host: &str) -> Result<(), FieldError> {
    if is_host(host) && host.len() <= limits::NAME {
        return Ok(());
    }
    let problem =
        format!("must be the name or address of a host, of at most {} bytes, is {}", limits::NAME, quoted(host));
    Err(FieldError::invalid(field, problem))
}

/// Checks the address of a process.
///
/// # Errors
/// A [`FieldError`] when it is no [`host_and_port`], or too long.
pub fn address(field: &str, address: &str) -> Result<(), FieldError> {
    if host_and_port(address).is_ok() && address.len() <= limits::NAME {
        return Ok(());
    }
    let problem =
        format!("must be host:port, of at most {} bytes, as others reach it, is {}", limits::NAME, quoted(address));
    Err(FieldError::invalid(field, problem))
}

/// Checks that a text is `host:port`: the rule for every address, whoever says it.
///
/// # Errors
/// The part that is wrong.
pub fn host_and_port(text: &str) -> Result<(), &'static str> {
    let (host, port) = text.rsplit_once(':').ok_or("it has no port")?;
    if host.is_empty() {
        return Err("it has no host");
    }
    let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err("its port is not a number from 1 to 65535");
    }
    let bracketed = host.starts_with('[') && host.ends_with(']');
    if !bracketed && host.contains(':') || !is_host(host) {
        return Err("its host has characters that no host name has");
    }
    Ok(())
}

fn is_host(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // Zones of addresses are written behind a `%`.
    !bare.is_empty() && bare.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '%'))
}

/// Checks how many there are of something.
///
/// # Errors
/// A [`FieldError`] with the bound and the number.
pub fn count(field: &str, count: usize, most: usize) -> Result<(), FieldError> {
    if count <= most {
        return Ok(());
    }
    Err(FieldError::invalid(field, format!("must be at most {most}, are {count}")))
}

/// Checks a number or an amount.
///
/// # Errors
/// A [`FieldError`] with the bound that it is beyond.
pub fn number<T: PartialOrd + Display>(field: &str, value: T, range: RangeInclusive<T>) -> Result<(), FieldError> {
    if value > *range.end() {
        return Err(FieldError::invalid(field, format!("must be at most {}, is {value}", range.end())));
    }
    if value < *range.start() {
        return Err(FieldError::invalid(field, format!("must be at least {}", range.start())));
    }
    Ok(())
}

/// Checks a time that may be none at all.
///
/// # Errors
/// A [`FieldError`] when it is longer than `longest`, or shorter than the log counts.
pub fn time(field: &str, time: Duration, longest: Duration) -> Result<(), FieldError> {
    if time.is_zero() { Ok(()) } else { time_within(field, time, &(limits::SHORTEST..=longest)) }
}

/// Checks a time.
///
/// # Errors
/// A [`FieldError`] with the bound that it is beyond.
pub fn time_within(field: &str, time: Duration, range: &RangeInclusive<Duration>) -> Result<(), FieldError> {
    let shown = |bound: &Duration| humantime::format_duration(*bound).to_string();
    if time > *range.end() {
        return Err(FieldError::invalid(field, format!("must be at most {}", shown(range.end()))));
    }
    if time < *range.start() {
        return Err(FieldError::invalid(field, format!("must be at least {}", shown(range.start()))));
    }
    Ok(())
}

/// Reads a duration that must be within a range.
///
/// # Errors
/// A [`FieldError`] when it is none, or with the bound that it is beyond.
pub fn duration(
    field: &str,
    duration: &prost_types::Duration,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, FieldError> {
    let time = duration_from_wire(field, duration)?;
    time_within(field, time, range).map(|()| time)
}

/// Checks labels that something is to have.
///
/// # Errors
/// A [`Refusal`] with each that is not acceptable.
pub fn labels(field: &str, labels: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let mut check = Check::default();
    check.labels(field, labels);
    check.done()
}

/// Checks labels that are looked for, which need not be ones that anything can have.
///
/// # Errors
/// A [`FieldError`] when they are too many, or a text of them is no line.
pub fn sought_labels(field: &str, labels: &BTreeMap<String, String>) -> Result<(), FieldError> {
    count(field, labels.len(), limits::LABELS)?;
    labels.iter().flat_map(|(key, value)| [key, value]).try_for_each(|text| line(field, text))
}

/// Collects what is wrong.
#[derive(Default)]
pub(crate) struct Check {
    pub(crate) problems: Vec<FieldError>,
}

impl Check {
    pub(crate) fn refuse(&mut self, field: impl Into<String>, problem: impl Into<String>) {
        self.problems.push(FieldError::invalid(field, problem));
    }

    pub(crate) fn that(&mut self, holds: bool, field: &str, problem: impl FnOnce() -> String) {
        if !holds {
            self.refuse(field, problem());
        }
    }

    pub(crate) fn of(&mut self, checked: Result<(), FieldError>) {
        self.problems.extend(checked.err());
    }

    /// Refuses if anything is wrong.
    pub(crate) fn done(self) -> Result<(), Refusal> {
        if self.problems.is_empty() { Ok(()) } else { Err(Refusal::invalid(self.problems)) }
    }

    /// Time windows: each must be one that the leader can read.
    pub(crate) fn windows(&mut self, field: &str, windows: &[String]) {
        if windows.len() > limits::WINDOWS {
            return self.refuse(field, format!("must be at most {}", limits::WINDOWS));
        }
        for (place, window) in windows.iter().enumerate() {
            self.of(line(&format!("{field}[{place}]"), window));
        }
        if let Err(error) = Calendar::read(windows) {
            self.refuse(format!("{field}[{}]", error.place), error.why);
        }
    }

    /// Names that need not be for machines, such as those of vendors.
    pub(crate) fn names<'a>(&mut self, field: &str, names: impl ExactSizeIterator<Item = &'a String>, most: usize) {
        self.that(names.len() <= most, field, || format!("must be at most {most}"));
        for name in names {
            self.that(!name.is_empty(), field, || "must not contain an empty name".to_owned());
            self.of(line(field, name));
        }
    }

    pub(crate) fn labels(&mut self, field: &str, labels: &BTreeMap<String, String>) {
        self.that(labels.len() <= limits::LABELS, field, || format!("must be at most {}", limits::LABELS));
        for (key, value) in labels {
            let place = format!("{field}[{}]", quoted(key));
            self.of(name(&place, key));
            self.of(line(&place, value));
        }
    }

    /// The processors and the memory of a host.
    pub(crate) fn host(&mut self, field: &str, host: HostRequest) {
        self.of(number(&format!("{field}.milli_cpus"), host.cpu, MilliCpus::ZERO..=limits::CPUS));
        self.of(number(&format!("{field}.memory_mib"), host.memory, Mebibytes::ZERO..=limits::MEMORY));
    }
}

/// A value for an error message: quoted, escaped, and cut when it is long.
pub(crate) fn quoted(value: &str) -> String {
    const SHOWN: usize = 40;
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}...", &value[..end]),
        None => format!("{value:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for good in ["default", "research/vision", "node-0.rack_1", "...", "kubernetes.io/hostname"] {
            assert_eq!(name("f", good), Ok(()), "{good}");
        }
        for bad in ["", "..", ".", "a//b", "/a", "a/", "a/../b", "a b", "a\n", "é"] {
            assert_eq!(name("f", bad).expect_err(bad).field, "f");
        }
    }

    #[test]
    fn a_text_for_people_is_one_line_that_says_what_it_is() {
        for good in ["", "Zoë 训练", "\u{627}\u{200d}\u{628} مرحبا", "a \"b\""] {
            assert_eq!(line("f", good), Ok(()), "{good}");
        }
        for bad in ["a\tb", "a\nb", "a\u{85}b", "a\u{2028}b", "evil\u{202e}txt", "a\u{2066}b", "\0"] {
            let problem = line("f", bad).expect_err(bad).problem.to_string();
            assert!(problem.contains("one line") && !problem.contains(bad), "{problem}");
        }
        assert!(designation("f", "NVIDIA H200 (SXM)").is_ok() && designation("f", "a \"b\"").is_err());
        for (odd, cleaned) in [
            ("NVIDIA H200 (SXM)", "NVIDIA H200 (SXM)"),
            ("Some\n\u{1b}[2JCard \"A\"\0\0", "Some[2JCard A"),
            ("\u{202e}evil\u{2028}", "evil"),
            ("", ""),
        ] {
            assert_eq!(as_designation(odd), cleaned);
        }
        let long = as_designation(&"é".repeat(200));
        assert!(designation("f", &long).is_ok() && long.len() == 252, "{long}");
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        for good in ["127.0.0.1:7400", "[::1]:7400", "[fe80::1%3]:7400", "node_1.pool:1"] {
            assert_eq!(address("f", good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "a",
            "a:",
            ":1",
            "a:0",
            "a:65536",
            "a:+1",
            "a b:1",
            "a\n:1",
            "\"a\":1",
            "u@a:1",
            "::1:7400",
            "a:1 ",
            " a:1",
            "http://a:1",
            "https://a:1",
            "a:1/",
        ] {
            assert_eq!(address("f", bad).expect_err(bad).field, "f");
        }
        for good in ["10.0.0.1", "fd00::7", "[fd00::7]", "node-1.workers"] {
            assert_eq!(host("f", good), Ok(()), "{good}");
        }
        for bad in ["", "a b", "a\"b", "a/b", &"h".repeat(254)] {
            assert_eq!(host("f", bad).expect_err(bad).field, "f");
        }
    }

    #[test]
    fn times_are_no_shorter_than_the_log_counts() {
        let nano = Duration::from_nanos(1);
        assert!(time("f", nano, limits::TIME).is_err() && time("f", Duration::ZERO, limits::TIME).is_ok());
        let range = limits::SHORTEST..=limits::GRACE;
        let read = |seconds, nanos| duration("f", &prost_types::Duration { seconds, nanos }, &range).ok();
        assert_eq!(read(0, 1_000_000), Some(limits::SHORTEST));
        assert_eq!(read(3600, 0), Some(limits::GRACE));
        for (seconds, nanos) in [(0, 0), (0, 1), (3600, 1), (-1, 0), (2, -1_000_000_000), (0, 1_500_000_000)] {
            assert_eq!(read(seconds, nanos), None, "{seconds} s and {nanos} ns");
        }
    }
}
