//! Reads: as current as the caller asks, and honest about how current they were.

use std::sync::Arc;

use tessera_api::error::{AGE, REVISION, Refusal};
use tessera_api::v1;
use tessera_ledger::State;
use tessera_ledger::wire::{FieldError, duration_to_wire};
use tokio::time::Instant;
use tonic::Status;

use super::refusal;
use tessera_controller::pool::{Age, Consistency, PoolHandle};

/// A state to answer from.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub state: Arc<State>,
    age: Age,
}

impl Reading {
    /// The part of the answer that says how current it is.
    pub(crate) fn read_state(&self) -> Option<v1::ReadState> {
        Some(v1::ReadState { revision: self.state.revision().0, age: self.age.0.map(duration_to_wire) })
    }

    /// A refusal for what is not in the state: it says how current the state is, as an answer would.
    pub(crate) fn refuse(&self, refusal: impl Into<Refusal>) -> Status {
        let refusal = refusal.into().with(REVISION, self.state.revision().0.to_string());
        match self.age.0 {
            Some(age) => refusal.with(AGE, format!("{}.{:09}", age.as_secs(), age.subsec_nanos())).into(),
            None => refusal.into(),
        }
    }
}

/// Reads the ledger as a request asks for it.
pub(crate) async fn read(pool: &PoolHandle, consistency: i32, deadline: Instant) -> Result<Reading, Status> {
    let consistency = match v1::Consistency::try_from(consistency) {
        Ok(v1::Consistency::Unspecified | v1::Consistency::Linearizable) => Consistency::Linearizable,
        Ok(v1::Consistency::Stale) => Consistency::Stale,
        Err(_) => {
            let problem = format!("must be linearizable (1) or stale (2), is {consistency}");
            return Err(Refusal::from(FieldError::invalid("consistency", problem)).into());
        }
    };
    let (state, age) = pool.read(consistency, deadline).await.map_err(|error| refusal::of_read(pool, &error))?;
    Ok(Reading { state, age })
}
