//! What a target makes of PDUs that no well-behaved initiator sends.

use crate::support::{Pair, bytes, cdb, pattern};
use forebay_iscsi::initiator::{Event, ScsiRequest};
use forebay_iscsi::pdu::{DataOut, LoginRequest, R2t, ScsiCommand, Snack, TextRequest};
use forebay_iscsi::wire::{TAG_NONE, opcode, task_function};
use forebay_iscsi::{Closed, IMMEDIATE_MAX, PART, Parameters, Violation};

fn solicited() -> Parameters {
    Parameters { initial_r2t: true, immediate_data: false, ..Parameters::TARGET }
}

fn command(pair: &Pair, itt: u32, flags: u8, opcode: u8, len: u32) -> ScsiCommand {
    let cmd_sn = pair.initiator.next_cmd_sn();
    ScsiCommand {
        flags,
        itt,
        expected_len: len,
        cmd_sn,
        cdb: cdb(opcode, 0, len as usize),
        ..ScsiCommand::default()
    }
}

/// Sends a command of our own making, which takes a CmdSN.
fn send(pair: &mut Pair, command: ScsiCommand, ahs: &[u8], data: &[u8]) {
    pair.initiator.raw().additional(command.encode(), ahs, data);
    pair.initiator.set_next_cmd_sn(command.cmd_sn.wrapping_add(1));
}

/// What the target says, without the initiator's understanding of it.
fn exchange(pair: &mut Pair) -> Vec<(forebay_iscsi::pdu::Bhs, Vec<u8>)> {
    let stream = bytes(&pair.initiator.take_batch(&pair.arena));
    let now = pair.now;
    pair.target.handle_input(now, &mut &stream[..], &pair.arena);
    pair.act();
    let answers = bytes(&pair.target.take_batch(&pair.arena));
    let mut receiver = forebay_iscsi::Receiver::new(false, false, 1 << 20);
    let (mut rest, mut pdus) = (&answers[..], Vec::new());
    while let Some(piece) = receiver.next(&mut rest).unwrap() {
        match piece {
            forebay_iscsi::Piece::Header(bhs) => pdus.push((bhs, Vec::new())),
            forebay_iscsi::Piece::Data(data) => pdus.last_mut().unwrap().1.extend(data),
            forebay_iscsi::Piece::End { .. } => {}
        }
    }
    pdus
}

fn plain() -> Parameters {
    Parameters { header_digest: false, data_digest: false, ..Parameters::TARGET }
}

/// SCSI status, sense key, additional code and qualifier.
type Fault = (u8, [u8; 3]);

/// Status and, of sense data, key, code and qualifier.
fn fault(pdus: &[(forebay_iscsi::pdu::Bhs, Vec<u8>)]) -> Option<Fault> {
    let (bhs, data) = pdus.iter().find(|(bhs, _)| bhs.opcode() == opcode::SCSI_RESPONSE)?;
    Some((bhs.0[3], [data[4], data[14], data[15]]))
}

fn rejects(pdus: &[(forebay_iscsi::pdu::Bhs, Vec<u8>)]) -> Vec<u8> {
    pdus.iter().filter(|(bhs, _)| bhs.opcode() == opcode::REJECT).map(|(bhs, _)| bhs.0[2]).collect()
}

#[test]
fn commands_that_cannot_be_are_answered_with_their_sense() {
    let refused = Parameters { header_digest: false, data_digest: false, ..solicited() };
    let unexpected = (2, [0x0b, 0x0c, 0x0c]);
    let table: [(Parameters, u8, u32, &[u8], usize, Fault); 7] = [
        // Bidirectional, by flags and by header; a longer CDB.
        (plain(), 0xe1, 512, &[], 0, (2, [5, 0x0e, 3])),
        (plain(), 0xc1, 512, &[0, 5, 2, 0, 0, 0, 2, 0], 0, (2, [5, 0x0e, 3])),
        (plain(), 0xc1, 512, &[0, 5, 1, 0, 0, 0, 2, 0], 0, (2, [5, 0x20, 0])),
        // Data that were not agreed on, are too many, or belong to no write.
        (refused, 0xa1, 512, &[], 512, unexpected),
        (plain(), 0xc1, 512, &[], 512, unexpected),
        (plain(), 0xa1, 512, &[], 1024, (2, [0x0b, 0x0c, 0x0d])),
        (Parameters { first_burst_max: 512, ..plain() }, 0xa1, 4096, &[], 1024, unexpected),
    ];
    for (parameters, flags, len, ahs, data, expected) in table {
        let mut pair = Pair::new(parameters, parameters);
        let command = command(&pair, 7, flags, 0x2a, len);
        send(&mut pair, command, ahs, &pattern(data, 1));
        let pdus = exchange(&mut pair);
        assert_eq!(fault(&pdus), Some(expected), "{flags:#x} {ahs:?} {data}");
        assert!(pair.disk.iter().all(|&byte| byte == 0));
        // It had its turn, and the session goes on.
        let read = pair.read(0, 512);
        pair.initiator.command(read).unwrap();
        assert_eq!(exchange(&mut pair)[0].0.opcode(), opcode::DATA_IN);
        assert_eq!((pair.target.memory(), pair.target.commands()), (0, 0));
    }
}

#[test]
fn unsolicited_data_are_refused_when_they_were_not_agreed_on() {
    let parameters = Parameters { header_digest: false, data_digest: false, ..solicited() };
    let mut pair = Pair::new(parameters, parameters);
    let command = command(&pair, 7, 0x21, 0x2a, 1024);
    send(&mut pair, command, &[], &[]);
    assert!(exchange(&mut pair).is_empty(), "the data are awaited, to be dropped");
    let data = DataOut { flags: 0x80, itt: 7, ttt: TAG_NONE, ..DataOut::default() };
    pair.initiator.raw().bytes(data.encode(), &[1; 1024]);
    assert_eq!(fault(&exchange(&mut pair)), Some((2, [0x0b, 0x0c, 0x0c])));
    assert_eq!(pair.target.memory(), 0);
}

#[test]
fn data_out_of_order_fail_their_command() {
    let parameters = Parameters { header_digest: false, data_digest: false, burst_max: 1024, ..solicited() };
    let amount = (2, [0x0b, 0x0c, 0x0d]);
    let phase = (2, [0x0b, 0x4b, 0]);
    // DataSN, offset, length, last: of the first PDU for the first of two R2Ts, 1024 bytes each.
    for (data_sn, offset, len, last, expected) in [
        (1, 0, 1024, true, phase),
        (0, 512, 512, true, phase),
        (0, 0, 1028, true, amount),
        (0, 0, 512, true, amount),
        (0, u32::MAX, 512, true, phase),
    ] {
        let mut pair = Pair::new(parameters, parameters);
        let command = command(&pair, 7, 0xa1, 0x2a, 2048);
        send(&mut pair, command, &[], &[]);
        let asked: Vec<R2t> = exchange(&mut pair).iter().map(|(bhs, _)| R2t::decode(bhs)).collect();
        assert_eq!(asked.len(), 2);
        let data = DataOut {
            flags: if last { 0x80 } else { 0 },
            itt: 7,
            ttt: asked[0].ttt,
            data_sn,
            buffer_offset: offset,
            ..DataOut::default()
        };
        pair.initiator.raw().bytes(data.encode(), &pattern(len, 3));
        let pdus = exchange(&mut pair);
        assert_eq!((rejects(&pdus), fault(&pdus)), (vec![4], None), "the rest is awaited");
        let data = DataOut { flags: 0x80, ttt: asked[1].ttt, data_sn: 0, buffer_offset: 1024, ..data };
        pair.initiator.raw().bytes(data.encode(), &pattern(1024, 3));
        assert_eq!(fault(&exchange(&mut pair)), Some(expected), "{data_sn} {offset} {len}");
        assert!(pair.disk.iter().all(|&byte| byte == 0));
        assert_eq!((pair.target.memory(), pair.target.commands()), (0, 0));
    }
}

#[test]
fn stale_and_invented_tags_are_rejected() {
    let parameters = Parameters { header_digest: false, data_digest: false, ..solicited() };
    let mut pair = Pair::new(parameters, parameters);
    pair.paused = true;
    let data = DataOut { flags: 0x80, itt: 7, ttt: 3, ..DataOut::default() };
    pair.initiator.raw().bytes(data.encode(), &[1; 512]);
    assert_eq!(rejects(&exchange(&mut pair)), [9], "no such task");
    let write = command(&pair, 7, 0xa1, 0x2a, 512);
    send(&mut pair, write, &[], &[]);
    let ttt = R2t::decode(&exchange(&mut pair)[0].0).ttt;
    pair.initiator.raw().bytes(DataOut { ttt: ttt + 1, ..data }.encode(), &[1; 512]);
    assert_eq!(rejects(&exchange(&mut pair)), [9], "no such transfer");
    pair.initiator.raw().bytes(DataOut { ttt, ..data }.encode(), &[1; 512]);
    assert!(exchange(&mut pair).is_empty());
    pair.initiator.raw().bytes(DataOut { ttt, ..data }.encode(), &[2; 512]);
    assert_eq!(rejects(&exchange(&mut pair)), [9], "it has come already");
    // The same tag again while the command runs; its CmdSN stays to be used.
    let again = command(&pair, 7, 0x81, 0x28, 0);
    pair.initiator.raw().pdu(again.encode());
    assert_eq!(rejects(&exchange(&mut pair)), [7]);
    pair.initiator.raw().pdu(ScsiCommand { itt: TAG_NONE, ..again }.encode());
    assert_eq!(rejects(&exchange(&mut pair)), [9]);
    let command = pair.commands.pop_front().unwrap();
    assert_eq!(bytes(&command.data), [1; 512]);
    pair.execute(command);
    send(&mut pair, again, &[], &[]);
    exchange(&mut pair);
    assert_eq!(pair.commands.len(), 1, "the tag is free again");
}

#[test]
fn data_for_an_aborted_command_are_dropped_without_a_word() {
    let parameters = Parameters { header_digest: false, data_digest: false, ..solicited() };
    let mut pair = Pair::new(parameters, parameters);
    let write = command(&pair, 7, 0xa1, 0x2a, 1 << 20);
    send(&mut pair, write, &[], &[]);
    let ttt = R2t::decode(&exchange(&mut pair)[0].0).ttt;
    let data = DataOut { itt: 7, ttt, ..DataOut::default() };
    pair.initiator.raw().bytes(data.encode(), &[1; 512]);
    exchange(&mut pair);
    assert_eq!(pair.target.memory(), PART as u64, "memory for what has come, and a part more");
    pair.initiator.manage(task_function::ABORT_TASK, 0, 7, write.cmd_sn);
    assert_eq!(exchange(&mut pair)[0].0.opcode(), opcode::TASK_RESPONSE);
    assert_eq!(pair.target.memory(), 0);
    pair.initiator
        .raw()
        .bytes(DataOut { flags: 0x80, data_sn: 1, buffer_offset: 512, ..data }.encode(), &[1; 512]);
    assert!(exchange(&mut pair).is_empty());
}

#[test]
fn pdus_that_have_no_place_here_are_rejected() {
    let mut pair = Pair::new(plain(), plain());
    pair.initiator.raw().pdu(Snack::default().encode());
    assert_eq!(rejects(&exchange(&mut pair)), [3]);
    pair.initiator.raw().pdu(LoginRequest::default().encode());
    assert_eq!(rejects(&exchange(&mut pair)), [4]);
    for opcode in [0x07, 0x1c, 0x20, 0x25, 0x3f] {
        let bhs = forebay_iscsi::pdu::Bhs::new(opcode);
        pair.initiator.raw().bytes(bhs, b"with data");
        let pdus = exchange(&mut pair);
        assert_eq!(rejects(&pdus), [5]);
        assert_eq!(pdus[0].1[0], opcode, "the header comes back");
    }
    let stale = TextRequest { flags: 0x80, itt: 4, ttt: 99, ..TextRequest::default() };
    pair.initiator.raw().pdu(stale.encode().immediate());
    assert_eq!(rejects(&exchange(&mut pair)), [9]);
    let torn = TextRequest { flags: 0xc0, itt: 4, ttt: TAG_NONE, ..TextRequest::default() };
    pair.initiator.raw().pdu(torn.encode().immediate());
    assert_eq!(rejects(&exchange(&mut pair)), [4]);
}

#[test]
fn a_wrong_digest_is_told_and_ends_the_session() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    let write = pair.write(0, &pattern(4096, 1));
    pair.initiator.command(write).unwrap();
    let mut stream = bytes(&pair.initiator.take_batch(&pair.arena));
    stream[100] ^= 1;
    pair.target.handle_input(pair.now, &mut &stream[..], &pair.arena);
    pair.act();
    assert_eq!(pair.closed, Some(Closed::Violation(Violation::DataDigest)));
    assert!(matches!(pair.run()[..], [Event::Rejected { reason: 2, .. }]));
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    pair.initiator.ping(b"");
    let mut stream = bytes(&pair.initiator.take_batch(&pair.arena));
    stream[20] ^= 1;
    pair.target.handle_input(pair.now, &mut &stream[..], &pair.arena);
    pair.act();
    assert_eq!(pair.closed, Some(Closed::Violation(Violation::HeaderDigest)));
}

#[test]
fn memory_follows_what_came_and_what_is_kept_is_bounded() {
    let mut pair = Pair::new(plain(), plain());
    // The longest possible writes, announced and not sent.
    for itt in 0..128 {
        let command = command(&pair, itt, 0x21, 0x2a, u32::MAX);
        send(&mut pair, command, &[], &[]);
    }
    exchange(&mut pair);
    assert_eq!((pair.target.memory(), pair.arena.bytes_out()), (0, 0));
    let immediate: Vec<u32> = (1000..1000 + IMMEDIATE_MAX + 3).collect();
    for &itt in &immediate {
        let command = command(&pair, itt, 0x21, 0x2a, 512);
        pair.initiator.raw().pdu(command.encode().immediate());
    }
    assert_eq!(rejects(&exchange(&mut pair)), [6; 3]);
    // Text ahead of a gap.
    let mut pair = Pair::new(plain(), plain());
    for ahead in 1..20 {
        let cmd_sn = pair.initiator.next_cmd_sn() + ahead;
        let text = TextRequest { flags: 0x80, itt: ahead, ttt: TAG_NONE, cmd_sn, ..TextRequest::default() };
        pair.initiator.raw().bytes(text.encode(), &[b'x'; 8000]);
    }
    exchange(&mut pair);
    assert_eq!(pair.closed, Some(Closed::Violation(Violation::HeldTooMuch)));
    let mut pair = Pair::new(plain(), plain());
    let text = TextRequest { flags: 0x40, itt: 1, ttt: TAG_NONE, ..TextRequest::default() };
    pair.initiator.raw().bytes(text.encode().immediate(), &vec![b'x'; 65_537]);
    exchange(&mut pair);
    assert_eq!(pair.closed, Some(Closed::Violation(Violation::TextTooLong)));
    let mut pair = Pair::new(plain(), plain());
    let mut lie = ScsiCommand::default().encode();
    lie.set_data_len(262_145);
    pair.target.handle_input(pair.now, &mut &lie.0[..], &pair.arena);
    pair.act();
    let expected = Violation::SegmentTooLong { len: 262_145, max: 262_144 };
    assert_eq!(pair.closed, Some(Closed::Violation(expected)));
}

/// Commands that another session aborts while they arrive: the stream goes on in step.
#[test]
fn an_abort_in_the_middle_of_a_pdu_loses_nothing_else() {
    for at in [49, 100, 4143, 4200, 5000] {
        let mut pair = Pair::new(plain(), plain());
        let (first, second) = (pair.write(0, &pattern(4096, 1)), pair.write(8, &pattern(4096, 2)));
        pair.initiator.command(first).unwrap();
        pair.initiator.command(second).unwrap();
        let read: ScsiRequest = pair.read(8, 512);
        pair.initiator.command(read).unwrap();
        let stream = bytes(&pair.initiator.take_batch(&pair.arena));
        pair.paused = true;
        pair.target.handle_input(pair.now, &mut &stream[..at], &pair.arena);
        pair.target.abort(None);
        pair.target.handle_input(pair.now, &mut &stream[at..], &pair.arena);
        pair.act();
        pair.paused = false;
        while let Some(command) = pair.commands.pop_front() {
            pair.execute(command);
        }
        let pdus = exchange(&mut pair);
        assert!(pdus.iter().any(|(bhs, _)| bhs.opcode() == opcode::DATA_IN), "cut at {at}: {pdus:?}");
        assert_eq!(pair.target.commands(), 0);
    }
}
