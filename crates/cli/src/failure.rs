//! The message of a command that failed, for people: what failed, why, what to do next.

use std::fmt;

use tessera_api::v1::ErrorReason;
use tessera_client::{ApiError, ClientError, Trouble, Unavailable};

use crate::exit::Exit;

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    what: String,
    pub(crate) why: String,
    next: Option<String>,
}

impl Failure {
    /// A failure: what was tried and why it did not work.
    pub fn new(exit: Exit, what: impl Into<String>, why: impl fmt::Display) -> Self {
        Self { exit, what: what.into(), why: why.to_string(), next: None }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// A call that ended badly; `what` was tried.
    pub fn call(what: impl Into<String>, error: &ClientError) -> Self {
        let exit = Exit::of(error);
        let what = what.into();
        match error {
            ClientError::Refused(error) => {
                Self { exit, what, why: refusal(error), next: after_refusal(error).map(str::to_owned) }
            }
            ClientError::Unavailable(error) => {
                Self { exit, what, why: error.to_string(), next: Some(after_silence(error)) }
            }
            ClientError::NoMembers => Self { exit, what, why: error.to_string(), next: None },
        }
    }

    /// Any error with its causes.
    pub fn from_error(exit: Exit, what: impl Into<String>, error: &dyn std::error::Error) -> Self {
        Self::new(exit, what, chain(error))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\n  why: {}", self.what, self.why.replace('\n', "\n       "))?;
        match &self.next {
            Some(next) => write!(f, "\n  next: {}", next.replace('\n', "\n        ")),
            None => Ok(()),
        }
    }
}

/// An error with its causes, one after the other, without saying anything twice.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

fn refusal(error: &ApiError) -> String {
    let reason = error.reason_name();
    let told = error.fields.iter().all(|field| error.message.contains(&field.problem));
    if told {
        return format!("{} ({reason})", error.message);
    }
    let fields: Vec<String> = error.fields.iter().map(|field| format!("{}: {}", field.path, field.problem)).collect();
    format!("{} ({reason})\n{}", error.message, fields.join("\n"))
}

fn after_refusal(error: &ApiError) -> Option<&'static str> {
    use ErrorReason as R;
    Some(match error.reason? {
        R::JobUnknown => {
            "`tessera job list` shows the jobs; ended ones leave the ledger after the pool's job retention"
        }
        R::NodeUnknown => "`tessera node list` shows the nodes",
        R::CardUnknown => "`tessera card list` shows the cards",
        R::QueueUnknown => "`tessera queue list` shows the queues; `tessera queue set NAME` makes one",
        R::MemberUnknown => "`tessera cluster member list` shows the members",
        R::WorkerUnknown => "`tessera job show JOB` shows the attempts and workers of a job",
        R::ExceedsPool | R::ExceedsMemory => "ask for less, or add nodes; `tessera pool show` names the total",
        R::ExceedsCard => "ask for less, or let the virtual card span more than one card: `span: node` or `span: pool`",
        R::ExceedsHost => "ask for less `host` in the job file; `tessera node list` shows what hosts offer",
        R::ConfigChanged => {
            "somebody else changed them at the same time: look with `tessera pool config show`, then try again"
        }
        R::IllegalTransition => "`tessera job show JOB` says where the job stands",
        R::RequestIdReused => "leave the request id away, or choose a new one",
        R::RequestRefused => "send it again without that request id",
        R::RequestTooOld => "look whether it was carried out; if not, send it again without that request id",
        R::RequestFromFuture => "set this machine's clock right",
        R::NodeBusy => {
            "`tessera node drain NODE` empties a node; for a dead one see `tessera node confirm-stopped --help`"
        }
        R::DeviceNotReady => "`tessera job show JOB` says where the job stands",
        R::MoveImpossible => "`tessera job show` says where it is; suspend it to have it placed anew",
        R::QueueBusy => "cancel or move its jobs and remove the queues below it first",
        R::NotInitialized => "create the cluster: `tessera cluster init`",
        R::AlreadyInitialized => {
            "`tessera cluster status` shows it; members are added with `tessera cluster member add`"
        }
        R::TooManyJobs | R::SpecBudgetExhausted => "wait until jobs end, or raise the limit: `tessera pool config set`",
        R::TooManyQueues | R::TooManyNodes | R::TooManyCards => "`tessera pool config set` raises the limit",
        R::TooManyConnections | R::TooManyWatches | R::TooManyLogStreams | R::TooManySubmissionStreams => {
            "close some, ask another member, or raise the member's limit (docs/configuration.md)"
        }
        R::OutputExpired => "keep output longer with `output_retention` in the job file",
        R::UsageNotKept => "no member that was asked keeps accounts: docs/usage.md says how accounts are begun anew",
        R::NodeUnreachable => "`tessera node show NODE` says when it was heard last",
        R::Internal => "this is a defect of Tessera: please report it with the member's log",
        _ => return None,
    })
}

fn after_silence(error: &Unavailable) -> String {
    let again = match (&error.request_id, error.outcome_unknown) {
        (Some(id), true) => format!("; to try again without doing it twice, use the request id {id}"),
        _ => String::new(),
    };
    let look = match error.trouble {
        Trouble::Unreachable => "check the address (`tessera context show`) and that a server runs there",
        Trouble::NoQuorum => "`tessera cluster status` asks each member; more than half of the voters must be up",
        Trouble::Overloaded => "try again later; `tessera cluster status` asks each member",
        Trouble::Deadline => "try again with a longer --timeout; `tessera cluster status` asks each member",
    };
    format!("{look}{again}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use insta::assert_snapshot;
    use std::time::Duration;
    use tessera_api::error::Refusal;
    use tessera_ledger::wire::FieldError;
    use tonic::Status;

    fn refused(refusal: Refusal) -> ClientError {
        ClientError::Refused(Box::new(ApiError::from(&Status::from(refusal))))
    }

    #[test]
    fn a_refusal_says_what_why_and_next() {
        let error = refused(Refusal::new(ErrorReason::ExceedsPool, "the job asks for 300 TFLOPS; the pool has 200"));
        assert_snapshot!(Failure::call("the job was not submitted", &error), @r"
        error: the job was not submitted
          why: the job asks for 300 TFLOPS; the pool has 200 (EXCEEDS_POOL)
          next: ask for less, or add nodes; `tessera pool show` names the total
        ");
    }

    #[test]
    fn every_unacceptable_field_is_named() {
        let fields = vec![
            FieldError::invalid("spec.gang", "must be 1 to 4096"),
            FieldError::invalid("spec.priority", "must be 0 to 100"),
        ];
        assert_snapshot!(Failure::call("the job was not submitted", &refused(Refusal::invalid(fields))), @r"
        error: the job was not submitted
          why: spec.gang: must be 1 to 4096 (and 1 more fields) (INVALID_FIELD)
               spec.gang: must be 1 to 4096
               spec.priority: must be 0 to 100
        ");
    }

    #[test]
    fn uncertainty_names_the_request_id() {
        let unavailable = Unavailable {
            trouble: Trouble::NoQuorum,
            elapsed: Duration::from_secs(10),
            members: vec![(
                "127.0.0.1:7400".parse().expect("a good address"),
                ApiError::from(&Status::from(Refusal::new(ErrorReason::OutcomeUnknown, "leadership was lost"))),
            )],
            request_id: Some("019a2f6e-9d00-7c1e-8f6b-1b6f2f1d9c11".to_owned()),
            outcome_unknown: true,
        };
        let error = ClientError::Unavailable(Box::new(unavailable));
        assert_snapshot!(Failure::call("job 12 was not cancelled", &error), @r"
        error: job 12 was not cancelled
          why: the control plane has no quorum: no leader was found within 10.0 s
                 127.0.0.1:7400: leadership was lost
               it is not known whether the request was made; its request id is 019a2f6e-9d00-7c1e-8f6b-1b6f2f1d9c11
          next: `tessera cluster status` asks each member; more than half of the voters must be up; to try again without doing it twice, use the request id 019a2f6e-9d00-7c1e-8f6b-1b6f2f1d9c11
        ");
    }

    #[test]
    fn causes_are_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("inner"));
        assert_eq!(chain(&error), "outer: inner");
    }
}
