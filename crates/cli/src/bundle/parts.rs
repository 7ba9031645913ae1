//! The parts of a bundle, bounded in size.

use serde::Serialize;

/// Most bytes of one part; of longer ones the end is kept, which is the newest.
const LARGEST: usize = 4 << 20;
/// Most bytes of all parts.
const MOST: usize = 64 << 20;

/// Something that is not in the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub what: String,
    /// The reason, and a way to obtain the part.
    pub why: String,
}

/// The parts of a bundle.
#[derive(Debug, Default)]
pub struct Parts {
    /// Name in the archive, and content.
    pub files: Vec<(String, Vec<u8>)>,
    pub missing: Vec<Missing>,
}

impl Parts {
    /// Takes a part in, or says why it is not there.
    pub fn put(&mut self, name: &str, content: Result<Vec<u8>, String>) {
        let mut content = match content {
            Ok(content) => content,
            Err(why) => return self.miss(name, why),
        };
        if content.len() > LARGEST {
            let cut = content.len() - LARGEST;
            content.drain(..cut);
            self.miss(&format!("{name}, its first {cut} bytes"), format!("at most {LARGEST} bytes are kept of a part"));
        }
        if self.bytes() + content.len() > MOST {
            return self.miss(name, format!("the bundle holds at most {MOST} bytes"));
        }
        self.files.push((name.to_owned(), content));
    }

    /// Takes in what can be written as JSON.
    pub fn put_json<V: Serialize>(&mut self, name: &str, value: Result<V, String>) {
        let json = value.and_then(|value| serde_json::to_vec_pretty(&value).map_err(|error| error.to_string()));
        self.put(name, json);
    }

    /// Says that something is not there.
    pub fn miss(&mut self, what: &str, why: impl Into<String>) {
        self.missing.push(Missing { what: what.to_owned(), why: why.into() });
    }

    pub fn join(&mut self, other: Self) {
        self.missing.extend(other.missing);
        for (name, content) in other.files {
            self.put(&name, Ok(content));
        }
    }

    fn bytes(&self) -> usize {
        self.files.iter().map(|(_, content)| content.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_and_no_bundle_is_larger_than_it_may_be() {
        let mut parts = Parts::default();
        let mut long = vec![b'a'; LARGEST];
        long.extend_from_slice(b"the end");
        parts.put("long.log", Ok(long));
        assert_eq!(parts.files[0].1.len(), LARGEST);
        assert!(parts.files[0].1.ends_with(b"the end"));
        assert_eq!(parts.missing[0].what, "long.log, its first 7 bytes");
        for number in 0..MOST / LARGEST {
            parts.put(&format!("{number}"), Ok(vec![0; LARGEST]));
        }
        assert!(parts.bytes() <= MOST);
        assert!(parts.missing.last().is_some_and(|last| last.why.contains("the bundle holds at most")));
        parts.put("gone", Err("nobody answered".to_owned()));
        assert_eq!(parts.missing.last().map(|last| last.why.as_str()), Some("nobody answered"));
    }
}
