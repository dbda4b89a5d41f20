//! What one or two initiators see of their disks, byte by byte.

use crate::house::{BLOCK, mapping};
use crate::support::{
    Client, HOST, SIZE, Served, cdb, eventually, pattern, read, test_unit_ready, wait, wanted, write,
};
use forebay_iscsi::Attribute;
use forebay_iscsi::initiator::{Event, Residual, ScsiRequest};
use forebay_iscsi::wire::{async_event, logout, task_function};
use forebay_target::{Operation, Protocol, take_facts};
use std::sync::atomic::Ordering;

/// Data of every size, at units of this core and of the other.
#[test]
fn what_is_written_is_read_back_on_every_core() {
    let served = Served::new();
    for portal in [0, 1] {
        let mut client = Client::open(served.address(portal));
        for lun in 0..3u64 {
            for (number, size) in
                [512, 4096, 8192, 65_536, 262_144, 300_032, 1 << 20, 5 << 20].into_iter().enumerate()
            {
                let at = number as u64 * (6 << 20) + 512 * lun;
                let data = pattern(size, number + lun as usize);
                client.write(lun, at, &data);
                assert!(client.read(lun, at, size) == data, "unit {lun}, {size} bytes");
                let mut stored = vec![0; size];
                served.disks[lun as usize].copy_out(at, &mut stored);
                assert!(stored == data, "unit {lun}, {size} bytes");
            }
        }
        client.session.logout(logout::CLOSE_SESSION, 0);
        assert!(matches!(client.event(), Some(Event::LoggedOut { response: 0 })));
        assert!(client.is_hung_up());
    }
    eventually(|| served.server.sessions().is_empty());
    assert!(served.events.lock().unwrap().is_empty(), "a logout is no news");
    served.stop();
}

/// Also where the unit is on another core than the session.
#[test]
fn what_an_initiator_does_is_counted_by_unit_and_operation() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    for lun in 0..3u64 {
        for nth in 0..=lun {
            client.write(lun, nth * 8192, &pattern(4096, 1));
        }
        client.read(lun, 0, 8192);
        client.read(lun, SIZE - 512, 512);
    }
    let mut facts = wait(take_facts(served.cores.clone()));
    facts.sort_by_key(|one| one.volume);
    assert_eq!(facts.len(), 3);
    for (lun, one) in (0..).zip(&facts) {
        assert_eq!((one.protocol, one.client.as_str(), one.failed), (Protocol::Iscsi, HOST, 0));
        assert_eq!(one.volume, served.disks[lun].id);
        let counted: Vec<_> =
            one.facts.iter().map(|(kind, facts)| (*kind, facts.count, facts.bytes)).collect();
        let writes = lun as u64 + 1;
        assert_eq!(counted, [(Operation::Read, 2, 8704), (Operation::Write, writes, writes * 4096)]);
        assert_eq!(one.facts[0].1.places.iter().sum::<u32>(), 2);
        assert_eq!(one.facts[0].1.places.last(), Some(&1));
    }
    served.stop();
}

#[test]
fn many_commands_run_at_once() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    served.disks[0].slow_read.store(300_000_000, Ordering::SeqCst);
    let slow = client.start(0, read(0, 512));
    for number in 0..100 {
        let request = write(&client.arena, number * 65_536, &pattern(65_536, number as usize));
        client.start(number % 3, request);
    }
    let order: Vec<u32> = (0..101).map(|_| client.answer().itt).collect();
    assert_eq!(order.last(), Some(&slow), "one slow read holds nobody up");
    for number in 0..100u64 {
        assert!(client.read(number % 3, number * 65_536, 65_536) == pattern(65_536, number as usize));
    }
    served.stop();
}

#[test]
fn ordered_commands_wait_for_those_before_them() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    served.disks[0].slow_read.store(200_000_000, Ordering::SeqCst);
    let first = client.start(0, read(0, 512));
    let ordered = client.start(0, ScsiRequest { attribute: Attribute::Ordered, ..read(0, 512) });
    let last = client.start(0, read(0, 512));
    let urgent = client.start(0, ScsiRequest { attribute: Attribute::HeadOfQueue, ..read(0, 512) });
    let order: Vec<u32> = (0..4).map(|_| client.answer().itt).collect();
    assert_eq!(order, [urgent, first, ordered, last]);
    served.stop();
}

#[test]
fn units_that_are_not_there_say_so() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    let answer = client.call(7, test_unit_ready());
    assert_eq!((answer.status, answer.sense), (2, Some((5, 0x2500))));
    let answer = client.call(7, ScsiRequest { cdb: inquiry(), expected_in: 36, ..ScsiRequest::default() });
    assert_eq!((answer.status, answer.data[0]), (0, 0x7f));
    // REPORT LUNS is answered by each of them.
    for lun in [0, 1, 7] {
        assert_eq!(report_luns(&mut client, lun), [0, 1, 2]);
    }
    // A volume that disappears, and comes back.
    served.disks[0].gone.store(true, Ordering::SeqCst);
    let answer = client.call(0, read(0, 512));
    assert_eq!((answer.status, answer.sense), (2, Some((5, 0x2500))));
    assert_eq!(client.call(0, read(0, 512)).sense, Some((5, 0x2500)));
    served.disks[0].gone.store(false, Ordering::SeqCst);
    assert_eq!(client.call(0, test_unit_ready()).sense, Some((6, 0x2900)));
    assert_eq!(client.read(0, 0, 512), [0; 512]);
    served.stop();
}

fn inquiry() -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[4]) = (0x12, 36);
    cdb
}

fn report_luns(client: &mut Client, lun: u64) -> Vec<u8> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[8]) = (0xa0, 1);
    let answer = client.call(lun, ScsiRequest { cdb, expected_in: 256, ..ScsiRequest::default() });
    assert_eq!(answer.status, 0);
    answer.data[8..].chunks(8).map(|lun| lun[1]).collect()
}

#[test]
fn a_grown_volume_is_noticed() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    assert_eq!(client.call(0, read(SIZE, 512)).sense, Some((5, 0x2100)));
    served.disks[0].grow(2 * SIZE);
    assert_eq!(client.call(0, test_unit_ready()).sense, Some((6, 0x2a09)));
    assert_eq!(client.read(0, SIZE, 512), [0; 512]);
    served.stop();
}

#[test]
fn what_changes_in_the_configuration_reaches_those_who_are_there() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    let luns = |luns: Vec<usize>| {
        let luns = luns.into_iter().map(|lun| mapping(lun as u16, &served.disks[lun])).collect();
        served.table.0.lock().unwrap().get_mut(HOST).unwrap().luns = luns;
        served.server.access_changed();
    };
    luns(vec![0, 1]);
    // It is told by message, so it takes its time.
    eventually_told(&mut client, 0, 0x3f0e);
    eventually_told(&mut client, 1, 0x3f0e);
    assert_eq!(report_luns(&mut client, 0), [0, 1]);
    assert_eq!(client.call(2, test_unit_ready()).sense, Some((5, 0x2500)));
    luns(vec![0, 1, 2]);
    eventually_told(&mut client, 0, 0x3f0e);
    assert_eq!(client.call(2, test_unit_ready()).sense, Some((6, 0x2900)), "as if it had come new");
    // One that sees nothing any more is not let stay.
    luns(vec![]);
    match client.event() {
        Some(Event::Async { message, .. }) => assert_eq!(message.event, async_event::SESSION_DROPPED),
        other => panic!("{other:?}"),
    }
    assert!(client.is_hung_up());
    assert!(served.event("iscsi.session.lost").contains("no longer allowed"));
    served.stop();
}

/// Asks until the unit attention comes.
fn eventually_told(client: &mut Client, lun: u64, code: u16) {
    for _ in 0..500 {
        match client.call(lun, test_unit_ready()).sense {
            Some(sense) => return assert_eq!(sense, (6, code)),
            None => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
    panic!("no unit attention came");
}

#[test]
fn thin_space_that_runs_out_is_told() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    served.server.set_fill("another target", 900, 800);
    served.server.set_fill(crate::house::TARGET, 700, 800);
    assert_eq!(client.call(0, test_unit_ready()).sense, None);
    served.server.set_fill(crate::house::TARGET, 900, 800);
    for lun in 0..3 {
        eventually_told(&mut client, lun, 0x3807);
    }
    served.stop();
}

/// Reservations are the unit's, whichever core a session lives on.
#[test]
fn reservations_hold_between_initiators() {
    let served = Served::new();
    served.table.0.lock().unwrap().insert(
        "iqn.other".into(),
        // On the other core.
        crate::house::Host {
            proof: forebay_target::Proof::Name,
            luns: vec![mapping(1, &served.disks[1])],
            ceiling: None,
        },
    );
    let mut first = Client::open(served.address(0));
    let mut second = Client::log_in(served.address(1), wanted("iqn.other")).unwrap();
    assert_eq!(second.call(1, test_unit_ready()).sense, Some((6, 0x2900)));
    let reserve = |action: u8, kind: u8, key: u64, new: u64, client: &Client| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, kind, 24);
        let mut list = [0; 24];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&new.to_be_bytes());
        ScsiRequest { cdb, data_out: vec![client.arena.copy(&list).freeze()], ..ScsiRequest::default() }
    };
    // Register and reserve, write exclusive.
    for (action, kind, key, new) in [(0, 0, 0, 5), (1, 1, 5, 0)] {
        let request = reserve(action, kind, key, new, &first);
        assert_eq!(first.call(1, request).status, 0);
    }
    second.read(1, 0, 512);
    let request = write(&second.arena, 0, &[1; 512]);
    assert_eq!(second.call(1, request).status, 0x18, "RESERVATION CONFLICT");
    // The session's end does not end them; the host's next one still holds them.
    drop(first);
    eventually(|| served.server.sessions().len() == 1);
    let request = write(&second.arena, 0, &[1; 512]);
    assert_eq!(second.call(1, request).status, 0x18);
    let mut first = Client::open(served.address(0));
    first.write(1, 0, &[2; 512]);
    // Preempt and abort, by the other: what of the first's was under way is over.
    let request = reserve(0, 0, 0, 6, &second);
    assert_eq!(second.call(1, request).status, 0);
    served.disks[1].slow_read.store(200_000_000, Ordering::SeqCst);
    let slow = first.start(1, read(0, 512));
    first.flush();
    eventually(|| served.disks[1].slow_read.load(Ordering::SeqCst) == 0);
    let request = reserve(5, 1, 6, 5, &second);
    assert_eq!(second.call(1, request).status, 0);
    second.write(1, 0, &[3; 512]);
    first.session.forget(slow);
    assert_eq!(first.call(1, test_unit_ready()).sense, Some((6, 0x2a05)), "REGISTRATIONS PREEMPTED");
    served.stop();
}

#[test]
fn resets_reach_the_commands_of_others() {
    let served = Served::new();
    served.table.0.lock().unwrap().insert(
        "iqn.other".into(),
        crate::house::Host {
            proof: forebay_target::Proof::Name,
            luns: vec![mapping(9, &served.disks[0])],
            ceiling: None,
        },
    );
    let mut first = Client::open(served.address(0));
    let mut second = Client::log_in(served.address(0), wanted("iqn.other")).unwrap();
    assert_eq!(second.call(9, test_unit_ready()).sense, Some((6, 0x2900)));
    served.disks[0].slow_read.store(200_000_000, Ordering::SeqCst);
    let slow = second.start(9, read(0, 512));
    second.flush();
    eventually(|| served.disks[0].slow_read.load(Ordering::SeqCst) == 0);
    first.session.manage(task_function::LUN_RESET, 0, 0, 0);
    assert!(matches!(first.event(), Some(Event::TaskAnswered { response: 0, .. })));
    second.session.forget(slow);
    for (client, lun) in [(&mut first, 0), (&mut second, 9)] {
        assert_eq!(client.call(lun, test_unit_ready()).sense, Some((6, 0x2903)));
        assert_eq!(client.call(lun, test_unit_ready()).status, 0);
    }
    first.session.manage(task_function::LUN_RESET, 5 << 48, 0, 0);
    assert!(matches!(first.event(), Some(Event::TaskAnswered { response: 2, .. })));
    first.session.manage(task_function::TARGET_COLD_RESET, 0, 0, 0);
    assert!(matches!(first.event(), Some(Event::TaskAnswered { response: 0, .. })));
    assert!(first.is_hung_up());
    served.stop();
}

#[test]
fn aborted_commands_are_finished_and_not_answered() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    served.disks[0].slow_read.store(200_000_000, Ordering::SeqCst);
    let slow = client.start(0, read(0, 512));
    // Waits behind it, and never begins.
    let write = write(&client.arena, 0, &[9; 512]);
    let ordered = client.start(0, ScsiRequest { attribute: Attribute::Ordered, ..write });
    for itt in [ordered, slow] {
        client.session.manage(task_function::ABORT_TASK, 0, itt, 0);
    }
    for _ in 0..2 {
        assert!(matches!(client.event(), Some(Event::TaskAnswered { response: 0, .. })));
    }
    client.session.forget(slow);
    client.session.forget(ordered);
    assert_eq!(client.read(0, 0, 512), [0; 512]);
    served.stop();
}

#[test]
fn copies_between_units_of_both_cores() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    let data = pattern(3 << 20, 1);
    client.write(0, 0, &data);
    let names: Vec<Vec<u8>> = (0..3).map(|lun| naa(&mut client, lun)).collect();
    for (from, to) in [(0usize, 2usize), (0, 1), (1, 2)] {
        let mut list = vec![0; 16];
        list[3] = 64;
        (list[10], list[11]) = (0, 28);
        for name in [&names[from], &names[to]] {
            let mut target = vec![0xe4, 0, 0, 0, 1, 3, 0, name.len() as u8];
            target.extend(name);
            target.resize(32, 0);
            target[29..32].copy_from_slice(&[0, 2, 0]);
            list.extend(target);
        }
        let mut segment = vec![0x02, 0, 0, 0x18, 0, 0, 0, 1];
        segment.extend([0, 0, ((data.len() / 512) >> 8) as u8, (data.len() / 512) as u8]);
        segment.extend(0u64.to_be_bytes());
        segment.extend((2048u64 * to as u64).to_be_bytes());
        list.extend(segment);
        let mut cdb = [0; 16];
        cdb[0] = 0x83;
        cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
        let data_out = vec![client.arena.copy(&list).freeze()];
        let answer = client.call(0, ScsiRequest { cdb, data_out, ..ScsiRequest::default() });
        assert_eq!(answer.status, 0, "{from} to {to}: {answer:?}");
        let copied = client.read(to as u64, 2048 * 512 * to as u64, data.len());
        let differs = copied.iter().zip(&data).position(|(a, b)| a != b);
        assert_eq!(differs, None, "{from} to {to}");
        // The next copy begins at the start of its source.
        client.write(to as u64, 0, &data);
    }
    served.stop();
}

/// The NAA name of a unit, from its Device Identification page.
fn naa(client: &mut Client, lun: u64) -> Vec<u8> {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[3], cdb[4]) = (0x12, 1, 0x83, 1, 0);
    let page = client.call(lun, ScsiRequest { cdb, expected_in: 256, ..ScsiRequest::default() }).data;
    let mut at = 4;
    while page[at + 1] & 0x0f != 3 {
        at += 4 + usize::from(page[at + 3]);
    }
    page[at + 4..at + 4 + usize::from(page[at + 3])].to_vec()
}

#[test]
fn misaligned_guests_are_told_of() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    for _ in 0..1100 {
        client.read(0, 63 * 512, BLOCK);
    }
    let message = served.event("iscsi.guest.misaligned");
    assert!(message.contains(HOST) && message.contains("pool/disk1"), "{message}");
    served.stop();
}

#[test]
fn residuals_and_lengths_that_lie() {
    let served = Served::new();
    let mut client = Client::open(served.address(0));
    let answer = client.call(0, ScsiRequest { expected_in: 1024, ..read(0, 512) });
    assert_eq!((answer.status, answer.data.len(), answer.residual), (0, 512, Residual::Underflow(512)));
    let answer = client.call(0, ScsiRequest { expected_in: 512, ..read(0, 1024) });
    assert_eq!((answer.data.len(), answer.residual), (512, Residual::Overflow(512)));
    // A megabyte announced, half a kilobyte meant: the rest is not even asked for.
    let long = ScsiRequest { cdb: cdb(0x8a, 0, 512), ..write(&client.arena, 0, &pattern(1 << 20, 3)) };
    let answer = client.call(0, long);
    assert_eq!((answer.status, answer.residual), (0, Residual::Underflow((1 << 20) - 512)));
    assert!(client.read(0, 0, 1024)[..512] == pattern(512, 3) && client.read(0, 512, 512) == [0; 512]);
    served.stop();
}
