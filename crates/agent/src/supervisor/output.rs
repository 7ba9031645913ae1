//! A worker's output: two pipes, read by one thread into files that are rotated by size.
//!
//! A file is named after its stream and the offset of its first byte, counted from the worker's start, so that an
//! offset means the same byte however often the output was rotated. The thread is apart from the one that holds the
//! deadlines: a disk that hangs must not keep a worker alive.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::pipe2;
use tessera_diagnostics::remark;

/// Bytes read from a pipe at once.
const CHUNK: usize = 64 * 1024;
/// Stack of the thread: its buffer is on the heap.
const STACK: usize = 128 * 1024;

/// One of a worker's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// The first part of its files' names.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    /// Its file whose first byte has an offset.
    #[must_use]
    pub fn file(self, folder: &Path, offset: u64) -> PathBuf {
        folder.join(format!("{}.{offset:020}", self.name()))
    }

    /// Offsets of the first bytes of the files that are kept, oldest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn offsets(self, folder: &Path) -> io::Result<Vec<u64>> {
        let mut offsets = Vec::new();
        for entry in fs::read_dir(folder)? {
            let name = entry?.file_name();
            let offset =
                name.to_str().and_then(|name| name.strip_prefix(self.name())?.strip_prefix('.')?.parse::<u64>().ok());
            offsets.extend(offset);
        }
        offsets.sort_unstable();
        Ok(offsets)
    }
}

/// The limits of the output that is retained.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub file_bytes: u64,
    /// Files of one stream.
    pub files: u32,
}

/// An output of which the newest part is kept.
#[derive(Debug)]
pub struct RotatedFile {
    folder: PathBuf,
    stream: Stream,
    bounds: Bounds,
    file: File,
    length: u64,
    offset: u64,
}

impl RotatedFile {
    /// Begins at offset 0.
    ///
    /// # Errors
    /// What the file system says.
    pub fn create(folder: &Path, stream: Stream, bounds: Bounds) -> io::Result<Self> {
        let file = open_new(&stream.file(folder, 0))?;
        Ok(Self { folder: folder.to_owned(), stream, bounds, file, length: 0, offset: 0 })
    }

    /// Appends, beginning a new file where the present one is full. The offset counts what was written, and nothing
    /// else, so that it is always that of a byte in a file.
    ///
    /// # Errors
    /// The error of the file system; what was not written by then is lost.
    pub fn append(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.length >= self.bounds.file_bytes {
                self.rotate()?;
            }
            let room = usize::try_from(self.bounds.file_bytes - self.length).unwrap_or(usize::MAX);
            let written = match self.file.write(&bytes[..bytes.len().min(room)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                written => written?,
            };
            self.length += written as u64;
            self.offset += written as u64;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.file = open_new(&self.stream.file(&self.folder, self.offset))?;
        self.length = 0;
        let offsets = self.stream.offsets(&self.folder)?;
        let surplus = offsets.len().saturating_sub(self.bounds.files as usize);
        for offset in &offsets[..surplus] {
            fs::remove_file(self.stream.file(&self.folder, *offset))?;
        }
        Ok(())
    }
}

fn open_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// The thread that reads both pipes.
#[derive(Debug)]
pub struct Pump {
    thread: JoinHandle<()>,
    stop: OwnedFd,
    lost: Arc<AtomicU64>,
}

impl Pump {
    /// Starts reading.
    ///
    /// # Errors
    /// When the kernel gives no pipe or thread.
    pub fn start(sources: [(OwnedFd, RotatedFile); 2]) -> io::Result<Self> {
        let (stopped, stop) = pipe2(OFlag::O_CLOEXEC)?;
        let lost = Arc::new(AtomicU64::new(0));
        let mut channels = Vec::new();
        for (pipe, file) in sources {
            fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            channels.push(Channel { pipe: Some(File::from(pipe)), file, lost: Arc::clone(&lost) });
        }
        let thread = thread::Builder::new()
            .name("output".to_owned())
            .stack_size(STACK)
            .spawn(move || pump(channels, &stopped))?;
        Ok(Self { thread, stop, lost })
    }

    /// Reads what is still in the pipes and ends; returns how many bytes were lost because they could not be written.
    #[must_use]
    pub fn finish(self) -> u64 {
        drop(self.stop);
        // A panic of the thread has been printed; what it had written is kept.
        let _ = self.thread.join();
        self.lost.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct Channel {
    pipe: Option<File>,
    file: RotatedFile,
    lost: Arc<AtomicU64>,
}

impl Channel {
    /// Reads once; false when there is nothing now.
    fn read(&mut self, buffer: &mut [u8]) -> bool {
        let Some(pipe) = &mut self.pipe else { return false };
        match pipe.read(buffer) {
            Ok(0) => {
                self.pipe = None;
                false
            }
            Ok(length) => {
                let before = self.file.offset;
                if let Err(error) = self.file.append(&buffer[..length]) {
                    let missing = length as u64 - (self.file.offset - before);
                    if self.lost.fetch_add(missing, Ordering::Relaxed) == 0 {
                        remark!("output of the worker is lost: {error}");
                    }
                }
                true
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                remark!("output of the worker cannot be read any more: {error}");
                self.pipe = None;
                false
            }
        }
    }
}

fn pump(mut channels: Vec<Channel>, stopped: &OwnedFd) {
    let mut buffer = vec![0; CHUNK];
    loop {
        let stopping = wait(&channels, stopped);
        for channel in &mut channels {
            channel.read(&mut buffer);
        }
        if stopping {
            for channel in &mut channels {
                while channel.read(&mut buffer) {}
            }
            return;
        }
    }
}

/// Waits for output or for the end; true at the end.
fn wait(channels: &[Channel], stopped: &OwnedFd) -> bool {
    let mut fds = vec![PollFd::new(stopped.as_fd(), PollFlags::POLLIN)];
    fds.extend(
        channels.iter().filter_map(|channel| Some(PollFd::new(channel.pipe.as_ref()?.as_fd(), PollFlags::POLLIN))),
    );
    match poll(&mut fds, PollTimeout::NONE) {
        Ok(_) => fds[0].any().unwrap_or(false),
        Err(Errno::EINTR) => false,
        // Without poll there is nothing to wait on; end rather than spin.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_go_on_over_rotation_and_old_files_are_dropped() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bounds = Bounds { file_bytes: 10, files: 3 };
        let mut file = RotatedFile::create(folder.path(), Stream::Stdout, bounds).expect("creatable");
        for letter in b'a'..b'g' {
            file.append(&[letter; 7]).expect("writable");
        }
        assert_eq!(Stream::Stdout.offsets(folder.path()).expect("readable"), [20, 30, 40]);
        assert_eq!(fs::read(Stream::Stdout.file(folder.path(), 20)).expect("kept"), b"cdddddddee");
        assert_eq!(fs::read(Stream::Stdout.file(folder.path(), 40)).expect("kept"), b"ff");
        assert_eq!(Stream::Stderr.offsets(folder.path()).expect("readable"), [0_u64; 0]);
    }

    #[test]
    fn what_a_file_takes_before_it_takes_no_more_counts() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bounds = Bounds { file_bytes: 1 << 20, files: 2 };
        let mut file = RotatedFile::create(folder.path(), Stream::Stdout, bounds).expect("creatable");
        // A pipe that nobody reads takes a part, and then says so, like a disk that becomes full.
        let (unread, pipe) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).expect("a pipe");
        file.file = File::from(pipe);
        file.append(&[b'x'; 1 << 20]).expect_err("pipes do not take so much");
        let mut taken = Vec::new();
        drop(file.file);
        File::from(unread).read_to_end(&mut taken).expect("readable");
        assert!(!taken.is_empty());
        assert_eq!((file.offset, file.length), (taken.len() as u64, taken.len() as u64));
    }

    #[test]
    fn everything_written_before_the_end_is_kept() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let bounds = Bounds { file_bytes: 1 << 20, files: 2 };
        let file = |stream| RotatedFile::create(folder.path(), stream, bounds).expect("creatable");
        let (out, out_end) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        let (err, err_end) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        let pump = Pump::start([(out, file(Stream::Stdout)), (err, file(Stream::Stderr))]).expect("startable");
        File::from(out_end).write_all(&[b'x'; 300_000]).expect("taken");
        File::from(err_end).write_all(b"careful").expect("taken");
        assert_eq!(pump.finish(), 0);
        assert_eq!(fs::read(Stream::Stdout.file(folder.path(), 0)).expect("kept").len(), 300_000);
        assert_eq!(fs::read(Stream::Stderr.file(folder.path(), 0)).expect("kept"), b"careful");
    }
}
