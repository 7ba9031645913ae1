//! The owner of a slice: the program whose tensors it holds, also while that is away.
//!
//! A program that outlives its connections comes again, to this server or to another one that has its snapshot.
//! Meanwhile any other that knows the token would wipe its tensors, or go on with them as if they were its own. So each
//! program has a name, and a slice is kept for one.
//!
//! A program may follow another one only where that is gone for good. Programs that share whoever started them draw
//! numbers under a lock that the system takes from a process as it ends (`elsewhere.py`): a higher number is the proof
//! that those below are gone. A program that never comes again needs no proof: its connection was its life.

use std::io::Write;

use serde::{Deserialize, Serialize};

use crate::{Error, handshake};

/// Most characters of what programs share.
const LONGEST: usize = 64;

/// A program that computes on a slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The name that it shares with its predecessors and successors, and with no other.
    pub family: String,
    /// Its number in the family: programs with a lower number are gone.
    pub number: u64,
    /// True if the program comes again when its connection breaks.
    pub returns: bool,
}

/// The announcement of a program that comes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coming {
    /// The program itself.
    pub program: Program,
    /// It has tensors on the slice, and goes on with them. Otherwise it begins, and what is there is nobody's.
    pub goes_on: bool,
}

/// The owner of the slice; `None`: nobody.
#[derive(Debug, Default)]
pub(crate) struct Owner(Option<Program>);

/// The reason why a program that comes is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another program is connected.
    There,
    /// Another program may come again.
    Away,
    /// The program goes on with tensors that are not there: another one has begun since.
    Replaced,
    /// It does not say who it is.
    Unnamed,
    /// All places are taken.
    Full,
}

impl Owner {
    pub(crate) const fn of(program: Option<Program>) -> Self {
        Self(program)
    }

    pub(crate) const fn program(&self) -> Option<&Program> {
        self.0.as_ref()
    }

    /// Makes it this program's, if it may be. `is_there` says that a program is connected.
    pub(crate) fn admit(&mut self, coming: &Coming, is_there: bool) -> Result<(), Refusal> {
        let Coming { program, goes_on } = coming;
        if program.family.is_empty() || program.family.len() > LONGEST {
            return Err(Refusal::Unnamed);
        }
        if is_there {
            return Err(Refusal::There);
        }
        let Some(owner) = &self.0 else {
            self.0 = Some(program.clone());
            return Ok(());
        };
        let same = owner.family == program.family;
        match owner.number.cmp(&program.number) {
            std::cmp::Ordering::Equal if same => return Ok(()),
            std::cmp::Ordering::Greater if same => return Err(Refusal::Replaced),
            _ if owner.returns && !same => return Err(Refusal::Away),
            _ if *goes_on => return Err(Refusal::Replaced),
            _ => {}
        }
        self.0 = Some(program.clone());
        Ok(())
    }
}

impl Refusal {
    const fn reason(self) -> &'static str {
        match self {
            Self::There => "the slice has a program already; one at a time",
            Self::Away => "the slice is kept for a program that lost its connection and may come again; one at a time",
            Self::Replaced => "another program has begun on the slice since, and nothing that this one had is left",
            Self::Unnamed => "the program does not say which one it is",
            Self::Full => "all slice servers of the card are there already",
        }
    }

    /// Tells it.
    pub(crate) fn tell(self, stream: &mut impl Write, peer: &str) -> Result<(), Error> {
        match self {
            Self::There | Self::Away => handshake::refuse_as_taken(stream, peer, self.reason()),
            Self::Replaced => handshake::refuse_for_good(stream, peer, self.reason()),
            Self::Unnamed | Self::Full => handshake::refuse(stream, peer, self.reason()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A program that never comes again.
    pub(crate) fn alone() -> Coming {
        Coming { program: Program { family: "alone".into(), number: 0, returns: false }, goes_on: false }
    }

    fn returning(family: &str, number: u64, goes_on: bool) -> Coming {
        Coming { program: Program { family: family.into(), number, returns: true }, goes_on }
    }

    fn owned(by: &Coming) -> Owner {
        Owner::of(Some(by.program.clone()))
    }

    #[test]
    fn a_slice_is_kept_for_a_program_that_comes_again_until_one_proves_that_it_is_gone() {
        let mut owner = Owner::default();
        let first = returning("family", 1, false);
        assert_eq!(owner.admit(&first, false), Ok(()));
        assert_eq!(owner.admit(&returning("family", 1, true), true), Err(Refusal::There));
        assert_eq!(owner.admit(&returning("stranger", 9, false), false), Err(Refusal::Away));
        assert_eq!(owner.admit(&alone(), false), Err(Refusal::Away));
        assert_eq!(owner.admit(&returning("family", 1, true), false), Ok(()), "it has come again");
        assert_eq!(owner.program(), Some(&first.program));
        assert_eq!(owner.admit(&returning("family", 2, false), false), Ok(()), "the first is gone");
        assert_eq!(owner.admit(&returning("family", 1, true), false), Err(Refusal::Replaced));
    }

    #[test]
    fn nobody_goes_on_with_the_tensors_of_another_program() {
        let stranger = returning("stranger", 1, true);
        assert_eq!(owned(&alone()).admit(&stranger, false), Err(Refusal::Replaced));
        assert_eq!(
            owned(&returning("family", 1, false)).admit(&returning("family", 2, true), false),
            Err(Refusal::Replaced)
        );
        assert_eq!(owned(&alone()).admit(&returning("stranger", 1, false), false), Ok(()), "it begins");
        assert_eq!(Owner::default().admit(&stranger, false), Ok(()), "a server that holds nothing is told all again");
    }

    #[test]
    fn a_name_is_bounded() {
        assert_eq!(Owner::default().admit(&returning("", 1, false), false), Err(Refusal::Unnamed));
        assert_eq!(Owner::default().admit(&returning(&"x".repeat(65), 1, false), false), Err(Refusal::Unnamed));
    }
}
