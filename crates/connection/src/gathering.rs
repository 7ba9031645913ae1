//! Answers that are ready about the same time leave together.
//!
//! Calls that share an entry of the log are answered in a row. Each answer would be written, and read at the other end,
//! by itself: a tenth of what a call costs a member whose clients share connections. So while more calls are under way
//! over a connection, a write waits until its thread has nothing else to do. Who calls alone waits for nothing.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use futures::task::AtomicWaker;
use tokio::task::yield_now;

/// Decides when the writes of one connection leave.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// True while a write waits for its turn.
    waits: bool,
    turn: Arc<Turn>,
}

/// A turn that was asked for.
#[derive(Debug, Default)]
struct Turn {
    came: AtomicBool,
    connection: AtomicWaker,
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.came.store(true, Ordering::Release);
        self.connection.wake();
    }
}

impl Gathering {
    /// Ready when a write may leave. `more` says whether more answers may be ready soon.
    pub(crate) fn poll_turn(&mut self, cx: &mut Context<'_>, more: impl FnOnce() -> bool) -> Poll<()> {
        if !self.waits && !more() {
            return Poll::Ready(());
        }
        self.turn.connection.register(cx.waker());
        if !self.waits {
            self.waits = true;
            let turn = Waker::from(Arc::clone(&self.turn));
            // It wakes when the thread has run whatever it can.
            let asked = pin!(yield_now()).poll(&mut Context::from_waker(&turn));
            debug_assert!(asked.is_pending(), "the first time it always waits");
        }
        if self.turn.came.swap(false, Ordering::Acquire) {
            self.waits = false;
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;

    use super::*;

    #[tokio::test]
    async fn a_write_waits_until_all_that_can_run_has_run_and_only_while_more_may_come() {
        let mut gathering = Gathering::default();
        let mut polled = 0;
        poll_fn(|cx| {
            polled += 1;
            gathering.poll_turn(cx, || false)
        })
        .await;
        assert_eq!(polled, 1, "alone");
        let told = Arc::new(Mutex::new(Vec::new()));
        let others: Vec<_> = (0..5)
            .map(|number| {
                let told = Arc::clone(&told);
                tokio::spawn(async move { told.lock().expect("nobody panics").push(number) })
            })
            .collect();
        for _ in 0..2 {
            // Woken by each answer, it waits all the same.
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                gathering.poll_turn(cx, || true)
            })
            .await;
            assert_eq!(*told.lock().expect("nobody panics"), [0, 1, 2, 3, 4]);
        }
        for other in others {
            other.await.expect("it does not panic");
        }
    }
}
