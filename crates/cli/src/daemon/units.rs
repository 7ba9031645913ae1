//! Durations and sizes as configuration files say them.

use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A duration such as `50ms`, `2s` or `7d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Time(pub Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Time;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"50ms\", \"2s\" or \"7d\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Time, E> {
                let refuse =
                    |error| E::custom(format!("`{text}` is no duration ({error}); write it as \"50ms\" or \"2s\""));
                humantime::parse_duration(text).map(Time).map_err(refuse)
            }
        }

        deserializer.deserialize_str(Reader)
    }
}

/// A size such as `512MiB`, or a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"512MiB\", or a number of bytes")
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                bytes(text).map(Size).ok_or_else(|| E::custom(format!("`{text}` is no size; write it as \"512MiB\"")))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

/// `512MiB` in bytes; B, KiB, MiB, GiB and TiB.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_exact_or_refused() {
        assert_eq!(
            [bytes("7"), bytes("4 KiB"), bytes("512MiB"), bytes("2TiB")],
            [Some(7), Some(4096), Some(512 << 20), Some(2 << 40)]
        );
        assert_eq!([bytes(""), bytes("1MB"), bytes("-1"), bytes("99999999999TiB")], [None; 4]);
    }
}
