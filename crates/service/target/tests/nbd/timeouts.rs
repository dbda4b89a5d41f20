//! Do clients that stall lose their place, and only they? Half a minute passes at once here.
//! Method: the server on an executor whose network is in memory and whose clock jumps to the next timer.

use crate::support::{House, MemoryDisk};
use forebay_base::{Nanos, WallTime};
use forebay_nbd::client::{self, RequestHeader};
use forebay_nbd::wire::{command, option};
use forebay_nbd::{REQUEST_MAX, Style};
use forebay_pool::Event;
use forebay_runtime::{
    Backend, Buf, BufMut, Completer, Completion, Cores, Detached, DiskBackend, Executor, Listener,
    ListenerBackend, NetError, OpenError, OpenMode, Rt, Stream, StreamBackend, Unpark, Wait,
};
use forebay_target::{HANDSHAKE_MAX, NbdConfig, NbdServer};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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

const PIPE_MAX: usize = 64 << 10;
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
        "memory".into()
    }
    fn detach(&self) -> Detached {
        let mut moving = self.world.moving.borrow_mut();
        moving.push((self.receives.clone(), self.sends.clone()));
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
struct World {
    now: Cell<u64>,
    moving: RefCell<Vec<(SharedPipe, SharedPipe)>>,
    accepting: RefCell<Option<Completer<Result<Stream, NetError>>>>,
    myself: RefCell<std::rc::Weak<World>>,
}

impl World {
    fn myself(&self) -> Rc<World> {
        self.myself.borrow().upgrade().expect("the world is there while it is used")
    }
    fn end(&self, receives: &SharedPipe, sends: &SharedPipe) -> Stream {
        Stream::new(Rc::new(End { world: self.myself(), receives: receives.clone(), sends: sends.clone() }))
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
    fn connect(&self, _: &str) -> Completion<Result<Stream, NetError>> {
        let (there, back) = (SharedPipe::default(), SharedPipe::default());
        let accepting = self.accepting.borrow_mut().take().expect("the server accepts");
        accepting.complete(Ok(self.end(&there, &back)));
        Completion::ready(Ok(self.end(&back, &there)))
    }
    fn attach(&self, stream: Detached) -> Stream {
        let index = *stream.0.downcast::<usize>().expect("what detach gave");
        let (receives, sends) = std::mem::take(&mut self.moving.borrow_mut()[index]);
        self.end(&receives, &sends)
    }
}

/// Runs `test` with a server over one disk of 1 GiB.
fn with_server<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Rt, Rc<NbdServer>, Arc<Mutex<Vec<Event>>>) -> F + 'static,
) {
    with_server_over(MemoryDisk::new("pool/a", 0, 1 << 30), test);
}

fn with_server_over<F: Future<Output = ()> + 'static>(
    disk: Arc<MemoryDisk>,
    test: impl FnOnce(Rt, Rc<NbdServer>, Arc<Mutex<Vec<Event>>>) -> F + 'static,
) {
    let world = Rc::new(World::default());
    *world.myself.borrow_mut() = Rc::downgrade(&world);
    let executor = Executor::new(0, world.clone());
    let rt = executor.rt().clone();
    let cores = Cores::new(vec![rt.remote()]);
    executor.block_on(async move {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = events.clone();
        let sink = Arc::new(move |event| sink.lock().unwrap().push(event));
        let house = House(Arc::new(vec![disk]));
        let config = NbdConfig { listen: "127.0.0.1:1".into(), tls: None };
        let server = Rc::new(NbdServer::start(cores, house, config, sink).await.unwrap());
        test(rt, server.clone(), events).await;
        server.stop().await;
    });
}

async fn send(rt: &Rt, stream: &Stream, bytes: &[u8]) {
    stream.send(vec![rt.arena().copy(bytes).freeze()]).await.expect("the server listens");
}

/// Receives `len` bytes, or what came before the end.
async fn receive(rt: &Rt, stream: &Stream, len: usize) -> usize {
    let mut received = 0;
    while received < len {
        match stream.recv(rt.buffer((len - received).min(PIPE_MAX))).await.1 {
            Ok(count) if count > 0 => received += count,
            _ => break,
        }
    }
    received
}

/// A client in the transmission phase, in simple style.
async fn open(rt: &Rt) -> Stream {
    let stream = rt.connect("127.0.0.1:1").await.unwrap();
    assert_eq!(receive(rt, &stream, 18).await, 18);
    send(rt, &stream, &3u32.to_be_bytes()).await;
    send(rt, &stream, &client::option(option::EXPORT_NAME, b"pool/a")).await;
    assert_eq!(receive(rt, &stream, 10).await, 10);
    stream
}

fn read(cookie: u64) -> Vec<u8> {
    read_of(cookie, REQUEST_MAX.into())
}

fn short_read(cookie: u64) -> Vec<u8> {
    read_of(cookie, 512)
}

fn read_of(cookie: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    RequestHeader { flags: 0, kind: command::READ, cookie, offset: 0, len }.encode(Style::Simple, &mut bytes);
    bytes
}

#[test]
fn a_client_that_does_not_agree_is_disconnected_in_time() {
    with_server(|rt, _, events| async move {
        let silent = rt.connect("127.0.0.1:1").await.unwrap();
        let begun = rt.now();
        assert_eq!(receive(&rt, &silent, 19).await, 18);
        assert_eq!(rt.now().since(begun), HANDSHAKE_MAX.as_nanos() as u64);
        assert!(events.lock().unwrap()[0].message.contains("no agreement on an export in 30 s"));
        // One that does stays, for as long as it likes to say nothing.
        let quiet = open(&rt).await;
        rt.sleep(Duration::from_secs(1_000_000)).await;
        send(&rt, &quiet, &read(1)).await;
        assert_eq!(receive(&rt, &quiet, 16).await, 16);
    });
}

/// Eight clients take the whole memory of the core and do not read; a ninth waits, and they go, not it.
#[test]
fn who_keeps_memory_that_others_wait_for_is_disconnected() {
    with_server(|rt, server, events| async move {
        let mut greedy = Vec::new();
        for _ in 0..8 {
            let stream = open(&rt).await;
            send(&rt, &stream, &[read(1), read(2)].concat()).await;
            greedy.push(stream);
        }
        // They may keep it while nobody else needs it.
        rt.sleep(Duration::from_secs(1000)).await;
        assert_eq!(server.sessions().len(), 8);
        assert!(events.lock().unwrap().is_empty());
        let modest = open(&rt).await;
        send(&rt, &modest, &read(1)).await;
        let len = 16 + REQUEST_MAX as usize;
        assert_eq!(receive(&rt, &modest, len).await, len);
        let stalled = events.lock().unwrap().iter().filter(|event| event.code == "nbd.client.slow").count();
        assert!((1..=8).contains(&stalled), "{stalled}");
        send(&rt, &modest, &read(2)).await;
        assert_eq!(receive(&rt, &modest, len).await, len, "it goes on being served");
    });
}

/// Twelve clients ask for 32 MiB each before any of them takes a byte: more than a core may hold. All get it.
#[test]
fn clients_that_read_share_the_memory_of_a_core() {
    with_server(|rt, _, events| async move {
        let mut streams = Vec::new();
        for _ in 0..12 {
            let stream = open(&rt).await;
            send(&rt, &stream, &read(1)).await;
            streams.push(stream);
        }
        let begun = rt.now();
        for stream in streams {
            let len = 16 + REQUEST_MAX as usize;
            assert_eq!(receive(&rt, &stream, len).await, len);
        }
        assert_eq!(rt.now(), begun, "who waits is woken when there is memory, not when time has passed");
        assert!(events.lock().unwrap().is_empty());
    });
}

/// What runs is answered with its result, what comes later with ESHUTDOWN, and then the connection is closed.
#[test]
fn a_server_that_stops_says_so() {
    let disk = MemoryDisk::new("pool/a", 0, 1 << 30);
    let slow = disk.clone();
    with_server_over(disk, |rt, server, _| async move {
        let stream = open(&rt).await;
        slow.slow_read.store(60_000_000_000, Ordering::SeqCst);
        send(&rt, &stream, &short_read(1)).await;
        rt.sleep(Duration::from_secs(1)).await;
        let stopped = rt.spawn(async move { server.stop().await });
        rt.sleep(Duration::from_secs(1)).await;
        send(&rt, &stream, &short_read(2)).await;
        let (reply, count) = stream.recv(rt.buffer(17)).await;
        assert_eq!(
            (count, &reply[..16]),
            (Ok(16), b"\x67\x44\x66\x98\0\0\0\x6c\0\0\0\0\0\0\0\x02".as_slice())
        );
        assert_eq!(receive(&rt, &stream, 9999).await, 16 + 512);
        stopped.await;
    });
}
