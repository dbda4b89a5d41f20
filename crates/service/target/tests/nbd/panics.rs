//! Does a bug in the protocol end the session that met it, with an event, and nothing else?
//!
//! Method: a panic is planted on the core where the session lives, and taken away when it was met.

use crate::support::{BLOCK, Client, Served, eventually, wait};
use forebay_base::planted::{Bug, plant};
use forebay_nbd::Style;
use forebay_nbd::client::Answer;
use forebay_nbd::wire::command;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;

/// Plants a bug, or none, on all cores.
fn plant_everywhere(served: &Served, bug: Option<Bug>) {
    for core in 0..2 {
        let (told, done) = futures_channel::oneshot::channel();
        served.cores.core(core).run(move |_| {
            plant(bug);
            told.send(()).expect("the test waits");
        });
        wait(done).expect("the core lives");
    }
}

#[test]
fn a_negotiation_that_panics_is_hung_up_on() {
    let served = Served::new(64 * BLOCK, None);
    let mut first = Client::open(served.server.address(), "pool/a", Style::Simple);
    plant_everywhere(&served, Some(Bug::HandshakePanics));
    let mut stream = TcpStream::connect(served.server.address()).unwrap();
    stream.write_all(&3u32.to_be_bytes()).unwrap();
    let mut greeting = Vec::new();
    // It may be a reset, as bytes were not read.
    let _ = stream.read_to_end(&mut greeting);
    assert_eq!(greeting.len(), 18);
    plant_everywhere(&served, None);
    let message = served.event("nbd.session.panicked");
    assert!(message.contains("planted") && message.contains("bug in Forebay"), "{message}");
    assert_eq!(first.call(command::WRITE, 0, 0, 4, b"abcd"), Ok(Answer::Done));
    let _second = Client::open(served.server.address(), "pool/a", Style::Simple);
    served.stop();
}

#[test]
fn a_session_that_panics_ends_and_what_it_had_begun_is_done() {
    let served = Served::new(64 * BLOCK, None);
    let mut other = Client::open(served.server.address(), "pool/a", Style::Simple);
    let mut client = Client::open(served.server.address(), "pool/a", Style::Simple);
    served.disks[0].slow_read.store(300_000_000, Ordering::SeqCst);
    client.send(command::READ, 0, 1, 0, 4096, &[]);
    eventually(|| served.disks[0].slow_read.load(Ordering::SeqCst) == 0);
    assert_eq!(served.disks[0].running.load(Ordering::SeqCst), 1);
    plant_everywhere(&served, Some(Bug::RequestPanics));
    client.send(command::FLUSH, 0, 2, 0, 0, &[]);
    assert!(client.reply().is_none());
    plant_everywhere(&served, None);
    assert!(served.event("nbd.session.panicked").contains("planted"));
    // It leaves when its request is finished.
    eventually(|| served.server.sessions().len() == 1);
    assert_eq!(served.disks[0].running.load(Ordering::SeqCst), 0);
    assert_eq!(other.call(command::READ, 0, 0, 4, &[]), Ok(Answer::Data(vec![0; 4])));
    served.stop();
}
