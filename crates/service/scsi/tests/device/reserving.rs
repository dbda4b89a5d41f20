//! Reservations as clusters use them: who may do what afterwards, who is told, and what survives.

use crate::blocks::blocks;
use crate::support::*;
use forebay_pool::IoError;
use forebay_runtime::Arena;
use forebay_scsi::{BlockFormat, Op, Outcome, StateError, Status, Step, Unit};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const IGNORE: u8 = 6;
const MOVE: u8 = 7;
const KINDS: [u8; 6] = [1, 3, 5, 6, 7, 8];
const CONFLICT: Status = Status::ReservationConflict;

fn cdb(action: u8, kind: u8, len: usize) -> [u8; 10] {
    let [a, b, c, d] = (len as u32).to_be_bytes();
    [0x5f, action, kind, 0, 0, a, b, c, d, 0]
}

fn parameters(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
    list[20] = flags;
    list
}

fn out(house: &mut House, who: &Initiator, action: u8, kind: u8, key: u64, action_key: u64) -> Answer {
    house.send_data(who, 0, &cdb(action, kind, 24), &parameters(key, action_key, 0))
}

fn inward(house: &mut House, who: &Initiator, action: u8) -> Vec<u8> {
    house.send(who, 0, &[0x5e, action, 0, 0, 0, 0, 0, 0xff, 0xff, 0]).good()
}

fn generation(house: &mut House, who: &Initiator) -> u32 {
    u32::from_be_bytes(inward(house, who, 0)[..4].try_into().expect("four bytes"))
}

fn keys(house: &mut House, who: &Initiator) -> Vec<u64> {
    let data = inward(house, who, 0);
    assert_eq!(data[4..8], (data.len() as u32 - 8).to_be_bytes());
    data[8..].chunks(8).map(|key| u64::from_be_bytes(key.try_into().expect("eight bytes"))).collect()
}

/// Key and type of the reservation.
fn held(house: &mut House, who: &Initiator) -> Option<(u64, u8)> {
    let data = inward(house, who, 1);
    let body = data.get(8..24)?;
    Some((u64::from_be_bytes(body[..8].try_into().expect("eight bytes")), body[13]))
}

/// What an initiator is told next; 0 for nothing.
fn told(house: &mut House, who: &Initiator) -> u16 {
    let answer = house.send(who, 0, &[0; 6]);
    if answer.status == Status::Good { 0 } else { answer.sense().1 }
}

fn reads_and_writes(house: &mut House, who: &Initiator) -> [bool; 2] {
    let read = house.send(who, 0, &blocks(0x28, 0, 0, 1)).status;
    let write = house.send_data(who, 0, &blocks(0x2a, 0, 0, 1), &[1; 512]).status;
    [read, write].map(|status| {
        assert!(matches!(status, Status::Good | CONFLICT), "{status:?}");
        status == Status::Good
    })
}

/// Two registered initiators, and a stranger.
fn three() -> (House, Initiator, Initiator, Initiator) {
    let mut house = House::new(1);
    let (a, b, c) = (house.initiator("a", 1), house.initiator("b", 2), house.initiator("c", 1));
    out(&mut house, &a, REGISTER, 0, 0, 0xa).good();
    out(&mut house, &b, REGISTER, 0, 0, 0xb).good();
    (house, a, b, c)
}

#[test]
fn access_under_each_type() {
    for kind in KINDS {
        let (mut house, a, b, c) = three();
        out(&mut house, &a, RESERVE, kind, 0xa, 0).good();
        let reads = [1, 5, 7].contains(&kind);
        let registrants = kind >= 5;
        assert_eq!(reads_and_writes(&mut house, &a), [true, true], "{kind}: the holder");
        let expected = if registrants { [true, true] } else { [reads, false] };
        assert_eq!(reads_and_writes(&mut house, &b), expected, "{kind}: a registered one");
        assert_eq!(reads_and_writes(&mut house, &c), [reads, false], "{kind}: a stranger");
        // What anybody may send, and what nobody may but those who may write.
        let report = [0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        for cdb in [&[0; 6][..], &[0x12, 0, 0, 0, 36, 0], &report, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
            house.send(&c, 0, cdb).good();
        }
        for cdb in [&blocks(0x35, 0, 0, 0)[..], &blocks(0x93, 1, 0, 1), &[0x1b, 0, 0, 0, 0, 0]] {
            assert_eq!(house.send(&c, 0, cdb).status, CONFLICT, "{kind} {cdb:02x?}");
        }
        assert_eq!(out(&mut house, &c, RESERVE, kind, 0, 0).status, CONFLICT);
        let answer = out(&mut house, &b, RESERVE, kind, 0xb, 0);
        assert_eq!(answer.status == Status::Good, kind >= 7, "all registrants hold it");
        assert_eq!(held(&mut house, &c), Some((if kind >= 7 { 0 } else { 0xa }, kind)));
        // The holder may reserve again, but not differently.
        out(&mut house, &a, RESERVE, kind, 0xa, 0).good();
        let other = if kind == 1 { 3 } else { 1 };
        assert_eq!(out(&mut house, &a, RESERVE, other, 0xa, 0).status, CONFLICT);
    }
}

#[test]
fn registering() {
    let (mut house, a, b, c) = three();
    assert_eq!((generation(&mut house, &a), keys(&mut house, &a)), (2, vec![0xa, 0xb]));
    assert_eq!(out(&mut house, &a, REGISTER, 0, 0, 1).status, CONFLICT, "not its key");
    assert_eq!(out(&mut house, &c, REGISTER, 0, 5, 1).status, CONFLICT, "it has none");
    out(&mut house, &a, REGISTER, 0, 0xa, 0xaa).good();
    out(&mut house, &b, IGNORE, 0, 99, 0xbb).good();
    out(&mut house, &c, IGNORE, 0, 99, 0).good();
    assert_eq!((generation(&mut house, &a), keys(&mut house, &a)), (4, vec![0xaa, 0xbb]));
    out(&mut house, &b, REGISTER, 0, 0xbb, 0).good();
    assert_eq!(keys(&mut house, &a), [0xaa]);
    assert_eq!(out(&mut house, &b, RESERVE, 1, 0xbb, 0).status, CONFLICT);
    assert_eq!(house.send(&a, 0, &[0x5e, 0, 0, 0, 0, 0, 0, 0, 9, 0]).good().len(), 9, "cut, not refused");
    // A list that is too short or too long, a scope, a type.
    for len in [0, 8, 23, 25] {
        let answer = house.send_data(&a, 0, &cdb(REGISTER, 0, len), &vec![0; len]);
        assert_eq!(answer.sense(), (5, 0x1a00), "{len}");
    }
    assert_eq!(out(&mut house, &a, RESERVE, 0x11, 0xaa, 0).field(), (true, 2, Some(7)));
    assert_eq!(out(&mut house, &a, RESERVE, 2, 0xaa, 0).field(), (true, 2, Some(3)));
}

#[test]
fn capabilities_and_full_status() {
    let (mut house, a, b, _) = three();
    assert_eq!(inward(&mut house, &a, 2), [0, 8, 0x1d, 0x80, 0xea, 0x01, 0, 0]);
    out(&mut house, &b, RESERVE, 5, 0xb, 0).good();
    let descriptor = |who: &Initiator, key: u64, flags: u8, kind: u8| {
        let id = who.nexus.initiator.transport_id();
        let mut bytes = key.to_be_bytes().to_vec();
        bytes.extend([0, 0, 0, 0, flags, kind, 0, 0, 0, 0]);
        bytes.extend(who.nexus.portal_group.to_be_bytes());
        bytes.extend((id.len() as u32).to_be_bytes());
        bytes.extend(id);
        bytes
    };
    let body = [descriptor(&a, 0xa, 0, 0), descriptor(&b, 0xb, 1, 5)].concat();
    let expected = [&2u32.to_be_bytes()[..], &(body.len() as u32).to_be_bytes(), &body].concat();
    assert_eq!(inward(&mut house, &a, 3), expected);
}

#[test]
fn releasing_tells_those_who_shared() {
    for kind in KINDS {
        let (mut house, a, b, c) = three();
        out(&mut house, &a, RESERVE, kind, 0xa, 0).good();
        let other = if kind == 1 { 3 } else { 1 };
        assert_eq!(out(&mut house, &a, RELEASE, other, 0xa, 0).sense(), (5, 0x2604));
        if kind < 7 {
            out(&mut house, &b, RELEASE, kind, 0xb, 0).good();
            assert!(held(&mut house, &a).is_some(), "not the holder's release");
        }
        assert_eq!(out(&mut house, &a, RELEASE, kind, 0xb, 0).status, CONFLICT, "not its key");
        let before = generation(&mut house, &a);
        out(&mut house, &a, RELEASE, kind, 0xa, 0).good();
        assert_eq!((held(&mut house, &a), generation(&mut house, &a)), (None, before));
        let expected = if kind >= 5 { 0x2a04 } else { 0 };
        assert_eq!([told(&mut house, &a), told(&mut house, &b), told(&mut house, &c)], [0, expected, 0]);
        out(&mut house, &a, RELEASE, kind, 0xa, 0).good();
    }
}

#[test]
fn a_holder_that_unregisters_releases() {
    for kind in KINDS {
        let (mut house, a, b, _) = three();
        out(&mut house, &a, RESERVE, kind, 0xa, 0).good();
        out(&mut house, &a, REGISTER, 0, 0xa, 0).good();
        let expected = if kind >= 7 { Some((0, kind)) } else { None };
        assert_eq!(told(&mut house, &b), if matches!(kind, 5 | 6) { 0x2a04 } else { 0 });
        assert_eq!(held(&mut house, &b), expected, "{kind}");
        out(&mut house, &b, REGISTER, 0, 0xb, 0).good();
        assert_eq!(held(&mut house, &b), None);
    }
}

#[test]
fn clearing() {
    let (mut house, a, b, c) = three();
    out(&mut house, &a, RESERVE, 3, 0xa, 0).good();
    assert_eq!(out(&mut house, &c, CLEAR, 0, 0, 0).status, CONFLICT);
    out(&mut house, &b, CLEAR, 0, 0xb, 0).good();
    assert_eq!((told(&mut house, &a), told(&mut house, &b)), (0x2a03, 0));
    assert_eq!((keys(&mut house, &c), held(&mut house, &c)), (vec![], None));
    assert_eq!(reads_and_writes(&mut house, &c), [true, true]);
}

#[test]
fn preempting_fences() {
    for kind in KINDS {
        for action in [PREEMPT, PREEMPT_AND_ABORT] {
            let (mut house, a, b, c) = three();
            out(&mut house, &c, REGISTER, 0, 0, 0xc).good();
            out(&mut house, &a, RESERVE, kind, 0xa, 0).good();
            // The holder's key; where all hold it, no key means everybody.
            let victim = if kind >= 7 { 0 } else { 0xa };
            assert_eq!(out(&mut house, &b, action, kind, 0xa, victim).status, CONFLICT, "not its own key");
            out(&mut house, &b, action, kind, 0xb, victim).good();
            assert_eq!(held(&mut house, &b), Some((if kind >= 7 { 0 } else { 0xb }, kind)));
            assert_eq!(keys(&mut house, &b), if kind >= 7 { vec![0xb] } else { vec![0xb, 0xc] });
            assert_eq!(told(&mut house, &a), 0x2a05, "{kind}");
            assert_eq!(told(&mut house, &c), if kind >= 7 { 0x2a05 } else { 0 });
            assert!(!reads_and_writes(&mut house, &a)[1], "{kind}: fenced");
            let aborted = house.units[0].1.aborted.clone();
            assert_eq!(aborted.contains(&a.ids[0]), action == PREEMPT_AND_ABORT);
            assert!(!aborted.contains(&b.ids[0]));
        }
    }
}

#[test]
fn preempting_registrations_alone() {
    let (mut house, a, b, c) = three();
    out(&mut house, &c, REGISTER, 0, 0, 0xb).good();
    out(&mut house, &a, RESERVE, 5, 0xa, 0).good();
    // Everybody with this key, and the reservation stays.
    out(&mut house, &a, PREEMPT, 1, 0xa, 0xb).good();
    assert_eq!((keys(&mut house, &a), held(&mut house, &a)), (vec![0xa], Some((0xa, 5))));
    assert_eq!([told(&mut house, &a), told(&mut house, &b), told(&mut house, &c)], [0, 0x2a05, 0x2a05]);
    assert_eq!(out(&mut house, &a, PREEMPT, 1, 0xa, 0xb).status, CONFLICT, "nobody has it");
    assert_eq!(out(&mut house, &a, PREEMPT, 1, 0xa, 0).field(), (false, 8, None));
    // One that takes its own reservation over changes the type, and the others who shared it are told.
    out(&mut house, &b, REGISTER, 0, 0, 0xb).good();
    out(&mut house, &a, PREEMPT, 1, 0xa, 0xa).good();
    assert_eq!((held(&mut house, &a), told(&mut house, &b)), (Some((0xa, 1)), 0x2a04));
    // Without a reservation, its own key is its own registration.
    out(&mut house, &a, RELEASE, 1, 0xa, 0).good();
    out(&mut house, &a, PREEMPT, 1, 0xa, 0xa).good();
    assert_eq!(keys(&mut house, &a), [0xb]);
}

#[test]
fn a_shared_reservation_ends_with_its_last_registration() {
    let (mut house, a, b, _) = three();
    out(&mut house, &a, RESERVE, 7, 0xa, 0).good();
    out(&mut house, &b, PREEMPT, 7, 0xb, 0xa).good();
    assert_eq!((keys(&mut house, &b), held(&mut house, &b)), (vec![0xb], Some((0, 7))));
    out(&mut house, &b, PREEMPT, 7, 0xb, 0xb).good();
    assert_eq!((keys(&mut house, &b), held(&mut house, &b)), (vec![], None));
}

fn move_list(key: u64, next_key: u64, flags: u8, port: u16, id: &[u8]) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), next_key.to_be_bytes()].concat();
    list.extend([0, flags]);
    list.extend(port.to_be_bytes());
    list.extend((id.len() as u32).to_be_bytes());
    list.extend(id);
    list
}

#[test]
fn moving() {
    let (mut house, a, b, c) = three();
    let id = c.nexus.initiator.transport_id();
    let send = |house: &mut House, who: &Initiator, list: &[u8]| {
        house.send_data(who, 0, &cdb(MOVE, 0, list.len()), list)
    };
    let right = move_list(0xa, 0xc, 0, 1, &id);
    assert_eq!(send(&mut house, &a, &right).status, CONFLICT, "nothing to move");
    out(&mut house, &a, RESERVE, 3, 0xa, 0).good();
    assert_eq!(send(&mut house, &b, &move_list(0xb, 0xc, 0, 1, &id)).status, CONFLICT, "not the holder");
    assert_eq!(send(&mut house, &a, &move_list(0xa, 0, 0, 1, &id)).field(), (false, 8, None));
    assert_eq!(send(&mut house, &a, &move_list(0xa, 0xc, 0, 9, &id)).field(), (false, 18, None));
    let own = a.nexus.initiator.transport_id();
    assert_eq!(send(&mut house, &a, &move_list(0xa, 0xc, 0, 1, &own)).field(), (false, 24, None));
    assert_eq!(send(&mut house, &a, &right[..40]).sense(), (5, 0x1a00));
    send(&mut house, &a, &right).good();
    assert_eq!((keys(&mut house, &a), held(&mut house, &a)), (vec![0xa, 0xb, 0xc], Some((0xc, 3))));
    assert_eq!(reads_and_writes(&mut house, &c), [true, true]);
    assert_eq!(reads_and_writes(&mut house, &a), [false, false]);
    // And on, leaving nothing behind.
    let back = move_list(0xc, 0xbb, 2, 2, &b.nexus.initiator.transport_id());
    send(&mut house, &c, &back).good();
    assert_eq!((keys(&mut house, &a), held(&mut house, &a)), (vec![0xa, 0xbb], Some((0xbb, 3))));
}

#[test]
fn registering_for_others_and_for_all_ports() {
    let mut house = House::new(1);
    let (a, b) = (house.initiator("a", 1), house.initiator("b", 1));
    let b2 = house.initiator("b", 2);
    let with_ids = |flags: u8, ids: &[u8]| {
        let mut list = parameters(0, 0xa, flags);
        list.extend((ids.len() as u32).to_be_bytes());
        list.extend(ids);
        list
    };
    let send = |house: &mut House, list: &[u8]| house.send_data(&a, 0, &cdb(REGISTER, 0, list.len()), list);
    let id = b.nexus.initiator.transport_id();
    assert_eq!(send(&mut house, &with_ids(8, &id[..40])).field(), (false, 28, None));
    assert_eq!(send(&mut house, &with_ids(8, &a.nexus.initiator.transport_id())).sense(), (5, 0x2600));
    assert_eq!(keys(&mut house, &a), []);
    send(&mut house, &with_ids(8, &id)).good();
    assert_eq!(keys(&mut house, &a), [0xa, 0xa]);
    out(&mut house, &b, RESERVE, 5, 0xa, 0).good();
    assert_eq!(out(&mut house, &b2, RESERVE, 5, 0xa, 0).status, CONFLICT, "another port of the target");
    assert_eq!(
        house.send_data(&a, 0, &cdb(IGNORE, 0, 24), &parameters(0, 1, 8)).field(),
        (false, 20, Some(3))
    );

    // A name without a port stands for the ports that are there.
    out(&mut house, &a, CLEAR, 0, 0xa, 0).good();
    assert_eq!(told(&mut house, &b), 0x2a03);
    let mut device = vec![0x05, 0, 0, 24];
    device.extend(b"iqn.2026-11.example:b\0\0\0");
    send(&mut house, &with_ids(8, &device)).good();
    out(&mut house, &b, RESERVE, 5, 0xa, 0).good();

    // All target ports at once, which full status tells.
    out(&mut house, &a, CLEAR, 0, 0xa, 0).good();
    assert_eq!(told(&mut house, &b), 0x2a03);
    house.send_data(&b, 0, &cdb(REGISTER, 0, 24), &parameters(0, 0xb, 4)).good();
    assert_eq!(inward(&mut house, &a, 3)[20], 2);
    out(&mut house, &b2, RESERVE, 5, 0xb, 0).good();
    assert_eq!(keys(&mut house, &a), [0xb, 0xb]);
}

#[test]
fn reservations_that_persist_come_back() {
    let mut house = House::new(1);
    let (a, b) = (house.initiator("a", 1), house.initiator("b", 2));
    house.send_data(&a, 0, &cdb(REGISTER, 0, 24), &parameters(0, 0xa, 1)).good();
    assert_eq!(inward(&mut house, &a, 2)[3], 0x81, "PTPL_A");
    out(&mut house, &a, RESERVE, 3, 0xa, 0).good();
    let stored = house.units[0].1.stored.clone().expect("stored before it was acknowledged");

    // A restart: the unit is made again, from what was stored.
    let arena = Arena::new();
    let unit =
        Unit::new(config(0, BlockFormat::B512), arena.clone(), Some(&stored)).expect("what was stored");
    house.units[0].0 = unit;
    let (a, b) = (house.initiator("a", 1), {
        drop(b);
        house.initiator("b", 2)
    });
    assert_eq!((keys(&mut house, &a), held(&mut house, &a)), (vec![0xa], Some((0xa, 3))));
    assert_eq!(reads_and_writes(&mut house, &a), [true, true]);
    assert_eq!(reads_and_writes(&mut house, &b), [false, false], "fenced since before the restart");

    let mut damaged = stored.clone();
    damaged[50] ^= 1;
    let refused = Unit::new(config(0, BlockFormat::B512), arena.clone(), Some(&damaged)).err();
    assert_eq!(refused, Some(StateError::Corrupt));

    // The last registration says that nothing is to be kept.
    house.send_data(&a, 0, &cdb(IGNORE, 0, 24), &parameters(0, 0xaa, 0)).good();
    let stored = house.units[0].1.stored.clone().expect("stored");
    let mut unit = Unit::new(config(0, BlockFormat::B512), arena, Some(&stored)).expect("what was stored");
    std::mem::swap(&mut house.units[0].0, &mut unit);
    let a = house.initiator("a", 1);
    assert_eq!((keys(&mut house, &a), held(&mut house, &a)), (vec![], None));
}

#[test]
fn a_change_counts_when_it_is_stored() {
    let (mut house, a, b, c) = three();
    let list = parameters(0xa, 0xaa, 1);
    let Step::Medium(Op::Persist(_), task) = house.begin(&a, 0, &cdb(REGISTER, 0, 24), &list, 24) else {
        panic!("to be stored first")
    };
    assert_eq!(keys(&mut house, &b), [0xa, 0xb], "not yet");
    assert_eq!(out(&mut house, &b, RESERVE, 1, 0xb, 0).status, Status::Busy);
    house.send(&c, 0, &blocks(0x28, 0, 0, 1)).good();
    let Step::Done(response) = house.resume(0, task, Err(IoError::Suspended)) else { panic!("failed") };
    assert_eq!((response.status, response.sense[2]), (Status::CheckCondition, 2));
    assert_eq!(keys(&mut house, &b), [0xa, 0xb], "a change that was not stored never was");
    let Step::Medium(Op::Persist(_), task) = house.begin(&a, 0, &cdb(REGISTER, 0, 24), &list, 24) else {
        panic!("to be stored first")
    };
    // Its session may end meanwhile.
    house.log_out(&a);
    let Step::Done(response) = house.resume(0, task, Ok(Outcome::Done)) else { panic!("done") };
    assert_eq!(response.status, Status::Good);
    assert_eq!(keys(&mut house, &b), [0xaa, 0xb]);
}

#[test]
fn the_older_reserve() {
    let mut house = House::new(1);
    let (a, b) = (house.initiator("a", 1), house.initiator("b", 1));
    let (reserve, release) = ([0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]);
    house.send(&a, 0, &reserve).good();
    house.send(&a, 0, &reserve).good();
    for cdb in [&reserve[..], &[0; 6], &blocks(0x28, 0, 0, 1), &[0x1a, 8, 8, 0, 255, 0]] {
        assert_eq!(house.send(&b, 0, cdb).status, CONFLICT, "{cdb:02x?}");
    }
    for cdb in [&release[..], &[0x12, 0, 0, 0, 36, 0], &[0x03, 0, 0, 0, 18, 0]] {
        house.send(&b, 0, cdb).good();
    }
    assert_eq!(out(&mut house, &a, REGISTER, 0, 0, 1).status, CONFLICT, "not both kinds");
    assert_eq!(reads_and_writes(&mut house, &a), [true, true]);
    house.send(&a, 0, &release).good();
    house.send(&b, 0, &[0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    assert_eq!(house.send(&a, 0, &[0; 6]).status, CONFLICT);
    // It goes with its session, or with a reset.
    house.log_out(&b);
    house.send(&a, 0, &[0; 6]).good();
    house.send(&a, 0, &reserve).good();
    house.units[0].0.reset();
    let b = house.initiator("b", 1);
    house.send(&b, 0, &reserve).good();
    house.send(&b, 0, &[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    // Third-party and extent reservations.
    assert_eq!(told(&mut house, &a), 0x2903);
    assert_eq!(house.send(&a, 0, &[0x16, 0x10, 0, 0, 0, 0]).field(), (true, 1, Some(4)));
    assert_eq!(house.send(&a, 0, &[0x56, 0x02, 0, 0, 0, 0, 0, 0, 0, 0]).field(), (true, 1, Some(1)));
}

/// CRH: beside registrations, RESERVE and RELEASE are granted to those who have what they ask for already.
#[test]
fn the_older_reserve_beside_persistent_ones() {
    for kind in KINDS {
        let (mut house, a, b, c) = three();
        for who in [&a, &c] {
            assert_eq!(house.send(who, 0, &[0x16, 0, 0, 0, 0, 0]).status, CONFLICT);
        }
        out(&mut house, &a, RESERVE, kind, 0xa, 0).good();
        for opcode in [0x16, 0x17] {
            let cdb = [opcode, 0, 0, 0, 0, 0];
            house.send(&a, 0, &cdb).good();
            assert_eq!(house.send(&b, 0, &cdb).status == Status::Good, kind >= 5, "{kind}");
            assert_eq!(house.send(&c, 0, &cdb).status, CONFLICT);
        }
        assert_eq!(reads_and_writes(&mut house, &a), [true, true]);
    }
}

#[test]
fn sessions_come_and_go_but_registrations_stay() {
    let (mut house, mut a, b, c) = three();
    out(&mut house, &a, RESERVE, 1, 0xa, 0).good();
    house.log_out(&a);
    assert_eq!(reads_and_writes(&mut house, &b), [true, false]);
    house.log_in(&mut a);
    assert_eq!(told(&mut house, &a), 0x2900);
    assert_eq!(reads_and_writes(&mut house, &a), [true, true]);
    house.units[0].0.reset();
    assert_eq!([told(&mut house, &a), told(&mut house, &b), told(&mut house, &c)], [0x2903; 3]);
    assert_eq!((keys(&mut house, &c), held(&mut house, &c)), (vec![0xa, 0xb], Some((0xa, 1))));
}
