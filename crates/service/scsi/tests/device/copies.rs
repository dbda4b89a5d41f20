//! EXTENDED COPY: content, authorisation, and lists that lie.

use crate::support::*;
use forebay_pool::IoError;
use forebay_scsi::BlockFormat;

const ABORTED: u8 = 0xa;

/// The NAA designator of a unit, as INQUIRY tells it.
fn naa(house: &mut House, a: &Initiator, lun: usize) -> Vec<u8> {
    house.send(a, lun, &[0x12, 1, 0x83, 0, 255, 0]).good()[8..16].to_vec()
}

fn target(naa: &[u8], block_bytes: u32) -> Vec<u8> {
    let mut target = vec![0xe4, 0, 0, 0, 1, 3, 0, naa.len() as u8];
    target.extend(naa);
    target.resize(28, 0);
    target.extend(block_bytes.to_be_bytes());
    target
}

fn segment(from: u16, to: u16, blocks: u16, from_lba: u64, to_lba: u64) -> Vec<u8> {
    let mut segment = vec![0x02, 0, 0, 24];
    segment.extend(from.to_be_bytes());
    segment.extend(to.to_be_bytes());
    segment.extend([0, 0]);
    segment.extend(blocks.to_be_bytes());
    segment.extend(from_lba.to_be_bytes());
    segment.extend(to_lba.to_be_bytes());
    segment
}

fn list(id: u8, targets: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (targets, segments) = (targets.concat(), segments.concat());
    let mut list = vec![id, 0];
    list.extend((targets.len() as u16).to_be_bytes());
    list.extend([0; 4]);
    list.extend((segments.len() as u32).to_be_bytes());
    list.extend([0; 4]);
    [list, targets, segments].concat()
}

fn copy(house: &mut House, a: &Initiator, list: &[u8]) -> Answer {
    let mut cdb = vec![0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    cdb.extend((list.len() as u32).to_be_bytes());
    cdb.extend([0, 0]);
    house.send_data(a, 0, &cdb, list)
}

fn results(house: &mut House, a: &Initiator, id: u8) -> Answer {
    house.send(a, 0, &[0x84, 0, id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0])
}

#[test]
fn copies_within_a_unit_and_between_units() {
    let mut house = House::new(2);
    let a = house.initiator("a", 1);
    let data: Vec<u8> = (0..1 << 20).map(|at| (at / 512) as u8).collect();
    house.units[0].1.write(0, &data);
    let targets = [0, 1].map(|lun| target(&naa(&mut house, &a, lun), 512));
    let segments = [segment(0, 0, 100, 0, 4000), segment(0, 1, 2000, 1, 77), segment(1, 0, 0, 0, 0)];
    copy(&mut house, &a, &list(7, &targets, &segments)).good();
    assert_eq!(house.units[0].1.data[4000 * 512..4100 * 512], data[..51200]);
    assert_eq!(house.units[1].1.data[77 * 512..2077 * 512], data[512..2001 * 512]);
    let expected = [&[0, 0, 0, 8, 1, 0, 3, 0][..], &(2100u32 * 512).to_be_bytes()].concat();
    assert_eq!(results(&mut house, &a, 7).good(), expected);
    assert_eq!(results(&mut house, &a, 8).field(), (true, 2, None), "an id that was not used");
    let b = house.initiator("b", 1);
    assert_eq!(results(&mut house, &b, 7).field(), (true, 2, None), "nobody else's");
    let parameters = house.send(&a, 0, &[0x84, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0]).good();
    assert_eq!(parameters[..16], [0, 0, 0, 42, 1, 0, 0, 0, 0, 16, 0, 64, 0, 0, 9, 0]);
    assert_eq!(parameters[43..], [2, 0x02, 0xe4]);
    copy(&mut house, &a, &[]).good();
    copy(&mut house, &a, &list(0, &[], &[])).good();
}

#[test]
fn units_of_different_blocks() {
    let mut house = House::of([config(0, BlockFormat::B512), config(1, BlockFormat::B4096)]);
    let a = house.initiator("a", 1);
    house.units[0].1.write(0, &[0xaa; 65536]);
    let targets = [(0, 512), (1, 4096)].map(|(lun, block)| target(&naa(&mut house, &a, lun), block));
    copy(&mut house, &a, &list(1, &targets, &[segment(0, 1, 16, 0, 1)])).good();
    assert_eq!(house.units[1].1.data[4096..3 * 4096], [0xaa; 8192]);
    let mut counted = segment(0, 1, 2, 0, 5);
    counted[1] = 2; // DC
    copy(&mut house, &a, &list(1, &targets, &[counted])).good();
    assert_eq!(house.units[1].1.data[5 * 4096..7 * 4096], [0xaa; 8192]);
    let answer = copy(&mut house, &a, &list(1, &targets, &[segment(0, 1, 15, 0, 1)]));
    assert_eq!(answer.sense().0, ABORTED, "no whole number of blocks over there");
    let wrong = [targets[0].clone(), target(&naa(&mut house, &a, 1), 512)];
    assert_eq!(copy(&mut house, &a, &list(1, &wrong, &[segment(0, 1, 16, 0, 1)])).sense(), (ABORTED, 0x0d03));
}

#[test]
fn nothing_is_copied_when_anything_is_wrong() {
    let mut house = House::new(2);
    let a = house.initiator("a", 1);
    house.units[0].1.write(0, &[0xaa; 65536]);
    let names = [0, 1].map(|lun| target(&naa(&mut house, &a, lun), 512));
    let good = segment(0, 1, 16, 0, 0);
    let blocks = VOLUME_BYTES / 512;
    for (wrong, why) in [
        (segment(0, 2, 1, 0, 0), "an index behind the list"),
        (segment(2, 0, 1, 0, 0), "an index behind the list"),
        (segment(0, 1, 2, blocks - 1, 0), "beyond the source"),
        (segment(0, 1, 2, 0, blocks - 1), "beyond the destination"),
        (segment(0, 1, 2, u64::MAX, 0), "an address that overflows"),
    ] {
        let answer = copy(&mut house, &a, &list(3, &names, &[good.clone(), wrong]));
        assert_eq!(answer.sense().0, ABORTED, "{why}");
        assert_eq!(results(&mut house, &a, 3).good()[4], 2, "completed with errors");
    }
    let stranger = target(&[0x30, 1, 2, 3, 4, 5, 6, 7], 512);
    let answer = copy(&mut house, &a, &list(1, &[names[0].clone(), stranger], std::slice::from_ref(&good)));
    assert_eq!(answer.sense(), (ABORTED, 0x0d02), "a unit that the nexus does not see");

    let whole = list(1, &names, std::slice::from_ref(&good));
    for len in (1..whole.len()).filter(|&len| len != 0) {
        assert_eq!(copy(&mut house, &a, &whole[..len]).sense(), (5, 0x1a00), "cut at {len}");
    }
    let with = |at: usize, byte: u8| {
        let mut list = whole.clone();
        list[at] = byte;
        list
    };
    assert_eq!(copy(&mut house, &a, &with(16, 0xe0)).sense(), (5, 0x2607));
    assert_eq!(copy(&mut house, &a, &with(80, 0x05)).sense(), (5, 0x2609));
    assert_eq!(copy(&mut house, &a, &with(17, 0x01)).field(), (false, 17, Some(4)), "a tape");
    assert_eq!(copy(&mut house, &a, &with(23, 21)).field(), (false, 23, None), "a name that is too long");
    assert_eq!(copy(&mut house, &a, &with(83, 28)).field(), (false, 82, None), "a segment's length");
    assert_eq!(copy(&mut house, &a, &with(15, 1)).field(), (false, 12, None), "inline data");
    let many = vec![names[0].clone(); 17];
    assert_eq!(copy(&mut house, &a, &list(1, &many, std::slice::from_ref(&good))).sense(), (5, 0x2606));
    assert_eq!(copy(&mut house, &a, &list(1, &names, &vec![good.clone(); 65])).sense(), (5, 0x2608));
    assert!(house.units[1].1.data.iter().all(|&byte| byte == 0));
}

#[test]
fn every_unit_named_inside_is_asked() {
    let mut house = House::new(2);
    let (a, b) = (house.initiator("a", 1), house.initiator("b", 1));
    house.units[0].1.write(0, &[0xaa; 8192]);
    let names = [0, 1].map(|lun| target(&naa(&mut house, &a, lun), 512));
    let (there, back) = (segment(0, 1, 16, 0, 0), segment(1, 0, 16, 100, 100));
    let try_both = |house: &mut House, a: &Initiator| {
        [&there, &back].map(|segment| copy(house, a, &list(1, &names, std::slice::from_ref(segment))).status)
    };
    use forebay_scsi::Status::{CheckCondition, Good};
    // b takes the second unit with WRITE EXCLUSIVE: a may read from it, and not write to it.
    register(&mut house, &b, 1, 0xb);
    let reserve = |kind, action| [0x5f, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let parameters = [&0xbu64.to_be_bytes()[..], &[0; 16]].concat();
    house.send_data(&b, 1, &reserve(1, 1), &parameters).good();
    assert_eq!(try_both(&mut house, &a), [CheckCondition, Good]);
    house.send_data(&b, 1, &reserve(1, 2), &parameters).good();
    house.send_data(&b, 1, &reserve(3, 1), &parameters).good();
    assert_eq!(try_both(&mut house, &a), [CheckCondition, CheckCondition]);
    house.send_data(&b, 1, &reserve(3, 2), &parameters).good();
    assert_eq!(try_both(&mut house, &a), [Good, Good]);
    house.units[1].0.set_read_only(true);
    assert_eq!(try_both(&mut house, &a), [CheckCondition, Good]);
    house.units[1].0.set_read_only(false);
    house.send(&b, 1, &[0; 6]);
    house.send(&b, 1, &[0x16, 0, 0, 0, 0, 0]);
    house.send(&b, 1, &[0x1b, 0, 0, 0, 0, 0]).good();
    assert_eq!(try_both(&mut house, &a), [CheckCondition, CheckCondition], "stopped");
}

/// REGISTER with a key.
pub fn register(house: &mut House, who: &Initiator, lun: usize, key: u64) {
    let parameters = [&[0; 8], &key.to_be_bytes()[..], &[0; 8]].concat();
    house.send_data(who, lun, &[0x5f, 6, 0, 0, 0, 0, 0, 0, 24, 0], &parameters).good();
}

#[test]
fn a_copy_that_fails_says_how_far_it_came() {
    let mut house = House::new(2);
    let a = house.initiator("a", 1);
    let names = [0, 1].map(|lun| target(&naa(&mut house, &a, lun), 512));
    let segments = [segment(0, 1, 16, 0, 0), segment(0, 1, 16, 0, 100)];
    house.units[1].1.failures.extend([None, Some(IoError::Io)]);
    assert_eq!(copy(&mut house, &a, &list(5, &names, &segments)).sense(), (ABORTED, 0x0d01));
    assert_eq!(results(&mut house, &a, 5).good(), [0, 0, 0, 8, 2, 0, 1, 0, 0, 0, 0x20, 0]);
    house.units[1].1.failures.extend([Some(IoError::NoSpace)]);
    assert_eq!(copy(&mut house, &a, &list(5, &names, &segments)).sense(), (7, 0x2707));
}
