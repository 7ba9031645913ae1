//! The conditions for giving up the reserve and for making it again; the same for both disks.

/// Below so many free bytes at opening, a reserve of `size` bytes is given up.
pub(crate) fn releases_below(size: u64) -> u64 {
    size / 4
}

/// From so many free bytes on, a reserve of `size` bytes is made: there must be clearly more room than it takes, or it
/// would be given up again at the next start.
pub(crate) fn remakes_from(size: u64) -> u64 {
    size.saturating_mul(2)
}
