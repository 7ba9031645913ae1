//! Messages as JSON, by the standard mapping of Protocol Buffers: `lowerCamelCase` names, 64-bit numbers as text,
//! times in RFC 3339, durations as `1.5s`, words of enumerations as the API's files spell them.
//!
//! The mapping is read from the descriptors of the messages ([`FILE_DESCRIPTOR_SET`](crate::FILE_DESCRIPTOR_SET)), so
//! that a field that is added to a message is in its JSON without another line anywhere.
//!
//! ```
//! use tessera_api::{json::Json, v1};
//!
//! let spec = v1::JobSpec { gang: 3, ..Default::default() };
//! assert_eq!(serde_json::to_string(&Json(spec)).unwrap(), r#"{"gang":3}"#);
//! let Json(read) = serde_json::from_str::<Json<v1::JobSpec>>(r#"{"timeLimit": "90s", "gang_min": 2}"#).unwrap();
//! assert_eq!((read.time_limit.unwrap().seconds, read.gang_min), (90, Some(2)));
//! ```

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::FILE_DESCRIPTOR_SET;

/// A message that is read from JSON and written as JSON. What a message has by default is left out when it is
/// written, and may be left out when it is read; a field that the message does not have is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<M>(pub M);

static DESCRIPTORS: LazyLock<Result<DescriptorPool, String>> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|error| error.to_string()));

fn descriptor_of<M: Name>() -> Result<MessageDescriptor, String> {
    let known = DESCRIPTORS.as_ref().map_err(Clone::clone)?;
    let name = M::full_name();
    known.get_message_by_name(&name).ok_or_else(|| format!("{name} is not a message of the API"))
}

/// A message with the names and kinds of its fields, for whoever shows messages without knowing each.
///
/// # Errors
/// A text that says so when the message does not belong to the API.
pub fn reflected<M: Message + Name>(message: &M) -> Result<DynamicMessage, String> {
    let mut reflected = DynamicMessage::new(descriptor_of::<M>()?);
    reflected.transcode_from(message).map_err(|error| error.to_string())?;
    Ok(reflected)
}

impl<M: Message + Name> Serialize for Json<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        reflected(&self.0).map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de, M: Message + Name + Default> Deserialize<'de> for Json<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let descriptor = descriptor_of::<M>().map_err(D::Error::custom)?;
        let read = DynamicMessage::deserialize(descriptor, deserializer)?;
        read.transcode_to().map(Json).map_err(D::Error::custom)
    }
}
