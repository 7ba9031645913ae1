//! Errors of the API: built, mapped from the ledger's refusals, and recognised again, in this one place.
//!
//! A [`Refusal`] becomes a `tonic::Status` with `google.rpc` details: ErrorInfo with a documented reason
//! (`proto/tessera/v1/error_reason.proto`) always, BadRequest with the paths of fields where there are any, RetryInfo
//! where trying again may help.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use tessera_ledger::Rejection;
use tessera_ledger::wire::FieldError;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::v1::ErrorReason;

/// The domain of all reasons.
pub const DOMAIN: &str = "tessera.v1";
/// Metadata of NOT_LEADER: `host:port` of the leader, when it is known.
pub const LEADER_ADDRESS: &str = "leader_address";
/// Metadata of NOT_LEADER: the term in which that leader leads.
pub const LEADER_TERM: &str = "term";
/// Metadata of refusals by a limit: how much there may be.
pub const LIMIT: &str = "limit";
/// Metadata of refusals by a limit: how much there is, where that is not the limit itself.
pub const USED: &str = "used";
/// Metadata of WATCH_COMPACTED: the oldest revision that a watch may start after.
pub const OLDEST_REVISION: &str = "oldest_revision";

/// Metadata of what a read did not find: the revision of the ledger in which it is not.
pub const REVISION: &str = "revision";
/// Metadata of what a read did not find: how old that ledger may be, in seconds; zero for linearizable reads.
pub const AGE: &str = "age_seconds";

/// Metadata of REQUEST_TOO_OLD: ids that were made until then are forgotten (RFC 3339).
pub const REQUEST_FLOOR: &str = "request_floor";

/// Prefix of the names of reasons in the proto file, which does not travel.
const PREFIX: &str = "ERROR_REASON_";
/// Longest text put into a status: details travel in a header, and headers are limited.
const TEXT_LIMIT: usize = 1024;
/// Most fields named in one status.
const FIELD_LIMIT: usize = 16;

/// The refusal of a call, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    details: Box<Details>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Details {
    reason: ErrorReason,
    message: String,
    fields: Vec<FieldError>,
    metadata: HashMap<String, String>,
}

impl Refusal {
    /// A refusal with a sentence that says what failed, why, and what to do next.
    #[must_use]
    pub fn new(reason: ErrorReason, message: impl Into<String>) -> Self {
        let details = Details { reason, message: message.into(), fields: Vec::new(), metadata: HashMap::new() };
        Self { details: Box::new(details) }
    }

    /// A request whose fields are not acceptable.
    #[must_use]
    pub fn invalid(fields: Vec<FieldError>) -> Self {
        let message = match &fields[..] {
            [] => "the request is not acceptable".to_owned(),
            [field] => field.to_string(),
            [first, rest @ ..] => format!("{first} (and {} more fields)", rest.len()),
        };
        let mut refusal = Self::new(ErrorReason::InvalidField, message);
        refusal.details.fields = fields;
        refusal
    }

    /// The asked member does not lead.
    #[must_use]
    pub fn not_leader(leader: Option<(&str, u64)>) -> Self {
        match leader {
            Some((address, term)) => {
                Self::new(ErrorReason::NotLeader, format!("this member does not lead; the leader is at {address}"))
                    .with(LEADER_ADDRESS, address)
                    .with(LEADER_TERM, term.to_string())
            }
            None => Self::new(ErrorReason::NotLeader, "this member does not lead and knows no leader; try again"),
        }
    }

    /// The watch asks for what is no longer remembered.
    #[must_use]
    pub fn compacted(oldest: tessera_ledger::Revision) -> Self {
        let message =
            format!("events up to revision {oldest} are no longer remembered; start the watch anew, with a list");
        Self::new(ErrorReason::WatchCompacted, message).with(OLDEST_REVISION, oldest.to_string())
    }

    /// The end of the request did not come.
    #[must_use]
    pub fn arrived_too_slowly() -> Self {
        let message = "the request did not arrive whole before its deadline; nothing was changed";
        Self::new(ErrorReason::DeadlineExceeded, message)
    }

    /// A profile of a process is asked for while another one is made.
    #[must_use]
    pub fn already_profiled() -> Self {
        let message = "another profile of this process is being made, one at a time; try again in a minute, \
                       or ask without a profile";
        Self::new(ErrorReason::Overloaded, message)
    }

    /// Adds what the reason's documentation promises as metadata.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<String>) -> Self {
        self.details.metadata.insert(key.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn reason(&self) -> ErrorReason {
        self.details.reason
    }

    #[must_use]
    pub fn message(&self) -> &str {
        &self.details.message
    }

    /// The fields that are not acceptable.
    #[must_use]
    pub fn fields(&self) -> &[FieldError] {
        &self.details.fields
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.details.message, reason_name(self.details.reason))
    }
}

impl std::error::Error for Refusal {}

impl From<FieldError> for Refusal {
    fn from(field: FieldError) -> Self {
        Self::invalid(vec![field])
    }
}

impl From<&Rejection> for Refusal {
    fn from(rejection: &Rejection) -> Self {
        if let Rejection::Invalid { field, problem } = rejection {
            return Self::invalid(vec![FieldError::invalid(field, problem)]);
        }
        let refusal = Self::new(reason_of_rejection(rejection), rejection.to_string());
        match rejection {
            Rejection::ExceedsPool { demand, total } => refusal
                .with("demand_milli_tflops", demand.0.to_string())
                .with("total_milli_tflops", total.0.to_string()),
            Rejection::ExceedsCard { demand, largest } => refusal
                .with("demand_milli_tflops", demand.0.to_string())
                .with("largest_milli_tflops", largest.0.to_string()),
            Rejection::ExceedsCardMemory { demand_mib, largest_mib } => {
                refusal.with("demand_mib", demand_mib.to_string()).with("largest_mib", largest_mib.to_string())
            }
            Rejection::ExceedsGang { gang, most } => {
                refusal.with("gang", gang.to_string()).with("most", most.to_string())
            }
            Rejection::ExceedsMemory { demand_mib, total_mib } => {
                refusal.with("demand_mib", demand_mib.to_string()).with("total_mib", total_mib.to_string())
            }
            Rejection::ExceedsHost { demand, most } => refusal
                .with("demand_milli_cpus", demand.cpu.0.to_string())
                .with("demand_host_memory_mib", demand.memory.0.to_string())
                .with("most_milli_cpus", most.cpu.0.to_string())
                .with("most_host_memory_mib", most.memory.0.to_string()),
            Rejection::IllegalTransition { state, .. } => refusal.with("state", state.name()),
            Rejection::TooManyJobs { limit }
            | Rejection::TooManyQueues { limit }
            | Rejection::TooManyNodes { limit } => refusal.with(LIMIT, limit.to_string()),
            Rejection::TooManyCards { present, limit, .. } => {
                refusal.with(USED, present.to_string()).with(LIMIT, limit.to_string())
            }
            Rejection::SpecBudgetExhausted { used, limit, .. } => {
                refusal.with(USED, used.to_string()).with(LIMIT, limit.to_string())
            }
            _ => refusal,
        }
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::from(&rejection)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let Details { reason, message, fields, metadata } = *refusal.details;
        let mut details = ErrorDetails::new();
        details.set_error_info(reason_name(reason), DOMAIN, metadata);
        for field in fields.iter().take(FIELD_LIMIT) {
            details.add_bad_request_violation(shortened(&field.field), shortened(&field.problem.to_string()));
        }
        if let Some(delay) = retry_delay(reason) {
            details.set_retry_info(Some(delay));
        }
        Status::with_error_details(code(reason), shortened(&message), details)
    }
}

/// The documented reason of a status; `None` when it comes from something that is not Tessera, or from a newer release.
#[must_use]
pub fn reason_of(status: &Status) -> Option<ErrorReason> {
    let info = status.get_details_error_info()?;
    let known = info.domain == DOMAIN;
    known.then(|| ErrorReason::from_str_name(&format!("{PREFIX}{}", info.reason))).flatten()
}

/// The reason as it travels, such as `JOB_UNKNOWN`.
#[must_use]
pub fn reason_name(reason: ErrorReason) -> &'static str {
    let name = reason.as_str_name();
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// A gRPC code as the semantic conventions write it, such as `NOT_FOUND`.
#[must_use]
pub fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// Cuts a text that is too long for a header.
fn shortened(text: &str) -> String {
    if text.len() <= TEXT_LIMIT {
        return text.to_owned();
    }
    let mut end = TEXT_LIMIT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

// `code`, the gRPC code under which a reason travels, and `retry_delay`, how long to wait before trying again: both as
// the comments of the values say.
include!(concat!(env!("OUT_DIR"), "/reasons.rs"));

/// The reason of a refusal by the ledger: of the same name as its code. What no user does has none.
fn reason_of_rejection(rejection: &Rejection) -> ErrorReason {
    let name = format!("ERROR_REASON_{}", rejection.code());
    ErrorReason::from_str_name(&name).unwrap_or(ErrorReason::NotSupported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_ledger::{JobId, Level, MilliTflops};

    const PROTO: &str = include_str!("../../../proto/tessera/v1/error_reason.proto");

    #[test]
    fn codes_are_named_as_the_conventions_want() {
        assert_eq!([Code::Ok, Code::NotFound, Code::DataLoss].map(code_name), ["OK", "NOT_FOUND", "DATA_LOSS"]);
    }

    #[test]
    fn a_reason_has_the_code_and_the_delay_of_its_comment() {
        let lines = ["// UNAVAILABLE, again after 20 ms. ", "ERROR_REASON_NOT_LEADER = "];
        assert!(PROTO.lines().map(str::trim).zip(PROTO.lines().skip(1)).any(|(comment, value)| {
            comment.starts_with(lines[0].trim()) && value.trim().starts_with(lines[1].trim())
        }));
        assert_eq!(code(ErrorReason::NotLeader), Code::Unavailable);
        assert_eq!(retry_delay(ErrorReason::NotLeader), Some(Duration::from_millis(20)));
        assert_eq!((code(ErrorReason::JobUnknown), retry_delay(ErrorReason::JobUnknown)), (Code::NotFound, None));
    }

    #[test]
    fn reasons_that_ask_to_be_retried_say_when() {
        for line in PROTO.lines().filter_map(|line| line.trim().split_once(" = ")) {
            let Some(reason) = ErrorReason::from_str_name(line.0) else { continue };
            if code(reason) == Code::Unavailable || code(reason) == Code::ResourceExhausted {
                assert!(retry_delay(reason).is_some(), "{reason:?}");
            }
        }
    }

    #[test]
    fn the_ledgers_codes_are_reasons_of_the_api() {
        let known = |code: &str| ErrorReason::from_str_name(&format!("ERROR_REASON_{code}")).is_some();
        let unknown: Vec<&str> = Rejection::CODES.iter().copied().filter(|code| !known(code)).collect();
        assert_eq!(unknown, ["LEVEL_NOT_IN_FORCE", "LEVEL_HELD"], "commands that only members propose");
        assert_eq!(reason_of_rejection(&Rejection::UnknownJob(JobId(1))), ErrorReason::JobUnknown);
        assert_eq!(reason_of_rejection(&Rejection::LevelHeld { in_force: Level::One }), ErrorReason::NotSupported);
    }

    #[test]
    fn a_status_carries_reason_fields_metadata_and_delay() {
        let rejection = Rejection::ExceedsPool { demand: MilliTflops(300_000), total: MilliTflops(200_000) };
        let status = Status::from(Refusal::from(rejection));
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(reason_of(&status), Some(ErrorReason::ExceedsPool));
        assert_eq!(
            status.message(),
            "the job asks for 300 TFLOPS in all, and the pool has 200 TFLOPS in all on cards that it accepts; ask for less \
             or add cards"
        );
        let info = status.get_details_error_info().expect("always there");
        assert_eq!(info.metadata["total_milli_tflops"], "200000");

        let status = Status::from(Refusal::from(Rejection::invalid("spec.gang", "must be 1 to 4096")));
        let bad = status.get_details_bad_request().expect("a field is named");
        assert_eq!(bad.field_violations[0].field, "spec.gang");
        assert_eq!(status.message(), "spec.gang: must be 1 to 4096");

        let status = Status::from(Refusal::not_leader(Some(("10.0.0.2:7400", 9))));
        let info = status.get_details_error_info().expect("always there");
        assert_eq!(info.metadata[LEADER_ADDRESS], "10.0.0.2:7400");
        let retry = status.get_details_retry_info().expect("it passes by itself");
        assert_eq!(retry.retry_delay, Some(Duration::from_millis(20)));
    }

    #[test]
    fn long_texts_do_not_break_headers() {
        let field = FieldError::invalid("spec.name", "ä".repeat(100_000));
        let status = Status::from(Refusal::invalid(vec![field; 100]));
        assert!(status.message().len() < 1100);
        assert!(status.details().len() < 24_000, "{}", status.details().len());
    }

    #[test]
    fn reasons_of_others_are_not_ours() {
        let details = ErrorDetails::with_error_info("JOB_UNKNOWN", "example.com", [(String::new(), String::new())]);
        assert_eq!(reason_of(&Status::with_error_details(Code::NotFound, "", details)), None);
        assert_eq!(reason_of(&Status::not_found("")), None);
    }
}
