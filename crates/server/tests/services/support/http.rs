//! A client of the JSON face, as plain as curl.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tessera_connection::Inbound;
use tessera_server::phase::Phase;
use tokio::sync::watch;
use tokio_util::sync::DropGuard;

use super::{TestMember, within};

type Incoming = <Client<hyper_util::client::legacy::connect::HttpConnector, Full<Bytes>> as tower::Service<
    Request<Full<Bytes>>,
>>::Response;

/// An answer that has come whole.
#[derive(Debug)]
pub struct Answer {
    pub code: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The reason of a refusal.
    #[track_caller]
    pub fn reason(&self) -> String {
        let status = self.json();
        let kind = "type.googleapis.com/google.rpc.ErrorInfo";
        let details = status["details"].as_array().into_iter().flatten();
        let info = details.into_iter().find(|detail| detail["@type"] == kind).expect("every refusal has a reason");
        assert_eq!(info["domain"], "tessera.v1");
        info["reason"].as_str().expect("a reason").to_owned()
    }
}

async fn send(address: &str, verb: &str, path: &str, headers: &[(&str, &str)], body: String) -> Incoming {
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut request = Request::builder().method(verb).uri(format!("http://{address}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body))).expect("a request");
    within("it answers", client.request(request)).await.expect("the connection holds")
}

/// Asks and waits for the whole answer.
pub async fn ask(address: &str, verb: &str, path: &str, headers: &[(&str, &str)], body: String) -> Answer {
    let (parts, body) = send(address, verb, path, headers, body).await.into_parts();
    let body = within("it answers", body.collect()).await.expect("the connection holds").to_bytes();
    Answer { code: parts.status, headers: parts.headers, text: String::from_utf8(body.to_vec()).expect("text") }
}

pub async fn get(address: &str, path: &str) -> Answer {
    ask(address, "GET", path, &[], String::new()).await
}

pub async fn post(address: &str, path: &str, body: &Value) -> Answer {
    ask(address, "POST", path, &[("content-type", "application/json")], body.to_string()).await
}

/// A server-sent event.
#[derive(Clone, Debug, Default)]
pub struct Event {
    pub name: String,
    pub id: String,
    pub data: Value,
}

/// A stream of server-sent events.
pub struct Events {
    answer: Incoming,
    text: String,
    ready: VecDeque<Event>,
}

impl Events {
    pub async fn open(address: &str, path: &str, headers: &[(&str, &str)]) -> Self {
        let answer = send(address, "GET", path, headers, String::new()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        let kind = Response::headers(&answer).get("content-type").and_then(|value| value.to_str().ok());
        assert_eq!(kind, Some("text/event-stream"));
        Self { answer, text: String::new(), ready: VecDeque::new() }
    }

    /// The next event; `None` when the stream is over.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            let frame = within("an event comes", self.answer.frame()).await?.expect("the connection holds");
            let Ok(data) = frame.into_data() else { continue };
            self.text.push_str(std::str::from_utf8(&data).expect("text"));
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let event = parsed(event);
                self.text = rest.to_owned();
                self.ready.extend(event);
            }
        }
    }

    /// The next event that is like this.
    pub async fn next_like(&mut self, like: impl Fn(&Event) -> bool) -> Event {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if like(&event) {
                return event;
            }
        }
    }
}

fn parsed(text: &str) -> Option<Event> {
    let mut event = Event { name: "message".to_owned(), ..Event::default() };
    let mut data = String::new();
    for (field, value) in text.lines().filter_map(|line| line.split_once(": ")) {
        match field {
            "event" => event.name = value.to_owned(),
            "id" => event.id = value.to_owned(),
            "data" => data.push_str(value),
            _ => {}
        }
    }
    event.data = serde_json::from_str(&data).ok()?;
    Some(event)
}

/// The plain pages of a member, on a port of their own.
pub struct PlainPages {
    pub address: String,
    _end: DropGuard,
    _shown: watch::Sender<Phase>,
}

impl PlainPages {
    pub async fn of(member: &TestMember) -> Self {
        let inbound = Inbound::bind(([127, 0, 0, 1], 0).into()).await.expect("a free port");
        let address = inbound.local_address().expect("an address").to_string();
        let (shown, seen) = watch::channel(Phase::Member(member.pool.clone()));
        let end = tokio_util::sync::CancellationToken::new();
        let metrics = std::sync::Arc::clone(member.pool.metrics());
        tokio::spawn(tessera_server::http::serve(inbound, seen, metrics, member.json.clone(), end.clone()));
        Self { address, _end: end.drop_guard(), _shown: shown }
    }
}
