//! The parts of a file that have content. A file may be much longer than what it holds: what nobody wrote is a hole,
//! takes nothing on its disk, and reads as zeros. File systems are asked only where the file takes less than its
//! length, and only those that can be believed: what is wrongly taken for a hole is lost.
//!
//! In an archive, a file with holes is what GNU's tar makes of it in its format 1.0 of sparse files: its length is said
//! before its header, and its content begins with a map, which is followed by what is not in holes. The map is text:
//! the number of extents, then the beginning and the length of each, one number a line, filled up to whole blocks.

use std::fs::File;
use std::io::{self, Read};

use nix::errno::Errno;
use nix::sys::stat::FileStat;
use nix::unistd::{Whence, lseek};

use crate::file_system::tells_holes;
use crate::pack::BLOCK;

/// The unit that file systems count in, whatever their own blocks are.
const SECTOR: u64 = 512;

/// Most extents that are kept apart, which take 16 MiB of memory, and twice that while they are gathered.
pub(crate) const MOST: usize = 1 << 20;

/// A part of a file that is no hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Its beginning, in bytes.
    pub start: u64,
    pub bytes: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The parts of a file that are no holes, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    /// Bytes of the file, holes included.
    length: u64,
    held: Vec<Extent>,
}

impl Extents {
    /// Looks where a file holds something: everywhere, where that cannot be known.
    pub(crate) fn of(file: &File, seen: &FileStat) -> io::Result<Self> {
        let length = u64::try_from(seen.st_size).unwrap_or(0);
        let on_disk = u64::try_from(seen.st_blocks).unwrap_or(0).saturating_mul(SECTOR);
        if on_disk >= length || !tells_holes(file)? {
            return Ok(Self::whole(length));
        }
        // Some tell only what has reached the disk: the program has just written.
        file.sync_data()?;
        Self::told(file, length)
    }

    fn told(file: &File, length: u64) -> io::Result<Self> {
        let mut found = Self { length, held: Vec::new() };
        let mut looked = 0;
        while looked < length {
            let start = match seek(file, looked, Whence::SeekData) {
                Ok(start) => start.clamp(looked, length),
                // Nothing comes any more.
                Err(Errno::ENXIO) => break,
                Err(Errno::EINVAL | Errno::EOPNOTSUPP) => looked,
                Err(error) => return Err(error.into()),
            };
            let end = match seek(file, start, Whence::SeekHole) {
                Ok(end) if end > start => end.min(length),
                Ok(_) | Err(Errno::ENXIO | Errno::EINVAL | Errno::EOPNOTSUPP) => length,
                Err(error) => return Err(error.into()),
            };
            found.add(Extent { start, bytes: end - start });
            looked = end;
        }
        if found.held.is_empty() {
            // A program that saved nothing but zeros saved something, and its file system may make a hole of them.
            found.add(Extent { start: 0, bytes: length.min(BLOCK as u64) });
        }
        Ok(found)
    }

    /// A file of so many bytes without a hole.
    pub(crate) fn whole(length: u64) -> Self {
        let held = (length > 0).then_some(Extent { start: 0, bytes: length }).into_iter().collect();
        Self { length, held }
    }

    fn add(&mut self, extent: Extent) {
        if extent.bytes > 0 {
            self.held.push(extent);
        }
        if self.held.len() > MOST {
            self.fill_smallest_holes();
        }
    }

    /// Takes the smaller half of the holes for content.
    fn fill_smallest_holes(&mut self) {
        let mut holes: Vec<u64> = self.held.windows(2).map(|pair| pair[1].start - pair[0].end()).collect();
        let mut to_fill = holes.len() / 2;
        let largest = *holes.select_nth_unstable(to_fill - 1).1;
        let mut kept: Vec<Extent> = Vec::with_capacity(self.held.len() - to_fill);
        for extent in self.held.drain(..) {
            match kept.last_mut() {
                Some(before) if to_fill > 0 && extent.start - before.end() <= largest => {
                    before.bytes = extent.end() - before.start;
                    to_fill -= 1;
                }
                _ => kept.push(extent),
            }
        }
        self.held = kept;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Extent> {
        self.held.iter().copied()
    }

    pub(crate) const fn length(&self) -> u64 {
        self.length
    }

    /// Bytes that are in no hole.
    pub(crate) fn bytes(&self) -> u64 {
        self.held.iter().map(|extent| extent.bytes).sum()
    }

    pub(crate) fn has_holes(&self) -> bool {
        self.bytes() < self.length
    }

    /// The map that stands before what is not in holes.
    pub(crate) fn map(&self) -> Vec<u8> {
        let mut map = Vec::new();
        self.numbers().for_each(|number| map.extend_from_slice(format!("{number}\n").as_bytes()));
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        map
    }

    /// Bytes of the map.
    pub(crate) fn map_bytes(&self) -> u64 {
        let line = |number: u64| u64::from(number.checked_ilog10().unwrap_or(0)) + "0\n".len() as u64;
        self.numbers().map(line).sum::<u64>().next_multiple_of(BLOCK as u64)
    }

    /// The numbers of the map.
    fn numbers(&self) -> impl Iterator<Item = u64> {
        // An end without content is said as an extent of nothing.
        let ends_with = self.held.last().map_or(0, Extent::end);
        let end = (ends_with < self.length).then_some(Extent { start: self.length, bytes: 0 });
        let count = self.held.len() as u64 + u64::from(end.is_some());
        let extents = self.iter().chain(end).flat_map(|Extent { start, bytes }| [start, bytes]);
        std::iter::once(count).chain(extents)
    }

    /// Reads the map of a file of `length` bytes, and believes nothing in it that cannot be: `most` bytes are there of
    /// the map and what follows it.
    pub(crate) fn read(from: &mut dyn Read, length: u64, most: u64) -> io::Result<Self> {
        let mut numbers = Numbers { from, block: [0; BLOCK], at: BLOCK, read: 0 };
        let count = numbers.next()?;
        if count > MOST as u64 + 1 {
            return Err(wrong("the map of a file with holes has too many extents"));
        }
        let mut found = Self { length, held: Vec::new() };
        let mut end = 0;
        for _ in 0..count {
            let extent = Extent { start: numbers.next()?, bytes: numbers.next()? };
            let next = extent.start.checked_add(extent.bytes).filter(|next| extent.start >= end && *next <= length);
            end = next.ok_or_else(|| wrong("the map of a file with holes contradicts itself"))?;
            found.held.extend(Some(extent).filter(|extent| extent.bytes > 0));
        }
        if numbers.read.checked_add(found.bytes()) != Some(most) {
            return Err(wrong("a file with holes has more or less content than its map says"));
        }
        Ok(found)
    }
}

/// Returns the beginning of the next content or the next hole, from a place on.
fn seek(file: &File, from: u64, whence: Whence) -> Result<u64, Errno> {
    let from = i64::try_from(from).map_err(|_| Errno::EOVERFLOW)?;
    lseek(file, from, whence).map(|found| u64::try_from(found).unwrap_or(0))
}

/// The refusal of what an archive says and cannot be.
pub(crate) fn wrong(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// The numbers of a map, read by whole blocks.
struct Numbers<'a> {
    from: &'a mut dyn Read,
    block: [u8; BLOCK],
    /// Bytes of the block that were looked at.
    at: usize,
    /// Bytes that were read.
    read: u64,
}

impl Numbers<'_> {
    fn next(&mut self) -> io::Result<u64> {
        let mut number = None;
        loop {
            let so_far: u64 = match (self.byte()?, number) {
                (b'\n', Some(number)) => return Ok(number),
                (byte @ b'0'..=b'9', so_far) => {
                    let longer = so_far.unwrap_or(0_u64).checked_mul(10);
                    let longer = longer.and_then(|longer| longer.checked_add(u64::from(byte - b'0')));
                    longer.ok_or_else(|| wrong("the map of a file with holes has a number that is too large"))?
                }
                _ => return Err(wrong("the map of a file with holes cannot be read")),
            };
            number = Some(so_far);
        }
    }

    fn byte(&mut self) -> io::Result<u8> {
        if self.at == BLOCK {
            self.from.read_exact(&mut self.block)?;
            self.at = 0;
            self.read += BLOCK as u64;
        }
        self.at += 1;
        Ok(self.block[self.at - 1])
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use nix::fcntl::{FallocateFlags, fallocate};
    use nix::sys::stat::fstat;

    use super::*;

    fn map_of(length: u64, held: &[(u64, u64)]) -> Extents {
        Extents { length, held: held.iter().map(|(start, bytes)| Extent { start: *start, bytes: *bytes }).collect() }
    }

    fn read(map: &[u8], length: u64, content: u64) -> io::Result<Extents> {
        Extents::read(&mut &*map, length, map.len() as u64 + content)
    }

    fn of(file: &File) -> Extents {
        Extents::of(file, &fstat(file).expect("it is there")).expect("it can be looked at")
    }

    fn refused(text: &str, length: u64, content: u64) -> String {
        let mut map = text.as_bytes().to_vec();
        map.resize(map.len().next_multiple_of(BLOCK), 0);
        read(&map, length, content).expect_err(text).to_string()
    }

    #[test]
    fn a_map_says_what_it_was_made_of() {
        for (length, held) in [
            (0, vec![]),
            (1 << 40, vec![]),
            (100, vec![(10, 90)]),
            (1000, vec![(0, 1), (2, 3), (999, 1)]),
            (u64::MAX, (0..100).map(|number| (number << 50, 4096)).collect()),
        ] {
            let extents = map_of(length, &held);
            let map = extents.map();
            assert_eq!(extents.map_bytes(), map.len() as u64);
            assert_eq!(read(&map, length, extents.bytes()).expect("it can be read"), extents);
        }
    }

    #[test]
    fn a_map_that_cannot_be_is_refused() {
        for (text, length, content) in [
            ("2\n0\n10\n5\n10\n", 100, 20),
            ("2\n50\n10\n0\n10\n", 100, 20),
            ("1\n90\n20\n", 100, 20),
            ("1\n18446744073709551615\n2\n", u64::MAX, 2),
        ] {
            assert!(refused(text, length, content).contains("contradicts itself"), "{text:?}");
        }
        assert!(refused("1\n18446744073709551616\n1\n", u64::MAX, 1).contains("too large"));
        assert!(refused("1\n-1\n1\n", 100, 1).contains("cannot be read"));
        assert!(refused("\n", 100, 0).contains("cannot be read"));
        assert!(refused("99999999999\n", 100, 0).contains("too many"));
        assert!(refused("1\n0\n10\n", 100, 9).contains("more or less"));
        assert!(refused("1\n0\n10\n", 100, 11).contains("more or less"));
    }

    #[test]
    fn of_very_many_extents_those_that_are_nearest_become_one() {
        let mut extents = map_of(u64::MAX, &[]);
        let start = |number: u64| number * 100 + if number.is_multiple_of(2) { 0 } else { 50 };
        (0..MOST as u64 + 1).for_each(|number| extents.add(Extent { start: start(number), bytes: 10 }));
        assert!(extents.held.len() <= MOST / 2 + 1, "{}", extents.held.len());
        let apart = extents.held.windows(2).all(|pair| pair[0].end() < pair[1].start);
        assert!(apart && extents.bytes() < start(MOST as u64) / 2, "the larger holes are left");
    }

    #[test]
    fn a_file_is_where_it_was_written() {
        let file = tempfile::tempfile().expect("a file");
        let length = 1 << 40;
        file.set_len(length).expect("it may be so long");
        for start in [0, 1 << 30, length - (1 << 16)] {
            file.write_all_at(&[7; 1 << 16], start).expect("there is room");
        }
        let found = of(&file);
        assert!(found.bytes() < 1 << 20, "a file system of tests knows holes: {found:?}");
        for start in [0, 1 << 30, length - (1 << 16)] {
            let is_in = |extent: &Extent| extent.start <= start && start + (1 << 16) <= extent.end();
            assert!(found.held.iter().any(is_in), "{start} in {found:?}");
        }
    }

    #[test]
    fn a_file_that_takes_its_length_on_its_disk_is_read_in_full() {
        let file = tempfile::tempfile().expect("a file");
        fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).expect("a file system of tests reserves room");
        file.write_all_at(b"content", 1 << 19).expect("written");
        assert_eq!(of(&file), Extents::whole(1 << 20), "nobody is asked who could be wrong");
    }
}
