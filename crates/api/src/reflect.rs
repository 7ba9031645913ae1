//! Messages by their descriptors, for whoever turns them into something else (JSON, pages) without naming each field.
//!
//! A field that is added to a message is in all of these without another line anywhere.
//!
//! ```
//! use tessera_api::{reflect::reflected, v1};
//!
//! let spec = v1::JobSpec { gang: 3, ..Default::default() };
//! assert_eq!(reflected(&spec).unwrap().get_field_by_name("gang").unwrap().as_u32(), Some(3));
//! ```

use std::sync::LazyLock;

use prost::{Message, Name};
use prost_reflect::{DescriptorError, DescriptorPool, DynamicMessage};

use crate::FILE_DESCRIPTOR_SET;

static DESCRIPTORS: LazyLock<Result<DescriptorPool, DescriptorError>> =
    LazyLock::new(|| DescriptorPool::decode(FILE_DESCRIPTOR_SET));

/// The descriptors of every message and service of the API.
///
/// # Errors
/// The descriptors that were compiled in are damaged, which a test rules out.
pub fn descriptors() -> Result<&'static DescriptorPool, &'static DescriptorError> {
    DESCRIPTORS.as_ref()
}

/// A message with the names and kinds of its fields.
///
/// # Errors
/// A text that says so when the message does not belong to the API.
pub fn reflected<M: Message + Name>(message: &M) -> Result<DynamicMessage, String> {
    let known = descriptors().map_err(ToString::to_string)?;
    let name = M::full_name();
    let descriptor = known.get_message_by_name(&name).ok_or_else(|| format!("{name} is not a message of the API"))?;
    let mut reflected = DynamicMessage::new(descriptor);
    reflected.transcode_from(message).map_err(|error| error.to_string())?;
    Ok(reflected)
}
