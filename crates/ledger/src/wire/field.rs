//! Turning one field of a message into a domain value, and saying which field could not be turned.

use std::fmt;
use std::time::Duration;

use crate::level::Level;

/// A field that holds something that cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct FieldError {
    /// Path of the field, such as `virtual_card.kinds[1]`.
    pub field: String,
    pub problem: FieldProblem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldProblem {
    /// It must be set and is not.
    Missing,
    /// A value of an enumeration that this release does not know.
    UnknownValue {
        number: i32,
        /// The words this release knows.
        known: &'static [&'static str],
    },
    /// A release level that this release does not know.
    UnknownLevel { number: u32 },
    /// Anything else; says what would be right.
    Invalid(String),
}

impl fmt::Display for FieldProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => write!(f, "must be set"),
            Self::UnknownValue { number, known } => {
                write!(f, "{number} is not a value that this release knows; it knows {}", known.join(", "))
            }
            Self::UnknownLevel { number } => {
                write!(f, "{number} is not a level that this release knows; it goes up to {}", Level::NEWEST)
            }
            Self::Invalid(problem) => write!(f, "{problem}"),
        }
    }
}

impl FieldError {
    /// A field that must be set and is not.
    #[must_use]
    pub fn missing(field: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::Missing }
    }

    /// A release level that this release does not know.
    pub(super) fn unknown_level(field: impl Into<String>, number: u32) -> Self {
        Self { field: field.into(), problem: FieldProblem::UnknownLevel { number } }
    }

    /// A field with a value that cannot be taken; `problem` says what would be right.
    #[must_use]
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { field: field.into(), problem: FieldProblem::Invalid(problem.into()) }
    }

    /// The same error seen from the message that holds `parent`.
    #[must_use]
    pub fn under(mut self, parent: impl fmt::Display) -> Self {
        self.field = format!("{parent}.{}", self.field);
        self
    }
}

/// A domain enumeration that has a protobuf twin. Zero, "not said", is never a value of the domain.
pub trait WireEnum: Sized + Copy + 'static {
    /// The words of all values, for messages.
    const KNOWN: &'static [&'static str];

    fn to_wire(self) -> i32;

    /// The value of a number; `None` for zero and for numbers from a newer release.
    fn from_number(number: i32) -> Option<Self>;
}

/// Reads an enumeration; zero is `None`.
///
/// # Errors
/// [`FieldProblem::UnknownValue`] when this release does not know the number.
pub fn enum_from_wire<T: WireEnum>(field: &str, number: i32) -> Result<Option<T>, FieldError> {
    if number == 0 {
        return Ok(None);
    }
    let unknown =
        || FieldError { field: field.to_owned(), problem: FieldProblem::UnknownValue { number, known: T::KNOWN } };
    T::from_number(number).map(Some).ok_or_else(unknown)
}

/// Reads an enumeration that must be set.
pub(super) fn required_enum<T: WireEnum>(field: &str, number: i32) -> Result<T, FieldError> {
    enum_from_wire(field, number)?.ok_or_else(|| FieldError::missing(field))
}

/// Takes a message that must be set.
pub(super) fn required<T>(field: &str, message: Option<T>) -> Result<T, FieldError> {
    message.ok_or_else(|| FieldError::missing(field))
}

/// Converts every element of a repeated field; errors name the place.
pub(super) fn each<A, B>(
    field: &str,
    elements: impl IntoIterator<Item = A>,
    convert: impl Fn(A) -> Result<B, FieldError>,
) -> Result<Vec<B>, FieldError> {
    let place = |(index, element)| convert(element).map_err(|error| error.under(format_args!("{field}[{index}]")));
    elements.into_iter().enumerate().map(place).collect()
}

/// Reads a duration, which may not be negative.
///
/// # Errors
/// [`FieldProblem::Invalid`] when it is negative or its nanoseconds are not those of one second.
pub fn duration_from_wire(field: &str, duration: &prost_types::Duration) -> Result<Duration, FieldError> {
    let seconds = u64::try_from(duration.seconds);
    let nanos = u32::try_from(duration.nanos).ok().filter(|nanos| *nanos < 1_000_000_000);
    match (seconds, nanos) {
        (Ok(seconds), Some(nanos)) => Ok(Duration::new(seconds, nanos)),
        _ => Err(FieldError::invalid(field, "must not be negative, and its nanos must be 0 to 999999999")),
    }
}

/// The duration that a process of the pool has said, which is believed and not judged: one that is no duration counts
/// as not said.
#[must_use]
pub fn duration_if_any(duration: Option<&prost_types::Duration>) -> Option<Duration> {
    duration_from_wire("", duration?).ok()
}

/// Writes a duration; longer ones than the wire can hold (292 billion years) are cut.
#[must_use]
pub fn duration_to_wire(duration: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(duration.subsec_nanos()).unwrap_or(0),
    }
}

/// 16 bytes, big-endian, or none.
pub(super) fn wide_to_wire(number: Option<u128>) -> Vec<u8> {
    number.map_or_else(Vec::new, |number| number.to_be_bytes().to_vec())
}

/// Reads 16 bytes, if there are any.
pub(super) fn wide_if_any(field: &str, bytes: &[u8]) -> Result<Option<u128>, FieldError> {
    (!bytes.is_empty()).then(|| wide_from_wire(field, bytes)).transpose()
}

/// Reads 16 bytes, big-endian.
pub(super) fn wide_from_wire(field: &str, bytes: &[u8]) -> Result<u128, FieldError> {
    let bytes: [u8; 16] =
        bytes.try_into().map_err(|_| FieldError::invalid(field, format!("must have 16 bytes, has {}", bytes.len())))?;
    Ok(u128::from_be_bytes(bytes))
}
