//! The API as JSON, which both servers of a member answer: gRPC's, which makes it, and that of the pages.

use std::sync::{Arc, Mutex, PoisonError};

use tessera_gateway::Gateway;

/// The API as JSON, while the services run. Clones speak of the same.
#[derive(Clone, Debug, Default)]
pub struct JsonFace(Arc<Mutex<Option<Gateway>>>);

/// While it is kept, the API is answered as JSON. The gateway holds what it answers for: without an end, neither would
/// ever be dropped.
#[derive(Debug)]
pub(crate) struct Answering(JsonFace);

impl JsonFace {
    /// Who answers; `None` while the services do not run.
    pub(crate) fn gateway(&self) -> Option<Gateway> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has `gateway` answer for as long as what is returned is kept.
    pub(crate) fn answer_by(&self, gateway: Gateway) -> Answering {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(gateway);
        Answering(self.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let gateway = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(gateway);
    }
}
