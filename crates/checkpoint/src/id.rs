//! The name of a checkpoint.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Names one checkpoint of one program. The order is that in which checkpoints are made: of two of one job and rank,
/// the later is greater.
///
/// Its text form is also its name in every store: `job-12-attempt-3-epoch-45-sequence-6-rank-0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId {
    pub job: u64,
    /// From 1.
    pub attempt: u32,
    /// Epoch of the allocation that the program ran on.
    pub epoch: u64,
    /// Counts the checkpoints of the epoch, from 1.
    pub sequence: u64,
    /// The rank of the job's program that the checkpoint is of, from 0.
    pub rank: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} names no checkpoint; the form is job-<number>-attempt-<number>-epoch-<number>-sequence-<number>-rank-<number>"
)]
pub struct BadCheckpointId {
    pub text: String,
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { job, attempt, epoch, sequence, rank } = self;
        write!(f, "job-{job}-attempt-{attempt}-epoch-{epoch}-sequence-{sequence}-rank-{rank}")
    }
}

impl FromStr for CheckpointId {
    type Err = BadCheckpointId;

    fn from_str(text: &str) -> Result<Self, BadCheckpointId> {
        let parsed = || {
            let mut words = text.split('-');
            let mut number = |name: &str| {
                let (word, digits) = (words.next()?, words.next()?);
                (word == name).then(|| digits.parse::<u64>().ok()).flatten()
            };
            let (job, attempt, epoch) = (number("job")?, number("attempt")?, number("epoch")?);
            let (sequence, rank) = (number("sequence")?, number("rank")?);
            let (attempt, rank) = (attempt.try_into().ok()?, rank.try_into().ok()?);
            Some(Self { job, attempt, epoch, sequence, rank })
        };
        // Only one text names it: it is a name in file systems.
        let id = parsed().filter(|id| id.to_string() == text);
        id.ok_or_else(|| BadCheckpointId { text: text.to_owned() })
    }
}

impl Serialize for CheckpointId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CheckpointId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_is_read_as_what_it_was_written_of(
            job: u64, attempt: u32, epoch: u64, sequence: u64, rank: u32,
        ) {
            let id = CheckpointId { job, attempt, epoch, sequence, rank };
            prop_assert_eq!(id.to_string().parse(), Ok(id));
        }

        #[test]
        fn other_texts_name_nothing(text in "(job|attempt|-|[0-9+/.])*") {
            prop_assert!(text.parse::<CheckpointId>().is_err());
        }
    }

    #[test]
    fn a_checkpoint_has_one_name() {
        for text in [
            "job-012-attempt-3-epoch-45-sequence-6-rank-0",
            "job-12-attempt-3-epoch-45-sequence-6-rank-0-",
            "job-12-attempt-3-epoch-45-sequence-6-rank-+0",
            "job-12-attempt-3-epoch-45-sequence-6-rank-4294967296",
        ] {
            assert!(text.parse::<CheckpointId>().is_err(), "{text}");
        }
    }
}
