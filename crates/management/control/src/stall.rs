//! A connection on which sending has to get on: when the client takes nothing for as long as its [`Place`] allows, the connection fails.
//!
//! What the kernel has taken counts as sent. So that this says something about the client, the kernel is told to take no more than [`UNSENT_BYTES_MAX`] beyond what is
//! on its way; without that a buffer of megabytes would be filled at once, and then nothing would move for minutes even if the client read all the time.

use crate::connections::Place;
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What the kernel takes of an answer beyond what is on its way. When half of it has gone it takes more, so a client that reads at all is seen to do so.
pub const UNSENT_BYTES_MAX: u32 = 128 << 10;

pub struct Watched<S> {
    stream: S,
    place: Place,
    /// Runs while something waits to be sent.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Watched<S> {
    pub fn new(stream: S, place: Place) -> Watched<S> {
        Watched { stream, place, stalled: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, sent: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if sent.is_ready() {
            if self.stalled.take().is_some() {
                self.place.set_stalled(false);
            }
            return sent;
        }
        let place = &self.place;
        let stalled = self.stalled.get_or_insert_with(|| {
            place.set_stalled(true);
            Box::pin(sleep(place.stall()))
        });
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch(context, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::Connections;
    use futures_util::FutureExt;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const SHORT: Duration = Duration::from_millis(1);
    const LONG: Duration = Duration::from_secs(3600);

    fn place() -> Place {
        Arc::new(Connections::default()).admit(None).expect("the first has a place")
    }

    #[tokio::test]
    async fn sending_fails_when_nothing_is_taken_for_so_long() {
        let (ours, _theirs) = duplex(64);
        let place = place();
        place.set_stall(SHORT);
        let mut stream = Watched::new(ours, place);
        let failed = stream.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn the_time_begins_anew_with_each_piece_that_is_taken() {
        let (ours, mut theirs) = duplex(64);
        let place = place();
        let mut stream = Watched::new(ours, place.clone());
        stream.write_all(&[7; 64]).await.unwrap();
        for _ in 0..10 {
            place.set_stall(SHORT);
            assert!(stream.write(&[7; 64]).now_or_never().is_none(), "there is no room for it");
            // The client reads in time, and only we look later.
            theirs.read_exact(&mut [0; 64]).await.unwrap();
            sleep(2 * SHORT).await;
            place.set_stall(LONG);
            assert_eq!(stream.write(&[7; 64]).await.unwrap(), 64);
            assert!(stream.write(&[7; 64]).now_or_never().is_none());
            sleep(2 * SHORT).await;
            assert!(stream.write(&[7; 64]).now_or_never().is_none(), "an hour has not passed");
            theirs.read_exact(&mut [0; 64]).await.unwrap();
            stream.write_all(&[7; 64]).await.unwrap();
        }
    }
}
