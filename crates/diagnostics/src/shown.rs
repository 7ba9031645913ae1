//! Texts of others as people see them: names, labels, commands, reasons and messages.
//!
//! A text arrives and is kept as it was written. But a terminal obeys some characters instead of showing them: they
//! clear the screen, hide lines, name the window anew, or turn what follows round. So whatever prints for people prints
//! what is made here of it, in which each of them is spelled (`\u{1b}`). The same is done to characters that show
//! nothing at all, by which two names would look like one.

use std::borrow::Cow;
use std::io::{self, Write};

/// Tells whether a terminal or a browser obeys it instead of showing it (a control character, or one that decides on
/// lines or on the direction of the text around it), or shows nothing for it, whatever it stands beside. The joiners
/// U+200C and U+200D are not among them: scripts and emoji look otherwise without them.
#[must_use]
pub fn is_obeyed(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || shows_nothing(letter)
}

/// Soft hyphens and fillers, spaces without a width, invisible operators, marks of byte order and annotation, tags.
fn shows_nothing(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{34f}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180e}' | '\u{200b}')
        || matches!(letter, '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}')
        || matches!(letter, '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}')
        || matches!(letter, '\u{e0000}'..='\u{e00ff}' | '\u{e01f0}'..='\u{e0fff}')
}

/// A text of one line: everything that is obeyed is spelled, the ends of lines and tabs included.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    spelled(text, is_obeyed, |letter| letter.escape_default().to_string())
}

/// A text of several lines: ends of lines and tabs stay.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    let obeyed = |letter| is_obeyed(letter) && !matches!(letter, '\n' | '\t');
    spelled(text, obeyed, |letter| letter.escape_default().to_string())
}

/// JSON that says the same, in which everything that is obeyed is spelled as JSON does. It can stand in texts only, as
/// what is written of JSON besides is lines of plain letters.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    let obeyed = |letter| is_obeyed(letter) && !matches!(letter, '\n' | '\t' | '\r');
    let units = |letter: char| letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    spelled(text, obeyed, units)
}

fn spelled(text: &str, is_obeyed: impl Fn(char) -> bool, spell: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_obeyed(letter) {
            shown.push_str(&spell(letter));
        } else {
            shown.push(letter);
        }
    }
    Cow::Owned(shown)
}

/// A writer of JSON, whole values at once, that spells what is obeyed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<W>(pub W);

impl<W: Write> Write for Json<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(json(text).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_obeyed_is_spelled() {
        assert_eq!(line("\u{1b}[2J\u{7}\r\n\t\u{7f}\u{9b}"), r"\u{1b}[2J\u{7}\r\n\t\u{7f}\u{9b}");
        assert_eq!(lines("a\n\tb\rc\u{0}"), "a\n\tb\\rc\\u{0}");
        for letter in "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\u{2069}\u{80}\u{9f}".chars() {
            assert_eq!(line(&letter.to_string()), format!("\\u{{{:x}}}", u32::from(letter)));
        }
    }

    #[test]
    fn names_that_differ_never_look_alike() {
        let narrow = "\u{ad}\u{34f}\u{115f}\u{180e}\u{200b}\u{2060}\u{2064}\u{206a}\u{206f}\u{3164}\u{feff}\u{ffa0}";
        for letter in narrow.chars().chain("\u{fff9}\u{1d173}\u{e0001}\u{e007f}".chars()) {
            assert_eq!(line(&format!("no{letter}de")), format!("no\\u{{{:x}}}de", u32::from(letter)));
        }
        assert_eq!(json("\u{e0041}\u{feff}"), r"\udb40\udc41\ufeff");
    }

    #[test]
    fn every_script_stays_as_it_is() {
        for text in [
            "größe – 50 %",
            "训练",
            "обучение",
            "تدريب",
            "प्रशिक्षण",
            "می\u{200c}خواهم",
            "e\u{301}",
            "👩‍🔬",
            "❤\u{fe0f}",
            "a\u{a0}b\\n",
        ] {
            assert!(matches!(line(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn json_says_the_same_without_it() {
        let text = "{\n  \"a\": \"b\u{7f}\u{9b}\u{202e}c\"\n}\n";
        let shown = json(text);
        assert_eq!(shown, "{\n  \"a\": \"b\\u007f\\u009b\\u202ec\"\n}\n");
        let mut written = Vec::new();
        Json(&mut written).write_all(text.as_bytes()).expect("memory");
        assert_eq!(written, shown.as_bytes());
    }
}
