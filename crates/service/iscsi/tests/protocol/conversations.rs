//! What both sides do when both behave.

use crate::support::{BLOCK, NOW, Pair, bytes, cdb, pattern, wanted};
use forebay_base::Nanos;
use forebay_iscsi::initiator::{Event, Residual, ScsiRequest, Wanted};
use forebay_iscsi::pdu::{DataIn, R2t, ScsiResponse};
use forebay_iscsi::wire::{async_event, logout, opcode, task_function};
use forebay_iscsi::{COMMANDS_MAX, Closed, KEEPALIVE_AFTER, KEEPALIVE_LIMIT, Parameters, Purpose};

/// Writes of many sizes and reads of them, over every way in which data may travel: the disk must hold what was
/// written, and reads must return it.
#[test]
fn data_travel_unharmed_in_every_way_that_can_be_agreed_on() {
    let sizes = [512, 1024, 4096, 8192, 65_536, 66_048, 262_144, 262_656, 1 << 20];
    for bits in 0..16 {
        for (segment, burst, first, outstanding) in [
            (8192, 16_384, 8192, 1),
            (512, 512, 512, 8),
            (262_144, 1 << 20, 262_144, 8),
            (4096, 65_536, 65_536, 3),
        ] {
            let parameters = Parameters {
                initial_r2t: bits & 1 != 0,
                immediate_data: bits & 2 != 0,
                header_digest: bits & 4 != 0,
                data_digest: bits & 8 != 0,
                segment_max_own: segment,
                burst_max: burst,
                first_burst_max: first,
                r2t_outstanding_max: outstanding,
                ..Parameters::TARGET
            };
            let mut pair = Pair::cut(parameters, parameters, [usize::MAX, 1000, 77][bits % 3]);
            for (number, &size) in sizes.iter().enumerate() {
                let data = pattern(size, number * 1000 + bits);
                let write = pair.write(number, &data);
                pair.initiator.command(write).unwrap();
                let events = pair.run();
                assert!(
                    matches!(events[..], [Event::Completed { status: 0, residual: Residual::None, .. }]),
                    "{parameters:?}, {size}: {events:?}"
                );
                assert!(pair.disk[number * BLOCK..][..size] == data[..], "{parameters:?}, {size}: written");
                let read = pair.read(number, size);
                pair.initiator.command(read).unwrap();
                match &pair.run()[..] {
                    [Event::Completed { status: 0, data_in, residual: Residual::None, .. }] => {
                        assert!(bytes(data_in) == data, "{parameters:?}, {size}: read")
                    }
                    other => panic!("{parameters:?}, {size}: {other:?}"),
                }
            }
            assert_eq!((pair.target.memory(), pair.target.commands()), (0, 0));
            check_shapes(&pair, parameters);
        }
    }
}

/// The limits that were agreed on hold for every PDU that the target sent.
fn check_shapes(pair: &Pair, parameters: Parameters) {
    let (mut sequence, mut asked) = (0, Vec::new());
    for (bhs, data) in &pair.sent {
        assert!(data.len() <= parameters.segment_max_own as usize);
        match bhs.opcode() {
            opcode::DATA_IN => {
                sequence += data.len();
                assert!(sequence <= parameters.burst_max as usize);
                if DataIn::decode(bhs).flags & 0x80 != 0 {
                    sequence = 0;
                }
            }
            opcode::R2T => {
                let r2t = R2t::decode(bhs);
                assert!(r2t.desired_len <= parameters.burst_max && r2t.desired_len > 0);
                asked.push(r2t.r2t_sn);
            }
            opcode::SCSI_RESPONSE => {
                assert_eq!(ScsiResponse::decode(bhs).exp_data_sn, asked.len() as u32);
                let count = asked.len() as u32;
                assert!(asked.drain(..).eq(0..count), "R2TSN counts from 0");
            }
            other => panic!("PDU {other:#x}"),
        }
    }
}

/// Many commands at once, completed in reverse.
#[test]
fn commands_overlap() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    pair.paused = true;
    let mut itts = Vec::new();
    for number in 0..COMMANDS_MAX as usize {
        let data = pattern(if number % 2 == 0 { 4096 } else { 300 << 10 }, number);
        let request = pair.write(number * 8, &data);
        itts.push(pair.initiator.command(request).unwrap());
    }
    assert!(pair.initiator.command(ScsiRequest::default()).is_err(), "the window is full");
    assert_eq!(pair.run().len(), 0);
    assert_eq!(pair.commands.len(), COMMANDS_MAX as usize);
    while let Some(command) = pair.commands.pop_back() {
        assert!(command.data.iter().all(|part| (part.as_ptr() as usize).is_multiple_of(4096)));
        pair.execute(command);
    }
    let done = pair.run();
    assert_eq!(done.len(), itts.len());
    assert_eq!(pair.initiator.window(), COMMANDS_MAX);
}

#[test]
fn the_last_data_carry_the_status_and_errors_have_a_response() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    let read = pair.read(0, 4096);
    pair.initiator.command(read).unwrap();
    pair.run();
    assert_eq!(pair.opcodes(), [opcode::DATA_IN]);
    let bad = ScsiRequest { cdb: cdb(0xff, 0, 0), expected_in: 512, ..ScsiRequest::default() };
    pair.initiator.command(bad).unwrap();
    match &pair.run()[..] {
        [Event::Completed { status: 2, sense, residual: Residual::Underflow(512), .. }] => {
            assert_eq!(sense[..], [0x70, 0, 5, 0, 0, 0, 0, 10])
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(pair.opcodes(), [opcode::SCSI_RESPONSE]);
}

#[test]
fn residuals_are_told_both_ways() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    let expect = |pair: &mut Pair, request: ScsiRequest, len: usize, expected: Residual| {
        pair.initiator.command(request).unwrap();
        match &pair.run()[..] {
            [Event::Completed { status: 0, data_in, residual, .. }] => {
                assert_eq!((bytes(data_in).len(), *residual), (len, expected))
            }
            other => panic!("{other:?}"),
        }
    };
    let read =
        |len, expected_in| ScsiRequest { cdb: cdb(0x28, 0, len), expected_in, ..ScsiRequest::default() };
    expect(&mut pair, read(1024, 1024), 1024, Residual::None);
    expect(&mut pair, read(1024, 512), 512, Residual::Overflow(512));
    expect(&mut pair, read(512, 1024), 512, Residual::Underflow(512));
    expect(&mut pair, read(512, 0), 0, Residual::Overflow(512));
    expect(&mut pair, read(0, 700), 0, Residual::Underflow(700));
    for (needed, sent, expected) in [
        (1024, 512, Residual::Overflow(512)),
        (512, 1024, Residual::Underflow(512)),
        (512, 1 << 20, Residual::Underflow((1 << 20) - 512)),
    ] {
        let request = ScsiRequest { cdb: cdb(0x2a, 0, needed), ..pair.write(0, &pattern(sent, 5)) };
        expect(&mut pair, request, 0, expected);
    }
}

#[test]
fn pings_go_both_ways_and_silence_ends_the_session() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    pair.initiator.ping(b"are you there?");
    assert!(matches!(&pair.run()[..], [Event::Pong { data, .. }] if data == b"are you there?"));
    assert_eq!(pair.target.next_timeout(), NOW.after(KEEPALIVE_AFTER));
    pair.target.handle_timeout(Nanos(NOW.0 + 1));
    assert!(!pair.target.has_output());
    pair.now = NOW.after(KEEPALIVE_AFTER);
    pair.target.handle_timeout(pair.now);
    assert!(matches!(pair.run()[..], [Event::Pinged]));
    assert_eq!(pair.target.next_timeout(), pair.now.after(KEEPALIVE_AFTER));
    let silent = pair.now.after(KEEPALIVE_AFTER);
    pair.target.handle_timeout(silent);
    assert_eq!(pair.target.next_timeout(), silent.after(KEEPALIVE_LIMIT));
    pair.target.handle_timeout(silent.after(KEEPALIVE_LIMIT));
    pair.act();
    assert_eq!(pair.closed, Some(Closed::Silent));
}

#[test]
fn discovery_lists_targets_however_long_the_list_is() {
    let wanted = Wanted {
        purpose: Purpose::Discovery,
        parameters: Parameters { segment_max_own: 512, ..Parameters::TARGET },
        ..wanted()
    };
    let mut pair = Pair::login(wanted, Parameters::TARGET, usize::MAX);
    for count in [1, 100] {
        pair.disk[0] = count;
        pair.initiator.text(b"SendTargets=All\0");
        match &pair.run()[..] {
            [Event::Text { text, .. }] => {
                let text = String::from_utf8(text.clone()).unwrap();
                assert_eq!(text.matches("TargetName=").count(), usize::from(count));
                let first = "TargetName=iqn.2026-11.io.forebay:pool0\0TargetAddress=10.0.0.1:3260,1\0\
                             TargetAddress=[fd00::1]:3260,2\0";
                assert!(text.starts_with(first), "{text:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    // Nothing else is for such sessions.
    pair.initiator.command(ScsiRequest::default()).unwrap();
    assert!(matches!(pair.run()[..], [Event::Rejected { reason: 5, .. }]));
    pair.initiator.logout(logout::CLOSE_SESSION, 0);
    assert!(matches!(pair.run()[..], [Event::LoggedOut { response: 0 }]));
    assert_eq!(pair.closed, Some(Closed::Logout));
}

#[test]
fn text_in_a_normal_session() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    for (sent, expected) in [
        ("SendTargets=All\0", "SendTargets=Reject\0"),
        (
            "SendTargets=\0",
            "TargetName=iqn.2026-11.io.forebay:pool0\0TargetAddress=10.0.0.1:3260,1\0TargetAddress=[fd00::1]:3260,2\0",
        ),
        ("MaxRecvDataSegmentLength=512\0", ""),
        ("InitialR2T=Yes\0X-a=b\0", "InitialR2T=Reject\0X-a=NotUnderstood\0"),
    ] {
        pair.initiator.text(sent.as_bytes());
        match &pair.run()[..] {
            [Event::Text { text, .. }] => assert_eq!(str::from_utf8(text).unwrap(), expected, "{sent:?}"),
            other => panic!("{other:?}"),
        }
    }
    // The declaration counts at once.
    pair.sent.clear();
    let read = pair.read(0, 2048);
    pair.initiator.command(read).unwrap();
    pair.run();
    assert_eq!(pair.opcodes(), [opcode::DATA_IN; 4]);
}

#[test]
fn logouts_are_answered_by_their_reason() {
    for (reason, cid, response, closes) in [
        (logout::CLOSE_SESSION, 9, logout::DONE, true),
        (logout::CLOSE_CONNECTION, 0, logout::DONE, true),
        (logout::CLOSE_CONNECTION, 9, logout::NO_CONNECTION, false),
        (logout::REMOVE_FOR_RECOVERY, 0, logout::RECOVERY_NOT_SUPPORTED, false),
    ] {
        let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
        pair.initiator.logout(reason, cid);
        let events = pair.run();
        assert!(matches!(events[..], [Event::LoggedOut { response: found }] if found == response));
        assert_eq!(pair.closed.is_some(), closes);
    }
}

#[test]
fn aborted_commands_are_never_answered() {
    let mut pair = Pair::new(
        Parameters::TARGET,
        Parameters { immediate_data: false, initial_r2t: true, ..Parameters::TARGET },
    );
    pair.paused = true;
    let read = pair.read(0, 4096);
    let running = pair.initiator.command(read).unwrap();
    pair.run();
    let task = pair.initiator.manage(task_function::ABORT_TASK, 0, running, 1);
    // Not before the command is out of the driver's hands.
    assert!(pair.run().is_empty());
    assert_eq!(pair.aborted.len(), 1);
    let command = pair.commands.pop_front().unwrap();
    pair.execute(command);
    assert!(matches!(pair.run()[..], [Event::TaskAnswered { itt, response: 0 }] if itt == task));
    pair.initiator.forget(running);
    // Nor one that is not there any more.
    pair.initiator.manage(task_function::ABORT_TASK, 0, running, 1);
    assert!(matches!(pair.run()[..], [Event::TaskAnswered { response: 1, .. }]));

    // A set: one runs, one is for another unit.
    let (here, there) = (pair.read(0, 512), ScsiRequest { lun: 1 << 48, ..pair.read(0, 512) });
    let here = pair.initiator.command(here).unwrap();
    pair.initiator.command(there).unwrap();
    pair.run();
    pair.initiator.manage(task_function::LUN_RESET, 0, 0, 0);
    assert!(pair.run().is_empty());
    assert_eq!(pair.managed, [(task_function::LUN_RESET, 0)]);
    pair.initiator.forget(here);
    pair.paused = false;
    while let Some(command) = pair.commands.pop_front() {
        pair.execute(command);
    }
    let events = pair.run();
    assert!(
        matches!(events[..], [Event::TaskAnswered { response: 0, .. }, Event::Completed { status: 0, .. }]),
        "{events:?}"
    );
}

#[test]
fn every_task_management_function_has_its_answer() {
    for level in [1, 2] {
        let parameters = Parameters { protocol_level: level, ..Parameters::TARGET };
        let mut pair = Pair::new(parameters, parameters);
        pair.paused = true;
        let read = pair.read(0, 512);
        let running = pair.initiator.command(read).unwrap();
        pair.run();
        let modern = |answer| if level == 2 { answer } else { 5 };
        let table = [
            (task_function::CLEAR_ACA, 0, 0, 5),
            (task_function::TASK_REASSIGN, 0, 0, 4),
            (task_function::QUERY_TASK, 0, running, modern(7)),
            (task_function::QUERY_TASK, 0, 0xdead, modern(0)),
            (task_function::QUERY_TASK_SET, 0, 0, modern(7)),
            (task_function::QUERY_TASK_SET, 1, 0, modern(0)),
            (task_function::QUERY_ASYNC_EVENT, 0, 0, modern(0)),
            (task_function::ABORT_TASK_SET, 1, 0, 2),
            (task_function::CLEAR_TASK_SET, 1, 0, 2),
            (0, 0, 0, 5),
            (99, 0, 0, 5),
        ];
        for (function, lun, referenced, expected) in table {
            pair.initiator.manage(function, lun, referenced, 0);
            let events = pair.run();
            assert!(
                matches!(events[..], [Event::TaskAnswered { response, .. }] if response == expected),
                "{function}, level {level}: {events:?}"
            );
        }
    }
}

/// Two PDUs of one session arrive with their CmdSN exchanged: the commands run in the order of CmdSN.
#[test]
fn gaps_in_cmdsn_hold_back_what_comes_after_them() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    pair.paused = true;
    let first = pair.initiator.next_cmd_sn();
    for cmd_sn in [first + 2, first + 1, first] {
        assert!(pair.commands.is_empty());
        pair.initiator.set_next_cmd_sn(cmd_sn);
        let write = pair.write(cmd_sn as usize, &pattern(4096, 1));
        pair.initiator.command(write).unwrap();
        pair.run();
    }
    let order: Vec<u32> =
        pair.commands.iter().map(|c| u32::from_be_bytes(c.cdb[2..6].try_into().unwrap())).collect();
    assert_eq!(order, [first, first + 1, first + 2]);
    // What was already received, and what is beyond the window, is ignored.
    for cmd_sn in [first, first + 1, first + 3 + COMMANDS_MAX, first.wrapping_sub(1)] {
        pair.initiator.set_next_cmd_sn(cmd_sn);
        let header =
            forebay_iscsi::pdu::ScsiCommand { flags: 0x80, itt: 0x777, cmd_sn, ..Default::default() };
        pair.initiator.raw().pdu(header.encode());
        assert!(pair.run().is_empty() && pair.commands.len() == 3);
    }
    // A missing command that is aborted counts as received (11.6.1).
    pair.initiator.set_next_cmd_sn(first + 4);
    let read = pair.read(0, 512);
    pair.initiator.command(read).unwrap();
    pair.run();
    assert_eq!(pair.commands.len(), 3);
    pair.initiator.manage(task_function::ABORT_TASK, 0, 0x1234, first + 3);
    assert!(matches!(pair.run()[..], [Event::TaskAnswered { response: 0, .. }]));
    assert_eq!(pair.commands.len(), 4);
}

#[test]
fn the_window_closes_while_memory_is_short() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    pair.target.set_memory_short(true);
    for _ in 0..COMMANDS_MAX {
        let read = pair.read(0, 512);
        pair.initiator.command(read).unwrap();
        assert_eq!(pair.run().len(), 1);
    }
    assert_eq!(pair.initiator.window(), 0);
    pair.target.set_memory_short(false);
    pair.run();
    assert_eq!(pair.initiator.window(), COMMANDS_MAX, "a NOP-In tells of it");
}

#[test]
fn the_target_can_speak_up() {
    let mut pair = Pair::new(Parameters::TARGET, Parameters::TARGET);
    pair.target.notify(1 << 48, &[0x70, 0, 6]);
    pair.target.request_logout(5);
    let events = pair.run();
    match &events[..] {
        [Event::Async { message: scsi, data }, Event::Async { message: leave, .. }] => {
            assert_eq!(
                (scsi.event, scsi.lun, &data[..]),
                (async_event::SCSI, 1 << 48, &[0, 3, 0x70, 0, 6][..])
            );
            assert_eq!((leave.event, leave.parameter3), (async_event::LOGOUT_REQUESTED, 5));
        }
        other => panic!("{other:?}"),
    }
    pair.paused = true;
    let read = pair.read(0, 512);
    pair.initiator.command(read).unwrap();
    pair.run();
    pair.target.drop_session();
    let events = pair.run();
    assert!(
        matches!(&events[..], [Event::Async { message, .. }] if message.event == async_event::SESSION_DROPPED)
    );
    assert_eq!(pair.closed, Some(Closed::Dropped));
    // What still ran is completed without a word.
    let command = pair.commands.pop_front().unwrap();
    pair.execute(command);
    assert!(!pair.target.has_output());
}
