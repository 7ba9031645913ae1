//! Messages on a bare connection, each behind its length.

use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

use crate::config::MAX_MESSAGE_BYTES;

/// Bytes of the length before each message.
const HEAD: usize = 4;

/// Bytes that are asked for with each read, at least.
const READ: usize = 16 << 10;

/// A buffer that grew beyond this for a large message is given back after it.
const KEPT: usize = 256 << 10;

/// The reason for which no further message comes.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

impl Broken {
    fn garbled(what: String) -> Self {
        Broken::Io(io::Error::new(io::ErrorKind::InvalidData, what))
    }
}

/// The messages that arrive.
pub(super) struct Arriving {
    buffer: BytesMut,
    /// Bytes of the largest message that is taken.
    pub largest: usize,
}

impl Arriving {
    pub(super) fn new(largest: usize) -> Self {
        Arriving { buffer: BytesMut::new(), largest }
    }

    /// The next message, which shares the memory that it arrived in; `None` at the end of the connection. Dropping
    /// what waits for it loses nothing.
    pub(super) fn poll_next<R: AsyncRead + Unpin>(
        &mut self,
        io: &mut R,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Broken>> {
        loop {
            if let Some(message) = self.cut()? {
                return Poll::Ready(Ok(Some(message)));
            }
            self.buffer.reserve(READ);
            if ready!(pin!(io.read_buf(&mut self.buffer)).poll(cx))? == 0 {
                return Poll::Ready(match self.buffer.is_empty() {
                    true => Ok(None),
                    false => Err(Broken::Io(io::ErrorKind::UnexpectedEof.into())),
                });
            }
        }
    }

    /// Cuts a message off, if all of it is there.
    fn cut(&mut self) -> Result<Option<Bytes>, Broken> {
        let Some(head) = self.buffer.first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > self.largest {
            return Err(Broken::garbled(format!("a message of {length} bytes; at most {} may come", self.largest)));
        }
        if self.buffer.len() < HEAD + length {
            self.buffer.reserve(HEAD + length - self.buffer.len());
            return Ok(None);
        }
        self.buffer.advance(HEAD);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

pub(super) fn decoded<M: Message + Default>(message: Bytes) -> Result<M, Broken> {
    M::decode(message).map_err(|error| Broken::garbled(error.to_string()))
}

/// The messages that leave.
#[derive(Default)]
pub(super) struct Leaving {
    buffer: BytesMut,
}

impl Leaving {
    /// Puts a byte before the messages.
    pub(super) fn push_byte(&mut self, byte: u8) {
        self.buffer.put_u8(byte);
    }

    /// Puts a message behind those that leave.
    pub(super) fn push(&mut self, message: &impl Message) -> Result<(), Broken> {
        let length = message.encoded_len();
        let head = u32::try_from(length).ok().filter(|_| length <= MAX_MESSAGE_BYTES);
        let head =
            head.ok_or_else(|| Broken::garbled(format!("a message of {length} bytes is too large to be sent")))?;
        self.buffer.reserve(HEAD + length);
        self.buffer.put_u32(head);
        message.encode(&mut self.buffer).map_err(|error| Broken::garbled(error.to_string()))
    }

    /// Bytes that have not left.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Ready when all have left. Dropping what waits for it loses nothing.
    pub(super) fn poll_flush<W: AsyncWrite + Unpin>(
        &mut self,
        io: &mut W,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        while self.buffer.has_remaining() {
            let written = ready!(Pin::new(&mut *io).poll_write(cx, &self.buffer))?;
            if written == 0 {
                return Poll::Ready(Err(Broken::Io(io::ErrorKind::WriteZero.into())));
            }
            self.buffer.advance(written);
        }
        if self.buffer.capacity() > KEPT {
            self.buffer = BytesMut::new();
        }
        ready!(Pin::new(io).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;
    use crate::pb;

    fn message(bytes: usize) -> pb::LogRecord {
        pb::LogRecord { id: None, payload: vec![7; bytes].into() }
    }

    #[tokio::test]
    async fn messages_of_all_sizes_arrive_whole_and_in_order() {
        let (mut near, mut far) = duplex(1_000);
        let sizes = [0, 1, 999, 3 << 20, 17];
        let sending = async {
            let mut leaving = Leaving::default();
            for size in sizes {
                leaving.push(&message(size)).expect("it is small enough");
            }
            poll_fn(|cx| leaving.poll_flush(&mut near, cx)).await.expect("it is read");
            assert!(leaving.len() == 0 && leaving.buffer.capacity() <= KEPT);
            drop(near);
        };
        let reading = async {
            let mut arriving = Arriving::new(MAX_MESSAGE_BYTES);
            for size in sizes {
                let arrived = poll_fn(|cx| arriving.poll_next(&mut far, cx)).await.expect("it is whole");
                assert_eq!(decoded::<pb::LogRecord>(arrived.expect("one more")).expect("it is one"), message(size));
            }
            assert!(poll_fn(|cx| arriving.poll_next(&mut far, cx)).await.expect("an orderly end").is_none());
        };
        tokio::join!(sending, reading);
    }

    async fn broken_by(bytes: &[u8]) -> Broken {
        let (mut near, mut far) = duplex(1_000);
        near.write_all(bytes).await.expect("there is room");
        drop(near);
        let mut arriving = Arriving::new(100);
        poll_fn(|cx| arriving.poll_next(&mut far, cx)).await.expect_err("it is no message")
    }

    #[tokio::test]
    async fn what_is_no_message_is_told_apart() {
        assert!(
            matches!(broken_by(&[0, 0, 0, 9, 1]).await, Broken::Io(end) if end.kind() == io::ErrorKind::UnexpectedEof)
        );
        assert!(
            matches!(broken_by(&[0, 0, 0, 101]).await, Broken::Io(error) if error.kind() == io::ErrorKind::InvalidData)
        );
        assert!(Leaving::default().push(&message(MAX_MESSAGE_BYTES)).is_err());
    }
}
