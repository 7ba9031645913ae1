//! A stream of bytes cut into chunks, and back. Both ends block: they belong on threads for that.

use std::io::{self, BufWriter, Read, Write};

use bytes::{Buf, Bytes};
use tokio::sync::mpsc::{Receiver, Sender};

use crate::Chunk;
use crate::published::Hash;

/// The number of bytes of a chunk that are compressed to see whether compression pays.
const PROBE: usize = 1 << 18;
/// It pays when an eighth is saved.
const PAYS: fn(usize, usize) -> bool = |plain, compressed| compressed < plain - plain / 8;
/// Level of zstd: what is quicker than most disks.
const LEVEL: i32 = 1;

/// A stream that is cut into chunks, and can be told where it had better be.
pub(crate) trait Seamed: Write {
    /// Here a file of so many bytes begins, or has ended. One that fills chunks has chunks of its own: as long as it is
    /// as it was, they are, whatever becomes of the files before it.
    fn seam(&mut self, file_bytes: u64) -> io::Result<()>;
}

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
    sum: Sum,
    out: Sender<Cut>,
}

enum Coder {
    Plain(Vec<u8>),
    Zstd(zstd::Encoder<'static, Vec<u8>>, Box<blake3::Hasher>),
}

/// The hash of a stream by those of its chunks before compression. What is not compressed is hashed once for its chunk
/// and for the whole.
#[derive(Default)]
struct Sum(blake3::Hasher);

impl Sum {
    fn add(&mut self, packed_bytes: u64, plain: &Hash) {
        self.0.update(&packed_bytes.to_le_bytes()).update(plain.bytes());
    }

    fn finish(&self) -> Hash {
        self.0.finalize().into()
    }
}

impl Cutter {
    pub(crate) fn new(chunk_bytes: u64, out: Sender<Cut>) -> Self {
        let chunk_bytes = usize::try_from(chunk_bytes).unwrap_or(usize::MAX).max(1);
        Self { chunk_bytes, packed: 0, first: Vec::new(), coder: None, sum: Sum::default(), out }
    }

    /// Sends what is left. Returns the hash of everything that was written.
    pub(crate) fn finish(mut self) -> io::Result<Hash> {
        self.cut_short()?;
        Ok(self.sum.finish())
    }

    /// Sends what there is of the present chunk.
    fn cut_short(&mut self) -> io::Result<()> {
        if self.packed > 0 { self.cut() } else { Ok(()) }
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.coder {
            Some(Coder::Plain(plain)) => plain.extend_from_slice(bytes),
            Some(Coder::Zstd(encoder, plain)) => {
                plain.update(bytes);
                encoder.write_all(bytes)?;
            }
            None => {
                self.first.extend_from_slice(bytes);
                if self.first.len() >= PROBE {
                    self.choose()?;
                }
            }
        }
        Ok(())
    }

    /// Decides by the beginning of the chunk whether it is compressed.
    fn choose(&mut self) -> io::Result<()> {
        let first = std::mem::take(&mut self.first);
        let pays = PAYS(first.len(), zstd::bulk::compress(&first, LEVEL)?.len());
        self.coder = Some(match pays {
            false => {
                let mut plain = first;
                plain.reserve_exact(self.chunk_bytes.saturating_sub(plain.len()));
                Coder::Plain(plain)
            }
            true => {
                let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
                encoder.write_all(&first)?;
                let mut plain = Box::new(blake3::Hasher::new());
                plain.update(&first);
                Coder::Zstd(encoder, plain)
            }
        });
        Ok(())
    }

    fn cut(&mut self) -> io::Result<()> {
        if self.coder.is_none() {
            self.choose()?;
        }
        let (bytes, compressed) = match self.coder.take() {
            Some(Coder::Zstd(encoder, plain)) => (encoder.finish()?, Some(plain.finalize().into())),
            Some(Coder::Plain(plain)) => (plain, None),
            None => (Vec::new(), None),
        };
        let chunk = Chunk {
            packed_bytes: std::mem::take(&mut self.packed) as u64,
            stored_bytes: bytes.len() as u64,
            hash: Hash::of(&bytes),
            compressed: compressed.is_some(),
        };
        self.sum.add(chunk.packed_bytes, &compressed.unwrap_or(chunk.hash));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "nobody takes the chunks any more");
        self.out.blocking_send(Cut { chunk, bytes: bytes.into() }).map_err(gone)
    }
}

impl Write for Cutter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.chunk_bytes - self.packed);
        self.packed += taken;
        self.add(&bytes[..taken])?;
        if self.packed == self.chunk_bytes {
            self.cut()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seamed for Cutter {
    fn seam(&mut self, file_bytes: u64) -> io::Result<()> {
        if file_bytes >= self.chunk_bytes as u64 { self.cut_short() } else { Ok(()) }
    }
}

impl Seamed for BufWriter<Cutter> {
    fn seam(&mut self, file_bytes: u64) -> io::Result<()> {
        self.flush()?;
        self.get_mut().seam(file_bytes)
    }
}

/// Reads what chunks hold, one after the other.
pub(crate) struct Joiner {
    chunks: Receiver<Cut>,
    current: Option<Current>,
    sum: Sum,
}

struct Current {
    chunk: Chunk,
    decoder: Decoder,
    left: u64,
}

enum Decoder {
    /// An uncompressed chunk: its bytes have the hash of the chunk, which was checked when the chunk was read.
    Plain(bytes::buf::Reader<Bytes>),
    Zstd(Box<(zstd::Decoder<'static, io::BufReader<bytes::buf::Reader<Bytes>>>, blake3::Hasher)>),
}

impl Joiner {
    pub(crate) fn new(chunks: Receiver<Cut>) -> Self {
        Self { chunks, current: None, sum: Sum::default() }
    }

    /// The hash of everything that was read.
    pub(crate) fn finish(self) -> Hash {
        self.sum.finish()
    }

    fn next(&mut self) -> io::Result<Option<Current>> {
        let Some(Cut { chunk, bytes }) = self.chunks.blocking_recv() else { return Ok(None) };
        let decoder = match chunk.compressed {
            false => Decoder::Plain(bytes.reader()),
            true => Decoder::Zstd(Box::new((zstd::Decoder::new(bytes.reader())?, blake3::Hasher::new()))),
        };
        Ok(Some(Current { left: chunk.packed_bytes, chunk, decoder }))
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
            Decoder::Zstd(compressed) => {
                let (decoder, plain) = &mut **compressed;
                let read = decoder.read(buffer)?;
                plain.update(&buffer[..read]);
                read
            }
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

    /// The hash of the uncompressed content.
    fn hash(&self) -> Hash {
        match &self.decoder {
            Decoder::Plain(_) => self.chunk.hash,
            Decoder::Zstd(compressed) => compressed.1.finalize().into(),
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
                return Ok(read);
            }
            self.sum.add(current.chunk.packed_bytes, &current.hash());
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
