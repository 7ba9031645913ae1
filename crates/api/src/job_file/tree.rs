//! The values of a file in TOML or JSON, with numbers as they were written.
//!
//! The readers of both notations know a number only by what it amounts to: `1.10` is 1.1 to them, `0x1F` is 31. Where a
//! text is wanted, it is given here as it stands in the file; YAML's reader does that by itself. JSON's reader does not
//! tell how a number that is not whole was written: such a one is never a text.

use std::fmt;

use serde::de::value::{Error as Fault, MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, Error, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and everything inside it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Nothing,
    Bool(bool),
    Text(String),
    /// A whole number, and how it was written.
    Whole(i128, String),
    /// Another number, and how it was written where that is known.
    Broken(f64, Option<String>),
    List(Vec<Self>),
    /// As the reader gives them; those of JSON in the order of the file, names that are there twice included.
    Fields(Vec<(String, Self)>),
}

impl Tree {
    /// The values of a file in TOML.
    pub(super) fn of_toml(text: &str) -> Result<Self, toml::de::Error> {
        Ok(of_table(text, DeTable::parse(text)?.into_inner()))
    }
}

fn of_table(text: &str, table: DeTable<'_>) -> Tree {
    Tree::Fields(table.into_iter().map(|(key, value)| (key.into_inner().into_owned(), of_value(text, value))).collect())
}

fn of_value(text: &str, value: Spanned<DeValue<'_>>) -> Tree {
    let written = text.get(value.span()).unwrap_or_default().to_owned();
    match value.into_inner() {
        DeValue::String(text) => Tree::Text(text.into_owned()),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(whole) => Tree::Whole(whole, written),
            // Too large for any field; how large is told of one without letters only.
            Err(_) => {
                let decimal = (number.radix() == 10).then(|| number.as_str().parse().ok()).flatten();
                Tree::Broken(decimal.unwrap_or(f64::INFINITY), Some(written))
            }
        },
        DeValue::Float(number) => Tree::Broken(number.as_str().parse().unwrap_or(f64::NAN), Some(written)),
        DeValue::Boolean(value) => Tree::Bool(value),
        DeValue::Datetime(_) => Tree::Text(written),
        DeValue::Array(items) => Tree::List(items.into_iter().map(|item| of_value(text, item)).collect()),
        DeValue::Table(table) => of_table(text, table),
    }
}

/// Reads JSON, one value with everything inside it.
impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_unit<E: Error>(self) -> Result<Tree, E> {
                Ok(Tree::Nothing)
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
                Ok(Tree::Bool(value))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Tree, E> {
                Ok(Tree::Text(text.to_owned()))
            }

            // Whole numbers of JSON can be written in one way only.
            fn visit_u64<E: Error>(self, number: u64) -> Result<Tree, E> {
                Ok(Tree::Whole(number.into(), number.to_string()))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Tree, E> {
                Ok(Tree::Whole(number.into(), number.to_string()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Tree, E> {
                Ok(Tree::Broken(number, None))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Tree::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Tree::Fields(fields))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

impl<'de> IntoDeserializer<'de> for Tree {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Tree {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self {
            Self::Nothing => visitor.visit_unit(),
            Self::Bool(value) => visitor.visit_bool(value),
            Self::Text(text) => visitor.visit_string(text),
            Self::Whole(number, _) => match (u64::try_from(number), i64::try_from(number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => visitor.visit_f64(number as f64),
            },
            Self::Broken(number, _) => visitor.visit_f64(number),
            Self::List(items) => {
                let mut items = SeqDeserializer::new(items.into_iter());
                let value = visitor.visit_seq(&mut items)?;
                items.end().map(|()| value)
            }
            Self::Fields(fields) => {
                let mut fields = MapDeserializer::new(fields.into_iter());
                let value = visitor.visit_map(&mut fields)?;
                fields.end().map(|()| value)
            }
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self {
            Self::Bool(value) => visitor.visit_string(value.to_string()),
            Self::Whole(_, written) | Self::Broken(_, Some(written)) => visitor.visit_string(written),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        if self == Self::Nothing { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self {
            Self::Text(word) | Self::Whole(_, word) | Self::Broken(_, Some(word)) => {
                visitor.visit_enum(word.into_deserializer())
            }
            Self::Broken(number, None) => visitor.visit_enum(number.to_string().into_deserializer()),
            Self::Bool(value) => visitor.visit_enum(value.to_string().into_deserializer()),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}
