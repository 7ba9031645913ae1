//! Tags of YAML, such as `!vault`: they mean something to other programs and nothing here, so none is dropped unseen.
//!
//! YAML's reader tells of those only. One of YAML's own (`!!binary`), and one in full (`!<tag:..>`), does not come
//! here: the letters behind it are taken as they are.

use std::fmt;

use serde::de::{Deserialize, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, Visitor};

/// A value in which nothing has a tag.
pub(super) struct Untagged;

impl<'de> Deserialize<'de> for Untagged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Self)
    }
}

impl<'de> Visitor<'de> for Untagged {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_unit<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_none<E: Error>(self) -> Result<Self, E> {
        Ok(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self, A::Error> {
        while items.next_element::<Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<Self, Self>()?.is_some() {}
        Ok(self)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<Self, A::Error> {
        let (tag, _) = tagged.variant::<String>()?;
        Err(A::Error::custom(format!(
            "has the tag !{tag}, which means nothing in a job file; leave it out, or put it in quotes"
        )))
    }
}
