//! A connection with or without TLS, as the same thing: receive into a buffer, send buffers.
//!
//! What is sent goes out in pieces ([`Outbox`]), so that whoever watches a client's pace sees how far it has come.

use crate::local::PACE_BYTES;
use crate::tls::{TlsState, TlsStream};
use forebay_runtime::{Buf, BufMut, Completion, Detached, NetError, Rt, Stream};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

#[derive(Clone)]
pub enum Transport {
    Plain(Stream),
    Tls(Rc<TlsStream>),
}

/// A connection on its way to another core.
pub struct Parcel {
    stream: Detached,
    tls: Option<TlsState>,
}

type Received = (BufMut, Result<usize, NetError>);

/// Plain operations stay what they are: only TLS pays for a box.
pub enum Receiving {
    Plain(Completion<Received>),
    Tls(Pin<Box<dyn Future<Output = Received>>>),
}

pub enum Sending {
    Plain(Completion<Result<(), NetError>>),
    Tls(Pin<Box<dyn Future<Output = Result<(), NetError>>>>),
}

impl Future for Receiving {
    type Output = Received;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Received> {
        match &mut *self {
            Receiving::Plain(future) => Pin::new(future).poll(context),
            Receiving::Tls(future) => future.as_mut().poll(context),
        }
    }
}

impl Future for Sending {
    type Output = Result<(), NetError>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), NetError>> {
        match &mut *self {
            Sending::Plain(future) => Pin::new(future).poll(context),
            Sending::Tls(future) => future.as_mut().poll(context),
        }
    }
}

impl Transport {
    pub fn recv(&self, into: BufMut) -> Receiving {
        match self {
            Transport::Plain(stream) => Receiving::Plain(stream.recv(into)),
            Transport::Tls(tls) => {
                let tls = tls.clone();
                Receiving::Tls(Box::pin(async move { tls.recv(into).await }))
            }
        }
    }

    pub fn send(&self, parts: Vec<Buf>) -> Sending {
        match self {
            Transport::Plain(stream) => Sending::Plain(stream.send(parts)),
            Transport::Tls(tls) => {
                let tls = tls.clone();
                Sending::Tls(Box::pin(async move { tls.send(parts).await }))
            }
        }
    }

    /// See [`Stream::acknowledge`].
    pub fn acknowledge(&self) {
        match self {
            Transport::Plain(stream) => stream.acknowledge(),
            Transport::Tls(tls) => tls.stream().acknowledge(),
        }
    }

    /// Ends both directions at once.
    pub fn shutdown(&self) {
        match self {
            Transport::Plain(stream) => stream.shutdown(),
            Transport::Tls(tls) => tls.stream().shutdown(),
        }
    }

    /// Says goodbye where the transport has a word for it. Nothing may be being sent.
    pub async fn goodbye(&self) {
        if let Transport::Tls(tls) = self {
            tls.goodbye().await;
        }
    }

    /// For another core. Nothing may be in flight and no other handle may exist.
    pub fn pack(self) -> Parcel {
        match self {
            Transport::Plain(stream) => Parcel { stream: stream.detach(), tls: None },
            Transport::Tls(tls) => {
                let tls = Rc::into_inner(tls).expect("a connection is packed by its only owner");
                let (stream, state) = tls.into_parts();
                Parcel { stream: stream.detach(), tls: Some(state) }
            }
        }
    }

    pub fn unpack(rt: &Rt, parcel: Parcel) -> Transport {
        let stream = rt.attach(parcel.stream);
        match parcel.tls {
            None => Transport::Plain(stream),
            Some(state) => Transport::Tls(Rc::new(TlsStream::from_parts(rt, stream, state))),
        }
    }
}

/// A batch on its way out, a piece of at most [`PACE_BYTES`] at a time. Nearly every batch is one piece.
#[derive(Default)]
pub struct Outbox {
    rest: Vec<Buf>,
    /// Of the piece taken last.
    piece_bytes: u64,
}

impl Outbox {
    /// The next batch; the last one must be out.
    pub fn fill(&mut self, batch: Vec<Buf>) {
        debug_assert!(self.rest.is_empty(), "one batch at a time");
        self.rest = batch;
    }

    /// The next piece to be sent, if there is one.
    pub fn take_piece(&mut self) -> Option<Vec<Buf>> {
        if self.rest.is_empty() {
            return None;
        }
        let mut bytes = 0;
        for (index, part) in self.rest.iter_mut().enumerate() {
            let room = (PACE_BYTES - bytes) as usize;
            if part.len() <= room {
                bytes += part.len() as u64;
                continue;
            }
            let (now, later) = (part.slice(0, room), part.slice(room, part.len() - room));
            *part = later;
            let rest = self.rest.split_off(index);
            let mut piece = std::mem::replace(&mut self.rest, rest);
            if room > 0 {
                piece.push(now);
            }
            self.piece_bytes = PACE_BYTES;
            return Some(piece);
        }
        self.piece_bytes = bytes;
        Some(std::mem::take(&mut self.rest))
    }

    /// Whether all of the batch has been taken.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn piece_bytes(&self) -> u64 {
        self.piece_bytes
    }

    pub fn clear(&mut self) {
        self.rest.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_runtime::Arena;

    #[test]
    fn a_batch_goes_out_in_pieces_in_order() {
        let arena = Arena::new();
        let piece = PACE_BYTES as usize;
        for lens in [vec![5], vec![piece], vec![piece + 1], vec![10, piece - 10, 1], vec![7, 3 * piece, 9]] {
            let all: Vec<u8> = (0..lens.iter().sum()).map(|byte: usize| ((byte * 31) >> 4) as u8).collect();
            let mut at = 0;
            let batch = lens.iter().map(|&len| {
                at += len;
                arena.copy(&all[at - len..at]).freeze()
            });
            let mut outbox = Outbox::default();
            outbox.fill(batch.collect());
            let mut sent = Vec::new();
            while let Some(parts) = outbox.take_piece() {
                let before = sent.len();
                parts.iter().for_each(|part| sent.extend_from_slice(part));
                assert_eq!((sent.len() - before) as u64, outbox.piece_bytes());
                assert!(outbox.piece_bytes() == PACE_BYTES || outbox.is_empty(), "{lens:?}");
            }
            assert!(sent == all, "{lens:?}");
        }
    }
}
