//! The judge: hears every answer, keeps its own books on the plain model, and believes nothing.

use std::collections::BTreeMap;

use crate::placer::Answer;
use crate::plain::{Impossible, Place, PlainCluster, Request};
use crate::trace::{Ask, TraceNode};

/// A placement that is impossible.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The arrival does not fit where it was put.
    #[error("arrival {arrival} was put where it does not fit: {why}")]
    Misplaced {
        /// Its number.
        arrival: u64,
        /// The reason why it does not fit.
        why: Impossible,
    },
    /// Something was moved that is not there.
    #[error("arrival {arrival} was moved, but it is not there")]
    MovedNothing {
        /// Its number.
        arrival: u64,
    },
}

/// Books of everything that was placed.
#[derive(Debug)]
pub struct Judge {
    cluster: PlainCluster,
    capacity: u64,
    placed: BTreeMap<u64, (Request, Place)>,
    /// Arrivals that were turned away.
    pub rejected: u64,
    /// Arrivals that were turned away although they fitted somewhere.
    pub avoidable: u64,
    pub moves: u64,
}

impl Judge {
    /// Books of an empty cluster.
    #[must_use]
    pub fn new(nodes: &[TraceNode]) -> Self {
        let cluster = PlainCluster::new(nodes);
        let capacity = cluster.capacity_milli();
        Self { cluster, capacity, placed: BTreeMap::new(), rejected: 0, avoidable: 0, moves: 0 }
    }

    /// Thousandths of a card in all.
    #[must_use]
    pub const fn capacity_milli(&self) -> u64 {
        self.capacity
    }

    /// Allocated share of all cards in per cent.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "amounts of a cluster are far below 2^52")]
    pub fn allocated_percent(&self) -> f64 {
        (self.capacity - self.cluster.free_milli()) as f64 * 100.0 / self.capacity.max(1) as f64
    }

    /// Hears the answer to an arrival.
    ///
    /// # Errors
    /// [`Fault`] when something was put where it does not fit.
    pub fn hear(&mut self, number: u64, ask: &Ask, answer: &Answer) -> Result<(), Fault> {
        for (arrival, place) in &answer.moves {
            let Some((request, from)) = self.placed.remove(arrival) else {
                return Err(Fault::MovedNothing { arrival: *arrival });
            };
            self.cluster.give(&request, &from);
            self.put(*arrival, request, place)?;
            self.moves += 1;
        }
        let request = self.cluster.request(ask);
        match &answer.place {
            Some(place) => self.put(number, request, place)?,
            None => {
                self.rejected += 1;
                self.avoidable += u64::from(self.cluster.fits(&request));
            }
        }
        Ok(())
    }

    fn put(&mut self, arrival: u64, request: Request, place: &Place) -> Result<(), Fault> {
        self.cluster.take(&request, place).map_err(|why| Fault::Misplaced { arrival, why })?;
        self.placed.insert(arrival, (request, place.clone()));
        Ok(())
    }
}
