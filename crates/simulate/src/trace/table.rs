//! A CSV file with a header, whose errors name file, line and column.

use std::fs::File;
use std::path::{Path, PathBuf};

use csv::{ErrorKind, Reader, StringRecord, Trim};
use serde::de::DeserializeOwned;

use super::TraceError;
use super::error::LineColumn;

/// An open file whose header was read.
pub(super) struct Table {
    path: PathBuf,
    header: StringRecord,
    reader: Reader<File>,
}

/// A row with the line that it begins on.
pub(super) struct Row<T> {
    pub line: u64,
    pub value: T,
}

impl Table {
    /// Opens a file and reads its header.
    pub(super) fn open(path: &Path) -> Result<Self, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Io { path: path.to_owned(), source })?;
        let mut reader = csv::ReaderBuilder::new().trim(Trim::All).from_reader(file);
        let header = reader.headers().map_err(|error| located(path, &StringRecord::new(), error))?.clone();
        Ok(Self { path: path.to_owned(), header, reader })
    }

    /// Returns whether the header has all these columns.
    pub(super) fn has(&self, columns: &[&str]) -> bool {
        columns.iter().all(|column| self.header.iter().any(|name| name == *column))
    }

    /// The error of a header that nobody knows.
    pub(super) fn unknown(&self, what: &'static str, expected: &'static str) -> TraceError {
        let header = self.header.iter().collect::<Vec<_>>().join(",");
        TraceError::UnknownFormat { path: self.path.clone(), what, header, expected }
    }

    /// The error of a value that can be read but not be.
    pub(super) fn wrong(&self, line: u64, column: &str, problem: impl Into<String>) -> TraceError {
        let place = LineColumn { line: Some(line), column: Some(column.to_owned()) };
        TraceError::Row { path: self.path.clone(), place, problem: problem.into() }
    }

    /// All rows in order.
    pub(super) fn rows<T: DeserializeOwned>(&mut self) -> Result<Vec<Row<T>>, TraceError> {
        let mut rows = Vec::new();
        let mut record = StringRecord::new();
        loop {
            let read = self.reader.read_record(&mut record);
            if !read.map_err(|error| located(&self.path, &self.header, error))? {
                return Ok(rows);
            }
            let line = record.position().map_or(0, csv::Position::line);
            let value =
                record.deserialize(Some(&self.header)).map_err(|error| located(&self.path, &self.header, error))?;
            rows.push(Row { line, value });
        }
    }
}

/// Says where an error of the reader lies.
fn located(path: &Path, header: &StringRecord, error: csv::Error) -> TraceError {
    let path = path.to_owned();
    let line = error.position().map(csv::Position::line);
    match error.into_kind() {
        ErrorKind::Io(source) => TraceError::Io { path, source },
        ErrorKind::Deserialize { err, .. } => {
            let column = err.field().and_then(|field| header.get(usize::try_from(field).ok()?)).map(str::to_owned);
            TraceError::Row { path, place: LineColumn { line, column }, problem: err.kind().to_string() }
        }
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let problem = format!("it has {len} columns, the header {expected_len}");
            TraceError::Row { path, place: LineColumn { line, column: None }, problem }
        }
        ErrorKind::Utf8 { err, .. } => {
            TraceError::Row { path, place: LineColumn { line, column: None }, problem: err.to_string() }
        }
        other => TraceError::Row { path, place: LineColumn { line, column: None }, problem: format!("{other:?}") },
    }
}
