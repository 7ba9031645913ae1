//! Whoever takes a leader that lives for dead deposes it never while a quorum hears it.

use super::{Oracle, View};
use crate::script::Script;

#[derive(Default)]
pub struct FalseAlarms {
    /// The term of whoever led at the last look.
    term: Option<u64>,
}

impl Oracle for FalseAlarms {
    fn name(&self) -> &'static str {
        "false alarms depose nobody"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        if view.script != Some(Script::FalseAlarm) {
            return Ok(());
        }
        let Some((term, leader)) = view.leader() else { return Ok(()) };
        match self.term.replace(term) {
            Some(before) if before != term => {
                Err(format!("{} leads in term {term}, and the leader of {before} lived", leader.name))
            }
            _ => Ok(()),
        }
    }
}
