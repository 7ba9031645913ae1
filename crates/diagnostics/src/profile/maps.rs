//! The files that a process has in its memory, and where.

use std::fs;
use std::io;
use std::ops::Range;

/// Libraries in which an interrupted stack cannot be walked: the walk itself may need a lock that is held there.
const UNWALKABLE: [&str; 4] = ["libc", "libgcc", "pthread", "vdso"];

/// The files in memory, as the kernel says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Maps(Vec<Mapping>);

#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    range: Range<usize>,
    executable: bool,
    file: String,
}

impl Maps {
    pub(super) fn of_this_process() -> io::Result<Self> {
        Ok(Self::read(&fs::read_to_string("/proc/self/maps")?))
    }

    fn read(text: &str) -> Self {
        let mapping = |line: &str| {
            let mut words = line.splitn(6, ' ');
            let (from, to) = words.next()?.split_once('-')?;
            let range = usize::from_str_radix(from, 16).ok()?..usize::from_str_radix(to, 16).ok()?;
            let executable = words.next()?.contains('x');
            // After the offset, the device and the number of the file.
            let file = words.nth(3)?.trim().to_owned();
            (!file.is_empty()).then_some(Mapping { range, executable, file })
        };
        Self(text.lines().filter_map(mapping).collect())
    }

    /// The ranges with code in which no stack may be walked.
    pub(super) fn unwalkable(&self) -> Vec<Range<usize>> {
        let unwalkable = |mapping: &&Mapping| {
            let name = mapping.file.rsplit('/').next().unwrap_or_default();
            mapping.executable && UNWALKABLE.iter().any(|library| name.contains(library))
        };
        self.0.iter().filter(unwalkable).map(|mapping| mapping.range.clone()).collect()
    }

    /// The file that lies at an address, and how far into what lies of it there.
    pub(super) fn place(&self, address: usize) -> Option<(&str, usize)> {
        let at = self.0.iter().position(|mapping| mapping.range.contains(&address))?;
        let file = &self.0.get(at)?.file;
        let mut begin = address;
        // A file may lie in memory a second time, elsewhere.
        for mapping in self.0.iter().take(at + 1).rev() {
            let joins = mapping.file == *file && (mapping.range.contains(&begin) || mapping.range.end == begin);
            if !joins {
                break;
            }
            begin = mapping.range.start;
        }
        Some((file, address - begin))
    }

    /// The address of a place in a file that lies in memory once.
    pub(super) fn address(&self, file: &str, offset: usize) -> Option<usize> {
        self.0.iter().find(|mapping| mapping.file == file)?.range.start.checked_add(offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_apart_from_where_its_file_lies() {
        let at = |begin: usize| {
            Maps::read(&format!(
                "{:x}-{:x} r--p 00000000 08:01 42              /opt/a program\n{:x}-{:x} r-xp 00001000 08:01 42 \
                 /opt/a program\n7f00-7fff rw-p 00000000 00:00 0 \n8000-9000 r-xp 00000000 08:01 7   /lib/libc.so.6\n",
                begin,
                begin + 0x100,
                begin + 0x100,
                begin + 0x200
            ))
        };
        let (here, there) = (at(0x1000), at(0x5000));
        assert_eq!(here.place(0x1180), Some(("/opt/a program", 0x180)));
        assert_eq!(there.address("/opt/a program", 0x180), Some(0x5180));
        assert_eq!(here.place(0x7f00), None, "nothing of a file");
        let twice = Maps::read("0-10 r--p 0 0 0 /p\n20-30 r--p 0 0 0 /p\n30-40 r-xp 0 0 0 /p\n");
        assert_eq!(twice.place(0x38), Some(("/p", 0x18)));
        assert_eq!(here.unwalkable(), std::slice::from_ref(&(0x8000..0x9000)));
    }
}
