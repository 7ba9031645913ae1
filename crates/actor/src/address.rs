//! Mailboxes and the addresses that lead to them.

use std::ops::Deref;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::meters::{ActorMeters, MailboxMeters};

/// The behaviour of a full mailbox towards a further message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// The sender waits for room, at most until its deadline.
    Wait,
    Refuse,
}

/// The reason why a message was not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TellError {
    /// There is no room, or there was none before the deadline.
    #[error("the mailbox of {actor} is full; back off and retry")]
    Full { actor: &'static str },
    /// Nobody reads the mailbox.
    #[error("{actor} does not run here now")]
    Gone { actor: &'static str },
}

/// The reason why a question was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    #[error(transparent)]
    NotDelivered(#[from] TellError),
    /// It was asked and did not answer in time.
    #[error("{actor} did not answer in time; retry")]
    TooLate { actor: &'static str },
    /// It was asked and dropped the question.
    #[error("{actor} ended before it answered; retry")]
    Dropped { actor: &'static str },
}

/// The sending end for one answer. Sending never waits; an asker that went away is ignored.
#[derive(Debug)]
pub struct Reply<R>(oneshot::Sender<R>);

impl<R> Reply<R> {
    /// A reply and the end at which it is awaited, for those who ask without a mailbox.
    #[must_use]
    pub fn channel() -> (Self, oneshot::Receiver<R>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    pub fn send(self, answer: R) {
        // An asker whose deadline has passed is no error of the actor.
        drop(self.0.send(answer));
    }

    /// Returns whether nobody waits for the answer any more.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

struct Envelope<M> {
    message: M,
    sent_at: Instant,
}

/// Leads to a mailbox. Clones lead to the same one.
pub struct Address<M> {
    sender: mpsc::Sender<Envelope<M>>,
    when_full: WhenFull,
    meters: MailboxMeters,
}

impl<M> Clone for Address<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), when_full: self.when_full, meters: self.meters.clone() }
    }
}

impl<M> std::fmt::Debug for Address<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").field("actor", &self.meters.actor()).finish_non_exhaustive()
    }
}

/// The receiving end of an actor's messages. Read by one actor at a time.
pub struct Mailbox<M> {
    receiver: mpsc::Receiver<Envelope<M>>,
    meters: MailboxMeters,
}

impl<M> std::fmt::Debug for Mailbox<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailbox").field("actor", &self.meters.actor()).finish_non_exhaustive()
    }
}

/// Makes a mailbox for the actor called `actor` that holds at most `capacity` messages.
#[must_use]
pub fn mailbox<M>(
    actor: &'static str,
    capacity: usize,
    when_full: WhenFull,
    meters: &ActorMeters,
) -> (Address<M>, Mailbox<M>) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let meters = meters.of(actor);
    (Address { sender, when_full, meters: meters.clone() }, Mailbox { receiver, meters })
}

impl<M: Send> Address<M> {
    /// Delivers a message; waits for room until the deadline if the mailbox is made so.
    ///
    /// # Errors
    /// [`TellError`]; the message was then not delivered and never will be.
    pub async fn tell(&self, message: M, deadline: Instant) -> Result<(), TellError> {
        let actor = self.meters.actor();
        let permit = match self.when_full {
            WhenFull::Refuse => return self.offer(message),
            WhenFull::Wait => timeout_at(deadline, self.sender.reserve()).await,
        };
        match permit {
            Ok(Ok(permit)) => {
                self.meters.put();
                permit.send(Envelope { message, sent_at: Instant::now() });
                Ok(())
            }
            Ok(Err(_)) => Err(TellError::Gone { actor }),
            Err(_) => {
                self.meters.refuse();
                Err(TellError::Full { actor })
            }
        }
    }

    /// Delivers a message if there is room now.
    ///
    /// # Errors
    /// [`TellError`]; the message was then not delivered and never will be.
    pub fn offer(&self, message: M) -> Result<(), TellError> {
        let actor = self.meters.actor();
        match self.sender.try_reserve() {
            Ok(permit) => {
                self.meters.put();
                permit.send(Envelope { message, sent_at: Instant::now() });
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(())) => {
                self.meters.refuse();
                Err(TellError::Full { actor })
            }
            Err(mpsc::error::TrySendError::Closed(())) => Err(TellError::Gone { actor }),
        }
    }

    /// Asks and waits for the answer, at most until the deadline.
    ///
    /// # Errors
    /// [`AskError`]. After `TooLate` the actor may still act on the question.
    pub async fn ask<R>(&self, question: impl FnOnce(Reply<R>) -> M, deadline: Instant) -> Result<R, AskError> {
        let actor = self.meters.actor();
        let (reply, answer) = Reply::channel();
        self.tell(question(reply), deadline).await?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(AskError::Dropped { actor }),
            Err(_) => Err(AskError::TooLate { actor }),
        }
    }
}

impl<M> Mailbox<M> {
    /// The next message; `None` when every address is gone and nothing is left. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Delivery<M>> {
        let envelope = self.receiver.recv().await?;
        Some(self.deliver(envelope))
    }

    /// The next message if there is one already.
    pub fn try_next(&mut self) -> Option<Delivery<M>> {
        let envelope = self.receiver.try_recv().ok()?;
        Some(self.deliver(envelope))
    }

    fn deliver(&self, envelope: Envelope<M>) -> Delivery<M> {
        let now = Instant::now();
        self.meters.take(now.saturating_duration_since(envelope.sent_at));
        Delivery { message: Some(envelope.message), handling: Handling { since: now, meters: self.meters.clone() } }
    }
}

impl<M> Drop for Mailbox<M> {
    fn drop(&mut self) {
        self.receiver.close();
        while self.receiver.try_recv().is_ok() {
            self.meters.lose();
        }
    }
}

struct Handling {
    since: Instant,
    meters: MailboxMeters,
}

impl Drop for Handling {
    fn drop(&mut self) {
        self.meters.handled(self.since.elapsed());
    }
}

/// A message that is being handled: from its arrival at the actor until this is dropped.
pub struct Delivery<M> {
    message: Option<M>,
    handling: Handling,
}

impl<M> Delivery<M> {
    /// Handles the message; the time that takes is measured.
    pub fn handle<R>(mut self, handle: impl FnOnce(M) -> R) -> R {
        let message = self.message.take().expect("a delivery holds its message until it is handled, which consumes it");
        let result = handle(message);
        drop(self.handling);
        result
    }
}

impl<M> Deref for Delivery<M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.message.as_ref().expect("a delivery holds its message until it is handled, which consumes it")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_mailbox_refuses_or_makes_the_sender_wait() {
        let meters = ActorMeters::default();
        let (strict, _kept) = mailbox::<u8>("strict", 1, WhenFull::Refuse, &meters);
        assert_eq!(strict.tell(1, soon()).await, Ok(()));
        let before = Instant::now();
        assert_eq!(strict.tell(2, soon()).await, Err(TellError::Full { actor: "strict" }));
        assert_eq!(before.elapsed(), Duration::ZERO);

        let (patient, mut mailbox) = mailbox::<u8>("patient", 1, WhenFull::Wait, &meters);
        assert_eq!(patient.tell(1, soon()).await, Ok(()));
        assert_eq!(patient.tell(2, soon()).await, Err(TellError::Full { actor: "patient" }));
        let third = tokio::spawn({
            let patient = patient.clone();
            async move { patient.tell(3, soon()).await }
        });
        assert_eq!(mailbox.next().await.map(|delivery| delivery.handle(|message| message)), Some(1));
        assert_eq!(third.await.expect("telling does not panic"), Ok(()));
        assert_eq!(mailbox.next().await.map(|delivery| delivery.handle(|message| message)), Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ask_ends_with_the_answer_the_deadline_or_the_actor() {
        let meters = ActorMeters::default();
        let (address, mut mailbox) = mailbox::<Reply<u8>>("oracle", 4, WhenFull::Wait, &meters);
        let silent = address.ask(|reply| reply, soon()).await;
        assert_eq!(silent, Err(AskError::TooLate { actor: "oracle" }));
        let left = mailbox.next().await.expect("the question waits in the mailbox");
        assert!(left.is_abandoned(), "the asker is gone");

        let asking = tokio::spawn({
            let address = address.clone();
            async move { address.ask(|reply| reply, soon()).await }
        });
        mailbox.next().await.expect("a question comes").handle(|reply| reply.send(7));
        assert_eq!(asking.await.expect("asking does not panic"), Ok(7));

        let asking = tokio::spawn({
            let address = address.clone();
            async move { address.ask(|reply| reply, soon()).await }
        });
        drop(mailbox.next().await);
        assert_eq!(asking.await.expect("asking does not panic"), Err(AskError::Dropped { actor: "oracle" }));

        drop(mailbox);
        let gone = address.ask(|reply| reply, soon()).await;
        assert_eq!(gone, Err(AskError::NotDelivered(TellError::Gone { actor: "oracle" })));
    }

    #[tokio::test(start_paused = true)]
    async fn depth_waits_and_handling_are_measured() {
        let meters = ActorMeters::default();
        let mut registry = prometheus_client::registry::Registry::default();
        meters.register(&mut registry);
        let (address, mut mailbox) = mailbox::<u8>("clerk", 2, WhenFull::Refuse, &meters);
        for message in 0..3 {
            assert_eq!(address.offer(message).is_ok(), message < 2);
        }
        let page = |registry: &_| {
            let mut page = String::new();
            prometheus_client::encoding::text::encode(&mut page, registry).expect("a string takes every byte");
            page
        };
        let full = page(&registry);
        assert!(full.contains("tessera_actor_mailbox_depth{actor=\"clerk\"} 2"), "{full}");
        assert!(full.contains("tessera_actor_refused_total{actor=\"clerk\"} 1"), "{full}");
        tokio::time::advance(Duration::from_secs(2)).await;
        mailbox.next().await.expect("there are two").handle(drop);
        let later = page(&registry);
        assert!(later.contains("tessera_actor_mailbox_depth{actor=\"clerk\"} 1"), "{later}");
        assert!(later.contains("tessera_actor_wait_seconds_sum{actor=\"clerk\"} 2.0"), "{later}");
        assert!(later.contains("tessera_actor_handle_seconds_count{actor=\"clerk\"} 1"), "{later}");
        drop(mailbox);
        let gone = page(&registry);
        assert!(gone.contains("tessera_actor_mailbox_depth{actor=\"clerk\"} 0"), "{gone}");
    }
}
