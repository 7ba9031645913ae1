//! Diagnostics that a process reports of itself, for whoever looks for a fault and cannot log in on its host: the
//! newest lines of its log, its configuration without secrets, and the state of its process.
//!
//! A process has one log and one configuration, so both are kept here once for all of it: the daemon tells them when it
//! starts ([`configured`], [`Lines`]), and members and agents hand them on when they are asked ([`own`]). Everything is
//! bounded. Of a process neither environment nor arguments are read. What is said on standard error goes through
//! [`Remarks`], and what others wrote is printed as [`shown`] makes it.

mod log;
mod process;
pub mod profile;
mod remark;
pub mod shown;

use std::sync::{Mutex, PoisonError};

pub use log::Lines;
pub use process::of_process;
pub use profile::{LONGEST, Profiler};
pub use remark::{Remarks, say};

/// Something that is told, under a name, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its name, such as `log.txt`.
    pub name: String,
    pub content: Result<Vec<u8>, String>,
}

impl Part {
    #[must_use]
    pub fn new(name: impl Into<String>, content: Result<Vec<u8>, String>) -> Self {
        Self { name: name.into(), content }
    }
}

static CONFIGURATION: Mutex<Option<String>> = Mutex::new(None);

/// Takes over this process' configuration as others may see it: the caller has taken every secret out.
pub fn configured(text: String) {
    *CONFIGURATION.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
}

/// The diagnostics of this process, but for a profile, which takes its time ([`Profiler`]).
#[must_use]
pub fn own() -> Vec<Part> {
    let configuration = CONFIGURATION.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let configuration = configuration.map(String::into_bytes);
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    let mut parts = vec![
        Part::new("configuration.toml", configuration.ok_or_else(|| "it was started without a file".to_owned())),
        Part::new("log.txt", log::newest()),
    ];
    parts.extend(of_process(pid).into_iter().map(|part| Part { name: format!("process/{}", part.name), ..part }));
    parts
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_process_tells_its_log_its_configuration_and_how_it_is() {
        writeln!(Lines, "a line that was logged").expect("memory");
        configured("name = 'm1'\n".to_owned());
        let told = own();
        let part = |name: &str| {
            let found = told.iter().find(|part| part.name == name).unwrap_or_else(|| panic!("{name}: {told:?}"));
            String::from_utf8_lossy(found.content.as_ref().expect("told")).into_owned()
        };
        assert!(part("log.txt").contains("a line that was logged"));
        assert_eq!(part("configuration.toml"), "name = 'm1'\n");
        assert!(part("process/status").contains("VmRSS"));
        assert!(part("process/threads").lines().count() > 1, "threads with what they wait for");
    }
}
