//! The exit of a command, as a number that scripts can rely on.

use std::io::Write;
use std::process::ExitCode;

use nix::sys::signal::Signal;
use tessera_api::v1::ErrorReason;
use tessera_client::{ApiError, ClientError};
use tonic::Code;

/// The exit codes of `tessera`, documented in its help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Done,
    /// Failed for a reason without a code of its own.
    Failed,
    /// Wrong usage, or a file with an error in it.
    Usage,
    /// There is no such thing.
    NotFound,
    /// Denied, or not acceptable.
    Refused,
    /// Nobody answers, or there is no quorum.
    Unavailable,
    /// In conflict with the present state.
    Conflict,
    /// Accepted, but it cannot run now.
    Waiting,
    /// The output cannot be written.
    Unwritten,
    /// The time given to wait has passed.
    TimedOut,
    /// Told to end by a signal.
    Signalled(Signal),
    /// Nobody reads the output any more: the code of a program that SIGPIPE ended.
    ReaderGone,
    /// The job's own exit code.
    Job(u8),
}

impl Exit {
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Unavailable => 5,
            Self::Conflict => 6,
            Self::Waiting => 7,
            Self::Unwritten => 8,
            Self::TimedOut => 124,
            Self::Signalled(signal) => 128 + signal as u8,
            Self::ReaderGone => 141,
            Self::Job(code) => code,
        }
    }

    /// Ends this process at once. To return from `main` would let the libraries written in C++ destroy what threads of
    /// theirs may still use: a member whose store was being closed died of that. What must last is on the disk by now.
    pub fn end(self) -> ! {
        // One that was told to end does not wait for somebody to read.
        if !matches!(self, Self::Signalled(_)) {
            // Whoever read it may be gone.
            let _ = std::io::stdout().flush();
        }
        self.end_on_the_spot()
    }

    /// The same without what was not printed yet, which may be waiting for somebody to read.
    #[allow(unsafe_code)]
    pub fn end_on_the_spot(self) -> ! {
        // SAFETY: nothing of this process is used afterwards.
        unsafe { libc::_exit(i32::from(self.code())) }
    }

    /// The exit of a command whose call ended in `error`.
    #[must_use]
    pub fn of(error: &ClientError) -> Self {
        match error {
            ClientError::Refused(error) => Self::of_refusal(error),
            ClientError::Unavailable(_) => Self::Unavailable,
            ClientError::NoMembers => Self::Usage,
        }
    }

    fn of_refusal(error: &ApiError) -> Self {
        use ErrorReason as R;
        match (error.reason, error.code) {
            (Some(R::NodeUnreachable | R::NotInitialized), _) => Self::Unavailable,
            (Some(R::ExceedsPool | R::ExceedsCard | R::ExceedsMemory | R::ExceedsHost), _) => Self::Refused,
            (Some(R::TooManyJobs | R::SpecBudgetExhausted | R::RequestTooLarge), _) => Self::Refused,
            (Some(R::TooManyQueues | R::TooManyNodes | R::TooManyCards), _) => Self::Refused,
            (_, Code::NotFound) => Self::NotFound,
            (_, Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated) => Self::Refused,
            (_, Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted) => Self::Conflict,
            (_, Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted) => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::outage::tests::after;
    use tessera_api::error::Refusal;
    use tonic::Status;

    fn exit_of(reason: ErrorReason) -> u8 {
        let status = Status::from(Refusal::new(reason, "no"));
        Exit::of(&ClientError::Refused(Box::new(ApiError::from(&status)))).code()
    }

    #[test]
    fn every_reason_has_the_documented_code() {
        use ErrorReason as R;
        assert_eq!([R::JobUnknown, R::NodeUnknown, R::QueueUnknown, R::OutputExpired].map(exit_of), [3; 4]);
        assert_eq!([R::InvalidField, R::RequestIdInvalid, R::ExceedsPool, R::ExceedsCard].map(exit_of), [4; 4]);
        assert_eq!([R::NotLeader, R::NoQuorum, R::NodeUnreachable, R::NotInitialized].map(exit_of), [5; 4]);
        assert_eq!(
            [R::IllegalTransition, R::QueueBusy, R::RequestIdReused, R::AlreadyInitialized].map(exit_of),
            [6; 4]
        );
        assert_eq!(exit_of(R::Internal), 1);
    }

    #[test]
    fn nobody_there_is_five() {
        assert_eq!(Exit::of(&after(Duration::from_secs(3))).code(), 5);
    }

    #[test]
    fn a_job_ends_the_command_with_its_own_code() {
        assert_eq!([Exit::Job(3).code(), Exit::TimedOut.code()], [3, 124]);
    }

    #[test]
    fn a_signal_ends_the_command_with_its_code() {
        let told = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].map(|signal| Exit::Signalled(signal).code());
        assert_eq!(told, [130, 143, 129]);
    }
}
