//! L2 as seen at the workers: no two live programs ever compute on one block, and no job runs twice at once.

use super::{Oracle, View};

/// See the module.
pub struct OneOwner;

impl Oracle for OneOwner {
    fn name(&self) -> &'static str {
        "one owner (L2)"
    }

    fn look(&mut self, view: &View<'_>) -> Result<(), String> {
        view.world.collisions().first().map_or(Ok(()), |collision| Err(collision.clone()))
    }
}
