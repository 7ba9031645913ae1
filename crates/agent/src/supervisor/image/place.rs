//! The folder at which a worker that may be dumped finds its own, on every node: paths in a process do not change.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The path at which a worker that may be dumped finds its folder.
pub const PLACE: &str = "/run/tessera/worker";

/// The bits of a mode that let everybody pass.
const PASSABLE: u32 = 0o111;

/// Makes the folder over which each worker is shown its own.
///
/// # Errors
/// When it cannot be made, or workers cannot be let through.
pub fn make_place() -> io::Result<()> {
    let place = Path::new(PLACE);
    place.parent().into_iter().chain([place]).try_for_each(let_pass)
}

/// Makes a folder, and lets workers pass through it: whoever made it may have kept it from others.
fn let_pass(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mode = fs::metadata(folder)?.permissions().mode();
    if mode & PASSABLE == PASSABLE {
        return Ok(());
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(mode | PASSABLE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_pass_through_a_folder_that_was_closed() {
        let above = tempfile::tempdir().expect("a temporary folder");
        let folder = above.path().join("run");
        for closed in [0o700, 0o750, 0o755] {
            fs::create_dir_all(&folder).expect("mine");
            fs::set_permissions(&folder, fs::Permissions::from_mode(closed)).expect("mine");
            let_pass(&folder).expect("mine");
            let mode = fs::metadata(&folder).expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, closed | PASSABLE, "{mode:o}");
        }
    }
}
