//! Quantities as people write them, in job files, configuration files and arguments: `50 TFLOPS`, `16GiB`, `1h30m`. A
//! bare number is taken only where its unit is beyond doubt.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};
use tessera_ledger::{Mebibytes, MilliCpus, MilliTflops};

use crate::fields::quoted;

/// Compute: a number of TFLOPS (`50`, `1.5`), or a text with a unit (`"50 TFLOPS"`, `"500 GFLOPS"`, `"2 PFLOPS"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tflops(pub MilliTflops);

/// Memory: a text with a unit (`"16GiB"`, `"512 MiB"`, `"16 GB"`), rounded up to whole MiB; or `0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub Mebibytes);

/// Bytes on a disk or on their way: a number of them, or a text with a unit (`"512MiB"`, `"4 KiB"`, `"1 GB"`), rounded
/// up to whole bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Processors: a number of them (`8`, `1.5`), or a text in thousandths (`"500m"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus(pub MilliCpus);

/// A time: a text with units (`"90s"`, `"10m"`, `"1h 30m"`, `"7days"`); or `0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl Tflops {
    /// Reads `50`, `1.5 TFLOPS`, `500 GFLOPS`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be a number of TFLOPS, such as 50 or \"1.5 TFLOPS\", is {}", quoted(text));
        let (number, unit) = split_number(text).ok_or_else(wrong)?;
        let scale = match unit.to_ascii_lowercase().as_str() {
            "" | "t" | "tf" | "tflops" | "tflop/s" => 1.0,
            "g" | "gf" | "gflops" | "gflop/s" => 0.001,
            "p" | "pf" | "pflops" | "pflop/s" => 1000.0,
            _ => return Err(format!("must be in GFLOPS, TFLOPS or PFLOPS, is {}", quoted(text))),
        };
        Self::from_number(number * scale)
    }

    fn from_number(tflops: f64) -> Result<Self, String> {
        let milli = whole(tflops * 1000.0, f64::round)
            .ok_or_else(|| format!("must be at most {}, is {tflops:e} TFLOPS", crate::limits::COMPUTE))?;
        if milli == 0 && tflops > 0.0 {
            return Err(format!("must be at least 0.001 TFLOPS, is {tflops}"));
        }
        Ok(Self(MilliTflops(milli)))
    }
}

impl Memory {
    /// Reads `16GiB`, `512 MiB`, `16 GB`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be an amount of memory such as \"16GiB\" or \"512 MiB\", is {}", quoted(text));
        let (number, unit) = split_number(text).ok_or_else(wrong)?;
        if unit.is_empty() && number != 0.0 {
            return Err(format!("must say its unit, such as \"{number}GiB\" or \"{number}MiB\", is {}", quoted(text)));
        }
        // Nobody means a part of a MiB, to which it would be rounded up.
        let unit = if unit.is_empty() { Some(MIB) } else { bytes_of(unit).filter(|bytes| *bytes >= 1e6) };
        let unit = unit.ok_or_else(|| format!("must be in MiB, GiB, TiB, MB, GB or TB, is {}", quoted(text)))?;
        whole(number * unit / MIB, f64::ceil).map(|mib| Self(Mebibytes(mib))).ok_or_else(wrong)
    }
}

impl Size {
    /// Reads `512MiB`, `4 KiB`, `1 GB`, `4096`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be a size such as \"512MiB\", or a number of bytes, is {}", quoted(text));
        let (number, unit) = split_number(text).ok_or_else(wrong)?;
        let unit = if unit.is_empty() { 1.0 } else { bytes_of(unit).ok_or_else(wrong)? };
        whole(number * unit, f64::ceil).map(Self).ok_or_else(wrong)
    }
}

impl Cpus {
    /// Reads `8`, `1.5`, `500m`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("must be a number of processors, such as 8, 1.5 or \"500m\", is {}", quoted(text));
        let (number, unit) = split_number(text).ok_or_else(wrong)?;
        match unit {
            "" => Self::from_number(number),
            "m" => Self::from_number(number / 1000.0),
            _ => Err(wrong()),
        }
    }

    fn from_number(cpus: f64) -> Result<Self, String> {
        whole(cpus * 1000.0, f64::ceil)
            .filter(|milli| *milli <= crate::limits::CPUS.0)
            .map(|milli| Self(MilliCpus(milli)))
            .ok_or_else(|| format!("must be at most {} processors, is {cpus:e}", crate::limits::CPUS.0 / 1000))
    }
}

/// Longest time that can be written, in files of configuration too: sums and multiples of such times are times.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);

impl Time {
    /// Reads `90s`, `10m`, `1h 30m`.
    ///
    /// # Errors
    /// A sentence that says what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.parse::<f64>().is_ok_and(|number| number == 0.0) {
            return Ok(Self(Duration::ZERO));
        }
        if text.parse::<f64>().is_ok() {
            return Err(format!("must say its unit, such as \"{text}s\" or \"{text}m\", is {}", quoted(text)));
        }
        let time = humantime::parse_duration(text)
            .map_err(|_| format!("must be a time such as \"90s\", \"10m\" or \"1h 30m\", is {}", quoted(text)))?;
        if time > LONGEST {
            return Err(format!("must be at most ten years, is {}", quoted(text)));
        }
        Ok(Self(time))
    }
}

const MIB: f64 = 1_048_576.0;

/// The bytes of a unit such as `GiB`, `Gi` or `GB`.
fn bytes_of(unit: &str) -> Option<f64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "b" => 1.0,
        "kib" | "ki" => 1024.0,
        "mib" | "mi" => MIB,
        "gib" | "gi" => MIB * 1024.0,
        "tib" | "ti" => MIB * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => return None,
    })
}

/// Splits `16 GiB` into its number, which is not negative, and its unit.
fn split_number(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().ok()?;
    Some((number, unit.trim()))
}

/// A whole number out of a positive one that a `u64` can hold.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // both excluded just before
fn whole(number: f64, round: fn(f64) -> f64) -> Option<u64> {
    const LARGEST: f64 = 9.0e18;
    (0.0..LARGEST).contains(&number).then(|| round(number) as u64)
}

macro_rules! quantity {
    ($name:ident, $expecting:literal, $number:expr, $schema:tt) => {
        quantity!($name, $expecting, $number);

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
    ($name:ident, $expecting:literal, $number:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Reader;

                impl Visitor<'_> for Reader {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expecting)
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$name, E> {
                        $name::parse(text).map_err(E::custom)
                    }

                    fn visit_u64<E: Error>(self, number: u64) -> Result<$name, E> {
                        $number(number as f64, number.to_string()).map_err(E::custom)
                    }

                    fn visit_i64<E: Error>(self, number: i64) -> Result<$name, E> {
                        let unsigned = u64::try_from(number)
                            .map_err(|_| E::custom(format!("must not be negative, is {number}")))?;
                        self.visit_u64(unsigned)
                    }

                    fn visit_f64<E: Error>(self, number: f64) -> Result<$name, E> {
                        if number < 0.0 {
                            return Err(E::custom(format!("must not be negative, is {number}")));
                        }
                        if !number.is_finite() {
                            return Err(E::invalid_value(Unexpected::Float(number), &self));
                        }
                        $number(number, number.to_string()).map_err(E::custom)
                    }
                }

                deserializer.deserialize_any(Reader)
            }
        }
    };
}

quantity!(Tflops, "a number of TFLOPS, such as 50 or \"1.5 TFLOPS\"", |number, _: String| Tflops::from_number(number), {
    "description": "Compute: a number of TFLOPS, or a text with a unit.",
    "anyOf": [
        { "type": "number", "minimum": 0.001 },
        { "type": "string", "pattern": "^\\s*[0-9]+(\\.[0-9]*)?\\s*([GgTtPp]([Ff](([Ll][Oo][Pp][Ss])|([Ll][Oo][Pp]/[Ss]))?)?)?\\s*$" }
    ],
    "examples": [50, 1.5, "50 TFLOPS", "500 GFLOPS"]
});
quantity!(Memory, "an amount of memory, such as \"16GiB\"", |_, text: String| Memory::parse(&text), {
    "description": "Memory: a text with a unit, rounded up to whole MiB.",
    "anyOf": [
        { "const": 0 },
        { "type": "string", "pattern": "^\\s*[0-9]+(\\.[0-9]*)?\\s*[MmGgTt]([Ii][Bb]?|[Bb])\\s*$" }
    ],
    "examples": ["16GiB", "512MiB"]
});
quantity!(Size, "a size such as \"512MiB\", or a number of bytes", |_, text: String| Size::parse(&text));
quantity!(Cpus, "a number of processors, such as 8 or 1.5", |number, _: String| Cpus::from_number(number), {
    "description": "Processors: a number of them, or a text in thousandths.",
    "anyOf": [
        { "type": "number", "minimum": 0 },
        { "type": "string", "pattern": "^\\s*[0-9]+(\\.[0-9]*)?\\s*m?\\s*$" }
    ],
    "examples": [8, 1.5, "500m"]
});
quantity!(Time, "a time, such as \"10m\"", |_, text: String| Time::parse(&text), {
    "description": "A time: a text with units.",
    "anyOf": [
        { "const": 0 },
        { "type": "string", "pattern": "^\\s*([0-9]+\\s*[A-Za-z]+\\s*)+$" }
    ],
    "examples": ["90s", "10m", "1h 30m", "7days"]
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tflops_are_read_in_every_usual_way() {
        let milli = |text| Tflops::parse(text).map(|read| read.0.0);
        for (text, expected) in
            [("50", 50_000), ("1.5", 1_500), (" 50 TFLOPS ", 50_000), ("500 gflops", 500), ("2P", 2_000_000), ("0", 0)]
        {
            assert_eq!(milli(text), Ok(expected), "{text}");
        }
        for text in ["", "TFLOPS", "-5", "1e400", "5 apples", "nan", "1.2.3", &"9".repeat(400)] {
            assert!(milli(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_is_rounded_up_and_wants_a_unit() {
        let mib = |text| Memory::parse(text).map(|read| read.0.0);
        for (text, expected) in
            [("16GiB", 16_384), ("16 Gi", 16_384), ("1.5 GiB", 1_536), ("1TiB", 1 << 20), ("16GB", 15_259), ("0", 0)]
        {
            assert_eq!(mib(text), Ok(expected), "{text}");
        }
        assert_eq!(mib("16").unwrap_err(), "must say its unit, such as \"16GiB\" or \"16MiB\", is \"16\"");
        for text in ["", "GiB", "-1GiB", "16 KiB", "99999999999999999999999TiB"] {
            assert!(mib(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_counted_in_bytes() {
        let bytes = |text| Size::parse(text).map(|read| read.0);
        for (text, expected) in
            [("7", 7), ("4 KiB", 4096), ("512MiB", 512 << 20), ("2TiB", 2 << 40), ("1.5GB", 1_500_000_000), ("0.5B", 1)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "MiB", "-1", "5 sheep", "99999999999TiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(bytes("few").unwrap_err(), "must be a size such as \"512MiB\", or a number of bytes, is \"few\"");
    }

    #[test]
    fn processors_are_counted_whole_or_in_thousandths() {
        let milli = |text| Cpus::parse(text).map(|read| read.0.0);
        for (text, expected) in [("8", 8_000), ("1.5", 1_500), ("500m", 500), ("0", 0), (" 2 ", 2_000), ("0.0001", 1)] {
            assert_eq!(milli(text), Ok(expected), "{text}");
        }
        for text in ["", "m", "-1", "2 cores", "1e400", "2000000"] {
            assert!(milli(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_want_a_unit() {
        assert_eq!(Time::parse("1h 30m"), Ok(Time(Duration::from_secs(5400))));
        assert_eq!(Time::parse("0"), Ok(Time(Duration::ZERO)));
        assert_eq!(Time::parse("10").unwrap_err(), "must say its unit, such as \"10s\" or \"10m\", is \"10\"");
        assert_eq!(Time::parse("3660 days"), Ok(Time(LONGEST)));
        for long in ["3661 days", "18446744073709551615s"] {
            assert_eq!(Time::parse(long).unwrap_err(), format!("must be at most ten years, is {long:?}"));
        }
        assert!(Time::parse("soon").is_err() && Time::parse("-5s").is_err() && Time::parse("").is_err());
    }
}
