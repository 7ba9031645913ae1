//! Free runs of one card: where blocks can be taken without renumbering.

use smallvec::SmallVec;
use tessera_ledger::{BlockCount, BlockIndex};

/// A run of neighbouring free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: BlockIndex,
    /// Number of blocks; never zero.
    pub(crate) length: BlockCount,
}

impl Run {
    pub(crate) const fn end(self) -> u32 {
        self.start.0.saturating_add(self.length.0)
    }
}

/// The free runs of a card in order, never touching one another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeRuns {
    /// Most cards have one or two: those need no memory of their own.
    runs: SmallVec<[Run; 2]>,
}

impl FreeRuns {
    pub(crate) fn single(start: u32, length: u32) -> Self {
        let mut runs = Self::default();
        runs.give(Run { start: BlockIndex(start), length: BlockCount(length) });
        runs
    }

    pub(crate) fn total(&self) -> u32 {
        self.runs.iter().fold(0, |sum, run| sum.saturating_add(run.length.0))
    }

    pub(crate) fn largest(&self) -> u32 {
        self.runs.iter().map(|run| run.length.0).max().unwrap_or(0)
    }

    /// Blocks in the `count` longest runs: what so many slices can reach.
    pub(crate) fn reach_of(&self, count: u32) -> u32 {
        if usize::try_from(count).is_ok_and(|count| count >= self.runs.len()) {
            return self.total();
        }
        let mut lengths: Vec<u32> = self.runs.iter().map(|run| run.length.0).collect();
        lengths.sort_unstable_by(|left, right| right.cmp(left));
        lengths.iter().take(count as usize).fold(0, |sum, length| sum.saturating_add(*length))
    }

    /// Takes neighbouring blocks from the front of the shortest run that has them.
    pub(crate) fn take(&mut self, length: u32) -> Option<Run> {
        let enough = self.runs.iter().enumerate().filter(|(_, run)| run.length.0 >= length);
        let (position, _) = enough.min_by_key(|(_, run)| run.length)?;
        Some(self.take_front(position, length))
    }

    /// Takes blocks from as few runs as possible, the longest first; what is missing at the end stays untaken.
    pub(crate) fn take_scattered(&mut self, length: u32) -> Vec<Run> {
        let mut taken = Vec::new();
        let mut missing = length;
        while missing > 0 {
            if let Some(run) = self.take(missing) {
                taken.push(run);
                break;
            }
            // Of equals the first.
            let longest = self.runs.iter().enumerate().rev().max_by_key(|(_, run)| run.length);
            let Some((position, run)) = longest else { break };
            missing -= run.length.0;
            taken.push(self.take_front(position, run.length.0));
        }
        taken.sort_unstable_by_key(|run| run.start);
        taken
    }

    fn take_front(&mut self, position: usize, length: u32) -> Run {
        let run = &mut self.runs[position];
        let taken = Run { start: run.start, length: BlockCount(length) };
        run.start.0 += length;
        run.length.0 -= length;
        if run.length.0 == 0 {
            self.runs.remove(position);
        }
        taken
    }

    /// Takes what is free of a given run of blocks.
    pub(crate) fn remove(&mut self, taken: Run) {
        let pieces = |run: &Run| {
            let before = (run.start.0, run.end().min(taken.start.0));
            let after = (run.start.0.max(taken.end()), run.end());
            [before, after]
        };
        let kept = self.runs.iter().flat_map(pieces).filter(|(start, end)| start < end);
        self.runs =
            kept.map(|(start, end)| Run { start: BlockIndex(start), length: BlockCount(end - start) }).collect();
    }

    /// Gives blocks back and joins them with their neighbours.
    pub(crate) fn give(&mut self, run: Run) {
        if run.length.0 == 0 {
            return;
        }
        let position = self.runs.partition_point(|known| known.start < run.start);
        self.runs.insert(position, run);
        self.runs.dedup_by(|next, run| {
            let touch = run.end() >= next.start.0;
            if touch {
                run.length.0 = run.end().max(next.end()) - run.start.0;
            }
            touch
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(start: u32, length: u32) -> Run {
        Run { start: BlockIndex(start), length: BlockCount(length) }
    }

    #[test]
    fn the_shortest_hole_that_fits_is_taken() {
        let mut runs = FreeRuns::single(0, 6);
        runs.give(run(10, 3));
        assert_eq!(runs.take(3), Some(run(10, 3)));
        assert_eq!(runs.take(2), Some(run(0, 2)));
        assert_eq!(runs.take(5), None);
        assert_eq!(runs.total(), 4);
    }

    #[test]
    fn what_comes_back_joins_its_neighbours() {
        let mut runs = FreeRuns::single(0, 2);
        runs.give(run(5, 2));
        runs.give(run(2, 3));
        assert_eq!(runs, FreeRuns::single(0, 7));
    }

    #[test]
    fn a_run_is_cut_out_of_what_is_free() {
        let mut runs = FreeRuns::single(0, 10);
        runs.remove(run(3, 2));
        runs.remove(run(8, 5));
        assert_eq!(runs.take(3), Some(run(0, 3)));
        assert_eq!(runs.take(3), Some(run(5, 3)));
        assert_eq!(runs.total(), 0);
    }

    #[test]
    fn scattered_blocks_come_from_few_runs() {
        let mut runs = FreeRuns::single(0, 2);
        runs.give(run(4, 5));
        runs.give(run(20, 1));
        assert_eq!(runs.reach_of(2), 7);
        assert_eq!(runs.take_scattered(6), vec![run(4, 5), run(20, 1)]);
    }
}
