//! Reasons of jobs' states as snapshots keep them, made of the table in `crate::reason`.

use super::checkpoint::{key_from_wire, key_to_wire};
use super::field::{FieldError, FieldProblem, required};
use super::stored::{self, ReasonKind};
use crate::checkpoint::CheckpointKey;
use crate::ids::{JobId, NodeId};
use crate::reason::{Reason, reasons};

/// A value that goes with a reason: each type has one field of the message.
trait Part: Sized {
    fn keep(&self, message: &mut stored::Reason);

    fn take(message: &mut stored::Reason) -> Result<Self, FieldError>;
}

impl Part for JobId {
    fn keep(&self, message: &mut stored::Reason) {
        message.job_id = self.0;
    }

    fn take(message: &mut stored::Reason) -> Result<Self, FieldError> {
        Ok(Self(message.job_id))
    }
}

impl Part for NodeId {
    fn keep(&self, message: &mut stored::Reason) {
        message.node_id = self.0;
    }

    fn take(message: &mut stored::Reason) -> Result<Self, FieldError> {
        Ok(Self(message.node_id))
    }
}

impl Part for i32 {
    fn keep(&self, message: &mut stored::Reason) {
        message.number = *self;
    }

    fn take(message: &mut stored::Reason) -> Result<Self, FieldError> {
        Ok(message.number)
    }
}

impl Part for String {
    fn keep(&self, message: &mut stored::Reason) {
        message.text.clone_from(self);
    }

    fn take(message: &mut stored::Reason) -> Result<Self, FieldError> {
        Ok(std::mem::take(&mut message.text))
    }
}

impl Part for CheckpointKey {
    fn keep(&self, message: &mut stored::Reason) {
        message.checkpoint = Some(key_to_wire(*self));
    }

    fn take(message: &mut stored::Reason) -> Result<Self, FieldError> {
        Ok(key_from_wire(required("checkpoint", message.checkpoint)?))
    }
}

macro_rules! written {
    ($(
        $(#[doc = $comment:literal])+
        $variant:ident $({ $($field:ident: $type:ty),+ })? = $code:literal ($sentence:literal);
    )+) => {
        pub(super) fn reason_to_wire(reason: &Reason) -> stored::Reason {
            let mut message = stored::Reason::default();
            match reason {
                $(Reason::$variant $({ $($field),+ })? => {
                    message.kind = ReasonKind::$variant.into();
                    $($($field.keep(&mut message);)+)?
                })+
            }
            message
        }

        pub(super) fn reason_from_wire(mut message: stored::Reason) -> Result<Reason, FieldError> {
            let kind = ReasonKind::try_from(message.kind).map_err(|_| FieldError {
                field: "kind".to_owned(),
                problem: FieldProblem::UnknownValue { number: message.kind, known: Reason::CODES },
            })?;
            Ok(match kind {
                ReasonKind::Unspecified => return Err(FieldError::missing("kind")),
                $(ReasonKind::$variant => Reason::$variant $({ $($field: Part::take(&mut message)?),+ })?,)+
            })
        }
    };
}

reasons!(written);

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of that kind with every field said.
    fn message(kind: ReasonKind) -> stored::Reason {
        let checkpoint = CheckpointKey { attempt: 2, sequence: 3 };
        stored::Reason {
            kind: kind.into(),
            job_id: 7,
            node_id: 3,
            number: -9,
            text: "the disk is full".to_owned(),
            checkpoint: Some(key_to_wire(checkpoint)),
        }
    }

    #[test]
    fn every_reason_is_read_as_it_was_written_and_has_the_code_that_its_kind_has() {
        let kinds: Vec<ReasonKind> = (1..).map_while(|number| ReasonKind::try_from(number).ok()).collect();
        assert_eq!(kinds.len(), Reason::CODES.len());
        for kind in kinds {
            let reason = reason_from_wire(message(kind)).expect("it was written");
            assert_eq!(format!("REASON_KIND_{}", reason.code()), kind.as_str_name());
            let written = reason_to_wire(&reason);
            assert_eq!((written.kind, reason_from_wire(written)), (kind.into(), Ok(reason)));
        }
    }

    #[test]
    fn a_kind_that_is_not_known_is_refused_with_those_that_are() {
        let newer = stored::Reason { kind: 9_999, ..message(ReasonKind::Held) };
        let refused = reason_from_wire(newer).expect_err("it is not known").to_string();
        assert!(refused.starts_with("kind: 9999 is not a value") && refused.contains("HOST_LOST"), "{refused}");
        let unsaid = stored::Reason::default();
        assert_eq!(reason_from_wire(unsaid), Err(FieldError::missing("kind")));
    }
}
