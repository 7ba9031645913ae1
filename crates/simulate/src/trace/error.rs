//! Errors of a trace, reported with file, line and column.

use std::fmt;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// The header is that of no known format.
    #[error(
        "{}: the header `{header}` is that of no known list of {what}; it needs {expected} (see docs/simulate.md)",
        path.display()
    )]
    UnknownFormat {
        path: PathBuf,
        /// The kind of list that it was to be.
        what: &'static str,
        /// Its first line.
        header: String,
        /// The columns by which the formats are told apart.
        expected: &'static str,
    },
    #[error("{}{place}: {problem}", path.display())]
    Row {
        path: PathBuf,
        place: LineColumn,
        /// The problem, and what would be right.
        problem: String,
    },
}

/// A line of a file, and a column of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LineColumn {
    /// Line from 1, if it is known.
    pub line: Option<u64>,
    /// Name of the column, if it is one column.
    pub column: Option<String>,
}

impl fmt::Display for LineColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        match &self.column {
            Some(column) => write!(f, ": column {column}"),
            None => Ok(()),
        }
    }
}
