//! Sparing victims: those without whom the gang still fits.

use std::cmp::Reverse;
use std::sync::Arc;

use super::{Found, Hunt, Victim};
use crate::index::Index;

/// How much trials may cost together, in victims that give back and virtual cards that are placed; and fewest and
/// most trials.
const WORK: usize = 1 << 16;
const TRIALS: (usize, usize) = (32, 512);

impl Hunt<'_> {
    /// Spares the victims without whom the gang still fits, those first who would lose most: many at once where that
    /// does, else each half of them. Of few victims none remains who could be spared.
    pub(super) fn spare(&self, index: &mut Index, found: Found) -> Found {
        let mut order = found.1.clone();
        order.sort_by_key(|victim| (Reverse(victim.cost), victim.allocation.granted_at, victim.job));
        let each = order.len() + self.job.least.gang as usize;
        let mut sparing = Sparing { hunt: self, found, trials: (WORK / each).clamp(TRIALS.0, TRIALS.1) };
        let (dearer, cheaper) = order.split_at(order.len() / 2);
        sparing.spare(index, dearer);
        sparing.spare(index, cheaper);
        sparing.found
    }
}

/// What was found so far, and how often more may be tried.
struct Sparing<'a> {
    hunt: &'a Hunt<'a>,
    found: Found,
    trials: usize,
}

impl Sparing<'_> {
    fn spare(&mut self, index: &mut Index, some: &[Arc<Victim>]) {
        let is_one = |victim: &Arc<Victim>| some.iter().any(|other| other.job == victim.job);
        let fewer: Vec<Arc<Victim>> = self.found.1.iter().filter(|victim| !is_one(victim)).cloned().collect();
        if self.trials == 0 || fewer.len() == self.found.1.len() {
            return;
        }
        if !fewer.is_empty() {
            self.trials -= 1;
            if let Some(found) = self.hunt.place_without(index, &fewer) {
                self.found = found;
                return;
            }
        }
        if some.len() > 1 {
            let (dearer, cheaper) = some.split_at(some.len() / 2);
            self.spare(index, dearer);
            self.spare(index, cheaper);
        }
    }
}
