//! Words that are exchanged with CRIU while it restores an image: messages of Protocol Buffers over a socket, whose
//! fields are those of `rpc.proto` of CRIU (<https://github.com/checkpoint-restore/criu>, `images`).

use std::os::fd::RawFd;
use std::path::Path;

use prost::Message;

use super::sockets::Connections;

/// Longest message of CRIU that is read.
pub(super) const LONGEST: usize = 1 << 16;

const RESTORE: i32 = 2;
const NOTIFY: i32 = 6;
/// Only errors are written down.
const ERRORS: i32 = 1;
/// Control groups stay as they are.
const IGNORE: i32 = 0;
/// Networks are not locked: both ends of a connection are in the tree, or it is not kept.
const SKIP: i32 = 3;

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(int32, required, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    options: Option<Options>,
    /// True if CRIU may take the step that it has announced.
    #[prost(bool, optional, tag = "3")]
    is_allowed: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
struct Options {
    /// No descriptor: the image is named by its path.
    #[prost(int32, required, tag = "1")]
    folder_descriptor: i32,
    #[prost(bool, optional, tag = "5")]
    keeps_connections: Option<bool>,
    #[prost(bool, optional, tag = "8")]
    file_locks: Option<bool>,
    #[prost(int32, optional, tag = "9")]
    log_level: Option<i32>,
    /// Steps are announced over the socket, and wait for an answer.
    #[prost(bool, optional, tag = "12")]
    announces_steps: Option<bool>,
    /// The tree becomes a child of whoever started CRIU.
    #[prost(bool, optional, tag = "26")]
    as_sibling: Option<bool>,
    #[prost(message, repeated, tag = "27")]
    inherited: Vec<Inherited>,
    #[prost(int32, optional, tag = "34")]
    control_groups: Option<i32>,
    #[prost(bool, optional, tag = "52")]
    closes_connections: Option<bool>,
    #[prost(int32, optional, tag = "64")]
    network_lock: Option<i32>,
    #[prost(string, optional, tag = "68")]
    folder: Option<String>,
    #[prost(bool, optional, tag = "71")]
    logs_to_stderr: Option<bool>,
}

/// A descriptor that takes the place of something in the image.
#[derive(Clone, PartialEq, Message)]
struct Inherited {
    #[prost(string, required, tag = "1")]
    key: String,
    #[prost(int32, required, tag = "2")]
    descriptor: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Response {
    #[prost(int32, required, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "5")]
    announced: Option<Announced>,
}

#[derive(Clone, PartialEq, Message)]
struct Announced {
    #[prost(string, optional, tag = "1")]
    step: Option<String>,
}

/// The order to restore the image in a folder. Each descriptor of `pipes` takes the place of the pipe of a number.
pub(super) fn restore(folder: &Path, connections: Connections, pipes: &[(RawFd, u64)]) -> Vec<u8> {
    let inherited =
        pipes.iter().map(|(descriptor, pipe)| Inherited { key: format!("pipe:[{pipe}]"), descriptor: *descriptor });
    let options = Options {
        folder_descriptor: -1,
        keeps_connections: Some(connections == Connections::Kept),
        file_locks: Some(true),
        log_level: Some(ERRORS),
        announces_steps: Some(true),
        as_sibling: Some(true),
        inherited: inherited.collect(),
        control_groups: Some(IGNORE),
        closes_connections: Some(connections == Connections::Closed),
        network_lock: Some(SKIP),
        folder: Some(folder.display().to_string()),
        logs_to_stderr: Some(true),
    };
    Request { kind: RESTORE, options: Some(options), is_allowed: None }.encode_to_vec()
}

/// The answer to a step that CRIU has announced.
pub(super) fn answer(is_allowed: bool) -> Vec<u8> {
    Request { kind: NOTIFY, options: None, is_allowed: Some(is_allowed) }.encode_to_vec()
}

/// The step that CRIU announces by a message; `None`: the restore is over.
///
/// # Errors
/// When it is no message of CRIU.
pub(super) fn announced(message: &[u8]) -> Result<Option<String>, prost::DecodeError> {
    let response = Response::decode(message)?;
    Ok((response.kind == NOTIFY).then(|| response.announced.and_then(|announced| announced.step).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_has_the_fields_of_criu() {
        // Written by hand from `rpc.proto`: the type of the message, the step, and the answer.
        assert_eq!(
            announced(b"\x08\x06\x10\x01\x2a\x0d\x0a\x0bpre-restore").expect("it is one").as_deref(),
            Some("pre-restore")
        );
        assert_eq!(announced(b"\x08\x02\x10\x01\x22\x02\x08\x05").expect("it is one"), None);
        announced(b"\xff\xff").expect_err("it is none");
        assert_eq!(answer(true), b"\x08\x06\x18\x01");
        assert_eq!(answer(false), b"\x08\x06\x18\x00");
    }
}
