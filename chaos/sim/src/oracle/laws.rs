//! The laws of the ledger on each member's state, and L8: whoever has applied the same entries has the same state. The
//! release level never goes back (L7).

use std::collections::BTreeMap;

use tessera_ledger::{Level, Revision, laws};

use super::{Oracle, View};

/// Revisions whose digests are remembered.
const REMEMBERED: usize = 4_096;

#[derive(Default)]
pub struct Laws {
    /// Digest of the state at each revision, and the member that was seen with it first.
    digests: BTreeMap<Revision, (u128, String)>,
    /// The highest release level that was seen, and the first revision at which it was.
    level: (Revision, Level),
    /// Up to where each member was checked.
    checked: BTreeMap<String, Revision>,
}

impl Oracle for Laws {
    fn name(&self) -> &'static str {
        "laws of the ledger (L1, L7, L8)"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        for member in &view.members {
            let Some(state) = &member.state else {
                self.checked.remove(&member.name);
                continue;
            };
            let revision = state.revision();
            if self.checked.get(&member.name) == Some(&revision) {
                continue;
            }
            self.checked.insert(member.name.clone(), revision);
            let level = (revision, state.level());
            if level.0 >= self.level.0 && level.1 < self.level.1 {
                return Err(format!("{} is back at release level {} at revision {}", member.name, level.1, revision.0));
            }
            if level.1 > self.level.1 || (level.1 == self.level.1 && level.0 < self.level.0) {
                self.level = level;
            }
            let known = self.digests.entry(revision).or_insert_with(|| (state.digest(), member.name.clone()));
            if known.0 != state.digest() {
                return Err(format!(
                    "{} and {} differ at revision {}: {:032x} and {:032x}",
                    known.1,
                    member.name,
                    revision.0,
                    known.0,
                    state.digest()
                ));
            }
            if known.1 == member.name
                && let Some(broken) = laws::check(state).first()
            {
                return Err(format!("{} at revision {}: {}: {}", member.name, revision.0, broken.law, broken.problem));
            }
        }
        while self.digests.len() > REMEMBERED {
            self.digests.pop_first();
        }
        Ok(())
    }
}
