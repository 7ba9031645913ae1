//! The room that texts take on a terminal: letters of some scripts take two columns, and marks on a letter none.

use ratatui::text::Span;

/// Columns that a text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// A text filled up with blanks to some columns; `right` puts them before it.
pub(super) fn filled(text: &str, columns: usize, right: bool) -> String {
    let blanks = " ".repeat(columns.saturating_sub(width(text)));
    if right { blanks + text } else { text.to_owned() + &blanks }
}

/// A text that takes exactly some columns; one that does not fit ends in `~`.
#[must_use]
pub fn fitted(text: &str, columns: usize, right: bool) -> String {
    if columns == 0 {
        return String::new();
    }
    if width(text) <= columns {
        return filled(text, columns, right);
    }
    let mut kept = String::new();
    for letter in text.chars() {
        kept.push(letter);
        if width(&kept) >= columns {
            kept.pop();
            break;
        }
    }
    filled(&(kept + "~"), columns, right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_as_many_columns_as_it_is_given() {
        for (text, columns, right, made) in [
            ("ab", 4, false, "ab  "),
            ("ab", 4, true, "  ab"),
            ("abcd", 4, false, "abcd"),
            ("abcde", 4, false, "abc~"),
            ("训练", 4, false, "训练"),
            ("训练", 6, true, "  训练"),
            ("训练了", 5, false, "训练~"),
            ("训练了", 4, false, "训~ "),
            ("e\u{301}e\u{301}", 3, false, "e\u{301}e\u{301} "),
            ("ab", 1, false, "~"),
            ("ab", 0, false, ""),
        ] {
            assert_eq!(fitted(text, columns, right), made);
            assert_eq!(width(made), columns);
        }
    }
}
