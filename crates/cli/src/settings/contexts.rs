//! The file with the contexts: named control planes, one of which is in use.
//!
//! ```toml
//! current = "lab"
//!
//! [context.lab]
//! server = ["10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"]
//! output = "wide"
//! timeout = "30s"
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// All contexts of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// Name of the one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts by name.
    #[serde(default)]
    pub context: BTreeMap<String, Context>,
}

/// One control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Its members, as `host:port`.
    pub server: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Time for one request, such as `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
}

/// A file of contexts that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ContextsError {
    /// It cannot be read or written.
    #[error("the file of contexts {} cannot be used", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It does not say what it should.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Invalid {
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        message: String,
    },
    /// The contexts cannot be written as TOML.
    #[error("the contexts cannot be written down")]
    Unwritable(#[source] toml::ser::Error),
}

impl Contexts {
    /// Reads a file; one that is not there holds no contexts.
    ///
    /// # Errors
    /// [`ContextsError`].
    pub fn load(path: &Path) -> Result<Self, ContextsError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(source) => return Err(ContextsError::Io { path: path.to_owned(), source }),
        };
        toml::from_str(&text).map_err(|error| {
            let (line, column) = crate::position::of(&text, error.span().map_or(0, |span| span.start));
            ContextsError::Invalid { path: path.to_owned(), line, column, message: error.message().to_owned() }
        })
    }

    /// Writes a file, with the folders above it, so that a reader sees the old or the new one.
    ///
    /// # Errors
    /// [`ContextsError`].
    pub fn save(&self, path: &Path) -> Result<(), ContextsError> {
        let text = toml::to_string_pretty(self).map_err(ContextsError::Unwritable)?;
        let io = |source| ContextsError::Io { path: path.to_owned(), source };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(folder).map_err(io)?;
        let mut draft = path.as_os_str().to_owned();
        draft.push(format!(".{}", std::process::id()));
        let draft = PathBuf::from(draft);
        let mut file = fs::File::create(&draft).map_err(io)?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
        fs::rename(&draft, path).map_err(io)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("deep/config.toml");
        assert_eq!(Contexts::load(&path).expect("nothing there"), Contexts::default());
        let lab = Context { server: vec!["10.0.0.1:7400".to_owned()], timeout: Some("30s".to_owned()), output: None };
        let contexts = Contexts { current: Some("lab".to_owned()), context: BTreeMap::from([("lab".to_owned(), lab)]) };
        contexts.save(&path).expect("written");
        contexts.save(&path).expect("written again");
        assert_eq!(Contexts::load(&path).expect("read"), contexts);
        let files = fs::read_dir(path.parent().expect("it has one")).expect("listed").count();
        assert_eq!(files, 1, "no draft is left");
    }

    #[test]
    fn an_unknown_field_is_named_with_its_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        fs::write(&path, "[context.lab]\nserver = [\"a:1\"]\nsrever = 1\n").expect("written");
        let error = Contexts::load(&path).expect_err("refused").to_string();
        assert!(error.contains("config.toml:3:1: unknown field `srever`"), "{error}");
    }
}
