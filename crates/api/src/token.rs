//! Opaque tokens: what a page or a watch goes on from. A caller hands back what it was given; anything else is noticed.

use xxhash_rust::xxh3::xxh3_64;

/// The purpose of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The next page of a list.
    Page = 1,
    /// The rest of a watch.
    Resume = 2,
}

/// Version of the tokens that this release makes, and the only one that it takes.
const VERSION: u8 = 1;
/// Version, purpose and the hash of the query.
const HEAD: usize = 10;
/// The checksum at the end.
const SUM: usize = 8;
const DIGITS: [u8; 16] = *b"0123456789abcdef";
/// Longest text that is looked at.
const LIMIT: usize = 4096;

/// A token for `place`, bound to a query.
pub(crate) fn make(purpose: Purpose, query: u64, place: &[u8]) -> String {
    let mut bytes = vec![VERSION, purpose as u8];
    bytes.extend_from_slice(&query.to_be_bytes());
    bytes.extend_from_slice(place);
    bytes.extend_from_slice(&xxh3_64(&bytes).to_be_bytes());
    // Every event of every watch carries one, so digits are looked up and not formatted.
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The place in a token; `None` when it was not made by [`make`] for this purpose and query.
pub(crate) fn read(purpose: Purpose, query: u64, text: &str) -> Option<Vec<u8>> {
    let bytes = unhex(text)?;
    let body = bytes.len().checked_sub(SUM)?;
    let (body, sum) = bytes.split_at_checked(body)?;
    let right = body.len() >= HEAD
        && sum == xxh3_64(body).to_be_bytes()
        && body[..2] == [VERSION, purpose as u8]
        && body[2..HEAD] == query.to_be_bytes();
    right.then(|| body[HEAD..].to_vec())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text.len() > LIMIT || !text.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    text.as_bytes().chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_longer_token_is_looked_at() {
        let taken = |bytes: usize| read(Purpose::Page, 7, &make(Purpose::Page, 7, &vec![0; bytes])).is_some();
        let longest = LIMIT / 2 - HEAD - SUM;
        assert_eq!((taken(longest), taken(longest + 1)), (true, false));
    }

    proptest! {
        #[test]
        fn a_token_is_read_back_by_its_own_query_only(query in any::<u64>(), other in any::<u64>(), place: Vec<u8>) {
            let token = make(Purpose::Page, query, &place);
            prop_assert_eq!(read(Purpose::Page, query, &token), Some(place));
            prop_assert_eq!(read(Purpose::Resume, query, &token), None);
            if other != query {
                prop_assert_eq!(read(Purpose::Page, other, &token), None);
            }
        }

        #[test]
        fn damage_is_noticed(at in any::<prop::sample::Index>(), letter in "[0-9a-g]", place: Vec<u8>) {
            let token = make(Purpose::Resume, 7, &place);
            let at = at.index(token.len());
            let mut damaged = token.clone();
            damaged.replace_range(at..=at, &letter);
            if damaged != token {
                prop_assert_eq!(read(Purpose::Resume, 7, &damaged), None);
            }
        }

        #[test]
        fn any_text_may_come(text in "\\PC*") {
            prop_assert_eq!(read(Purpose::Page, 7, &text), None);
        }
    }
}
