//! Values as people type them.

use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;

use tessera_api::job_file::units::{Cpus, Memory, Tflops, Time};

use super::run::KindChoice;

/// The number of a job: `12`, or `job/12` as `-o name` prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobNumber(pub u64);

impl FromStr for JobNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("job/").unwrap_or(text);
        match number.parse() {
            Ok(number) if number > 0 => Ok(Self(number)),
            _ => Err("a job is named by its number, such as `12`; `tessera job list` shows them".to_owned()),
        }
    }
}

/// A card: name of its node and index on it, as `node/index`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardRef {
    /// The node.
    pub node: String,
    /// The card's place on it, from 0.
    pub index: u32,
}

impl FromStr for CardRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('/').and_then(|(node, index)| Some((node, index.parse().ok()?)));
        match parts {
            Some((node, index)) if !node.is_empty() => Ok(Self { node: node.to_owned(), index }),
            _ => Err("a card is named `NODE/INDEX`, such as `node-a/0`; `tessera card list` shows them".to_owned()),
        }
    }
}

/// A duration such as `90s`, `15m` or `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match Time::parse(text)?.0 {
        Duration::ZERO => Err("must be longer than nothing".to_owned()),
        duration => Ok(duration),
    }
}

/// A duration as above, or one with `-` before it, in milliseconds.
pub fn signed_ms(text: &str) -> Result<i64, String> {
    let (sign, unsigned) = text.strip_prefix('-').map_or((1, text), |unsigned| (-1, unsigned));
    let ms = i64::try_from(duration(unsigned)?.as_millis()).map_err(|_| "it is too long".to_owned())?;
    Ok(sign * ms)
}

/// A number of members that a cluster can begin with.
pub fn member_count(text: &str) -> Result<u8, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        "5" => Ok(5),
        _ => Err("a control plane has 1, 3 or 5 members".to_owned()),
    }
}

/// `KEY=VALUE`.
pub fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as `KEY=VALUE`".to_owned()),
    }
}

/// TFLOPS as in job files, in thousandths.
pub fn tflops(text: &str) -> Result<u64, String> {
    match Tflops::parse(text)?.0.0 {
        0 => Err("must be at least 0.001 TFLOPS, is 0".to_owned()),
        milli => Ok(milli),
    }
}

/// Processors as in job files, in thousandths.
pub fn cpus(text: &str) -> Result<u64, String> {
    Cpus::parse(text).map(|cpus| cpus.0.0)
}

/// `KEY=VALUE` or `KEY=VALUE:WEIGHT`, with a weight of 1 to 100.
pub fn weighted_pair(text: &str) -> Result<(String, String, u32), String> {
    let wrong = || "write it as `KEY=VALUE`, or `KEY=VALUE:WEIGHT` with a weight of 1 to 100".to_owned();
    let (key, value) = pair(text).map_err(|_| wrong())?;
    match value.rsplit_once(':') {
        None => Ok((key, value, 1)),
        Some((value, weight)) => match weight.parse() {
            Ok(weight @ 1..=100) => Ok((key, value.to_owned(), weight)),
            _ => Err(wrong()),
        },
    }
}

/// `KIND=PERCENT`, such as `gpu=150`.
pub fn kind_percent(text: &str) -> Result<(KindChoice, u32), String> {
    let wrong = || "write it as `KIND=PERCENT`, such as `gpu=150`; 100 takes it back".to_owned();
    let (kind, percent) = pair(text).map_err(|_| wrong())?;
    let kind = KindChoice::from_str(&kind, true).map_err(|_| wrong())?;
    let percent = percent.trim_end_matches('%').trim().parse().map_err(|_| wrong())?;
    if (100..=1000).contains(&percent) { Ok((kind, percent)) } else { Err("must be 100 to 1000 percent".to_owned()) }
}

/// Memory as in job files, in MiB.
pub fn memory(text: &str) -> Result<u64, String> {
    Memory::parse(text).map(|memory| memory.0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_and_cards_are_named_as_they_are_printed() {
        assert_eq!("12".parse(), Ok(JobNumber(12)));
        assert_eq!("job/12".parse(), Ok(JobNumber(12)));
        assert!("0".parse::<JobNumber>().is_err() && "x".parse::<JobNumber>().is_err());
        assert_eq!("rack/node-a/3".parse(), Ok(CardRef { node: "rack/node-a".to_owned(), index: 3 }));
        assert!("node-a".parse::<CardRef>().is_err() && "/1".parse::<CardRef>().is_err());
    }

    #[test]
    fn amounts_are_those_of_job_files() {
        assert_eq!([tflops("50"), tflops("0.5"), tflops("1.125 TFLOPS")], [Ok(50_000), Ok(500), Ok(1_125)]);
        for bad in ["", "0", "-1", "NaN", "many"] {
            assert!(tflops(bad).is_err(), "{bad} was taken");
        }
        assert_eq!([memory("0"), memory("512MiB"), memory("16 GiB")], [Ok(0), Ok(512), Ok(16 << 10)]);
        for bad in ["", "GiB", "-1GiB", "16", "inf GiB"] {
            assert!(memory(bad).is_err(), "{bad} was taken");
        }
        assert_eq!([cpus("8"), cpus("500m"), cpus("0")], [Ok(8_000), Ok(500), Ok(0)]);
        assert_eq!(weighted_pair("rack=r1"), Ok(("rack".to_owned(), "r1".to_owned(), 1)));
        assert_eq!(weighted_pair("rack=r1:40"), Ok(("rack".to_owned(), "r1".to_owned(), 40)));
        assert!(weighted_pair("rack").is_err() && weighted_pair("rack=r1:0").is_err());
        assert_eq!(kind_percent("gpu=150"), Ok((KindChoice::Gpu, 150)));
        assert_eq!(kind_percent("npu=200%"), Ok((KindChoice::Npu, 200)));
        assert!(kind_percent("tpu=150").is_err() && kind_percent("gpu=99").is_err());
        assert!(duration("0s").is_err() && duration("soon").is_err());
        assert!(member_count("2").is_err() && member_count("3") == Ok(3));
    }
}
