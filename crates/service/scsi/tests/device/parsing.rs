//! CDBs: nothing panics, and the usage maps of REPORT SUPPORTED OPERATION CODES are exactly what is looked at.

use crate::support::*;
use forebay_base::Random;
use forebay_scsi::{Direction, SenseKey, asc, parse};

#[test]
fn any_bytes_are_a_command_or_an_illegal_request() {
    let mut random = Random::new(1);
    for opcode in 0..=255 {
        for len in [0, 1, 6, 10, 12, 16, 32] {
            for _ in 0..200 {
                let mut cdb = vec![0; len];
                random.fill(&mut cdb);
                if let Some(first) = cdb.first_mut() {
                    *first = opcode;
                }
                match parse(&cdb) {
                    Ok(command) => {
                        let data = command.data_out_len(512);
                        assert!(data == 0 || command.direction() == Direction::Out, "{command:?}");
                    }
                    Err(sense) => assert_eq!(sense.key, SenseKey::IllegalRequest),
                }
            }
        }
    }
    for opcode in [0x04, 0x48, 0x7f, 0xa4, 0xc0, 0xff] {
        assert_eq!(parse(&[opcode; 16]).expect_err("unknown").code, asc::INVALID_OPERATION_CODE);
    }
    // A known code, and a service action that is not.
    for cdb in [[0x5e, 4], [0x5f, 8], [0x9e, 0x11], [0x83, 1], [0x84, 1], [0xa3, 0x0f]] {
        let sense = parse(&cdb).expect_err("an unknown action");
        assert_eq!(
            (sense.code, sense.field.map(|field| (field.byte, field.bit))),
            (asc::INVALID_FIELD_IN_CDB, Some((1, Some(4))))
        );
    }
}

#[test]
fn usage_maps_are_what_is_looked_at() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let report = |options, opcode, action| [0xa3, 0x0c, options, opcode, 0, action, 0, 0, 1, 0, 0, 0];
    let all = house.send(&a, 0, &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0]).good();
    let mut random = Random::new(2);
    for entry in all[4..].chunks(8) {
        let (opcode, action, has_action) = (entry[0], entry[3], entry[5] & 1 == 1);
        let usage = house.send(&a, 0, &report(3, opcode, action)).good()[4..].to_vec();
        let mut matters = vec![0u8; usage.len()];
        for _ in 0..300 {
            // A CDB without what is refused, so that every other bit can show.
            let mut cdb = vec![0; usage.len()];
            random.fill(&mut cdb);
            (cdb[0], *cdb.last_mut().expect("six bytes at least")) = (opcode, 0);
            cdb[1] = match opcode {
                _ if has_action => action,
                0x15 | 0x55 => 0x10,
                _ => {
                    cdb[1]
                        & 0x09
                        & if matches!(opcode, 0x16 | 0x17 | 0x41 | 0x42 | 0x56 | 0x57) { 0x08 } else { 0x0f }
                }
            };
            match opcode {
                0x12 if cdb[1] & 1 == 0 => cdb[2] = 0,
                0x1a | 0x5a => cdb[2] &= 0xbf,
                0x1b => cdb[4] &= 0x35,
                0x9c => (cdb[10], cdb[11]) = (0, 0),
                0xa3 if action == 0x0c => cdb[2] &= 0x83,
                _ => {}
            }
            let before = parse(&cdb);
            for bit in 8..8 * cdb.len() {
                let mut other = cdb.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                if parse(&other) != before {
                    matters[bit / 8] |= 1 << (bit % 8);
                }
            }
        }
        matters[0] = opcode;
        let mut expected = usage.clone();
        if has_action {
            // The map has the action's value in the field's place.
            expected[1] |= 0x1f;
        }
        // DPO is known and makes no difference.
        if expected[1] & 0x10 != 0 && matters[1] & 0x10 == 0 {
            expected[1] &= !0x10;
        }
        assert_eq!(matters, expected, "{opcode:02x}/{action:02x}: what matters, and what is reported");
    }
}
