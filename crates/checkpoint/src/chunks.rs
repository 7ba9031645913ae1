//! A stream of bytes cut into chunks, and back. Both ends block: they belong on threads for that.

use std::io::{self, Read, Write};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc::{Receiver, Sender};

use crate::Chunk;
use crate::published::Hash;

/// How much of a chunk is compressed to see whether it pays.
const PROBE: usize = 1 << 20;
/// It pays when an eighth is saved.
const PAYS: fn(usize, usize) -> bool = |plain, compressed| compressed < plain - plain / 8;
/// Level of zstd: what is quicker than most disks.
const LEVEL: i32 = 1;

/// A chunk on its way.
#[derive(Debug)]
pub(crate) struct Cut {
    pub chunk: Chunk,
    pub bytes: Bytes,
}

/// Cuts what is written to it into chunks, and sends them.
pub(crate) struct Cutter {
    chunk_bytes: usize,
    packed: usize,
    first: Vec<u8>,
    coder: Option<Coder>,
    hash: blake3::Hasher,
    out: Sender<Cut>,
}

enum Coder {
    Plain(Vec<u8>),
    Zstd(zstd::Encoder<'static, Vec<u8>>),
}

impl Cutter {
    pub(crate) fn new(chunk_bytes: u64, out: Sender<Cut>) -> Self {
        let chunk_bytes = usize::try_from(chunk_bytes).unwrap_or(usize::MAX).max(1);
        Self { chunk_bytes, packed: 0, first: Vec::new(), coder: None, hash: blake3::Hasher::new(), out }
    }

    /// Sends what is left. Returns the hash of everything that was written.
    pub(crate) fn finish(mut self) -> io::Result<Hash> {
        if self.packed > 0 {
            self.cut()?;
        }
        Ok(self.hash.finalize().into())
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.coder {
            Some(Coder::Plain(plain)) => plain.extend_from_slice(bytes),
            Some(Coder::Zstd(encoder)) => encoder.write_all(bytes)?,
            None => {
                self.first.extend_from_slice(bytes);
                if self.first.len() >= PROBE {
                    self.choose()?;
                }
            }
        }
        Ok(())
    }

    /// Whether the chunk is compressed, by its beginning.
    fn choose(&mut self) -> io::Result<()> {
        let first = std::mem::take(&mut self.first);
        let pays = PAYS(first.len(), zstd::bulk::compress(&first, LEVEL)?.len());
        self.coder = Some(match pays {
            false => Coder::Plain(first),
            true => {
                let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
                encoder.write_all(&first)?;
                Coder::Zstd(encoder)
            }
        });
        Ok(())
    }

    fn cut(&mut self) -> io::Result<()> {
        if self.coder.is_none() {
            self.choose()?;
        }
        let (bytes, compressed) = match self.coder.take() {
            Some(Coder::Zstd(encoder)) => (encoder.finish()?, true),
            Some(Coder::Plain(plain)) => (plain, false),
            None => (Vec::new(), false),
        };
        let chunk = Chunk {
            packed_bytes: std::mem::take(&mut self.packed) as u64,
            stored_bytes: bytes.len() as u64,
            hash: Hash::of(&bytes),
            compressed,
        };
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody takes the chunks any more");
        self.out.blocking_send(Cut { chunk, bytes: bytes.into() }).map_err(gone)
    }
}

impl Write for Cutter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.chunk_bytes - self.packed);
        let bytes = &bytes[..taken];
        self.hash.update(bytes);
        self.packed += taken;
        self.add(bytes)?;
        if self.packed == self.chunk_bytes {
            self.cut()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads what chunks hold, one after the other.
pub(crate) struct Joiner {
    chunks: Receiver<Cut>,
    current: Option<Current>,
    hash: blake3::Hasher,
}

struct Current {
    decoder: Decoder,
    left: u64,
}

enum Decoder {
    Plain(bytes::buf::Reader<Bytes>),
    Zstd(Box<zstd::Decoder<'static, io::BufReader<bytes::buf::Reader<Bytes>>>>),
}

impl Joiner {
    pub(crate) fn new(chunks: Receiver<Cut>) -> Self {
        Self { chunks, current: None, hash: blake3::Hasher::new() }
    }

    /// The hash of everything that was read.
    pub(crate) fn finish(self) -> Hash {
        self.hash.finalize().into()
    }

    fn next(&mut self) -> io::Result<Option<Current>> {
        let Some(Cut { chunk, bytes }) = self.chunks.blocking_recv() else { return Ok(None) };
        let decoder = match chunk.compressed {
            false => Decoder::Plain(bytes.reader()),
            true => Decoder::Zstd(Box::new(zstd::Decoder::new(bytes.reader())?)),
        };
        Ok(Some(Current { decoder, left: chunk.packed_bytes }))
    }
}

impl Current {
    /// Never more than the chunk should hold, however much comes out of what is compressed.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem);
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        // At its end it is asked for one byte, which must not come.
        let mut beyond = [0];
        let buffer = if self.left == 0 { beyond.as_mut_slice() } else { &mut buffer[..most] };
        let read = match &mut self.decoder {
            Decoder::Plain(reader) => reader.read(buffer)?,
            Decoder::Zstd(decoder) => decoder.read(buffer)?,
        };
        match (read, self.left) {
            (0, 0) => Ok(0),
            (_, 0) => Err(wrong("a chunk holds more than it should")),
            (0, _) => Err(wrong("a chunk holds less than it should")),
            (read, _) => {
                self.left -= read as u64;
                Ok(read)
            }
        }
    }
}

impl Read for Joiner {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if self.current.is_none() {
                self.current = self.next()?;
            }
            let Some(current) = &mut self.current else { return Ok(0) };
            let read = current.read(buffer)?;
            if read > 0 {
                self.hash.update(&buffer[..read]);
                return Ok(read);
            }
            self.current = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::sync::mpsc::channel;

    use super::*;

    fn cut(content: &[u8], chunk_bytes: u64) -> (Vec<Cut>, Hash) {
        let (sender, mut receiver) = channel(1);
        let content = content.to_vec();
        let cutting = std::thread::spawn(move || {
            let mut cutter = Cutter::new(chunk_bytes, sender);
            cutter.write_all(&content).expect("somebody takes them");
            cutter.finish().expect("somebody takes them")
        });
        let cuts = std::iter::from_fn(|| receiver.blocking_recv()).collect();
        (cuts, cutting.join().expect("it ends"))
    }

    fn joined(cuts: Vec<Cut>) -> io::Result<(Vec<u8>, Hash)> {
        let (sender, receiver) = channel(cuts.len().max(1));
        cuts.into_iter().for_each(|cut| sender.try_send(cut).expect("there is room"));
        drop(sender);
        let (mut joiner, mut content) = (Joiner::new(receiver), Vec::new());
        joiner.read_to_end(&mut content)?;
        Ok((content, joiner.finish()))
    }

    proptest! {
        #[test]
        fn what_is_cut_is_joined_again(content: Vec<u8>, chunk_bytes in 1_u64..200) {
            let (cuts, hash) = cut(&content, chunk_bytes);
            prop_assert!(cuts.iter().all(|cut| cut.chunk.packed_bytes <= chunk_bytes));
            let (again, read) = joined(cuts).expect("they are whole");
            prop_assert_eq!(again, content);
            prop_assert_eq!(read, hash);
        }
    }

    #[test]
    fn only_what_becomes_smaller_is_compressed() {
        let (cuts, _) = cut(&[7; 3 << 20], 2 << 20);
        assert!(cuts.iter().all(|cut| cut.chunk.compressed && cut.chunk.stored_bytes < 10_000), "{cuts:?}");
        let mut noise = vec![0; 2 << 20];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        let (cuts, _) = cut(&noise, 2 << 20);
        assert!(cuts.iter().all(|cut| !cut.chunk.compressed && cut.chunk.stored_bytes == 2 << 20));
    }

    #[test]
    fn a_chunk_that_grows_without_end_is_not_followed() {
        let (mut cuts, _) = cut(&[7; 1 << 20], 2 << 20);
        cuts[0].chunk.packed_bytes = 1000;
        assert!(joined(cuts).is_err_and(|error| error.to_string().contains("more than it should")));
    }
}
