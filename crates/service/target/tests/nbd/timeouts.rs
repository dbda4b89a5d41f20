//! Do clients that stall lose their place, and only they? Half a minute passes at once here.
//! Method: the server on an executor whose network is in memory and whose clock jumps to the next timer.

use crate::network::{PIPE_MAX, World};
use crate::support::{House, MemoryDisk};
use forebay_nbd::client::{self, RequestHeader};
use forebay_nbd::wire::{command, option};
use forebay_nbd::{REQUEST_MAX, Style};
use forebay_pool::Event;
use forebay_runtime::{Cores, Executor, Rt, Stream};
use forebay_target::{HANDSHAKE_MAX, NbdConfig, NbdServer};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    let executor = Executor::new(0, World::new());
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
