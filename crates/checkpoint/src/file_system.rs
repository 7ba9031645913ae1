//! File systems, by what they can be trusted with.

use std::fs::File;
use std::io;
use std::path::Path;

use nix::sys::statfs::{
    BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, FUSE_SUPER_MAGIC, FsType, NFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC,
    SMB_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC, fstatfs, statfs,
};

/// The number of file systems of Windows servers, as Linux mounts them today.
const CIFS: FsType = FsType(0xff53_4d42);

/// File systems that lie on another machine, or behind a program.
const ELSEWHERE: [FsType; 4] = [NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, CIFS, FUSE_SUPER_MAGIC];

/// File systems that say of no written byte that it is in a hole, once it was brought to the disk; ext2 and ext3 have
/// the number of ext4. Releases of ZFS said it of what had just been written, and a program behind FUSE says what it
/// likes.
const TELLING_HOLES: [FsType; 6] =
    [EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC, NFS_SUPER_MAGIC];

/// Tells that a folder lies on another machine, or behind a program.
pub(crate) fn is_elsewhere(folder: &Path) -> io::Result<bool> {
    Ok(ELSEWHERE.contains(&statfs(folder)?.filesystem_type()))
}

/// Tells that the file system of a file is believed in where its holes are.
pub(crate) fn tells_holes(file: &File) -> io::Result<bool> {
    Ok(TELLING_HOLES.contains(&fstatfs(file)?.filesystem_type()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_file_systems_that_are_known_to_be_right_tell_holes() {
        let zfs = FsType(0x2fc1_2fc1);
        for wrong in [zfs, FUSE_SUPER_MAGIC, FsType(0)] {
            assert!(!TELLING_HOLES.contains(&wrong), "{wrong:?}");
        }
        assert!(!tells_holes(&File::open("/proc/self/status").expect("it is there")).expect("it is known"));
        assert!(tells_holes(&tempfile::tempfile().expect("a file")).expect("it is known"));
    }
}
