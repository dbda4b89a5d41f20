//! A network in memory and a clock that jumps to the next timer: half a minute passes at once here.

use forebay_base::{Nanos, WallTime};
use forebay_runtime::{
    Backend, Buf, BufMut, Completer, Completion, Detached, DiskBackend, Listener, ListenerBackend, NetError,
    OpenError, OpenMode, Stream, StreamBackend, Unpark, Wait,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

type Received = Completer<(BufMut, Result<usize, NetError>)>;
type Sent = Completer<Result<(), NetError>>;

/// One direction of a connection: what a socket buffer holds, and who waits at its ends.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    closed: bool,
    receiver: Option<(BufMut, Received)>,
    sender: Option<(VecDeque<u8>, Sent)>,
}

pub const PIPE_MAX: usize = 64 << 10;
const CLOSED: NetError = NetError { os: None };

impl Pipe {
    fn settle(&mut self) {
        if let Some((rest, done)) = self.sender.take() {
            let mut rest = rest;
            let room = (PIPE_MAX - self.bytes.len()).min(rest.len());
            self.bytes.extend(rest.drain(..room));
            match () {
                () if self.closed => done.complete(Err(CLOSED)),
                () if rest.is_empty() => done.complete(Ok(())),
                () => self.sender = Some((rest, done)),
            }
        }
        if (self.closed || !self.bytes.is_empty())
            && let Some((mut into, done)) = self.receiver.take()
        {
            let count = into.len().min(self.bytes.len());
            for (place, byte) in into.iter_mut().zip(self.bytes.drain(..count)) {
                *place = byte;
            }
            done.complete((into, Ok(count)));
        }
    }
}

type SharedPipe = Rc<RefCell<Pipe>>;

struct End {
    world: Rc<World>,
    /// The client's address, at both ends.
    peer: Rc<str>,
    receives: SharedPipe,
    sends: SharedPipe,
}

impl StreamBackend for End {
    fn recv(&self, into: BufMut, done: Completer<(BufMut, Result<usize, NetError>)>) {
        self.receives.borrow_mut().receiver = Some((into, done));
        self.receives.borrow_mut().settle();
        // Room for the other end's sender.
        self.receives.borrow_mut().settle();
    }
    fn send(&self, parts: Vec<Buf>, done: Completer<Result<(), NetError>>) {
        let bytes = parts.iter().flat_map(|part| part.iter().copied()).collect();
        self.sends.borrow_mut().sender = Some((bytes, done));
        self.sends.borrow_mut().settle();
    }
    fn shutdown(&self) {
        for pipe in [&self.receives, &self.sends] {
            pipe.borrow_mut().closed = true;
            pipe.borrow_mut().settle();
        }
    }
    fn peer(&self) -> String {
        self.peer.to_string()
    }
    fn detach(&self) -> Detached {
        let mut moving = self.world.moving.borrow_mut();
        moving.push((self.receives.clone(), self.sends.clone(), self.peer.clone()));
        Detached(Box::new(moving.len() - 1))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        // A detached connection lives on in the list.
        if Rc::strong_count(&self.receives) <= 2 {
            self.shutdown();
        }
    }
}

/// The network and the clock.
#[derive(Default)]
pub struct World {
    now: Cell<u64>,
    moving: RefCell<Vec<(SharedPipe, SharedPipe, Rc<str>)>>,
    accepting: RefCell<Option<Completer<Result<Stream, NetError>>>>,
    myself: RefCell<std::rc::Weak<World>>,
}

impl World {
    pub fn new() -> Rc<World> {
        let world = Rc::new(World::default());
        *world.myself.borrow_mut() = Rc::downgrade(&world);
        world
    }
    fn myself(&self) -> Rc<World> {
        self.myself.borrow().upgrade().expect("the world is there while it is used")
    }
    fn end(&self, receives: &SharedPipe, sends: &SharedPipe, peer: &Rc<str>) -> Stream {
        let (receives, sends, peer) = (receives.clone(), sends.clone(), peer.clone());
        Stream::new(Rc::new(End { world: self.myself(), peer, receives, sends }))
    }
}

struct Nobody;
impl Unpark for Nobody {
    fn unpark(&self) {}
}

struct Door(Rc<World>);
impl ListenerBackend for Door {
    fn accept(&self, done: Completer<Result<Stream, NetError>>) {
        *self.0.accepting.borrow_mut() = Some(done);
    }
    fn address(&self) -> String {
        "127.0.0.1:1".into()
    }
}

impl Backend for World {
    fn now(&self) -> Nanos {
        Nanos(self.now.get())
    }
    fn wall(&self) -> WallTime {
        WallTime(self.now.get() / 1_000_000)
    }
    fn random(&self) -> u64 {
        4
    }
    fn turn(&self, wait: Wait) {
        match wait {
            Wait::Poll => {}
            Wait::Until(time) => self.now.set(self.now.get().max(time.0)),
            Wait::Forever => panic!("nothing will ever happen again"),
        }
    }
    fn unparker(&self) -> Arc<dyn Unpark> {
        Arc::new(Nobody)
    }
    fn open_disk(&self, _: &str, _: OpenMode) -> Result<Rc<dyn DiskBackend>, OpenError> {
        Err(OpenError::NotFound)
    }
    fn listen(&self, _: &str) -> Result<Listener, NetError> {
        Ok(Listener::new(Rc::new(Door(self.myself()))))
    }
    /// There is one listener: what is given is the address from which the client comes.
    fn connect(&self, from: &str) -> Completion<Result<Stream, NetError>> {
        let peer = from.into();
        let (there, back) = (SharedPipe::default(), SharedPipe::default());
        let accepting = self.accepting.borrow_mut().take().expect("the server accepts");
        accepting.complete(Ok(self.end(&there, &back, &peer)));
        Completion::ready(Ok(self.end(&back, &there, &peer)))
    }
    fn attach(&self, stream: Detached) -> Stream {
        let index = *stream.0.downcast::<usize>().expect("what detach gave");
        let nothing = (SharedPipe::default(), SharedPipe::default(), "".into());
        let (receives, sends, peer) = std::mem::replace(&mut self.moving.borrow_mut()[index], nothing);
        self.end(&receives, &sends, &peer)
    }
}
