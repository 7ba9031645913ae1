//! Whoever takes a leader that lives for dead deposes it never while a quorum hears it.

use super::{Oracle, View};
use crate::script::Script;

#[derive(Default)]
pub struct FalseAlarms {
    /// The highest term in which somebody led when the alarms began, or was seen to lead since.
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
        let Some((term, name)) = view.members.iter().filter_map(|member| Some((member.leads?, &member.name))).max()
        else {
            return Ok(());
        };
        match self.term {
            Some(before) if before != term => {
                Err(format!("{name} leads in term {term}, and the leader of {before} lived"))
            }
            _ => {
                self.term = Some(term);
                Ok(())
            }
        }
    }
}
