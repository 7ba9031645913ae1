//! Calling the services: a message goes in as bytes and comes out as bytes, whatever its type.

use bytes::{Buf, BufMut, Bytes};
use http::HeaderMap;
use http::uri::PathAndQuery;
use prost::Message;
use prost_reflect::DynamicMessage;
use tessera_api::metadata::{ACTOR, TRACEPARENT};
use tessera_api::v1::ErrorReason;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status, Streaming};

use crate::{Described, Stack, refusal_of};

/// Largest answer in bytes: a page of the largest jobs.
const LARGEST_ANSWER: usize = 64 << 20;

/// Headers of the request that are passed on: who asks, in which trace, and how long they wait.
const PASSED_ON: [&str; 4] = [ACTOR, TRACEPARENT, "grpc-timeout", "authorization"];

/// Messages as the bytes that they are on the wire.
#[derive(Clone, Copy, Debug, Default)]
struct Wire;

impl Codec for Wire {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Wire {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Wire {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }
}

/// Asks for one answer.
pub(crate) async fn unary(
    stack: Stack,
    described: &Described,
    message: &DynamicMessage,
    from: &HeaderMap,
) -> Result<DynamicMessage, Status> {
    let (mut client, request, path) = prepare(stack, described, message, from)?;
    let Ok(()) = client.ready().await;
    let answer: tonic::Response<Bytes> = client.unary(request, path, Wire).await?;
    decode(described, answer.into_inner())
}

/// Asks for a stream of answers.
pub(crate) async fn stream(
    stack: Stack,
    described: &Described,
    message: &DynamicMessage,
    from: &HeaderMap,
) -> Result<Streaming<Bytes>, Status> {
    let (mut client, request, path) = prepare(stack, described, message, from)?;
    let Ok(()) = client.ready().await;
    let answers = client.server_streaming(request, path, Wire).await?;
    Ok(answers.into_inner())
}

/// The answer that some bytes are.
pub(crate) fn decode(described: &Described, bytes: Bytes) -> Result<DynamicMessage, Status> {
    DynamicMessage::decode(described.method.output(), bytes).map_err(|error| {
        let sentence = format!("the answer of {} cannot be read: {error}; report it", described.route.method);
        refusal_of(ErrorReason::Internal, sentence)
    })
}

fn prepare(
    stack: Stack,
    described: &Described,
    message: &DynamicMessage,
    from: &HeaderMap,
) -> Result<(Grpc<Stack>, Request<Bytes>, PathAndQuery), Status> {
    let path = format!("/tessera.v1.{}", described.route.method);
    let path = PathAndQuery::try_from(path).map_err(|error| refusal_of(ErrorReason::Internal, error.to_string()))?;
    let mut headers = HeaderMap::new();
    for name in PASSED_ON {
        if let Some(value) = from.get(name) {
            headers.insert(name, value.clone());
        }
    }
    let metadata = tonic::metadata::MetadataMap::from_headers(headers);
    let request = Request::from_parts(metadata, tonic::Extensions::default(), Bytes::from(message.encode_to_vec()));
    Ok((Grpc::new(stack).max_decoding_message_size(LARGEST_ANSWER), request, path))
}
