//! Connections over the ring: against each other, and against the standard library's.

use crate::common::{Scratch, child, fill, role, wrong_at};
use forebay_runtime::{Buf, NetError, OpenMode, Rt, Stream, uring};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read, Write};
use std::rc::Rc;
use std::sync::mpsc;

async fn pair(rt: &Rt) -> (Stream, Stream) {
    let listener = rt.listen("127.0.0.1:0").unwrap();
    let accept = listener.accept();
    let client = rt.connect(&listener.address()).await.unwrap();
    (client, accept.await.unwrap())
}

async fn receive(rt: &Rt, stream: &Stream, len: usize) -> Vec<u8> {
    let mut received = Vec::new();
    while received.len() < len {
        let (bytes, result) = stream.recv(rt.buffer(70_000)).await;
        match result.unwrap() {
            0 => break,
            count => received.extend_from_slice(&bytes[..count]),
        }
    }
    received
}

/// More parts than one system call takes, of odd lengths, more bytes than sockets hold, both ways at once.
async fn exchange(rt: Rt) {
    let (client, server) = pair(&rt).await;
    let len = 24 << 20;
    let sender = |stream: Stream, version: u64| {
        let rt2 = rt.clone();
        rt.spawn(async move {
            let mut whole = rt2.buffer(len);
            fill(&mut whole, 0, version);
            let whole = whole.freeze();
            let (mut parts, mut at) = (Vec::new(), 0);
            while at < len {
                let count = (1 + parts.len() * 7919 % 13_000).min(len - at);
                // Copied, so that no part follows another in memory.
                parts.push(rt2.arena().copy(&whole[at..at + count]).freeze());
                at += count;
            }
            parts.push(rt2.buffer(0).freeze());
            stream.send(parts).await.unwrap();
        })
    };
    let sends = [sender(client.clone(), 1), sender(server.clone(), 2)];
    let (rt2, from_server) = (rt.clone(), client.clone());
    let other = rt.spawn(async move { receive(&rt2, &from_server, len).await });
    assert_eq!(wrong_at(&receive(&rt, &server, len).await, 0, 1), None);
    assert_eq!(wrong_at(&other.await, 0, 2), None);
    for send in sends {
        send.await;
    }
    drop(client);
    let (_, end) = server.recv(rt.buffer(1)).await;
    assert_eq!(end, Ok(0), "the peer has closed");
}

#[test]
fn bytes_arrive_whole_and_in_order() {
    uring::block_on(exchange).unwrap();
}

/// A send then goes with the disk's requests instead of on the spot.
#[test]
fn bytes_arrive_whole_and_in_order_while_a_disk_works() {
    let scratch = Scratch::new();
    let path = scratch.file("disk", 1 << 20);
    uring::block_on(|rt| async move {
        let disk = rt.open_disk(&path, OpenMode::ReadWrite).unwrap();
        let (rt2, is_over) = (rt.clone(), Rc::new(Cell::new(false)));
        let over = is_over.clone();
        let reading = rt.spawn(async move {
            let mut buffer = rt2.buffer(4096);
            while !over.get() {
                let (bytes, result) = disk.read(0, buffer).await;
                result.unwrap();
                buffer = bytes;
            }
        });
        exchange(rt).await;
        is_over.set(true);
        reading.await;
    })
    .unwrap();
}

#[test]
fn a_connection_moves_to_another_core() {
    let (cores, running) = uring::start(2).unwrap();
    let (send, receive_address) = mpsc::channel();
    let far = cores.core(1).clone();
    cores.core(0).run(move |rt| {
        let rt2 = rt.clone();
        rt.spawn(async move {
            let listener = rt2.listen("127.0.0.1:0").unwrap();
            send.send(listener.address()).unwrap();
            loop {
                let stream = listener.accept().await.unwrap();
                // Something happens on the first core before it moves.
                let (bytes, count) = stream.recv(rt2.buffer(5)).await;
                assert_eq!((count, &bytes[..]), (Ok(5), &b"hello"[..]));
                let peer = stream.peer();
                let moving = stream.detach();
                far.run(move |rt| {
                    let stream = rt.attach(moving);
                    assert_eq!(stream.peer(), peer);
                    let rt2 = rt.clone();
                    rt.spawn(async move {
                        loop {
                            let (mut bytes, count) = stream.recv(rt2.buffer(4096)).await;
                            bytes.truncate(count.unwrap());
                            if bytes.is_empty() {
                                return;
                            }
                            stream.send(vec![bytes.freeze()]).await.unwrap();
                        }
                    });
                });
            }
        });
    });
    let address = receive_address.recv().unwrap();
    for round in 0..20u8 {
        let mut client = std::net::TcpStream::connect(&address).unwrap();
        client.write_all(b"hello").unwrap();
        for echo in 0..20u8 {
            client.write_all(&[round, echo]).unwrap();
            let mut answer = [0; 2];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round, echo]);
        }
    }
    running.stop().unwrap();
}

#[test]
fn what_cannot_be_reached_is_an_error() {
    uring::block_on(|rt| async move {
        for address in ["localhost:1", "nonsense", "127.0.0.1", ""] {
            assert_eq!(rt.listen(address).err(), Some(NetError { os: Some(libc::EINVAL) }), "{address}");
            assert_eq!(rt.connect(address).await.err(), Some(NetError { os: Some(libc::EINVAL) }));
        }
        // A port that was free a moment ago.
        let address = rt.listen("127.0.0.1:0").unwrap().address();
        assert_eq!(rt.connect(&address).await.err(), Some(NetError { os: Some(libc::ECONNREFUSED) }));
        let listener = rt.listen(&address).unwrap();
        assert_eq!(rt.listen(&address).err(), Some(NetError { os: Some(libc::EADDRINUSE) }));
        assert_eq!(listener.address(), address);
        let (version_6, accepted) = match rt.listen("[::1]:0") {
            Ok(listener) => (rt.connect(&listener.address()).await, listener.accept().await),
            Err(_) => return,
        };
        assert!(version_6.is_ok() && accepted.is_ok());
    })
    .unwrap();
}

#[test]
fn shutting_down_ends_what_is_in_flight() {
    uring::block_on(|rt| async move {
        let (client, server) = pair(&rt).await;
        let waiting = server.recv(rt.buffer(100));
        // More than the sockets hold, so that it waits for a reader that never comes.
        let stuck = server.send(vec![rt.arena().take_zeroed(32 << 20).freeze()]);
        forebay_runtime::yield_now().await;
        server.shutdown();
        let (_, received) = waiting.await;
        assert!(received.is_err() && stuck.await.is_err());
        assert!(server.send(vec![rt.arena().copy(b"late").freeze()]).await.is_err());
        assert!(server.recv(rt.buffer(1)).await.1.is_err());
        let mut last = client.recv(rt.buffer(1 << 20)).await;
        while let (buffer, Ok(1..)) = last {
            last = client.recv(buffer).await;
        }
    })
    .unwrap();
}

/// The last handle may go while requests wait: the connection is closed then, and so is a listener.
#[test]
fn dropped_handles_close_what_still_waits() {
    uring::block_on(|rt| async move {
        let (client, server) = pair(&rt).await;
        drop(server.recv(rt.buffer(100)));
        forebay_runtime::yield_now().await;
        drop(server);
        assert_eq!(client.recv(rt.buffer(1)).await.1, Ok(0));
        assert_eq!(rt.arena().bytes_out(), 0, "the abandoned receive has ended");

        let listener = rt.listen("127.0.0.1:0").unwrap();
        let address = listener.address();
        let accept = listener.accept();
        forebay_runtime::yield_now().await;
        drop(listener);
        assert!(accept.await.is_err());
        assert!(rt.listen(&address).is_ok(), "the port is free again");
    })
    .unwrap();
}

/// An abandoned receive may still take bytes; its buffer must not belong to anyone else then.
#[test]
fn an_abandoned_receive_keeps_its_buffer() {
    uring::block_on(|rt| async move {
        let (client, server) = pair(&rt).await;
        for round in 0..200u8 {
            drop(server.recv(rt.buffer(4096)));
            forebay_runtime::yield_now().await;
            let mut mine: Vec<_> = (0..4).map(|_| rt.buffer(4096)).collect();
            mine.iter_mut().for_each(|buffer| buffer.fill(0xA5));
            client.send(vec![rt.arena().copy(&[round; 3000]).freeze()]).await.unwrap();
            while rt.arena().bytes_out() > 4 * 4096 {
                rt.sleep(std::time::Duration::from_micros(50)).await;
            }
            assert!(mine.iter().all(|buffer| buffer.iter().all(|&byte| byte == 0xA5)), "round {round}");
        }
    })
    .unwrap();
}

/// More requests than the submission queue takes, completed at once: more than the completion queue holds.
#[test]
fn completions_beyond_the_queue_are_not_lost() {
    uring::block_on(|rt| async move {
        let listener = rt.listen("127.0.0.1:0").unwrap();
        let accepts: Vec<_> = (0..10_000).map(|_| listener.accept()).collect();
        let client = rt.connect(&listener.address()).await.unwrap();
        drop(listener);
        let (mut accepted, mut ended) = (0, 0);
        for accept in accepts {
            match accept.await {
                Ok(_) => accepted += 1,
                Err(_) => ended += 1,
            }
        }
        assert_eq!((accepted, ended), (1, 9_999));
        drop(client);
    })
    .unwrap();
}

#[test]
#[should_panic(expected = "two receives")]
fn two_receives_at_a_time_are_a_mistake() {
    uring::block_on(|rt| async move {
        let (_client, server) = pair(&rt).await;
        let _first = server.recv(rt.buffer(1));
        let _second = server.recv(rt.buffer(1));
    })
    .unwrap();
}

/// One byte at a time through thousands of sends: no send is lost, doubled or reordered.
#[test]
fn small_messages_keep_their_order() {
    uring::block_on(|rt| async move {
        let (client, server) = pair(&rt).await;
        let rt2 = rt.clone();
        let sender = rt.spawn(async move {
            for number in 0..5000u32 {
                let part: Buf = rt2.arena().copy(&number.to_le_bytes()).freeze();
                client.send(vec![part.slice(0, 1), part.slice(1, 3)]).await.unwrap();
            }
        });
        let bytes = receive(&rt, &server, 20_000).await;
        let expected: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(bytes, expected);
        sender.await;
    })
    .unwrap();
}

/// In another process: takes connections and waits for what they send, until it is killed.
fn listen_for_ever() {
    uring::block_on(|rt| async move {
        let listener = rt.listen("127.0.0.1:0").unwrap();
        println!("listening {}", listener.address());
        let rt2 = rt.clone();
        rt.spawn(async move {
            rt2.sleep(std::time::Duration::from_secs(30)).await;
            panic!("nobody killed this process");
        });
        let mut streams = Vec::new();
        loop {
            let stream = listener.accept().await.unwrap();
            drop(stream.recv(rt.buffer(100)));
            streams.push(stream);
        }
    })
    .unwrap();
}

/// A killed process's requests outlive it for a moment, and with them its sockets.
#[test]
fn the_address_of_a_killed_process_can_be_taken_at_once() {
    if role().is_some() {
        return listen_for_ever();
    }
    for _ in 0..5 {
        let mut child =
            child("streams::the_address_of_a_killed_process_can_be_taken_at_once", "").spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("listening ") {
            line.clear();
            output.read_line(&mut line).unwrap();
        }
        let address = line.trim().rsplit(' ').next().unwrap().to_owned();
        let _clients = [(); 10].map(|()| std::net::TcpStream::connect(&address).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        uring::block_on(|rt| async move {
            rt.listen(&address).unwrap();
        })
        .unwrap();
    }
}
