//! The block map: every card of every node as a row of its blocks, with their pool-wide numbers and who holds them
//! (patent statements P2, P4 and P8).
//!
//! One character is one block, or several on cards too large for a line. A letter is the job named beside it; `.` is
//! free, `x` offline, `?` lost, `+` held (granted, not confirmed), `-` draining.

use std::collections::BTreeMap;
use std::fmt::Write;

use tessera_api::v1::BlockRun;
use tessera_diagnostics::shown;

use super::width::filled;
use crate::view::{CardBlocksView, block_state, kind};

/// Most characters of one card.
const WIDTH: u32 = 80;
/// Columns of a model's name.
const MODEL: usize = 20;
/// Letters of jobs, in the order in which they are met.
const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwyz0123456789";
/// Colours of jobs, in the order in which they are met.
const COLORS: [&str; 6] = ["36", "35", "34", "32", "33", "31"];

/// The letters that jobs were given.
#[derive(Default)]
struct Letters(BTreeMap<u64, usize>);

impl Letters {
    fn place(&mut self, job: u64) -> usize {
        let next = self.0.len();
        *self.0.entry(job).or_insert(next)
    }

    fn of(&mut self, run: &BlockRun) -> (char, Option<usize>) {
        let owner = run.owner.as_ref().map(|owner| self.place(owner.job_id));
        let letter = match block_state(run.state).as_str() {
            "running" => owner.map_or('#', |place| LETTERS.get(place).map_or('#', |letter| char::from(*letter))),
            "held" => '+',
            "draining" => '-',
            "lost" => '?',
            "offline" => 'x',
            _ => '.',
        };
        (letter, owner)
    }
}

/// Draws the cards, which must be in order of their nodes.
#[must_use]
pub fn draw(cards: &[CardBlocksView], color: bool) -> String {
    let mut text = String::new();
    let mut letters = Letters::default();
    let mut node = None;
    for card in cards {
        if node != Some(&card.node_name) {
            if node.is_some() {
                text.push('\n');
            }
            node = Some(&card.node_name);
            heading(&mut text, &card.node_name, cards);
        }
        draw_card(&mut text, card, &mut letters, color);
    }
    if !cards.is_empty() {
        text.push_str("\n. free  + held  - draining  ? lost  x offline; a letter is a running job\n");
    }
    text
}

// Writing to a string cannot fail: results of `write!` are dropped here.
fn heading(text: &mut String, node: &str, cards: &[CardBlocksView]) {
    let runs = cards.iter().filter(|card| card.node_name == node).flat_map(|card| &card.runs);
    let bounds = runs.fold(None, |bounds: Option<(u64, u64)>, run| {
        let (first, last) = bounds.unwrap_or((run.first_block_number, run.last_block_number));
        Some((first.min(run.first_block_number), last.max(run.last_block_number)))
    });
    let node = shown::line(node);
    let _ = match bounds {
        Some((first, last)) => writeln!(text, "{node}  blocks {first}-{last}"),
        None => writeln!(text, "{node}  no blocks"),
    };
}

fn draw_card(text: &mut String, card: &CardBlocksView, letters: &mut Letters, color: bool) {
    let blocks: u32 = card.runs.iter().map(|run| run.blocks).sum();
    let per_character = blocks.div_ceil(WIDTH).max(1);
    let numbers = match (card.runs.first(), card.runs.last()) {
        (Some(first), Some(last)) => format!("{}-{}", first.first_block_number, last.last_block_number),
        _ => "no blocks".to_owned(),
    };
    let model = filled(&shown::line(&card.model), MODEL, false);
    let _ = write!(text, "  {:>2} {:4} {model} {numbers:>11}  ", card.card_index, kind(card.kind));
    text.push_str(&bar(card, per_character, letters, color));
    text.truncate(text.trim_end().len());
    if per_character > 1 {
        let _ = write!(text, "  (one character is {per_character} blocks)");
    }
    text.push('\n');
    for run in &card.runs {
        if let Some(line) = holder(run, letters) {
            let _ = writeln!(text, "{:>44}{line}", "");
        }
    }
}

/// One character per `per_character` blocks: that of the first block of each.
fn bar(card: &CardBlocksView, per_character: u32, letters: &mut Letters, color: bool) -> String {
    let mut bar = String::new();
    let mut drawn = 0;
    let mut passed = 0;
    for run in &card.runs {
        passed += run.blocks;
        let upto = passed.div_ceil(per_character);
        let (letter, owner) = letters.of(run);
        let piece = letter.to_string().repeat(usize::try_from(upto - drawn).unwrap_or(0));
        match owner.filter(|_| color && !piece.is_empty()) {
            Some(place) => {
                let _ = write!(bar, "\u{1b}[{}m{piece}\u{1b}[0m", COLORS[place % COLORS.len()]);
            }
            None => bar.push_str(&piece),
        }
        drawn = upto;
    }
    bar
}

fn holder(run: &BlockRun, letters: &mut Letters) -> Option<String> {
    let (letter, _) = letters.of(run);
    let numbers = format!("{}-{}", run.first_block_number, run.last_block_number);
    let next = run.next.as_ref().map(|next| format!(", next job {}", next.job_id)).unwrap_or_default();
    let state = block_state(run.state);
    match &run.owner {
        Some(owner) => {
            Some(format!("{letter} {numbers} job {} {state} priority {}{next}", owner.job_id, owner.priority))
        }
        None if state == "free" => None,
        None => Some(format!("{letter} {numbers} {state}{next}")),
    }
}

#[cfg(test)]
mod tests {
    use tessera_api::v1::{self, BlockState, CardKind};

    use super::*;

    fn run(first: u64, blocks: u32, state: BlockState, job: Option<u64>) -> BlockRun {
        BlockRun {
            first_block_number: first,
            last_block_number: first + u64::from(blocks) - 1,
            blocks,
            state: state.into(),
            owner: job.map(|job_id| v1::BlockOwner { job_id, priority: 50, allocation_id: 1, epoch: 1, rank: 0 }),
            ..Default::default()
        }
    }

    fn card(node: &str, card_index: u32, kind: CardKind, runs: Vec<BlockRun>) -> CardBlocksView {
        let (node_name, model) = (node.to_owned(), "Simulated".to_owned());
        v1::CardBlocks { node_name, card_index, kind: kind.into(), model, runs, ..Default::default() }.into()
    }

    #[test]
    fn the_reference_pool_shows_numbers_and_jobs() {
        let cards = [
            card("node-0", 0, CardKind::Gpu, vec![run(1, 9, BlockState::Running, Some(7))]),
            card(
                "node-0",
                1,
                CardKind::Gpu,
                vec![run(10, 4, BlockState::Running, Some(7)), run(14, 5, BlockState::Free, None)],
            ),
            card("node-0", 2, CardKind::Npu, vec![run(19, 20, BlockState::Held, Some(8))]),
            card(
                "node-1",
                0,
                CardKind::Gpu,
                vec![run(64, 8, BlockState::Draining, Some(9)), run(72, 2, BlockState::Offline, None)],
            ),
        ];
        insta::assert_snapshot!(draw(&cards, false));
    }

    #[test]
    fn a_large_card_is_scaled_to_the_line() {
        let cards = [card(
            "node-0",
            0,
            CardKind::Gpu,
            vec![run(1, 500, BlockState::Running, Some(1)), run(501, 489, BlockState::Free, None)],
        )];
        let text = draw(&cards, false);
        let bar = text.lines().nth(1).and_then(|line| line.split_whitespace().nth(4)).expect("a bar");
        assert!(bar.len() <= 80 && bar.starts_with("AAA") && bar.ends_with("..."), "{bar}");
        assert!(text.contains("(one character is 13 blocks)"));
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        assert_eq!(draw(&[], false), "");
    }
}
