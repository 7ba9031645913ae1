//! The end of a member's consensus: noted once, seen by everybody.

use tokio::sync::watch;

use crate::error::StopReason;

/// Notes the first reason to stop and lets anybody wait for it.
#[derive(Clone, Debug)]
pub(crate) struct Stopper(watch::Sender<Option<StopReason>>);

impl Stopper {
    pub(crate) fn new() -> Self {
        Stopper(watch::Sender::new(None))
    }

    /// Notes a reason; later ones are consequences of the first and only logged.
    pub(crate) fn stop(&self, reason: StopReason) {
        let first = self.0.send_if_modified(|noted| {
            let first = noted.is_none();
            if first {
                *noted = Some(reason.clone());
            }
            first
        });
        match (&reason, first) {
            (StopReason::Shutdown, _) => tracing::info!("consensus ends: it was shut down"),
            (_, true) => tracing::error!(reason = %chain(&reason), "consensus ends"),
            (_, false) => tracing::debug!(reason = %chain(&reason), "consensus had ended already"),
        }
    }

    pub(crate) fn reason(&self) -> Option<StopReason> {
        self.0.borrow().clone()
    }

    pub(crate) async fn stopped(&self) -> StopReason {
        let mut receiver = self.0.subscribe();
        let noted = receiver.wait_for(Option::is_some).await.expect("this stopper keeps the sender alive");
        noted.clone().expect("wait_for returned because a reason is noted")
    }
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_stays() {
        let stopper = Stopper::new();
        assert!(stopper.reason().is_none());
        stopper.stop(StopReason::Core { what: "first".into() });
        stopper.stop(StopReason::Shutdown);
        assert!(matches!(stopper.stopped().await, StopReason::Core { what } if what == "first"));
    }
}
