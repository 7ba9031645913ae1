//! The place of a field in a file.
//!
//! The notations' own readers know the place of a value only while they read it, and tell it with errors. So the file
//! is read once more, along the path of the field, and refused on purpose when the field is reached: the error carries
//! the place.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A step from a value to one inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Key(String),
    Index(usize),
}

/// The steps of a path such as `virtual_card.kinds[1]` or `environment["A"]`.
pub(super) fn steps(path: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let end = inside.find(']').unwrap_or(inside.len());
            let step = &inside[..end];
            steps.push(match step.parse() {
                Ok(index) => Step::Index(index),
                Err(_) => Step::Key(step.trim_matches('"').to_owned()),
            });
            rest = inside.get(end + 1..).unwrap_or_default();
        } else {
            let start = rest.trim_start_matches('.');
            let end = start.find(['.', '[']).unwrap_or(start.len());
            if end > 0 {
                steps.push(Step::Key(start[..end].to_owned()));
            }
            rest = &start[end..];
            if end == 0 && rest.len() == start.len() && !rest.starts_with('[') {
                break;
            }
        }
    }
    steps
}

/// Reads along the steps and fails at their end; succeeds when there is no such field.
#[derive(Clone, Copy)]
pub(super) struct Locate<'a> {
    steps: &'a [Step],
    /// Set when their end is the name of the field, not its value.
    to_name: bool,
}

impl<'a> Locate<'a> {
    /// The way to the value of a field.
    pub(super) fn value(steps: &'a [Step]) -> Self {
        Self { steps, to_name: false }
    }

    /// The way to the name of a field.
    pub(super) fn name(steps: &'a [Step]) -> Self {
        Self { steps, to_name: true }
    }
}

/// Reads a name and answers whether it is the one that is looked for; fails at it when the way ends there.
struct Name<'a>(Locate<'a>);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        match self.0.steps {
            [Step::Key(wanted), rest @ ..] if wanted == name => {
                if self.0.to_name && rest.is_empty() {
                    Err(E::custom("reached"))
                } else {
                    Ok(true)
                }
            }
            _ => Ok(false),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Locate<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Locate<'_> {
    /// A value that is not a container: reached, or a dead end.
    fn leaf<E: Error>(&self) -> Result<(), E> {
        if self.steps.is_empty() { Err(E::custom("reached")) } else { Ok(()) }
    }
}

impl<'de> Visitor<'de> for Locate<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.leaf()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.leaf()
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.leaf()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.leaf()
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        self.leaf()
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.leaf()
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.leaf::<A::Error>()?;
        while let Some(wanted) = map.next_key_seed(Name(self))? {
            match self.steps {
                [_, rest @ ..] if wanted => map.next_value_seed(Locate { steps: rest, ..self })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        self.leaf::<A::Error>()?;
        let [Step::Index(wanted), rest @ ..] = self.steps else {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        for _ in 0..*wanted {
            if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(());
            }
        }
        if seq.next_element_seed(Locate { steps: rest, ..self })?.is_some() {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart() {
        let key = |name: &str| Step::Key(name.to_owned());
        assert_eq!(steps("virtual_card.kinds[1]"), [key("virtual_card"), key("kinds"), Step::Index(1)]);
        assert_eq!(steps("environment[\"A\"]"), [key("environment"), key("A")]);
        assert_eq!(steps(""), []);
        assert_eq!(steps("..a[[]"), [key("a"), key("[")]);
    }
}
