//! The meaning of keys.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The action that a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Quit,
    /// Back from wherever this is.
    Back,
    /// The list with this place.
    Tab(usize),
    NextTab,
    PreviousTab,
    /// This number of rows down; up when negative.
    Rows(isize),
    /// This number of pages down; up when negative.
    Pages(isize),
    First,
    Last,
    /// The page about the selected row.
    Open,
    /// Begin to write a filter.
    Filter,
    /// Sort by the next column.
    Sort,
    /// The other way round.
    Reverse,
    /// Ended jobs too, or not.
    All,
    /// Hold what is shown, or go on.
    Pause,
    /// The keys.
    Help,
    /// Everything drawn anew, when something else has written into the terminal.
    Redraw,
}

/// The keys, as the help shows them.
pub const HELP: &[(&str, &str)] = &[
    ("Tab, Shift-Tab, 1-4", "change the list: jobs, nodes, cards, queues"),
    ("arrows, j, k", "select a row"),
    ("PgUp, PgDn, Home, End, g, G", "select further away"),
    ("Enter", "open: why it waits, where it is, its cards"),
    ("Esc, Backspace", "back; clears the filter in a list"),
    ("/", "filter; Enter keeps it, Esc drops it"),
    ("s, r", "sort by the next column; turn the order round"),
    ("a", "show jobs that are over too, or not"),
    ("p, Space", "hold what is shown, or go on"),
    ("Ctrl-L", "draw everything anew"),
    ("?, h", "these keys"),
    ("q, Ctrl-C", "leave"),
];

/// The meaning of a key while no text is being written.
#[must_use]
pub fn wish(key: KeyEvent) -> Option<Wish> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return match key.code {
            KeyCode::Char('c' | 'd') => Some(Wish::Quit),
            KeyCode::Char('l') => Some(Wish::Redraw),
            KeyCode::Char('f') => Some(Wish::Pages(1)),
            KeyCode::Char('b') => Some(Wish::Pages(-1)),
            _ => None,
        };
    }
    Some(match key.code {
        KeyCode::Char('q') => Wish::Quit,
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => Wish::Back,
        KeyCode::Tab => Wish::NextTab,
        KeyCode::BackTab => Wish::PreviousTab,
        KeyCode::Char(digit @ '1'..='4') => Wish::Tab(digit as usize - '1' as usize),
        KeyCode::Down | KeyCode::Char('j') => Wish::Rows(1),
        KeyCode::Up | KeyCode::Char('k') => Wish::Rows(-1),
        KeyCode::PageDown => Wish::Pages(1),
        KeyCode::PageUp => Wish::Pages(-1),
        KeyCode::Home | KeyCode::Char('g') => Wish::First,
        KeyCode::End | KeyCode::Char('G') => Wish::Last,
        KeyCode::Enter | KeyCode::Right => Wish::Open,
        KeyCode::Char('/') => Wish::Filter,
        KeyCode::Char('s') => Wish::Sort,
        KeyCode::Char('r') => Wish::Reverse,
        KeyCode::Char('a') => Wish::All,
        KeyCode::Char('p' | ' ') => Wish::Pause,
        KeyCode::Char('?' | 'h') => Wish::Help,
        _ => return None,
    })
}
