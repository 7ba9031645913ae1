//! The problems of a job file, and their places.

use std::fmt;

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

/// One thing that is wrong with a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The place in the file; `None` when the problem concerns the whole file.
    pub place: Option<Place>,
    /// The field, such as `virtual_card.memory`; empty when it is about none.
    pub field: String,
    /// A description of the problem and of a valid value.
    pub problem: String,
    /// A guess at what was meant.
    pub hint: Option<String>,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = self.place {
            write!(f, "line {}, column {}: ", place.line, place.column)?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)?;
        match &self.hint {
            Some(hint) => write!(f, "; did you mean {hint}?"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a job file; one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFileError {
    /// At least one.
    pub complaints: Vec<Complaint>,
}

impl JobFileError {
    /// An error about the whole file.
    pub(super) fn whole(problem: impl Into<String>) -> Self {
        Self::of(Complaint { place: None, field: String::new(), problem: problem.into(), hint: None })
    }

    /// An error with a single complaint.
    pub(super) fn of(complaint: Complaint) -> Self {
        Self { complaints: vec![complaint] }
    }
}

impl fmt::Display for JobFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, complaint) in self.complaints.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{complaint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for JobFileError {}
