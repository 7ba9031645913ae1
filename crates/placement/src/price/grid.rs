//! Grids: blocks and memory of a card in few steps, so that tables over them stay small.

/// Most steps of one card.
const MOST_STEPS: u64 = 256;

/// The steps in which an amount on one card is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grid {
    size: u64,
    step: u64,
}

impl Grid {
    /// A grid for cards of `size`: exact when `needs` have a common measure that is large enough, else in equal steps.
    pub(crate) fn new(size: u64, needs: impl Iterator<Item = u64>) -> Self {
        let step = if size <= MOST_STEPS {
            1
        } else {
            let measure = needs.filter(|need| *need < size).fold(size, common_measure);
            if size / measure <= MOST_STEPS { measure } else { size.div_ceil(MOST_STEPS) }
        };
        Self { size, step: step.max(1) }
    }

    /// Steps of a whole card.
    pub(crate) fn steps(self) -> usize {
        usize::try_from(self.size.div_ceil(self.step)).unwrap_or(usize::MAX)
    }

    /// Steps that are left for certain.
    pub(crate) fn left(self, amount: u64) -> usize {
        if amount >= self.size {
            return self.steps();
        }
        usize::try_from(amount / self.step).unwrap_or(usize::MAX)
    }

    /// Steps that a request takes.
    pub(crate) fn taken(self, amount: u64) -> usize {
        usize::try_from(amount.div_ceil(self.step)).unwrap_or(usize::MAX).min(self.steps())
    }
}

/// Euclid's.
fn common_measure(left: u64, right: u64) -> u64 {
    let (mut left, mut right) = (left, right);
    while right > 0 {
        (left, right) = (right, left % right);
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_measure_makes_the_grid_exact() {
        let grid = Grid::new(1000, [810, 470, 1000, 190].into_iter());
        assert_eq!((grid.steps(), grid.taken(810), grid.left(190), grid.left(1000)), (100, 81, 19, 100));
    }

    #[test]
    fn without_one_requests_round_up_and_rooms_round_down() {
        let grid = Grid::new(989, [7, 100].into_iter());
        assert_eq!((grid.steps(), grid.taken(7), grid.left(7)), (248, 2, 1));
        assert_eq!(grid.left(989), 248);
        assert_eq!(Grid::new(36, [7].into_iter()).taken(7), 7);
    }
}
