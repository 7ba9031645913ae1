//! Places in a text, as editors count them.

/// Line and column, both from 1, of the byte `offset` in `text`; columns count characters.
#[must_use]
pub fn of(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn lines_and_columns_are_counted_in_characters() {
        let text = "ä = 1\nbad";
        assert_eq!([of(text, 0), of(text, 3), of(text, 7), of(text, 999)], [(1, 1), (1, 3), (2, 1), (2, 4)]);
        assert_eq!(of(text, 1), (1, 1), "the middle of a character is its beginning");
    }
}
