//! Stream sockets as handles.

use crate::buffer::{Buf, BufMut};
use crate::completion::{Completer, Completion, completion};
use std::any::Any;
use std::rc::Rc;

/// The connection is unusable: closed by the peer, reset, or refused; with the operating system's error number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetError {
    pub os: Option<i32>,
}

/// What stands behind a [`Stream`].
pub trait StreamBackend {
    /// Receives at least one byte into `into` (up to its length); 0 bytes when the peer has closed.
    fn recv(&self, into: BufMut, done: Completer<(BufMut, Result<usize, NetError>)>);
    /// Sends all of `parts` in order.
    fn send(&self, parts: Vec<Buf>, done: Completer<Result<(), NetError>>);
    /// Ends both directions; requests in flight complete with an error.
    fn shutdown(&self);
    /// Tells the peer at once that what it sent has arrived, where that otherwise waits for an answer to ride on.
    fn acknowledge(&self) {}
    /// The peer's address, for people.
    fn peer(&self) -> String;
    /// Gives the connection up on this executor so that another can attach it. No request may be in flight.
    fn detach(&self) -> Detached;
}

/// A connection on its way from one executor to another.
pub struct Detached(pub Box<dyn Any + Send>);

/// A connection on one executor. At most one `recv` and one `send` may be in flight at a time.
#[derive(Clone)]
pub struct Stream {
    backend: Rc<dyn StreamBackend>,
}

impl Stream {
    pub fn new(backend: Rc<dyn StreamBackend>) -> Stream {
        Stream { backend }
    }
    pub fn recv(&self, into: BufMut) -> Completion<(BufMut, Result<usize, NetError>)> {
        let (done, result) = completion();
        self.backend.recv(into, done);
        result
    }
    pub fn send(&self, parts: Vec<Buf>) -> Completion<Result<(), NetError>> {
        let (done, result) = completion();
        self.backend.send(parts, done);
        result
    }
    pub fn shutdown(&self) {
        self.backend.shutdown();
    }
    /// For a peer that sends a message in parts and waits with the next until the last has arrived (Nagle's algorithm): where
    /// nothing is answered before the message is whole, each part would take TCP's 40 ms.
    pub fn acknowledge(&self) {
        self.backend.acknowledge();
    }
    pub fn peer(&self) -> String {
        self.backend.peer()
    }
    pub fn detach(self) -> Detached {
        self.backend.detach()
    }
}

/// What stands behind a [`Listener`].
pub trait ListenerBackend {
    fn accept(&self, done: Completer<Result<Stream, NetError>>);
    /// The address bound, with the port the system chose when 0 was asked for.
    fn address(&self) -> String;
}

/// A listening socket on one executor.
#[derive(Clone)]
pub struct Listener {
    backend: Rc<dyn ListenerBackend>,
}

impl Listener {
    pub fn new(backend: Rc<dyn ListenerBackend>) -> Listener {
        Listener { backend }
    }
    pub fn accept(&self) -> Completion<Result<Stream, NetError>> {
        let (done, result) = completion();
        self.backend.accept(done);
        result
    }
    pub fn address(&self) -> String {
        self.backend.address()
    }
}
