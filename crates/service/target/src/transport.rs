//! A connection with or without TLS, as the same thing: receive into a buffer, send buffers.

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
