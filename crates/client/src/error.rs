//! The errors that a client's call can end in: a refusal with a reason, no answer, or no member to ask.
//!
//! [`ApiError`] is what a member said, in parts that a program can use. [`ClientError`] is what the caller gets after
//! all retries: an answer that will not change by itself ([`ClientError::Refused`]), or one clear account of why no
//! answer could be had ([`Unavailable`]), which says whether a mutation may have been made nevertheless.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use tessera_api::error::{LEADER_ADDRESS, LEADER_TERM, code_name, reason_name, reason_of};
use tessera_api::v1::ErrorReason;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::address::Address;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path of the field, such as `spec.virtual_card.milli_tflops`.
    pub path: String,
    /// A description of the problem and of a valid value.
    pub problem: String,
}

/// The state of the connection that an error came from: whether the error is a member's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    Answered,
    /// There was no connection: the member never saw the call.
    NeverMade,
    /// The connection broke, or the time ran out, before the answer came.
    Broken,
}

/// An error that a member answered, or that the connection to it ended in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    pub code: Code,
    /// The documented reason; `None` when the error was made by the connection or by something that is not Tessera.
    pub reason: Option<ErrorReason>,
    /// The sentence for people.
    pub message: String,
    pub fields: Vec<FieldViolation>,
    /// Further details of the reason, by name.
    pub metadata: BTreeMap<String, String>,
    /// The shortest time after which the member wants to be asked again.
    pub retry_after: Option<Duration>,
    /// Tells whether the error is an answer at all.
    pub connection: Connection,
}

impl ApiError {
    /// The reason as it travels, such as `JOB_UNKNOWN`; the gRPC code's name when there is none.
    #[must_use]
    pub fn reason_name(&self) -> String {
        match self.reason {
            Some(reason) => reason_name(reason).to_owned(),
            None if self.connection != Connection::Answered => "CONNECTION_FAILED".to_owned(),
            None => code_name(self.code),
        }
    }

    /// The leader that the member named, if it named one.
    #[must_use]
    pub fn leader(&self) -> Option<Address> {
        self.metadata.get(LEADER_ADDRESS).and_then(|text| text.parse().ok())
    }

    /// The term in which the named leader leads, if the member said so.
    #[must_use]
    pub fn leader_term(&self) -> Option<u64> {
        self.metadata.get(LEADER_TERM).and_then(|text| text.parse().ok())
    }
}

impl From<&Status> for ApiError {
    fn from(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info();
        let fields = details.bad_request().map(|bad| bad.field_violations.as_slice()).unwrap_or_default();
        let connection = connection(status);
        Self {
            code: status.code(),
            reason: reason_of(status),
            message: match connection {
                Connection::Answered => status.message().to_owned(),
                Connection::NeverMade | Connection::Broken => root_cause(status),
            },
            fields: fields
                .iter()
                .map(|field| FieldViolation { path: field.field.clone(), problem: field.description.clone() })
                .collect(),
            metadata: info.map(|info| info.metadata.clone().into_iter().collect()).unwrap_or_default(),
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
            connection,
        }
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.reason_name())?;
        for field in &self.fields {
            write!(f, "\n  {}: {}", field.path, field.problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for ApiError {}

/// The cause for which no answer could be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No member could be reached.
    Unreachable,
    /// Members answered, but no leader with a quorum was found.
    NoQuorum,
    /// Members were too busy, or their disks full, until the deadline.
    Overloaded,
    /// The deadline passed while an answer was awaited.
    Deadline,
}

/// No answer could be had before the deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    pub trouble: Trouble,
    /// The time spent on the tries.
    pub elapsed: Duration,
    /// The last error of each member that was tried.
    pub members: Vec<(Address, ApiError)>,
    /// The request id, if the call was a mutation.
    pub request_id: Option<String>,
    /// True if the mutation may have been made: a further try must use the same request id.
    pub outcome_unknown: bool,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        match self.trouble {
            Trouble::Unreachable => write!(f, "no member could be reached within {seconds:.1} s")?,
            Trouble::NoQuorum => {
                write!(f, "the control plane has no quorum: no leader was found within {seconds:.1} s")?
            }
            Trouble::Overloaded => write!(f, "the control plane took no more work for {seconds:.1} s")?,
            Trouble::Deadline => write!(f, "no answer came within {seconds:.1} s")?,
        }
        for (address, error) in &self.members {
            write!(f, "\n  {address}: {}", error.message)?;
        }
        match (&self.request_id, self.outcome_unknown) {
            (Some(id), true) => write!(f, "\nit is not known whether the request was made; its request id is {id}"),
            (Some(_), false) => f.write_str("\nnothing was changed"),
            (None, _) => Ok(()),
        }
    }
}

impl std::error::Error for Unavailable {}

/// The ways in which a client's call fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The control plane refused; the same call would be refused again.
    #[error("{0}")]
    Refused(Box<ApiError>),
    /// No answer could be had.
    #[error("{0}")]
    Unavailable(Box<Unavailable>),
    #[error("no member of the control plane is named; give at least one `host:port`")]
    NoMembers,
}

impl ClientError {
    #[must_use]
    pub fn reason(&self) -> Option<ErrorReason> {
        match self {
            Self::Refused(error) => error.reason,
            Self::Unavailable(_) | Self::NoMembers => None,
        }
    }
}

/// A member answered something that its own release never says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incomplete(pub(crate) &'static str);

impl From<Incomplete> for Status {
    fn from(incomplete: Incomplete) -> Self {
        Status::internal(format!(
            "the member's answer cannot be understood: {}; is it of another release?",
            incomplete.0
        ))
    }
}

/// A status with a source was made on this side; one without came from a member.
fn connection(status: &Status) -> Connection {
    let mut cause = status.source();
    if cause.is_none() {
        return Connection::Answered;
    }
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() {
            return Connection::NeverMade;
        }
        cause = error.source();
    }
    Connection::Broken
}

/// The innermost error of a failed connection says most.
fn root_cause(status: &Status) -> String {
    let mut cause = status.source();
    let mut text = status.message().to_owned();
    while let Some(error) = cause {
        text = error.to_string();
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    fn refused() -> Status {
        let mut details = ErrorDetails::new();
        details.set_error_info(
            "NOT_LEADER",
            "tessera.v1",
            [("leader_address".to_owned(), "127.0.0.1:7401".to_owned())],
        );
        details.set_retry_info(Some(Duration::from_millis(30)));
        details.add_bad_request_violation("spec.gang", "it is above 1024");
        Status::with_error_details(Code::Unavailable, "this member does not lead", details)
    }

    #[test]
    fn every_part_of_a_status_is_found_again() {
        let error = ApiError::from(&refused());
        assert_eq!(error.reason, Some(ErrorReason::NotLeader));
        assert_eq!(error.leader(), Some("127.0.0.1:7401".parse().expect("a good address")));
        assert_eq!(error.retry_after, Some(Duration::from_millis(30)));
        assert_eq!(error.fields, [FieldViolation { path: "spec.gang".into(), problem: "it is above 1024".into() }]);
        assert_eq!(error.connection, Connection::Answered);
        assert_eq!(error.to_string(), "this member does not lead (NOT_LEADER)\n  spec.gang: it is above 1024");
    }

    #[test]
    fn an_error_without_details_is_named_by_its_code() {
        assert_eq!(ApiError::from(&Status::not_found("gone")).reason_name(), "NOT_FOUND");
        assert_eq!(ApiError::from(&Status::failed_precondition("no")).reason_name(), "FAILED_PRECONDITION");
    }

    #[test]
    fn uncertainty_is_said_with_the_request_id() {
        let unavailable = Unavailable {
            trouble: Trouble::NoQuorum,
            elapsed: Duration::from_secs(10),
            members: vec![("127.0.0.1:7400".parse().expect("a good address"), ApiError::from(&refused()))],
            request_id: Some("0190-aa".to_owned()),
            outcome_unknown: true,
        };
        assert_eq!(
            unavailable.to_string(),
            "the control plane has no quorum: no leader was found within 10.0 s\n  \
             127.0.0.1:7400: this member does not lead\n\
             it is not known whether the request was made; its request id is 0190-aa"
        );
    }
}
