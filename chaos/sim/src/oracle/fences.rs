//! Fences only ever go up: no supervisor obeys a leader or an allocation that is older than one it obeyed before, and
//! no agent keeps an older term than one that it kept, or passes on the word of an older leader than its supervisors
//! have heard.

use super::{Oracle, View};

pub struct Fences;

impl Oracle for Fences {
    fn name(&self) -> &'static str {
        "fences only go up"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        view.world.older_obeyed().first().map_or(Ok(()), |obeyed| Err(obeyed.clone()))
    }
}
