//! The checks before anything is read. They refuse changes at an address that only answers questions, and changes that
//! a web page asks for.
//!
//! Members do not know yet who asks, so whoever reaches the port may do what gRPC lets everybody do. A browser reaches
//! it too, and any page that a person opens can have it ask. Such requests are told by what browsers always add, and by
//! a media type that a page can only send after asking for permission, which is never given.

use axum::response::Response;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, StatusCode};
use tessera_api::v1::ErrorReason;

use crate::answer::refuse_as;
use crate::refusal_of;
use crate::routes::Route;

/// The requests that are permitted at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Questions.
    Ask,
    /// Questions and changes.
    Change,
}

/// A request that is not passed on.
#[derive(Debug)]
pub(crate) struct Refused {
    code: StatusCode,
    reason: ErrorReason,
    sentence: String,
}

impl Refused {
    pub(crate) fn into_response(self) -> Response {
        refuse_as(self.code, &refusal_of(self.reason, self.sentence))
    }
}

/// Checks whether a request may be passed on.
pub(crate) fn check(route: &Route, headers: &HeaderMap, rights: Rights) -> Result<(), Refused> {
    let refused = |code, reason, sentence: String| Err(Refused { code, reason, sentence });
    if route.changes && rights == Rights::Ask {
        let sentence =
            "this address answers questions and changes nothing; ask at the address where the member serves gRPC";
        return refused(StatusCode::FORBIDDEN, ErrorReason::ReadOnlyAddress, sentence.to_owned());
    }
    if route.changes && (headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site")) {
        let sentence =
            "a web page asked for this; members do not know who looks at it, so use tessera or a program of your own";
        return refused(StatusCode::FORBIDDEN, ErrorReason::AskedByWebPage, sentence.to_owned());
    }
    if route.takes_body() && !is_json(headers) {
        let sentence = "the body must be JSON, and the header content-type must say so: application/json";
        return refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, ErrorReason::ProtocolViolation, sentence.to_owned());
    }
    Ok(())
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::routes::ROUTES;

    fn answer(method: &str, given: &[(&'static str, &'static str)], rights: Rights) -> Option<ErrorReason> {
        let route = ROUTES.iter().find(|route| route.method == method).expect("it has a route");
        let headers =
            given.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        check(route, &headers.collect(), rights).err().map(|refused| refused.reason)
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");

    #[test]
    fn a_change_that_a_page_asks_for_is_refused_wherever_the_page_is_from() {
        for added in [("origin", "http://127.0.0.1:7400"), ("origin", "null"), ("sec-fetch-site", "same-origin")] {
            let refused = answer("JobService/CancelJob", &[JSON, added], Rights::Change);
            assert_eq!(refused, Some(ErrorReason::AskedByWebPage), "{added:?}");
            assert_eq!(answer("JobService/GetJob", &[added], Rights::Change), None);
        }
        assert_eq!(answer("JobService/CancelJob", &[JSON], Rights::Change), None);
    }

    #[test]
    fn a_form_is_no_request() {
        let form = ("content-type", "application/x-www-form-urlencoded");
        for given in [&[form][..], &[]] {
            assert_eq!(answer("JobService/PlanJob", given, Rights::Ask), Some(ErrorReason::ProtocolViolation));
        }
    }

    #[test]
    fn an_address_for_questions_changes_nothing() {
        assert_eq!(answer("QueueService/RemoveQueue", &[], Rights::Ask), Some(ErrorReason::ReadOnlyAddress));
        assert_eq!(answer("QueueService/GetQueue", &[], Rights::Ask), None);
    }
}
