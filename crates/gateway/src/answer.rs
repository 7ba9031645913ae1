//! The answers: messages as JSON, and refusals as the JSON of `google.rpc.Status`.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderName, HeaderValue, StatusCode};
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::{Value, json};
use tessera_api::v1::ErrorReason;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::{Code, Status};
use tonic_types::{ErrorDetail, StatusExt};

use crate::refusal_of;

/// Beginning of the names under which details are known.
const TYPE: &str = "type.googleapis.com/google.rpc.";

/// The headers of every answer: its media type, and that it is valid at this moment only.
const HEADERS: [(HeaderName, &str); 3] = [
    (CONTENT_TYPE, "application/json"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
];

/// A message as JSON. Fields that are 0 or empty are written too, so that readers need not know which there are.
pub(crate) fn json_of(message: &DynamicMessage) -> Result<String, Status> {
    let options = SerializeOptions::new().skip_default_fields(false);
    let mut written = Vec::new();
    message.serialize_with_options(&mut serde_json::Serializer::new(&mut written), &options).map_err(|error| {
        refusal_of(ErrorReason::Internal, format!("the answer cannot be written: {error}; report it"))
    })?;
    // What serde_json writes is UTF-8.
    Ok(String::from_utf8(written).unwrap_or_default())
}

/// A message as JSON. It counts against `room`, in KiB, until all its callers have read it or are gone.
pub(crate) fn written(message: &DynamicMessage, room: &Arc<Semaphore>) -> Result<Bytes, Status> {
    let json = json_of(message)?;
    let kib = u32::try_from(json.len().div_ceil(1024)).unwrap_or(u32::MAX);
    let Ok(held) = Arc::clone(room).try_acquire_many_owned(kib) else {
        let sentence =
            "too many answers of this member wait for their callers to read them; ask for fewer at once, or later";
        return Err(refusal_of(ErrorReason::TooManyRequestBytes, sentence));
    };
    Ok(Bytes::from_owner(Held { json, _room: held }))
}

/// The answer that some written JSON is.
pub(crate) fn json(written: Bytes) -> Response {
    (HEADERS, written).into_response()
}

/// An answer with the room that it takes.
struct Held {
    json: String,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.json.as_bytes()
    }
}

/// The answer that some JSON is.
pub(crate) fn text(json: &str) -> Response {
    (HEADERS, json.to_owned()).into_response()
}

/// The answer that a refusal is, under the HTTP code that stands for its own.
#[must_use]
pub fn refuse(status: Status) -> Response {
    refuse_as(http_code(status.code()), &status)
}

#[must_use]
pub fn not_found(path: &str) -> Response {
    let sentence = format!("nothing is at {path}; /v1/openapi.json lists what there is");
    refuse_as(StatusCode::NOT_FOUND, &refusal_of(ErrorReason::NotSupported, sentence))
}

/// The path takes other HTTP methods.
pub(crate) fn refuse_method(allowed: &[&'static str]) -> Response {
    let allowed = allowed.join(", ");
    let sentence = format!("this path takes {allowed}");
    let mut response = refuse_as(StatusCode::METHOD_NOT_ALLOWED, &refusal_of(ErrorReason::NotSupported, sentence));
    if let Ok(allowed) = HeaderValue::try_from(allowed) {
        response.headers_mut().insert(ALLOW, allowed);
    }
    response
}

/// The answer that a refusal is, under an HTTP code.
pub(crate) fn refuse_as(code: StatusCode, status: &Status) -> Response {
    let mut response = (code, HEADERS, status_json(status).to_string()).into_response();
    let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
    if let Some(delay) = delay {
        // The header has whole seconds.
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(delay.as_secs().max(1)));
    }
    response
}

/// A refusal as the JSON of `google.rpc.Status`.
pub(crate) fn status_json(status: &Status) -> Value {
    let details = status.get_error_details_vec().into_iter().filter_map(|detail| match detail {
        ErrorDetail::ErrorInfo(info) => Some(json!({
            "@type": format!("{TYPE}ErrorInfo"),
            "reason": info.reason,
            "domain": info.domain,
            "metadata": info.metadata,
        })),
        ErrorDetail::BadRequest(bad) => {
            let fields = bad.field_violations.into_iter();
            let fields: Vec<Value> =
                fields.map(|field| json!({ "field": field.field, "description": field.description })).collect();
            Some(json!({ "@type": format!("{TYPE}BadRequest"), "fieldViolations": fields }))
        }
        ErrorDetail::RetryInfo(retry) => {
            let delay = retry.retry_delay.unwrap_or_default();
            Some(json!({ "@type": format!("{TYPE}RetryInfo"), "retryDelay": format!("{}s", delay.as_secs_f64()) }))
        }
        // Members send no others.
        _ => None,
    });
    json!({ "code": status.code() as i32, "message": status.message(), "details": details.collect::<Vec<_>>() })
}

/// The HTTP code that stands for a code of gRPC, as google.rpc.Code says.
pub(crate) const fn http_code(code: Code) -> StatusCode {
    match code {
        Code::Ok => StatusCode::OK,
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Cancelled | Code::Unknown | Code::Internal | Code::DataLoss => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use prost_reflect::DynamicMessage;

    use super::*;

    fn page() -> DynamicMessage {
        let descriptor =
            tessera_api::reflect::descriptors().expect("they are whole").get_message_by_name("tessera.v1.Job");
        DynamicMessage::new(descriptor.expect("there are jobs"))
    }

    #[test]
    fn answers_that_nobody_reads_leave_no_room_for_others_until_they_are_gone() {
        let room = Arc::new(Semaphore::new(2));
        let unread = [written(&page(), &room), written(&page(), &room)];
        assert!(unread.iter().all(Result::is_ok) && room.available_permits() == 0);
        let refused = written(&page(), &room).expect_err("there is no room");
        assert_eq!(tessera_api::error::reason_of(&refused), Some(ErrorReason::TooManyRequestBytes));
        drop(unread);
        assert!(written(&page(), &room).is_ok());
    }
}
