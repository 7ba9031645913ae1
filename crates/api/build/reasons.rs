//! Generates functions from the beginning of the comment of each value of `ErrorReason`:
//! `UNAVAILABLE, again after 20 ms. ...`.
//!
//! So a reason is declared in one place, and what the document says of it is what callers get.

use std::error::Error;

use prost_types::FileDescriptorSet;

const FILE: &str = "tessera/v1/error_reason.proto";
const PREFIX: &str = "ERROR_REASON_";

/// Numbers of the fields that lead to a value of an enumeration: `FileDescriptorProto.enum_type`,
/// `EnumDescriptorProto.value`.
const PATH: [i32; 2] = [5, 2];

struct Declared {
    variant: String,
    code: String,
    delay_ms: Option<u64>,
}

/// The source of `code` and `retry_delay`.
///
/// # Errors
/// A text that names the value whose comment does not begin as it should.
pub fn source(descriptors: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let declared = declared(descriptors)?;
    let mut source = String::from(
        "/// The gRPC code under which a reason travels.\n#[must_use]\n#[allow(clippy::match_same_arms)]\npub const fn code(reason: ErrorReason) -> Code {\n    match reason {\n",
    );
    for Declared { variant, code, .. } in &declared {
        source += &format!("        ErrorReason::{variant} => Code::{code},\n");
    }
    source += "        ErrorReason::Unspecified => Code::Internal,\n    }\n}\n\n/// How long to wait before trying again, for reasons that pass by themselves.\n#[must_use]\n#[allow(clippy::match_same_arms)]\npub const fn retry_delay(reason: ErrorReason) -> Option<Duration> {\n    match reason {\n";
    for Declared { variant, delay_ms, .. } in &declared {
        if let Some(delay_ms) = delay_ms {
            source += &format!("        ErrorReason::{variant} => Some(Duration::from_millis({delay_ms})),\n");
        }
    }
    source += "        _ => None,\n    }\n}\n";
    Ok(source)
}

fn declared(descriptors: &FileDescriptorSet) -> Result<Vec<Declared>, Box<dyn Error>> {
    let file = descriptors.file.iter().find(|file| file.name() == FILE).ok_or("the file of reasons is missing")?;
    let reasons = file.enum_type.first().ok_or("there are no reasons")?;
    let places = file.source_code_info.as_ref().ok_or("there are no comments")?;
    let mut declared = Vec::new();
    for (place, value) in (0i32..).zip(&reasons.value).filter(|(_, value)| value.number() != 0) {
        let path = [PATH[0], 0, PATH[1], place];
        let comment = places.location.iter().find(|location| location.path == path);
        let comment = comment.map(|location| location.leading_comments()).unwrap_or_default();
        let name = value.name().strip_prefix(PREFIX).unwrap_or(value.name());
        declared.push(read(name, comment).ok_or_else(|| {
            format!("the comment of {name} must begin as `CODE. ` or `CODE, again after N ms. `, with N in ms or s")
        })?);
    }
    Ok(declared)
}

fn read(name: &str, comment: &str) -> Option<Declared> {
    let (head, _) = comment.trim_start().split_once(". ")?;
    let (code, delay) = head.split_once(", again after ").map_or((head, None), |(code, delay)| (code, Some(delay)));
    let delay_ms = match delay.map(|delay| delay.split_once(' ')) {
        None => None,
        Some(Some((number, "ms"))) => Some(number.parse().ok()?),
        Some(Some((number, "s"))) => Some(number.parse::<u64>().ok()? * 1_000),
        Some(_) => return None,
    };
    let known = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    known.then(|| Declared { variant: camel(name), code: camel(code), delay_ms })
}

fn camel(words: &str) -> String {
    words
        .split('_')
        .map(|word| word.chars().take(1).chain(word.chars().skip(1).flat_map(char::to_lowercase)).collect::<String>())
        .collect()
}
