//! Do clients that stall lose their place, and only they? Half a minute passes at once here.
//! Method: the server on an executor whose network is in memory and whose clock jumps to the next timer.

use crate::network::{PIPE_MAX, World};
use crate::support::{House, MemoryDisk};
use forebay_nbd::client::{self, RequestHeader};
use forebay_nbd::wire::{command, option};
use forebay_nbd::{REQUEST_MAX, Style};
use forebay_pool::Event;
use forebay_runtime::{Cores, Executor, Rt, Stream};
use forebay_target::{BYTES_MAX_ADDRESS, HANDSHAKE_MAX, NbdConfig, NbdServer, PACE_BYTES, PACE_TIME};
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
        let config = NbdConfig::plain("127.0.0.1:1");
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
    open_from(rt, "10.0.0.1:1").await
}

async fn open_from(rt: &Rt, address: &str) -> Stream {
    let stream = rt.connect(address).await.unwrap();
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
        let silent = rt.connect("10.0.0.1:1").await.unwrap();
        let begun = rt.now();
        assert_eq!(receive(&rt, &silent, 19).await, 18);
        assert_eq!(rt.now().since(begun), HANDSHAKE_MAX.as_nanos() as u64);
        assert!(events.lock().unwrap()[0].message.contains("did not agree on an export within 30 s"));
        // One that does stays, for as long as it likes to say nothing.
        let quiet = open(&rt).await;
        rt.sleep(Duration::from_secs(1_000_000)).await;
        send(&rt, &quiet, &read(1)).await;
        assert_eq!(receive(&rt, &quiet, 16).await, 16);
    });
}

/// A write's header and nothing more.
fn write(cookie: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let (flags, kind) = (0, command::WRITE);
    RequestHeader { flags, kind, cookie, offset: 0, len }.encode(Style::Simple, &mut bytes);
    bytes
}

/// Whether the server hangs up, sooner or later.
async fn is_hung_up(rt: &Rt, stream: &Stream) -> bool {
    while let Ok(1..) = stream.recv(rt.buffer(PIPE_MAX)).await.1 {}
    true
}

fn slow(events: &Mutex<Vec<Event>>) -> usize {
    events.lock().unwrap().iter().filter(|event| event.code == "nbd.client.slow").count()
}

/// Eight clients of two addresses take the whole memory of the core, half by writes whose end does not come, half by answers
/// that they do not take. Small requests of others are served at once, large ones when those have been sent away.
#[test]
fn memory_that_is_kept_is_taken_back_and_small_requests_do_not_need_it() {
    with_server(|rt, server, events| async move {
        let begun = rt.now();
        let mut greedy = Vec::new();
        for number in 0..8 {
            let stream = open_from(&rt, ["10.0.0.2:1", "10.0.0.3:1"][number % 2]).await;
            if number < 4 {
                send(&rt, &stream, &[read(1), read(2)].concat()).await;
            } else {
                send(&rt, &stream, &write(1, REQUEST_MAX.into())).await;
                send(&rt, &stream, &[5; 100_000]).await;
            }
            greedy.push(stream);
        }
        let modest = open(&rt).await;
        for cookie in 0..1000 {
            send(&rt, &modest, &short_read(cookie)).await;
            assert_eq!(receive(&rt, &modest, 16 + 512).await, 16 + 512);
        }
        assert_eq!(rt.now(), begun, "no time has passed");
        assert_eq!((server.sessions().len(), slow(&events)), (9, 0));
        send(&rt, &modest, &read(1)).await;
        let len = 16 + REQUEST_MAX as usize;
        assert_eq!(receive(&rt, &modest, len).await, len);
        assert!(rt.now() > begun, "the memory was all taken");
        for stream in &greedy {
            assert!(is_hung_up(&rt, stream).await);
        }
        let took = Duration::from_nanos(rt.now().since(begun));
        assert!(took <= PACE_TIME + Duration::from_secs(5), "{took:?}");
        assert_eq!((server.sessions().len(), slow(&events)), (1, 8));
    });
}

/// A byte now and then is no progress; a megabyte in time is. Nor is silence between requests a fault.
#[test]
fn who_trickles_is_disconnected_and_who_is_slow_is_not() {
    with_server(|rt, server, events| async move {
        let quiet = open(&rt).await;
        let trickling = open(&rt).await;
        send(&rt, &trickling, &write(1, REQUEST_MAX.into())).await;
        for _ in 0..3 {
            rt.sleep(Duration::from_secs(14)).await;
            // The last one may find nobody.
            let _ = trickling.send(vec![rt.arena().copy(&[1]).freeze()]).await;
        }
        assert!(is_hung_up(&rt, &trickling).await);
        assert_eq!(slow(&events), 1);

        let slow_one = open(&rt).await;
        let len = 4 * PACE_BYTES;
        send(&rt, &slow_one, &write(2, len)).await;
        let step = PACE_TIME - Duration::from_secs(6);
        for _ in 0..4 {
            rt.sleep(step).await;
            send(&rt, &slow_one, &vec![7; PACE_BYTES as usize]).await;
        }
        assert_eq!(receive(&rt, &slow_one, 16).await, 16);
        send(&rt, &slow_one, &read_of(3, len)).await;
        for _ in 0..4 {
            rt.sleep(step).await;
            let part = PACE_BYTES as usize;
            assert_eq!(receive(&rt, &slow_one, part).await, part);
        }
        assert_eq!((receive(&rt, &slow_one, 16).await, slow(&events)), (16, 1));
        send(&rt, &quiet, &short_read(1)).await;
        assert_eq!((receive(&rt, &quiet, 528).await, server.sessions().len()), (528, 2));
    });
}

/// One address asks for all the memory of a core, and reads nothing; another gets large answers without waiting.
#[test]
fn an_address_leaves_memory_to_others() {
    with_server(|rt, _, _| async move {
        let begun = rt.now();
        let mut greedy = Vec::new();
        for port in 0..100 {
            let stream = open_from(&rt, &format!("10.0.0.2:{port}")).await;
            send(&rt, &stream, &read(1)).await;
            greedy.push(stream);
        }
        let modest = open(&rt).await;
        let answers = BYTES_MAX_ADDRESS / u64::from(REQUEST_MAX);
        for cookie in 0..2 * answers {
            send(&rt, &modest, &read(cookie)).await;
            let len = 16 + REQUEST_MAX as usize;
            assert_eq!(receive(&rt, &modest, len).await, len);
        }
        assert_eq!(rt.now(), begun, "no time has passed");
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

/// Requests at a ceiling are answered at once, and do not begin: a stop does not wait until they might.
#[test]
fn a_server_that_stops_does_not_wait_for_requests_at_a_ceiling() {
    const READS: u64 = 256;
    let disk = MemoryDisk::new("pool/a", 0, 1 << 30);
    disk.ceiling.store(3600 * 1_000_000_000, Ordering::SeqCst);
    with_server_over(disk, |rt, server, _| async move {
        let stream = open(&rt).await;
        send(&rt, &stream, &(0..READS).flat_map(short_read).collect::<Vec<u8>>()).await;
        rt.sleep(Duration::from_secs(1)).await;
        let begun = rt.now();
        let stopped = rt.spawn(async move { server.stop().await });
        assert_eq!(receive(&rt, &stream, 99999).await, READS as usize * 16, "errors without data");
        drop(stream);
        stopped.await;
        assert!(rt.now().since(begun) <= 5_000_000_000, "no longer than it takes to hear the last replies");
    });
}
