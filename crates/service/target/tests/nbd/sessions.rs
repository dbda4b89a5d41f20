//! Does a client get what it asked for, whatever it asks and however it leaves?
//! Method: a client that sends exact bytes to a real server over disks in memory, whose contents are the oracle.

use crate::support::{BLOCK, Client, House, Served, eventually, start, wait};
use forebay_nbd::client::Answer;
use forebay_nbd::wire::{command, command_flag, option, option_reply};
use forebay_nbd::{REQUEST_MAX, Style, client};
use forebay_target::{
    ADDRESS_SHARE, CONNECTIONS_MAX, HALF_OPEN_MAX, NbdConfig, Operation, PLACES, Protocol, REQUESTS_MAX,
    take_facts,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

const SIZE: u64 = 1 << 30;
const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Extended];

#[test]
fn every_command_in_every_style() {
    let served = Served::new(SIZE, None);
    for (index, style) in STYLES.into_iter().enumerate() {
        let mut client = Client::open(served.server.address(), ["pool/a", "pool/b"][index % 2], style);
        let disk = &served.disks[index % 2];
        let base = index as u64 * (64 << 20);
        let payload_flag = if style == Style::Extended { command_flag::PAYLOAD_LEN } else { 0 };
        let write = |client: &mut Client, flags, at, bytes: &[u8]| {
            client.call(command::WRITE, flags | payload_flag, at, bytes.len() as u64, bytes)
        };
        let data: Vec<u8> = (0..300_001u32).map(|i| (i * 7 + i / 255) as u8).collect();
        assert_eq!(write(&mut client, 0, base + 777, &data), Ok(Answer::Done));
        assert_eq!(
            client.call(command::READ, 0, base + 777, data.len() as u64, &[]),
            Ok(Answer::Data(data.clone()))
        );
        assert_eq!(client.call(command::READ, 0, base, 777, &[]), Ok(Answer::Data(vec![0; 777])));
        assert_eq!(client.call(command::READ, 0, base, 0, &[]), Ok(Answer::Done));
        assert_eq!(write(&mut client, command_flag::FUA, base, &[1; 512]), Ok(Answer::Done));
        assert_eq!(disk.fua.swap(0, Ordering::SeqCst), 1);
        assert_eq!(client.call(command::FLUSH, 0, 0, 0, &[]), Ok(Answer::Done));
        assert_eq!(disk.flushes.swap(0, Ordering::SeqCst), 1);
        assert_eq!(client.call(command::CACHE, 0, base, 1 << 20, &[]), Ok(Answer::Done));
        assert_eq!(client.call(command::TRIM, 0, base + 2 * BLOCK, 2 * BLOCK, &[]), Ok(Answer::Done));
        assert_eq!(
            client.call(command::READ, 0, base + 2 * BLOCK, 2 * BLOCK, &[]),
            Ok(Answer::Data(vec![0; 2 * BLOCK as usize]))
        );
        if style != Style::Simple {
            let extents = client.call(command::BLOCK_STATUS, 0, base, 8 * BLOCK, &[]);
            let expected = vec![(2 * BLOCK, 0), (2 * BLOCK, 3), (4 * BLOCK, 0)];
            assert_eq!(extents, Ok(Answer::Extents(expected)));
            let one =
                client.call(command::BLOCK_STATUS, command_flag::REQ_ONE, base + 1, 3 * BLOCK, &[]).unwrap();
            assert_eq!(one, Answer::Extents(vec![(2 * BLOCK - 1, 0)]));
        } else {
            assert_eq!(client.call(command::BLOCK_STATUS, 0, base, BLOCK, &[]), Err(22));
        }
        let fast = command_flag::FAST_ZERO;
        assert_eq!(client.call(command::WRITE_ZEROES, fast, base + 1, 100, &[]), Err(95));
        assert_eq!(client.call(command::WRITE_ZEROES, fast, base, 3 * BLOCK, &[]), Ok(Answer::Done));
        let writes = disk.writes.load(Ordering::SeqCst);
        let solid = command_flag::NO_HOLE;
        assert_eq!(client.call(command::WRITE_ZEROES, solid, base, 3 << 20, &[]), Ok(Answer::Done));
        assert_eq!(disk.writes.load(Ordering::SeqCst) - writes, 3, "zeroes that keep their space are data");
        assert_eq!(client.call(command::READ, 0, base, 300_000, &[]), Ok(Answer::Data(vec![0; 300_000])));
        assert_eq!(client.call(command::WRITE_ZEROES, 0, SIZE - 10, 10, &[]), Ok(Answer::Done));
        // Refusals leave the connection usable.
        assert_eq!(client.call(command::READ, 0, SIZE - 1, 2, &[]), Err(22));
        assert_eq!(write(&mut client, 0, SIZE - 1, &[0; 2]), Err(28));
        assert_eq!(client.call(99, 0, 0, 0, &[]), Err(22));
        client.send(command::DISC, 0, 0, 0, 0, &[]);
        assert!(client.reply().is_none());
    }
    served.stop();
}

/// What is counted is what the client did: no more, no less, and where.
#[test]
fn what_a_client_does_is_counted_by_volume_and_operation() {
    let served = Served::new(SIZE, None);
    let take = || wait(take_facts(served.cores.clone()));
    for (export, other) in [("pool/a", "pool/b"), ("pool/b", "pool/a")] {
        let mut client = Client::open(served.server.address(), export, Style::Simple);
        let mut beside = Client::open(served.server.address(), export, Style::Simple);
        for nth in 0..PLACES as u64 {
            let at = nth * (SIZE / PLACES as u64);
            assert_eq!(client.call(command::WRITE, 0, at, 512, &[7; 512]), Ok(Answer::Done));
            // Another connection of the same client counts for the same one.
            assert_eq!(beside.call(command::READ, 0, at, 512, &[]), Ok(Answer::Data(vec![7; 512])));
        }
        assert_eq!(client.call(command::TRIM, 0, 0, 2 * BLOCK, &[]), Ok(Answer::Done));
        assert_eq!(client.call(command::FLUSH, 0, 0, 0, &[]), Ok(Answer::Done));
        assert_eq!(client.call(command::READ, 0, SIZE - 1, 2, &[]), Err(22));
        let facts = take();
        let [one] = &facts[..] else { panic!("one client of {export}, and none of {other}: {facts:?}") };
        assert_eq!((one.protocol, one.client.as_str()), (Protocol::Nbd, "127.0.0.1"));
        let counted: Vec<_> =
            one.facts.iter().map(|(kind, facts)| (*kind, facts.count, facts.bytes)).collect();
        let bytes = PLACES as u64 * 512;
        let expected = [
            (Operation::Read, PLACES as u64, bytes),
            (Operation::Write, PLACES as u64, bytes),
            (Operation::Flush, 1, 0),
            (Operation::Discard, 1, 0),
        ];
        assert_eq!(counted, expected);
        // What the decoder refuses was never asked of the volume.
        assert_eq!(one.failed, 0);
        for (_, facts) in &one.facts[..2] {
            assert_eq!(facts.places, [1; PLACES]);
            assert_eq!((facts.latencies.count(), facts.sizes.quantile(500) >> 9), (PLACES as u64, 1));
            // Also what is done on the spot takes its time.
            assert!(facts.latencies.quantile(1) > 0);
        }
        assert!(take().is_empty());
    }
    served.stop();
}

#[test]
fn lengths_beyond_32_bits_need_extended_headers() {
    let served = Served::new(16 << 40, None);
    let mut client = Client::open(served.server.address(), "pool/a", Style::Extended);
    assert_eq!(client.call(command::TRIM, 0, 0, 16 << 40, &[]), Ok(Answer::Done));
    served.stop();
}

#[test]
fn the_largest_requests() {
    let served = Served::new(SIZE, None);
    let mut client = Client::open(served.server.address(), "pool/b", Style::Structured);
    let data: Vec<u8> = (0..REQUEST_MAX).map(|i| (i / 4096) as u8 ^ i as u8).collect();
    assert_eq!(client.call(command::WRITE, 0, 512, u64::from(REQUEST_MAX), &data), Ok(Answer::Done));
    // Several of them at once are more than a session may hold; they take turns.
    for cookie in 0..6 {
        client.send(command::READ, 0, cookie, 512, u64::from(REQUEST_MAX), &[]);
    }
    for _ in 0..6 {
        assert!(client.reply().unwrap().result == Ok(Answer::Data(data.clone())));
    }
    served.stop();
}

#[test]
fn slow_requests_do_not_hold_up_others_and_are_finished_before_leaving() {
    let served = Served::new(SIZE, None);
    let mut client = Client::open(served.server.address(), "pool/a", Style::Simple);
    served.disks[0].slow_read.store(300_000_000, Ordering::SeqCst);
    let script = [
        client.encode(command::READ, 0, 1, 0, 4096),
        client.encode(command::READ, 0, 2, 0, 4096),
        client.encode(command::WRITE, 0, 3, 0, 4),
        b"abcd".to_vec(),
        client.encode(command::DISC, 0, 4, 0, 0),
    ];
    client.stream.write_all(&script.concat()).unwrap();
    let order: Vec<u64> = std::iter::from_fn(|| client.reply()).map(|reply| reply.cookie).collect();
    assert_eq!(order, [2, 3, 1], "the slow one comes last, before the connection is closed");
    served.stop();
}

#[test]
fn a_flood_of_requests_waits_its_turn() {
    let served = Served::new(SIZE, None);
    let mut client = Client::open(served.server.address(), "pool/a", Style::Simple);
    let count = 5000;
    let mut script = Vec::new();
    for cookie in 0..count {
        script.extend(client.encode(command::READ, 0, cookie, cookie * 512, 512));
        if cookie % 100 == 0 {
            script.extend(client.encode(command::WRITE, 0, count + cookie, cookie, 3));
            script.extend(b"xyz");
        }
    }
    served.disks[0].slow_read.store(200_000_000, Ordering::SeqCst);
    let mut writer = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&script).unwrap());
    let mut seen = vec![0; 2 * count as usize];
    for _ in 0..count + count / 100 {
        let reply = client.reply().unwrap();
        assert!(reply.result.is_ok());
        seen[reply.cookie as usize] += 1;
    }
    sender.join().unwrap();
    assert!(
        (0..count as usize).all(|i| seen[i] == 1 && seen[count as usize + i] == usize::from(i % 100 == 0))
    );
    assert!(served.disks[0].running_most.load(Ordering::SeqCst) <= REQUESTS_MAX as u64);
    let sessions = served.server.sessions();
    assert_eq!(sessions.len(), 1);
    assert_eq!(
        (
            sessions[0].export.as_str(),
            sessions[0].requests,
            sessions[0].bytes_read,
            sessions[0].bytes_written
        ),
        ("pool/a", count + count / 100, count * 512, count / 100 * 3)
    );
    served.stop();
}

/// Requests that are refused or done at once cost no slot; their replies must not pile up either.
#[test]
fn a_client_that_does_not_read_replies_is_not_read_from() {
    let served = Served::new(SIZE, None);
    for kind in [command::FLUSH, 99] {
        let mut client = Client::open(served.server.address(), "pool/a", Style::Structured);
        let requests = client.encode(kind, 0, 5, 0, 0).repeat(10_000);
        client.stream.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
        let mut sent = 0;
        // Sockets' buffers take some megabytes each way; the server must not take the rest.
        while let Ok(count) = client.stream.write(&requests[sent % requests.len()..]) {
            sent += count;
            assert!(sent < 100 << 20, "the server takes everything");
        }
        let mut expected = sent / 28;
        while expected > 0 {
            assert_eq!(client.reply().unwrap().cookie, 5);
            expected -= 1;
        }
    }
    served.stop();
}

#[test]
fn clients_that_vanish_harm_nobody() {
    let served = Served::new(SIZE, None);
    for round in 0..30 {
        let mut client = Client::open(served.server.address(), "pool/a", STYLES[round % 3]);
        served.disks[0].slow_read.store(20_000_000, Ordering::SeqCst);
        client.send(command::READ, 0, 1, 0, 4096, &[]);
        client.send(command::READ, 0, 2, 0, 1 << 20, &[]);
        // Half a header, half a payload, or nothing more.
        let bytes = client.encode(command::WRITE, 0, 3, 0, 1 << 20);
        match round % 4 {
            0 => client.stream.write_all(&bytes[..17]).unwrap(),
            1 => client.stream.write_all(&[&bytes[..], &[7; 5000]].concat()).unwrap(),
            2 => client.stream.shutdown(std::net::Shutdown::Write).unwrap(),
            _ => {}
        }
    }
    for style in STYLES {
        let mut client = Client::open(served.server.address(), "pool/a", style);
        assert_eq!(client.call(command::WRITE, 0, 0, 4, b"here"), Ok(Answer::Done));
    }
    eventually(|| served.server.sessions().is_empty());
    served.stop();
}

/// A client that asks for much and reads nothing cannot keep the server from stopping.
#[test]
fn stopping_does_not_wait_for_a_client_that_does_not_read() {
    let served = Served::new(SIZE, None);
    let mut client = Client::open(served.server.address(), "pool/b", Style::Simple);
    for cookie in 0..4 {
        client.send(command::READ, 0, cookie, 0, u64::from(REQUEST_MAX), &[]);
    }
    eventually(|| served.server.sessions().first().is_some_and(|session| session.requests > 0));
    served.stop();
}

/// Thousands of strangers that say nothing, or agree and then say nothing: clients with something to do come in as if they
/// were not there, also from the same address, and those that are in stay.
#[test]
fn strangers_keep_nobody_out() {
    let served = Served::new(SIZE, None);
    let address = served.server.address().to_owned();
    let mut first = Client::open(&address, "pool/a", Style::Simple);
    assert_eq!(first.call(command::WRITE, 0, 0, 4, b"here"), Ok(Answer::Done));
    let mut silent: Vec<TcpStream> = (0..1000).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut second = Client::open(&address, "pool/b", Style::Simple);
    assert_eq!(second.call(command::READ, 0, 0, 4, &[]), Ok(Answer::Data(vec![0; 4])));
    // The oldest have been sent away.
    for stream in &mut silent[..1000 - HALF_OPEN_MAX] {
        assert!(stream.read_to_end(&mut Vec::new()).is_ok());
    }
    assert!(served.event("nbd.client.slow").contains("agreed on no export"));
    drop(silent);
    let mut agreed: Vec<Client> = (0..CONNECTIONS_MAX / ADDRESS_SHARE + 50)
        .map(|number| Client::open(&address, ["pool/a", "pool/b"][number % 2], Style::Simple))
        .collect();
    let mut third = Client::open(&address, "pool/b", Style::Simple);
    // Twice: with the second answer the server knows that the first was taken.
    let settle = |client: &mut Client| {
        for _ in 0..2 {
            assert!(matches!(client.call(command::READ, 0, 0, 4, &[]), Ok(Answer::Data(_))));
        }
    };
    [&mut first, &mut second, &mut third].into_iter().for_each(settle);
    for client in &mut agreed[..50] {
        assert!(client.reply().is_none(), "it has made room");
    }
    // And whoever has done something stays: an address's share is what it gets.
    let share = CONNECTIONS_MAX / ADDRESS_SHARE;
    agreed.iter_mut().rev().take(share - 3).for_each(settle);
    let mut refused = TcpStream::connect(&address).unwrap();
    assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0);
    assert!(served.event("nbd.client.refused").contains("256 connections of its address"));
    served.stop();
}

#[test]
fn violations_close_the_connection_and_are_reported() {
    let served = Served::new(SIZE, None);
    let mut client = Client::open(served.server.address(), "pool/a", Style::Simple);
    client.stream.write_all(&[b'x'; 28]).unwrap();
    assert!(client.reply().is_none());
    assert!(served.event("nbd.client.violation").contains("a request began with 0x78787878"));

    let mut client = Client::connect(served.server.address());
    client.stream.write_all(&client::option(option::EXPORT_NAME, b"pool/none")).unwrap();
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    let mut client = Client::connect(served.server.address());
    let replies = client.option(option::GO, &client::info_data("pool/none", &[]));
    assert_eq!(replies[0].kind, option_reply::ERR_UNKNOWN);
    assert_eq!(replies[0].data, b"pool/none: there is no such volume");
    assert_eq!(client.option(option::LIST, &[]).len(), 3);
    assert_eq!(client.option(option::ABORT, &[])[0].kind, option_reply::ACK);
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
    served.stop();
}

#[test]
fn a_deleted_volume_says_so() {
    let served = Served::new(SIZE, None);
    for style in STYLES {
        let mut client = Client::open(served.server.address(), "pool/b", style);
        assert_eq!(client.call(command::FLUSH, 0, 0, 0, &[]), Ok(Answer::Done));
        served.disks[1].gone.store(true, Ordering::SeqCst);
        assert_eq!(client.call(command::READ, 0, 0, 512, &[]), Err(108));
        assert!(client.reply().is_none());
        served.disks[1].gone.store(false, Ordering::SeqCst);
    }
    assert!(served.event("nbd.export.gone").contains("pool/b"));
    served.stop();
}

#[test]
fn stopping_finishes_what_runs() {
    let served = Served::new(SIZE, None);
    let address = served.server.address().to_owned();
    let mut busy = Client::open(&address, "pool/b", Style::Structured);
    let mut idle = Client::open(&address, "pool/a", Style::Simple);
    let mut greeted = Client::connect(&address);
    served.disks[1].slow_read.store(300_000_000, Ordering::SeqCst);
    busy.send(command::READ, 0, 1, 0, 4096, &[]);
    eventually(|| served.disks[1].running.load(Ordering::SeqCst) > 0);
    served.stop();
    assert_eq!(busy.reply().unwrap().result, Ok(Answer::Data(vec![0; 4096])));
    assert!(busy.reply().is_none() && idle.reply().is_none());
    assert_eq!(greeted.stream.read(&mut [0]).unwrap_or(0), 0);
    assert!(TcpStream::connect(&address).is_err(), "nobody listens any more");
}

#[test]
fn unsafe_addresses_are_refused() {
    let served = Served::new(SIZE, None);
    for (listen, why) in [
        ("0.0.0.0:0", "would give every volume"),
        ("[::]:0", "would give every volume"),
        ("198.51.100.7:10809", "would give every volume"),
        ("nonsense", "an IP address"),
        (served.server.address(), "cannot listen"),
    ] {
        let config = NbdConfig::plain(listen);
        let house = House(served.disks.clone().into());
        let error = start(&served.cores, house, config, &served.events).err().expect("it is refused");
        assert!(error.message.contains(why) && !error.remedy.is_empty(), "{listen}: {error}");
    }
    served.stop();
}
