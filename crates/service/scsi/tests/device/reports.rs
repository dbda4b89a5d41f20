//! What the unit says of itself, byte by byte.

use crate::support::*;
use forebay_pool::SyncPolicy;
use forebay_scsi::{BlockFormat, Status, UnitConfig};

fn inquiry(house: &mut House, a: &Initiator, page: Option<u8>) -> Vec<u8> {
    let cdb = [0x12, u8::from(page.is_some()), page.unwrap_or(0), 1, 0, 0];
    house.send(a, 0, &cdb).good()
}

#[test]
fn standard_inquiry() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let data = inquiry(&mut house, &a, None);
    let mut expected = vec![0x00, 0x00, 0x06, 0x02, 91, 0x18, 0x10, 0x02];
    expected.extend(b"FOREBAY Volume          0100");
    expected.resize(58, 0);
    expected.extend([0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60]);
    expected.resize(96, 0);
    assert_eq!(data, expected);
    assert_eq!(house.send(&a, 0, &[0x12, 0, 0, 0, 36, 0]).good(), expected[..36]);
    let answer = house.send(&a, 0, &[0x12, 0, 0x80, 0, 36, 0]);
    assert_eq!((answer.sense(), answer.field()), ((5, 0x2400), (true, 2, None)));
}

#[test]
fn vital_product_data() {
    let mut house = House::new(1);
    let a = house.initiator("a", 2);
    let listed = [0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2];
    assert_eq!(inquiry(&mut house, &a, Some(0)), [&[0, 0, 0, 7][..], &listed].concat());
    for page in listed {
        let data = inquiry(&mut house, &a, Some(page));
        assert_eq!((data[0], data[1]), (0, page));
        assert_eq!(usize::from(u16::from_be_bytes([data[2], data[3]])), data.len() - 4, "page {page:02x}");
    }
    let serial = b"0123456789ab4def8123456789abcd00";
    assert_eq!(inquiry(&mut house, &a, Some(0x80)), [&[0, 0x80, 0, 32][..], serial].concat());

    // 0123456789ab4def ^ 8123456789abcd00 is 80000000000080ef; the type takes the place of its first four bits, which
    // are added to the last.
    let naa = [0x30, 0, 0, 0, 0, 0, 0x80, 0xef ^ 0x08];
    let mut expected = vec![0x01, 0x03, 0, 8];
    expected.extend(naa);
    expected.extend([0x02, 0x01, 0, 40]);
    expected.extend(b"FOREBAY ");
    expected.extend(serial);
    expected.extend([0x51, 0x94, 0, 4, 0, 0, 0, 2]);
    expected.extend([0x51, 0x95, 0, 4, 0, 0, 0, 1]);
    expected.extend([0x53, 0x98, 0, 40]);
    expected.extend(b"iqn.2026-11.io.forebay:tank,t,0x0002\0\0\0\0");
    expected.extend([0x53, 0xa8, 0, 28]);
    expected.extend(b"iqn.2026-11.io.forebay:tank\0");
    let data = inquiry(&mut house, &a, Some(0x83));
    assert_eq!(data[4..], expected, "{:02x?}", &data[4..]);

    let mut extended = vec![0, 0x86, 0, 60, 0, 0x07, 0x01, 0x01];
    extended.resize(13, 0);
    extended.push(28);
    extended.resize(64, 0);
    assert_eq!(inquiry(&mut house, &a, Some(0x86)), extended);

    let mut limits = vec![0, 0xb0, 0, 60, 1, 255, 0, 16];
    limits.extend(16384u32.to_be_bytes()); // MAXIMUM TRANSFER LENGTH
    limits.extend(2048u32.to_be_bytes());
    limits.extend(16384u32.to_be_bytes());
    limits.extend((1u32 << 20).to_be_bytes()); // MAXIMUM UNMAP LBA COUNT
    limits.extend(256u32.to_be_bytes());
    limits.extend(16u32.to_be_bytes()); // OPTIMAL UNMAP GRANULARITY
    limits.extend([0x80, 0, 0, 0]);
    limits.extend(16384u64.to_be_bytes()); // MAXIMUM WRITE SAME LENGTH
    limits.extend(16384u32.to_be_bytes()); // MAXIMUM ATOMIC TRANSFER LENGTH
    limits.extend(1u32.to_be_bytes());
    limits.extend(1u32.to_be_bytes());
    limits.resize(64, 0);
    assert_eq!(inquiry(&mut house, &a, Some(0xb0)), limits);

    let mut characteristics = vec![0, 0xb1, 0, 60, 0, 1];
    characteristics.resize(64, 0);
    assert_eq!(inquiry(&mut house, &a, Some(0xb1)), characteristics);
    assert_eq!(inquiry(&mut house, &a, Some(0xb2)), [0, 0xb2, 0, 4, 0, 0xe4, 2, 0]);
    assert_eq!(house.send(&a, 0, &[0x12, 1, 0xb3, 0, 255, 0]).field(), (true, 2, None));
}

#[test]
fn the_write_cache_is_what_the_volume_s_sync_makes_it() {
    for (sync, cache) in [(SyncPolicy::Standard, 4), (SyncPolicy::Always, 0), (SyncPolicy::Disabled, 0)] {
        let mut house = House::of([UnitConfig { sync, ..config(0, BlockFormat::B512) }]);
        let a = house.initiator("a", 1);
        let page = house.send(&a, 0, &[0x1a, 8, 8, 0, 255, 0]).good();
        assert_eq!(page[..7], [23, 0, 0x10, 0, 8, 18, cache], "{sync:?}");
        assert_eq!(inquiry(&mut house, &a, Some(0x86))[6], u8::from(cache != 0));
    }
}

#[test]
fn capacity() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    assert_eq!(house.send(&a, 0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good(), [0, 0, 0x1f, 0xff, 0, 0, 2, 0]);
    let sixteen = |allocation| [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, allocation, 0, 0];
    let mut expected = vec![0, 0, 0, 0, 0, 0, 0x1f, 0xff, 0, 0, 2, 0, 0, 4, 0xc0];
    expected.resize(32, 0);
    assert_eq!(house.send(&a, 0, &sixteen(255)).good(), expected);
    assert_eq!(house.send(&a, 0, &sixteen(12)).good(), expected[..12]);
    assert_eq!(house.send(&a, 0, &sixteen(0)).good(), []);
    // Beyond what ten bytes can say.
    house.units[0].0.set_size(4 << 40);
    assert_eq!(house.send(&a, 0, &[0; 6]).sense(), (6, 0x2a09), "CAPACITY DATA HAS CHANGED");
    assert_eq!(house.send(&a, 0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good()[..4], [0xff; 4]);
}

#[test]
fn units_and_their_absence() {
    let mut house = House::new(3);
    let a = house.initiator("a", 1);
    let report = |select| [0xa0, 0, select, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let mut expected = vec![0, 0, 0, 24, 0, 0, 0, 0];
    for lun in 0..3 {
        expected.extend([0, lun, 0, 0, 0, 0, 0, 0]);
    }
    for select in [0, 2] {
        assert_eq!(house.send(&a, 1, &report(select)).good(), expected);
    }
    for select in [1, 0x10, 0x11, 0x12] {
        assert_eq!(house.send(&a, 1, &report(select)).good(), [0; 8]);
    }
    assert_eq!(house.send(&a, 1, &report(3)).field(), (true, 2, None));

    let mut absent = |cdb: &[u8]| {
        let command = forebay_scsi::parse(cdb).expect("well formed");
        match forebay_scsi::begin_absent(&command) {
            forebay_scsi::Step::Done(response) => response,
            forebay_scsi::Step::Medium(op, task) => {
                let result = house.carry_out(&a, 0, op);
                let step = forebay_scsi::resume_absent(task, result);
                let forebay_scsi::Step::Done(response) = step else { panic!("that was all") };
                response
            }
        }
    };
    let bytes = |response: forebay_scsi::Response| match response.data_in {
        forebay_scsi::DataIn::Bytes(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(bytes(absent(&[0x12, 0, 0, 0, 36, 0]))[..5], [0x7f, 0, 6, 2, 91]);
    assert_eq!(bytes(absent(&report(0))), expected);
    assert_eq!(bytes(absent(&[0x03, 0, 0, 0, 255, 0]))[12..14], [0x25, 0]);
    for cdb in [&[0; 6][..], &[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], &[0x12, 1, 0, 0, 36, 0]] {
        let response = absent(cdb);
        assert_eq!(
            (response.status, response.sense[2], response.sense[12]),
            (Status::CheckCondition, 5, 0x25)
        );
    }
}

#[test]
fn target_port_groups() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let cdb = |format: u8| [0xa3, format << 5 | 0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let group = [0x00, 0x01, 0, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2];
    assert_eq!(house.send(&a, 0, &cdb(0)).good(), [&[0, 0, 0, 16][..], &group].concat());
    let extended = [&[0, 0, 0, 20, 0x10, 0, 0, 0][..], &group].concat();
    assert_eq!(house.send(&a, 0, &cdb(1)).good(), extended);
    assert_eq!(house.send(&a, 0, &cdb(2)).field(), (true, 1, Some(7)));
    // SET TARGET PORT GROUPS
    assert_eq!(house.send(&a, 0, &[0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).sense(), (5, 0x2000));
}

#[test]
fn supported_commands() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let report = |options: u8, opcode, action, allocation: u16| {
        let [high, low] = allocation.to_be_bytes();
        [0xa3, 0x0c, options, opcode, 0, action, 0, 0, high, low, 0, 0]
    };
    let all = house.send(&a, 0, &report(0, 0, 0, 0xffff)).good();
    let timed = house.send(&a, 0, &report(0x80, 0, 0, 0xffff)).good();
    let count = (all.len() - 4) / 8;
    assert_eq!(all[..4], (8 * count as u32).to_be_bytes());
    assert_eq!(timed.len(), 4 + 20 * count);
    for (short, long) in all[4..].chunks(8).zip(timed[4..].chunks(20)) {
        assert_eq!((&short[..5], short[5] | 2), (&long[..5], long[5]));
        assert_eq!(long[8..10], [0, 10]);
        let (opcode, has_action) = (short[0], short[5] & 1 == 1);
        // Every one of them is reported alone, with as many bytes of usage as its CDB has.
        let options = if has_action { 2 } else { 1 };
        let one = house.send(&a, 0, &report(options, opcode, short[3], 0xffff)).good();
        assert_eq!((one[1], one[2], one[3], one[4]), (3, 0, short[7], opcode));
        assert_eq!(one.len(), 4 + usize::from(short[7]));
        let timed = house.send(&a, 0, &report(options | 0x80, opcode, short[3], 0xffff)).good();
        assert_eq!((timed[1], timed.len()), (0x83, one.len() + 12));
        assert_eq!(house.send(&a, 0, &report(3, opcode, short[3], 0xffff)).good(), one);
        // The other way of asking is wrong.
        let other = house.send(&a, 0, &report(3 - options, opcode, short[3], 0xffff));
        assert_eq!((other.sense(), other.field()), ((5, 0x2400), (true, 2, Some(2))));
    }
    assert_eq!(house.send(&a, 0, &report(1, 0x48, 0, 100)).good(), [0, 1, 0, 0], "SANITIZE");
    assert_eq!(house.send(&a, 0, &report(2, 0x5f, 8, 100)).good(), [0, 1, 0, 0]);
    assert_eq!(house.send(&a, 0, &report(4, 0, 0, 100)).field(), (true, 2, Some(2)));
    let functions = |extended| [0xa3, 0x0d, extended, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(house.send(&a, 0, &functions(0)).good(), [0xda, 0, 0, 0]);
    assert_eq!(house.send(&a, 0, &functions(0x80)).good().len(), 16);
}

#[test]
fn no_defects() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    assert_eq!(house.send(&a, 0, &[0x37, 0, 0x1d, 0, 0, 0, 0, 1, 0, 0]).good(), [0, 0x1d, 0, 0]);
    let twelve = [0xb7, 0x0d, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(house.send(&a, 0, &twelve).good(), [0, 0x0d, 0, 0, 0, 0, 0, 0]);
}
