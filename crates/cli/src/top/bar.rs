//! Blocks as a bar of characters: a state is told by its sign, not by its colour.

use crate::view::BlocksView;

/// The signs, in the order in which they are drawn, as `tessera pool map` has them; `#` is running.
pub const LEGEND: &str = "# running  + held  - draining  ? lost  x offline  . free";

/// Draws the blocks as `width` characters. Whatever there is of a state gets a character, as long as there is room.
#[must_use]
pub fn bar(blocks: &BlocksView, width: usize) -> String {
    let parts = [
        ('#', blocks.running),
        ('+', blocks.held),
        ('-', blocks.draining),
        ('?', blocks.lost),
        ('x', blocks.offline),
        ('.', blocks.free),
    ];
    let total = blocks.total();
    if total == 0 || width == 0 {
        return " ".repeat(width);
    }
    let width_wide = width as u64;
    let mut counts = parts.map(|(_, part)| if part == 0 { 0 } else { (part * width_wide / total).max(1) });
    // Rounding: what is missing goes to the largest part, what is too much comes from the largest bar.
    let largest = (0..parts.len()).max_by_key(|place| parts[*place].1).unwrap_or(0);
    counts[largest] += width_wide.saturating_sub(counts.iter().sum());
    while counts.iter().sum::<u64>() > width_wide {
        let widest = (0..counts.len()).max_by_key(|place| counts[*place]).unwrap_or(0);
        counts[widest] -= 1;
    }
    parts.iter().zip(counts).flat_map(|((sign, _), count)| (0..count).map(move |_| *sign)).collect()
}

#[cfg(test)]
mod tests {
    use tessera_api::v1;

    use super::*;

    fn blocks(running: u64, lost: u64, free: u64) -> BlocksView {
        v1::BlockCounts { running, lost, free, ..Default::default() }.into()
    }

    #[test]
    fn a_bar_is_as_wide_as_it_should_and_hides_nothing() {
        assert_eq!(bar(&blocks(5, 0, 5), 10), "#####.....");
        assert_eq!(bar(&blocks(1, 0, 2), 10), "###.......");
        // One lost block of a thousand is seen.
        assert_eq!(bar(&blocks(998, 1, 1), 8), "######?.");
        assert_eq!(bar(&blocks(0, 0, 0), 4), "    ");
        for (running, lost, free) in [(7, 3, 90), (1, 1, 1), (0, 9, 0), (333, 333, 334)] {
            assert_eq!(bar(&blocks(running, lost, free), 20).chars().count(), 20);
        }
    }
}
