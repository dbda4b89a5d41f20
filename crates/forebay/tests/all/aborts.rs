//! Are requests that wait at their volume's limit dropped at once when their client gives them up or is gone?
//!
//! Goal: ABORT TASK, LUN RESET and a login that replaces the session are answered while 32 writes of 1 MiB wait at 1 MiB/s, and
//! requests of clients that are gone do not begin, over iSCSI and NBD. What was given up is there whole or not at all.
//! Method: the real daemon. What has been written when it is over is counted, after the limit was lifted: with all that waited
//! still wanted it would be everything.

use crate::common::{Daemon, Nbd, PATIENCE, Place};
use crate::iscsi::{ESX1, Initiator, sessions, wanted};
use forebay_iscsi::initiator::{Event, ScsiRequest};
use forebay_iscsi::wire::task_function;
use std::time::{Duration, Instant};

const MIB: usize = 1 << 20;
const WRITES: usize = 32;

fn limit(place: &Place, bandwidth: &str) {
    place.run(&["level", "set", "slow", "--max-bandwidth", bandwidth]).expect(0);
}

/// A volume of 64 MiB with a limit of 1 MiB/s.
fn slow_volume() -> (Place, Daemon) {
    let place = Place::new();
    let daemon = Daemon::start(&place);
    place.disks();
    place.run(&["pool", "create", "tank", "--layout", "mirror", "a", "b"]).expect(0);
    place.run(&["level", "create", "slow", "--class", "non-critical", "--max-bandwidth", "1M"]).expect(0);
    place.run(&["volume", "create", "tank/v", "--size", "64M", "--level", "slow"]).expect(0);
    (place, daemon)
}

/// How many of the writes of `first` and the bytes that follow are there: of each all or nothing.
fn written(place: &Place, daemon: &Daemon, first: u8) -> usize {
    limit(place, "none");
    let mut nbd = Nbd::open(&daemon.nbd, "tank/v");
    let count = (0..WRITES).filter(|nth| {
        let data = nbd.read((nth * MIB) as u64, MIB);
        let is_new = data[0] == first + *nth as u8;
        assert!(data.iter().all(|byte| *byte == data[0]), "write {nth} is there in part");
        is_new
    });
    count.count()
}

/// Waits (bounded) until `holds`.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A session with its writes at the limit, and their tags.
fn hold(place: &Place, daemon: &Daemon, first: u8) -> (Initiator, Vec<u32>) {
    eventually("the last session ends", || sessions(place).is_empty());
    limit(place, "1M");
    let mut path = Initiator::named(&daemon.iscsi[0], ESX1);
    path.execute(&[0; 6], 0, &[]);
    let tags = (0..WRITES).map(|nth| {
        let mut request = ScsiRequest::default();
        request.cdb[0] = 0x8a;
        request.cdb[2..10].copy_from_slice(&((nth * MIB / 512) as u64).to_be_bytes());
        request.cdb[10..14].copy_from_slice(&((MIB / 512) as u32).to_be_bytes());
        request.data_out = vec![path.arena.copy(&vec![first + nth as u8; MIB]).freeze()];
        path.session.command(request).expect("the window is open")
    });
    let tags = tags.collect();
    path.stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout can be set");
    eventually("all writes have come", || {
        // Sends what the daemon asks for.
        while path.event().is_some() {}
        sessions(place).iter().any(|session| session["commands"].as_u64() > Some(WRITES as u64))
    });
    path.stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    (path, tags)
}

#[test]
fn commands_at_a_limit_are_given_up_at_once() {
    let (place, daemon) = slow_volume();
    place.run(&["host", "create", "esx1", "--iqn", ESX1]).expect(0);
    place.run(&["volume", "map", "tank/v", "--host", "esx1"]).expect(0);
    let portal = &daemon.iscsi[0];
    let manage = |path: &mut Initiator, function, tag| {
        path.session.manage(function, 0, tag, 0);
        loop {
            match path.event().expect("the session goes on") {
                Event::TaskAnswered { response, .. } => return assert_eq!(response, 0),
                Event::Completed { status, .. } => assert_eq!(status, 0),
                other => panic!("{other:?}"),
            }
        }
    };

    let (mut path, tags) = hold(&place, &daemon, 1);
    tags[WRITES / 2..].iter().for_each(|tag| manage(&mut path, task_function::ABORT_TASK, *tag));
    limit(&place, "none");
    // Those before them are carried out, with the first command's answer behind them.
    tags[WRITES / 2..].iter().for_each(|tag| path.session.forget(*tag));
    while written(&place, &daemon, 1) < WRITES / 2 {}
    assert_eq!(written(&place, &daemon, 1), WRITES / 2, "what was aborted was not written");
    drop(path);

    let (mut path, _) = hold(&place, &daemon, 60);
    manage(&mut path, task_function::LUN_RESET, u32::MAX);
    let count = written(&place, &daemon, 60);
    assert!(count < WRITES / 2, "{count} of {WRITES} were written before the reset was over");
    drop(path);

    let (path, _) = hold(&place, &daemon, 120);
    let again = Initiator::log_in(portal, wanted(ESX1)).expect("a login in the session's place");
    let count = written(&place, &daemon, 120);
    assert!(count < WRITES / 2, "{count} of {WRITES} were written before the login was over");
    path.wait_for_end();
    drop(again);

    let (path, _) = hold(&place, &daemon, 180);
    drop(path);
    eventually("the session ends", || sessions(&place).is_empty());
    let count = written(&place, &daemon, 180);
    assert!(count < WRITES / 2, "{count} of {WRITES} were written for an initiator that had gone");
    daemon.stop();
}

#[test]
fn requests_of_an_nbd_client_that_has_gone_do_not_begin() {
    let (place, daemon) = slow_volume();
    let mut client = Nbd::open(&daemon.nbd, "tank/v");
    // Half of what the daemon holds of one client: it has them all, and sees the end behind them.
    (0..WRITES / 2).for_each(|nth| client.send_write((nth * MIB) as u64, &vec![nth as u8 + 1; MIB]));
    drop(client);
    let used = ["volume", "delete", "tank/v", "--yes", "--dry-run"];
    eventually("the connection ends", || place.run(&used).code == Some(0));
    let count = written(&place, &daemon, 1);
    assert!(count < WRITES / 4, "{count} of {} were written for a client that had gone", WRITES / 2);
    daemon.stop();
}
