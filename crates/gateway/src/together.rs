//! Questions that many ask at once: consoles that show the same view ask the same, each as often as its view does.
//!
//! Those who ask while the same question waits for its turn get one answer together. It is made after the last of them
//! has asked, so nobody is told less than by an answer of their own. After an answer that took long to make, the next
//! turn of that question comes later: however many ask, a question takes a bounded share of the member. Whoever wants
//! to know what the pool's majority has acknowledged waits for nobody.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::{HeaderMap, HeaderValue};
use prost::Message;
use prost_reflect::DynamicMessage;
use tessera_api::metadata::{ACTOR, TRACEPARENT};
use tessera_api::v1::{Consistency, ErrorReason};
use tokio::time::{Instant, sleep};
use tonic::Status;

use crate::routes::Verb;
use crate::{Described, refusal_of};

/// The pause after an answer, in times that it took: so a question takes a twentieth of a core at most.
const PAUSE: u32 = 20;
/// The longest pause: views ask each second.
const LONGEST: Duration = Duration::from_secs(1);
/// Bytes of a question that may be shared: addresses are short.
const SHORT: usize = 4 << 10;

/// A question together with its asker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    method: &'static str,
    message: Vec<u8>,
    asker: [Option<HeaderValue>; 2],
}

impl Key {
    /// The key of a question that may be answered together with others like it.
    pub(crate) fn of(described: &Described, message: &DynamicMessage, from: &HeaderMap) -> Option<Self> {
        let consistency = message.get_field_by_name("consistency").and_then(|value| value.as_enum_number());
        let stale = consistency.is_none_or(|consistency| consistency == Consistency::Stale as i32);
        // Whoever has a time limit or is traced wants a call of their own.
        let own = from.contains_key("grpc-timeout") || from.contains_key(TRACEPARENT);
        let asks = described.route.verb == Verb::Get && !described.method.is_server_streaming();
        (asks && stale && !own && message.encoded_len() <= SHORT).then(|| Self {
            method: described.route.method,
            message: message.encode_to_vec(),
            asker: [ACTOR, "authorization"].map(|name| from.get(name).cloned()),
        })
    }
}

/// An answer, written.
pub(crate) type Answer = Result<Bytes, Status>;

/// The answer that all who have asked so far will get.
type Asking = Shared<BoxFuture<'static, Answer>>;

#[derive(Debug, Default)]
struct Question {
    /// Held while it is answered, and for a while after.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Waits for its turn.
    next: Option<Asking>,
}

/// The questions that are being asked. Clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Together(Arc<Mutex<HashMap<Key, Question>>>);

impl Together {
    /// The answer to a question, made by `call` for all who ask it before its turn comes.
    pub(crate) async fn ask<F>(&self, key: Key, call: impl FnOnce() -> F + Send + 'static) -> Answer
    where
        F: Future<Output = Answer> + Send,
    {
        let asking = self.join(key, call);
        asking.await
    }

    fn join<F>(&self, key: Key, call: impl FnOnce() -> F + Send + 'static) -> Asking
    where
        F: Future<Output = Answer> + Send,
    {
        let mut questions = self.questions();
        let question = questions.entry(key.clone()).or_default();
        if let Some(next) = &question.next {
            return next.clone();
        }
        let (turn, own) = (Arc::clone(&question.turn), self.clone());
        // A task of its own: whoever asked first may give up, and the others wait for the same answer.
        let task = tokio::spawn(async move {
            let turn = turn.lock_owned().await;
            own.begin(&key);
            let began = Instant::now();
            let answer = call().await;
            let pause = (began.elapsed() * PAUSE).min(LONGEST);
            tokio::spawn(async move {
                sleep(pause).await;
                drop(turn);
                own.end(&key);
            });
            answer
        });
        let broken = |error: tokio::task::JoinError| {
            let sentence = format!("the answer could not be made: {error}; report it");
            Err(refusal_of(ErrorReason::Internal, sentence))
        };
        let asking = task.map(move |answer| answer.unwrap_or_else(broken)).boxed().shared();
        question.next = Some(asking.clone());
        asking
    }

    fn questions(&self) -> MutexGuard<'_, HashMap<Key, Question>> {
        // Every change is a plain assignment: it is whole even if a holder panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on an answer says less than who asks may know already.
    fn begin(&self, key: &Key) {
        if let Some(question) = self.questions().get_mut(key) {
            question.next = None;
        }
    }

    /// Forgets a question for whose turn nobody waits.
    fn end(&self, key: &Key) {
        let mut questions = self.questions();
        if questions.get(key).is_some_and(|question| question.next.is_none() && Arc::strong_count(&question.turn) == 1)
        {
            questions.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::future::join_all;

    use super::*;

    #[test]
    fn a_long_question_is_answered_by_itself() {
        let all = crate::describe().expect("the descriptors were compiled in");
        let jobs = all.iter().find(|described| described.route.method == "JobService/ListJobs").expect("it is one");
        let is_shared = |bytes: usize| {
            let (page_token, consistency) = ("x".repeat(bytes), Consistency::Stale.into());
            let asked = tessera_api::v1::ListJobsRequest { page_token, consistency, ..Default::default() };
            let mut message = DynamicMessage::new(jobs.method.input());
            message.transcode_from(&asked).expect("it is such a message");
            Key::of(jobs, &message, &HeaderMap::new()).is_some()
        };
        assert_eq!((is_shared(SHORT / 2), is_shared(SHORT + 1)), (true, false));
    }

    fn key(method: &'static str) -> Key {
        Key { method, message: Vec::new(), asker: [None, None] }
    }

    /// Answers how often something was answered.
    fn counting(calls: &Arc<AtomicU64>) -> impl FnOnce() -> BoxFuture<'static, Answer> + Send + 'static {
        let calls = Arc::clone(calls);
        move || {
            async move {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(10)).await;
                Ok(Bytes::from(call.to_string()))
            }
            .boxed()
        }
    }

    fn number(answer: Answer) -> u64 {
        let bytes = answer.expect("it is answered");
        std::str::from_utf8(&bytes).expect("digits").parse().expect("a number")
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_before_an_answer_is_begun_get_it_together() {
        let (together, calls) = (Together::default(), Arc::default());
        let asked = (0..50).map(|_| together.ask(key("a"), counting(&calls)));
        let answers: Vec<u64> = join_all(asked).await.into_iter().map(number).collect();
        assert_eq!(answers, [0; 50]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_was_begun_before_it_was_asked_for() {
        let (together, calls) = (Together::default(), Arc::<AtomicU64>::default());
        let asker = |after: u64| {
            let (together, calls) = (together.clone(), Arc::clone(&calls));
            async move {
                sleep(Duration::from_millis(after)).await;
                let begun = calls.load(Ordering::Relaxed);
                assert!(number(together.ask(key("a"), counting(&calls)).await) >= begun);
            }
        };
        let began = Instant::now();
        join_all((0..1000).map(|place| asker(place * 3))).await;
        let calls = calls.load(Ordering::Relaxed);
        assert!(u128::from(calls) <= began.elapsed().as_millis() / 200 + 2, "{calls} answers in {:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn other_questions_do_not_wait() {
        let (together, calls) = (Together::default(), Arc::default());
        let began = Instant::now();
        let both = [together.ask(key("a"), counting(&calls)), together.ask(key("b"), counting(&calls))];
        assert!(join_all(both).await.into_iter().map(number).eq([0, 1]));
        assert_eq!(began.elapsed(), Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_gives_up_takes_no_answer_from_others() {
        let (together, calls) = (Together::default(), Arc::default());
        let first = together.join(key("a"), counting(&calls));
        let second = together.join(key("a"), counting(&calls));
        drop(first);
        assert_eq!(number(second.await), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_any_more_is_forgotten() {
        let (together, calls) = (Together::default(), Arc::default());
        for number in 0..9u8 {
            let other = Key { message: vec![number], ..key("a") };
            together.ask(other, counting(&calls)).await.expect("it is answered");
        }
        sleep(LONGEST).await;
        assert!(together.questions().is_empty());
    }
}
