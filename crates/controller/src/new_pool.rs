//! The blocks of a new pool. Whoever creates the cluster specifies them; every founder keeps them in memory, and the
//! first founder that leads writes them into the ledger before any agent is heard, because the size of a block is fixed
//! once a card is counted in it.

use std::time::Duration;

use tessera_api::fields::number;
use tessera_api::{limits, v1};
use tessera_ledger::wire::{FieldError, WireEnum, enum_from_wire};
use tessera_ledger::{Command, MilliTflops, Outcome, PoolConfig, Precision, Request, State};
use tokio::time::{Instant, sleep};

use crate::pool::PoolHandle;

/// Pause before the settings are proposed again.
const PAUSE: Duration = Duration::from_millis(50);
/// Name under which the settings are proposed.
const NAME: &str = "founding";

/// The blocks of a new pool: their size, and the precision in which they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewPool {
    pub block_size: MilliTflops,
    /// Precision in which blocks are counted.
    pub reference: Precision,
}

impl NewPool {
    /// Reads what a request says; what it leaves out is as everywhere.
    pub fn of_request(pool: &v1::NewPool) -> Result<Self, FieldError> {
        let defaults = PoolConfig::default();
        let block_size = match MilliTflops(pool.block_milli_tflops) {
            MilliTflops::ZERO => defaults.block_size,
            size => {
                number("pool.block_milli_tflops", size, MilliTflops(1)..=limits::BLOCK)?;
                size
            }
        };
        let reference = enum_from_wire("pool.reference_precision", pool.reference_precision)?;
        Ok(Self { block_size, reference: reference.unwrap_or(defaults.reference_precision) })
    }

    /// The same as a request says it.
    pub fn to_wire(self) -> v1::NewPool {
        v1::NewPool { block_milli_tflops: self.block_size.0, reference_precision: self.reference.to_wire() }
    }

    /// True if a pool has such blocks.
    pub fn is_that_of(self, config: &PoolConfig) -> bool {
        (self.block_size, self.reference) == (config.block_size, config.reference_precision)
    }

    /// The command that writes these settings, if the pool has others and they may still be changed.
    fn due(self, state: &State) -> Option<Command> {
        let present = state.config();
        if self.is_that_of(present) || state.cards().next().is_some() {
            return None;
        }
        let (block_size, reference_precision) = (self.block_size, self.reference);
        let config = PoolConfig { block_size, reference_precision, ..present.clone() };
        Some(Command::SetConfig { config, expected: Some(Box::new(present.clone())) })
    }
}

impl std::fmt::Display for NewPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "blocks of {} {}", self.block_size, self.reference.name())
    }
}

/// Writes into the ledger what the founders were told, as the leader that is ready to act. Ends when that is done or
/// need not be; whoever calls it drops it when leadership is lost.
pub async fn settle(pool: &PoolHandle) {
    let Some(new) = pool.new_pool() else { return };
    while let Some(command) = new.due(&pool.view().current()) {
        let request = Request { key: None, actor: NAME.to_owned(), command };
        let deadline = Instant::now() + pool.config().timings.propose;
        match pool.propose(request, deadline).await {
            Ok(committed) => match committed.outcome {
                Outcome::Rejected(refusal) => {
                    tracing::warn!(%refusal, "the pool's blocks are not settled; tried again")
                }
                _ => return tracing::info!(%new, "the pool's blocks are settled"),
            },
            Err(error) => tracing::warn!(%error, "the pool's blocks are not settled; tried again"),
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Ledger;

    fn of(block_milli_tflops: u64, reference_precision: i32) -> Result<NewPool, FieldError> {
        NewPool::of_request(&v1::NewPool { block_milli_tflops, reference_precision })
    }

    #[test]
    fn what_is_left_out_is_a_tflops_of_fp16() {
        let plain = of(0, 0).expect("nothing is said");
        assert!(plain.is_that_of(&PoolConfig::default()));
        assert_eq!(plain.to_string(), "blocks of 1 TFLOPS fp16");
        let small = of(10, v1::Precision::Fp32.into()).expect("a legal size");
        assert_eq!(small.to_string(), "blocks of 0.01 TFLOPS fp32");
        assert_eq!(NewPool::of_request(&small.to_wire()), Ok(small));
    }

    #[test]
    fn blocks_that_no_card_could_have_are_refused_with_the_field() {
        let field = |result: Result<NewPool, FieldError>| result.expect_err("refused").field;
        assert_eq!(field(of(1_000_001, 0)), "pool.block_milli_tflops");
        assert_eq!(field(of(0, 99)), "pool.reference_precision");
    }

    #[test]
    fn blocks_are_settled_once_and_never_under_cards() {
        let mut ledger = Ledger::default();
        let small = of(10, v1::Precision::Fp32.into()).expect("a legal size");
        let command = small.due(&ledger.state).expect("the pool is new");
        assert_eq!(ledger.apply(command), Outcome::Done);
        assert!(small.is_that_of(ledger.state.config()) && small.due(&ledger.state).is_none());
        let mut counted = Ledger::default();
        counted.node("a", &[10]);
        assert_eq!(small.due(&counted.state), None, "a card is counted in the blocks that there are");
    }
}
