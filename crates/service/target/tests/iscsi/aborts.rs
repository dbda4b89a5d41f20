//! Are commands that wait at their host's ceiling dropped at once when they are not wanted any more: aborted, reset by their own session or
//! another, of a session that is replaced, of an initiator that has gone? On the session's core and on another.
//!
//! Method: writes that would take half a minute. What matters is how many have been carried out when it is over, so answers and
//! what is on the disk are counted, and no time is taken.

use crate::house::{Host, MemoryDisk, mapping};
use crate::support::{Client, HOST, Served, eventually, test_unit_ready, wanted, write};
use forebay_iscsi::Attribute;
use forebay_iscsi::initiator::{Event, ScsiRequest};
use forebay_iscsi::wire::task_function;
use forebay_pool::{Ceiling, Rate};
use forebay_target::Proof;
use std::sync::Arc;
use std::time::Duration;

const WRITES: usize = 32;
/// One write, and what the host may write in a second.
const LEN: usize = 256 << 10;

/// A host with its writes at its ceiling.
struct Held {
    served: Served,
    client: Client,
    lun: u64,
    /// Of those that have not been answered.
    itts: Vec<u32>,
}

fn content(nth: usize) -> Vec<u8> {
    vec![nth as u8 + 1; LEN]
}

impl Held {
    /// The writes go to this unit: 0 is on the session's core, 1 on the other.
    fn at(lun: u64) -> Held {
        let served = Served::new();
        let ceiling = Ceiling::new(Rate { iops: 0, bytes: LEN as u64 }, Duration::ZERO);
        served.table.0.lock().unwrap().get_mut(HOST).unwrap().ceiling = Some(Arc::new(ceiling));
        let mut client = Client::open(served.address(0));
        let start = |nth: usize| {
            let request = write(&client.arena, (nth * LEN) as u64, &content(nth));
            client.session.command(ScsiRequest { lun: lun << 48, ..request }).expect("the window is open")
        };
        let itts = (0..WRITES).map(start).collect();
        client.flush();
        // With the three by which the units said that they had been powered on.
        eventually(|| served.server.sessions()[0].commands == WRITES as u64 + 3);
        Held { served, client, lun, itts }
    }

    fn disk(&self) -> &MemoryDisk {
        &self.served.disks[self.lun as usize]
    }

    /// Manages tasks; how many writes were answered before that was.
    fn manage(&mut self, function: u8, itt: u32) -> usize {
        self.client.session.manage(function, self.lun << 48, itt, 0);
        let mut answered = 0;
        loop {
            match self.client.event().expect("the session goes on") {
                Event::Completed { status, itt, .. } => {
                    assert_eq!(status, 0);
                    self.itts.retain(|known| *known != itt);
                    answered += 1;
                }
                Event::TaskAnswered { response, .. } => {
                    assert_eq!(response, 0);
                    return answered;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// How many writes are on the disk, each of them whole.
    fn written(&self) -> usize {
        let mut data = vec![0; LEN];
        let is_there = |nth: usize, data: &mut Vec<u8>| {
            self.disk().copy_out((nth * LEN) as u64, data);
            let is_new = *data == content(nth);
            assert!(is_new || data.iter().all(|byte| *byte == 0), "write {nth} is there in part");
            is_new
        };
        (0..WRITES).filter(|nth| is_there(*nth, &mut data)).count()
    }

    /// Nothing waits for the ceiling any more; and still nothing that was given up is written.
    fn lift(&self) -> usize {
        let before = self.written();
        self.served.table.0.lock().unwrap().get_mut(HOST).unwrap().ceiling = None;
        self.served.server.access_changed();
        let mut other = wanted(HOST);
        other.isid[5] = 77;
        let mut client = Client::log_in(self.served.address(0), other).unwrap();
        assert_eq!(client.call(self.lun, test_unit_ready()).sense.map(|sense| sense.0), Some(6));
        client.write(self.lun, (WRITES * LEN) as u64, &content(200));
        assert_eq!(self.written(), before);
        before
    }
}

#[test]
fn a_reset_does_not_wait_for_commands_at_a_ceiling() {
    for lun in [0, 1] {
        for function in [task_function::LUN_RESET, task_function::ABORT_TASK_SET] {
            let mut held = Held::at(lun);
            let answered = held.manage(function, u32::MAX);
            let written = held.lift();
            assert!(answered <= written && written < WRITES / 2, "{answered}, {written}");
            std::mem::take(&mut held.itts).into_iter().for_each(|itt| held.client.session.forget(itt));
            let after = held.client.call(lun, test_unit_ready());
            let expected = (function == task_function::LUN_RESET).then_some((6, 0x2903));
            assert_eq!(after.sense, expected, "the session goes on");
            held.served.stop();
        }
    }
}

#[test]
fn a_task_at_a_ceiling_is_aborted_at_once_also_an_ordered_one() {
    for lun in [0, 1] {
        let mut held = Held::at(lun);
        let request = write(&held.client.arena, (40 * LEN) as u64, &content(0));
        let ordered = held.client.start(lun, ScsiRequest { attribute: Attribute::Ordered, ..request });
        let behind = held.client.start(lun, test_unit_ready());
        held.client.flush();
        let last = *held.itts.last().expect("32 writes");
        let mut answered = 0;
        for itt in [behind, ordered, last] {
            answered += held.manage(task_function::ABORT_TASK, itt);
        }
        assert!(answered < WRITES / 2, "{answered}");
        held.itts.retain(|itt| *itt != last);
        [behind, ordered, last].into_iter().for_each(|itt| held.client.session.forget(itt));
        // All others are carried out.
        held.served.table.0.lock().unwrap().get_mut(HOST).unwrap().ceiling = None;
        held.served.server.access_changed();
        for _ in 0..held.itts.len() {
            assert_eq!(held.client.answer().status, 0);
        }
        assert_eq!(held.written(), WRITES - 1);
        let mut data = vec![0; LEN];
        for nth in [WRITES - 1, 40] {
            held.disk().copy_out((nth * LEN) as u64, &mut data);
            assert!(data.iter().all(|byte| *byte == 0), "write {nth} was aborted");
        }
        held.served.stop();
    }
}

#[test]
fn a_reset_by_another_initiator_does_not_wait_for_them_either() {
    for lun in [0, 1] {
        let held = Held::at(lun);
        let host = Host { proof: Proof::Name, luns: vec![mapping(9, held.disk())], ceiling: None };
        held.served.table.0.lock().unwrap().insert("iqn.other".into(), host);
        let mut other = Client::log_in(held.served.address(0), wanted("iqn.other")).unwrap();
        assert_eq!(other.call(9, test_unit_ready()).sense, Some((6, 0x2900)));
        other.session.manage(task_function::LUN_RESET, 9 << 48, u32::MAX, 0);
        assert!(matches!(other.event(), Some(Event::TaskAnswered { response: 0, .. })));
        assert!(held.lift() < WRITES / 2);
        held.served.stop();
    }
}

#[test]
fn a_login_that_replaces_a_session_does_not_wait_for_its_commands() {
    for lun in [0, 1] {
        let mut held = Held::at(lun);
        let second = Client::log_in(held.served.address(0), wanted(HOST)).unwrap();
        assert!(held.client.is_hung_up());
        assert_eq!(held.served.server.sessions().len(), 1);
        assert!(held.lift() < WRITES / 2);
        drop(second);
        held.served.stop();
    }
}

#[test]
fn commands_of_an_initiator_that_has_gone_are_dropped() {
    for lun in [0, 1] {
        let mut held = Held::at(lun);
        let path = Client::log_in(held.served.address(1), wanted(HOST)).unwrap();
        let gone = std::mem::replace(&mut held.client, path);
        drop(gone);
        eventually(|| held.served.server.sessions().len() == 1);
        assert!(held.lift() < WRITES / 2);
        held.served.stop();
    }
}

/// Another initiator clears the task set while commands are on their way between the session's core and the unit's. Whether they are answered or not,
/// the initiator is told: the attention does not go with a command that is not answered.
#[test]
fn what_a_clear_tells_is_heard_also_between_cores() {
    let served = Served::new();
    let host = Host { proof: Proof::Name, luns: vec![mapping(9, &served.disks[1])], ceiling: None };
    served.table.0.lock().unwrap().insert("iqn.other".into(), host);
    let mut other = Client::log_in(served.address(0), wanted("iqn.other")).unwrap();
    assert_eq!(other.call(9, test_unit_ready()).sense, Some((6, 0x2900)));
    let mut client = Client::open(served.address(0));
    for round in 0..300 {
        let mut itts: Vec<u32> = (0..64).map(|_| client.start(1, test_unit_ready())).collect();
        client.flush();
        other.session.manage(task_function::CLEAR_TASK_SET, 9 << 48, u32::MAX, 0);
        assert!(matches!(other.event(), Some(Event::TaskAnswered { response: 0, .. })));
        // Behind all of them: what the unit has not answered before it will not be answered. What both cores answer at one moment is sent in no
        // certain order, so two more follow, each sent when the one before it has been answered.
        let mut told = Vec::new();
        for attribute in [Attribute::Ordered, Attribute::Simple, Attribute::Simple] {
            let fence = client.start(1, ScsiRequest { attribute, ..test_unit_ready() });
            loop {
                let answer = client.answer();
                told.push((answer.itt, answer.status, answer.sense));
                itts.retain(|itt| *itt != answer.itt);
                if answer.itt == fence {
                    break;
                }
            }
        }
        let is_told = told.iter().any(|(_, _, sense)| *sense == Some((6, 0x2f00)));
        assert!(is_told, "round {round}: {told:?}, unanswered {itts:?}");
        itts.into_iter().for_each(|itt| client.session.forget(itt));
    }
    served.stop();
}
