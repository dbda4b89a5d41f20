//! Does a bug in the protocol or the device server end the session that met it, with an event, and nothing else?
//!
//! Method: a panic is planted on the core where the session lives, and taken away when it was met.

use crate::house::{Host, mapping};
use crate::support::{Client, HOST, Served, eventually, read, test_unit_ready, wait, wanted, write};
use forebay_base::planted::{Bug, plant};
use forebay_target::Proof;
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

fn event(served: &Served) -> String {
    let event = served.event("iscsi.session.panicked");
    assert!(event.contains("planted") && event.contains("bug in Forebay"), "{event}");
    event
}

/// Another initiator at the first disk.
fn other(served: &Served) -> Client {
    let host = Host { proof: Proof::Name, luns: vec![mapping(9, &served.disks[0])], ceiling: None };
    served.table.0.lock().unwrap().insert("iqn.other".into(), host);
    let mut client = Client::log_in(served.address(0), wanted("iqn.other")).unwrap();
    assert_eq!(client.call(9, test_unit_ready()).sense, Some((6, 0x2900)));
    client
}

#[test]
fn a_login_that_panics_is_hung_up_on() {
    let served = Served::new();
    let mut first = Client::open(served.address(0));
    plant_everywhere(&served, Some(Bug::LoginPanics));
    assert!(Client::log_in(served.address(0), wanted("iqn.other")).is_err());
    assert!(event(&served).contains("127.0.0.1:"));
    first.write(0, 0, &[1; 512]);
    plant_everywhere(&served, None);
    let _second = other(&served);
    assert_eq!(first.read(0, 0, 512), [1; 512]);
    served.stop();
}

#[test]
fn a_session_that_panics_ends_and_what_it_had_begun_is_done() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    let mut other = other(&served);
    served.disks[0].slow_write.store(300_000_000, Ordering::SeqCst);
    let begun = write(&client.arena, 0, &[7; 4096]);
    client.start(0, begun);
    client.flush();
    eventually(|| served.disks[0].slow_write.load(Ordering::SeqCst) == 0);
    plant_everywhere(&served, Some(Bug::PingPanics));
    client.session.ping(b"");
    assert!(client.is_hung_up());
    plant_everywhere(&served, None);
    assert!(event(&served).contains(HOST));
    eventually(|| served.server.sessions().len() == 1);
    assert_eq!(other.read(9, 0, 4096), [7; 4096], "the write outlived its session");
    let mut client = Client::open(served.address(0));
    client.write(0, 0, &[8; 512]);
    served.stop();
}

#[test]
fn a_command_that_panics_takes_neither_the_unit_nor_its_other_sessions_along() {
    for lun in [0, 1] {
        let served = Served::new();
        let mut other = other(&served);
        let mut client = Client::open(served.address(0));
        client.write(lun, 0, &[5; 512]);
        plant_everywhere(&served, Some(Bug::CommandPanics));
        client.start(lun, read(0, 512));
        assert!(client.is_hung_up());
        assert!(event(&served).contains(HOST));
        plant_everywhere(&served, None);
        eventually(|| served.server.sessions().len() == 1);
        if lun == 0 {
            // The unit was opened anew: that is all that the other one hears.
            assert_eq!(other.call(9, test_unit_ready()).sense, Some((6, 0x2900)));
        }
        assert_eq!(other.read(9, 0, 512)[..1], [if lun == 0 { 5 } else { 0 }]);
        let mut client = Client::open(served.address(0));
        assert_eq!(client.read(lun, 0, 512), [5; 512]);
        served.stop();
    }
}
