//! Spans. [`Span`] is of something that goes on; [`Draft`] of something that is over, whose beginning and end are known
//! from records. All functions that make one answer `None` as long as nobody collects.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry::context::FutureExt as _;
use opentelemetry::global::BoxedTracer;
use opentelemetry::trace::{SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Array, Context, ContextGuard, KeyValue, StringValue, Value};
use xxhash_rust::xxh3::xxh3_64;

use crate::traceparent;

/// The destination of spans, once a collector is named.
static TRACER: OnceLock<BoxedTracer> = OnceLock::new();

/// Gives spans a place to go to; the first word counts.
pub fn collect_with(tracer: BoxedTracer) {
    // A process names its collector once.
    let _ = TRACER.set(tracer);
}

#[must_use]
pub fn is_collected() -> bool {
    TRACER.get().is_some()
}

/// A span of something that goes on. It ends when it is dropped.
#[derive(Debug)]
pub struct Span(Context);

impl Span {
    fn begin(builder: SpanBuilder, parent: &Context) -> Option<Self> {
        let span = TRACER.get()?.build_with_context(builder, parent);
        Some(Self(parent.with_span(span)))
    }

    /// The span of a call that another process makes here, in the trace that the caller names, if it names one. `path`
    /// is `/PACKAGE.SERVICE/METHOD`.
    #[must_use]
    pub fn of_call(path: &str, caller: Option<&str>) -> Option<Self> {
        if !is_collected() {
            return None;
        }
        let method = path.trim_start_matches('/').to_owned();
        let attributes = [KeyValue::new("rpc.system.name", "grpc"), KeyValue::new("rpc.method", method.clone())];
        let builder = SpanBuilder::from_name(method).with_kind(SpanKind::Server).with_attributes(attributes);
        Self::begin(builder, &remote(caller.and_then(traceparent::parse)))
    }

    /// A span within the one that is current; `None` also when none is, or when that is not kept.
    #[must_use]
    pub fn here(name: &'static str) -> Option<Self> {
        if !is_collected() {
            return None;
        }
        let parent = Context::current();
        if !parent.span().span_context().is_sampled() {
            return None;
        }
        Self::begin(SpanBuilder::from_name(name), &parent)
    }

    /// A span within the one that a trace context names; `None` also when it names none, or one that is not kept.
    #[must_use]
    pub fn following(name: &'static str, context: &str) -> Option<Self> {
        if !is_collected() {
            return None;
        }
        let context = traceparent::parse(context).filter(SpanContext::is_sampled)?;
        Self::begin(SpanBuilder::from_name(name), &remote(Some(context)))
    }

    /// Says something about it.
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(key, value));
    }

    /// Records that the operation of this span failed.
    pub fn fail(&self, why: impl Into<Cow<'static, str>>) {
        self.0.span().set_status(Status::error(why));
    }

    /// Makes it the current one on this thread, until the answer is dropped.
    pub fn enter(&self) -> ContextGuard {
        self.0.clone().attach()
    }

    /// Its trace context as text.
    #[must_use]
    pub fn traceparent(&self) -> String {
        traceparent::text(self.0.span().span_context())
    }

    /// A span within this one, of something that is over.
    pub fn draft(&self, name: &'static str) -> Draft {
        Draft::new(name, self.0.clone())
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

/// Does something of which a span is told, if one is: it is the current one meanwhile.
pub async fn within<T>(span: Option<&Span>, work: impl Future<Output = T>) -> T {
    match span {
        Some(span) => work.with_context(span.0.clone()).await,
        None => work.await,
    }
}

/// The trace context of the span that is current, as text.
#[must_use]
pub fn current() -> Option<String> {
    if !is_collected() {
        return None;
    }
    let context = Context::current();
    let span = context.span();
    Some(span.span_context()).filter(|span| span.is_valid()).map(traceparent::text)
}

/// An id of a span that whoever writes the span can work out from what it is about: told twice, by an agent before and
/// after its restart, it is the same span; and its children can be told of it before it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanIdentity(SpanId);

impl SpanIdentity {
    #[must_use]
    pub fn of(name: &str, numbers: &[u64]) -> Self {
        let mut bytes = name.as_bytes().to_vec();
        bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        // Zero is no id.
        Self(SpanId::from(xxh3_64(&bytes).max(1)))
    }

    /// The context for children of that span in a trace, when spans of that trace are kept.
    #[must_use]
    pub fn traceparent(self, of: &str) -> Option<String> {
        if !is_collected() {
            return None;
        }
        let of = traceparent::parse(of).filter(SpanContext::is_sampled)?;
        let own = SpanContext::new(of.trace_id(), self.0, of.trace_flags(), false, of.trace_state().clone());
        Some(traceparent::text(&own))
    }
}

/// A span of something that is over. It is told by [`Draft::until`].
#[derive(Debug)]
#[must_use]
pub struct Draft {
    builder: SpanBuilder,
    parent: Context,
    identity: Option<SpanIdentity>,
    status: Status,
}

impl Draft {
    fn new(name: &'static str, parent: Context) -> Self {
        Self { builder: SpanBuilder::from_name(name), parent, identity: None, status: Status::Unset }
    }

    /// A span within the one that a trace context names; `None` when nobody collects, or it names none.
    pub fn following(name: &'static str, context: &str) -> Option<Self> {
        if !is_collected() {
            return None;
        }
        Some(Self::new(name, remote(Some(traceparent::parse(context)?))))
    }

    /// Its id is not drawn.
    pub fn known_as(mut self, identity: SpanIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    pub fn since(mut self, time: SystemTime) -> Self {
        self.builder.start_time = Some(time);
        self
    }

    /// Says something about it.
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Self {
        self.builder.attributes.get_or_insert_default().push(KeyValue::new(key, value));
        self
    }

    /// Says something about it, if there is something to say.
    pub fn with_some(self, key: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    pub fn with_list(self, key: &'static str, values: Vec<String>) -> Self {
        let values = values.into_iter().map(StringValue::from).collect();
        self.with(key, Value::Array(Array::String(values)))
    }

    /// Records that the operation of this span failed, if there is a reason.
    pub fn failed(mut self, why: Option<impl Into<Cow<'static, str>>>) -> Self {
        if let Some(why) = why {
            self.status = Status::error(why);
        }
        self
    }

    /// It ended at that time, or at its beginning if that was later: clocks of different machines differ.
    pub fn until(self, end: SystemTime) {
        use opentelemetry::trace::Span as _;
        let Some(tracer) = TRACER.get() else { return };
        let began = self.builder.start_time;
        WANTED.set(self.identity.map(|identity| identity.0));
        let mut span = tracer.build_with_context(self.builder, &self.parent);
        WANTED.set(None);
        span.set_status(self.status);
        span.end_with_timestamp(began.map_or(end, |began| began.max(end)));
    }
}

thread_local! {
    /// The id of the span that is being made on this thread, where it is not drawn.
    static WANTED: Cell<Option<SpanId>> = const { Cell::new(None) };
}

/// Takes the id that the span which is being made on this thread is to have, if it is to have a certain one.
#[must_use]
pub fn take_wanted_id() -> Option<SpanId> {
    WANTED.take()
}

#[must_use]
pub fn ago(elapsed: Duration) -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(elapsed).unwrap_or(now)
}

/// A time in milliseconds since the Unix epoch.
#[must_use]
pub fn at_millis(unix_ms: u64) -> SystemTime {
    UNIX_EPOCH.checked_add(Duration::from_millis(unix_ms)).unwrap_or(UNIX_EPOCH)
}

/// A number as attributes have it: whole, with a sign.
#[must_use]
pub fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn remote(span: Option<SpanContext>) -> Context {
    // Not the current context: a trace that is named elsewhere has nothing to do with what goes on here.
    span.map_or_else(Context::new, |span| Context::new().with_remote_span_context(span))
}
