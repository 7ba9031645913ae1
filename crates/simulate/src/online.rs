//! The conversation of `tessera simulate --online`: any judge can drive any engine with it, line by line and
//! without look-ahead.
//!
//! To the engine: `N,node,cpu_milli,mem_mib,gpu_count,gpu_model` per node,
//! `T,cpu_milli,gpu_count,gpu_milli,gpu_spec,weight` per shape seen in the past, `S` to start,
//! `A,seq,pod,cpu_milli,mem_mib,gpu_count,gpu_milli,gpu_spec` per arrival, `E` to end. From the engine, for each
//! arrival: any number of `move,seq,node,gpus`, then `place,seq,node,gpus` or `reject,seq,,`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, Write};
use std::str::FromStr;

use crate::placer::{Answer, Choice, Moves, Placer};
use crate::plain::Place;
use crate::trace::{Ask, TraceNode, check_cards, models};

/// A conversation that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum OnlineError {
    /// A line that makes no sense.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// The problem, and what would be right.
        problem: String,
    },
    /// The judge cannot be heard.
    #[error("the conversation broke off: {0}")]
    Unheard(#[source] std::io::Error),
    /// The judge cannot be answered.
    #[error("the answers cannot be written: {0}")]
    Unanswered(#[source] std::io::Error),
    /// The engine contradicted itself.
    #[error("the engine failed: {0}")]
    Engine(String),
}

/// The settings of the side that answers.
#[derive(Clone, Copy, Debug)]
pub struct OnlineOptions {
    /// The placer.
    pub policy: Choice,
    /// Seed of what the policy draws.
    pub seed: u64,
    /// The permission to move earlier arrivals for later ones.
    pub moves: Moves,
}

/// Answers every arrival until the end; flushes after each answer.
///
/// # Errors
/// [`OnlineError`].
pub fn converse(input: impl BufRead, mut output: impl Write, options: OnlineOptions) -> Result<(), OnlineError> {
    let mut conversation = Conversation::new(options);
    for (number, line) in (1u64..).zip(input.lines()) {
        let line = line.map_err(OnlineError::Unheard)?;
        let wrong = |problem| OnlineError::Line { line: number, problem };
        let heard = Heard::parse(line.trim_end()).map_err(wrong)?;
        match conversation.hear(heard)? {
            Reply::Nothing => {}
            Reply::Lines(lines) => {
                let written = output.write_all(lines.as_bytes()).and_then(|()| output.flush());
                written.map_err(OnlineError::Unanswered)?;
            }
            Reply::OutOfTurn(problem) => return Err(wrong(problem.to_owned())),
            Reply::End => return Ok(()),
        }
    }
    Ok(())
}

/// One line to the engine.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Node(TraceNode),
    Shape(Ask, Weight),
    Start,
    Arrival(u64, Ask),
    End,
    Blank,
}

/// The number of times that a shape was seen, or its share of all that was seen; only how weights compare matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Weight {
    millionths: u64,
}

impl Weight {
    const WHOLE: u64 = 1_000_000;

    /// Reads `12`, `0.125` or `1e-3`, rounded to millionths; what is more than nothing counts.
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("weight must be a number from 0, such as 12 or 0.125, not {text:?}");
        let large = || format!("weight must be less than {}, not {text:?}", u64::MAX / Self::WHOLE);
        if let Ok(whole) = text.parse::<u64>() {
            return Ok(Self { millionths: whole.checked_mul(Self::WHOLE).ok_or_else(large)? });
        }
        let number: f64 = text.parse().map_err(|_| wrong())?;
        if !number.is_finite() || number < 0.0 {
            return Err(wrong());
        }
        let millionths = (number * Self::WHOLE as f64).round();
        if millionths >= u64::MAX as f64 {
            return Err(large());
        }
        // Between nothing and the largest number, as was just seen.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let millionths = millionths as u64;
        Ok(Self { millionths: if number > 0.0 { millionths.max(1) } else { 0 } })
    }

    fn plus(self, other: Self) -> Self {
        Self { millionths: self.millionths.saturating_add(other.millionths) }
    }

    /// Weights as whole numbers that compare alike; those that are whole already stay as they are.
    fn whole(weights: impl Iterator<Item = Self> + Clone) -> impl Iterator<Item = u64> {
        let mut unit = Self::WHOLE;
        while weights.clone().any(|weight| weight.millionths % unit != 0) {
            unit /= 10;
        }
        weights.map(move |weight| weight.millionths / unit)
    }
}

/// The fields of a line, taken one by one.
struct Fields<'a>(std::str::Split<'a, char>);

impl<'a> Fields<'a> {
    fn text(&mut self, name: &str) -> Result<&'a str, String> {
        self.0.next().map(str::trim).ok_or_else(|| format!("{name} is missing"))
    }

    fn number<T: FromStr>(&mut self, name: &str) -> Result<T, String> {
        let text = self.text(name)?;
        text.parse().map_err(|_| format!("{name} must be a number, not {text:?}"))
    }

    fn end(mut self) -> Result<(), String> {
        self.0.next().map_or(Ok(()), |field| Err(format!("there is more than expected, from {field:?} on")))
    }
}

impl Heard {
    fn parse(line: &str) -> Result<Self, String> {
        let mut fields = Fields(line.split(','));
        let word = fields.text("the first field")?;
        let heard = match word {
            "" => Self::Blank,
            "N" => Self::Node(TraceNode {
                name: fields.text("node")?.to_owned(),
                cpu_milli: fields.number("cpu_milli")?,
                memory_mib: fields.number("mem_mib")?,
                cards: fields.number("gpu_count")?,
                model: fields.text("gpu_model")?.to_owned(),
                card_memory_mib: None,
            }),
            "T" => {
                let cpu = fields.number("cpu_milli")?;
                let ask = ask(cpu, 0, &mut fields)?;
                Self::Shape(ask, Weight::parse(fields.text("weight")?)?)
            }
            "S" => Self::Start,
            "A" => {
                let number = fields.number("seq")?;
                fields.text("pod")?;
                let (cpu, memory) = (fields.number("cpu_milli")?, fields.number("mem_mib")?);
                Self::Arrival(number, ask(cpu, memory, &mut fields)?)
            }
            "E" => Self::End,
            other => return Err(format!("{other:?} is none of N, T, S, A and E")),
        };
        fields.end()?;
        Ok(heard)
    }
}

fn ask(cpu_milli: u64, memory_mib: u64, fields: &mut Fields<'_>) -> Result<Ask, String> {
    let cards = fields.number("gpu_count")?;
    let milli = fields.number("gpu_milli")?;
    let models = models(fields.text("gpu_spec")?);
    check_cards(cards, milli)?;
    let card_milli = if cards == 0 { 0 } else { milli };
    let models = if cards == 0 { Default::default() } else { models };
    Ok(Ask { cpu_milli, memory_mib, cards, card_milli, card_memory_mib: 0, models })
}

/// The consequence of a line.
enum Reply {
    Nothing,
    Lines(String),
    OutOfTurn(&'static str),
    End,
}

/// The state of the conversation so far.
struct Conversation {
    options: OnlineOptions,
    nodes: Vec<TraceNode>,
    shapes: BTreeMap<Ask, Weight>,
    placer: Option<Box<dyn Placer>>,
}

impl Conversation {
    fn new(options: OnlineOptions) -> Self {
        Self { options, nodes: Vec::new(), shapes: BTreeMap::new(), placer: None }
    }

    fn hear(&mut self, heard: Heard) -> Result<Reply, OnlineError> {
        match (heard, &mut self.placer) {
            (Heard::Blank, _) => {}
            (Heard::End, _) => return Ok(Reply::End),
            (Heard::Node(node), None) => self.nodes.push(node),
            (Heard::Shape(shape, weight), None) => {
                let known = self.shapes.entry(shape).or_default();
                *known = known.plus(weight);
            }
            (Heard::Start, None) => self.start()?,
            (Heard::Arrival(number, ask), Some(placer)) => {
                let answer = placer.arrive(number, &ask).map_err(|error| OnlineError::Engine(error.to_string()))?;
                return Ok(Reply::Lines(self.write(number, &answer)));
            }
            (Heard::Arrival(..), None) => return Ok(Reply::OutOfTurn("an arrival comes after S")),
            (Heard::Node(_) | Heard::Shape(..) | Heard::Start, Some(_)) => {
                return Ok(Reply::OutOfTurn("N, T and S come before the first arrival, and S once"));
            }
        }
        Ok(Reply::Nothing)
    }

    fn start(&mut self) -> Result<(), OnlineError> {
        let OnlineOptions { policy, seed, moves } = self.options;
        let mut placer =
            policy.placer(&self.nodes, seed, moves).map_err(|error| OnlineError::Engine(error.to_string()))?;
        for (shape, weight) in self.shapes.keys().zip(Weight::whole(self.shapes.values().copied())) {
            placer.expect(shape, weight);
        }
        self.placer = Some(placer);
        Ok(())
    }

    fn write(&self, number: u64, answer: &Answer) -> String {
        let mut lines = String::new();
        // Writing to a string cannot fail.
        for (moved, place) in &answer.moves {
            let _ = writeln!(lines, "move,{moved},{}", self.place(place));
        }
        let _ = match &answer.place {
            Some(place) => writeln!(lines, "place,{number},{}", self.place(place)),
            None => writeln!(lines, "reject,{number},,"),
        };
        lines
    }

    fn place(&self, place: &Place) -> String {
        let cards: Vec<String> = place.cards.iter().map(ToString::to_string).collect();
        let node = self.nodes.get(place.node).map_or("", |node| node.name.as_str());
        format!("{node},{}", cards.join("-"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(weights: &[&str]) -> Vec<u64> {
        let weights: Vec<Weight> = weights.iter().map(|text| Weight::parse(text).expect("a weight")).collect();
        Weight::whole(weights.into_iter()).collect()
    }

    #[test]
    fn weights_are_counts_or_shares() {
        assert_eq!(told(&["12", "0", "3"]), [12, 0, 3], "counts stay what they are");
        assert_eq!(told(&["0.5", "0.25", "1", "2e-1"]), [50, 25, 100, 20]);
        assert_eq!(told(&["1e-9", "1"]), [1, 1_000_000], "little is not nothing");
        assert_eq!(told(&[]), [0; 0]);
        for wrong in ["", "much", "-1", "-0.5", "NaN", "inf", "1e300", "18446744073709551615"] {
            assert!(Weight::parse(wrong).is_err_and(|why| why.contains("weight must be")), "{wrong}");
        }
    }
}
