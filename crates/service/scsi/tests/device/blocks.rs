//! Reading and writing: content is the oracle.

use crate::support::*;
use forebay_pool::{IoError, SyncPolicy};
use forebay_scsi::{BlockFormat, DataIn, Op, Status, Step, UnitConfig};

/// A CDB of 10, 12 or 16 bytes for blocks, with flags in byte 1.
pub fn blocks(opcode: u8, flags: u8, lba: u64, blocks: u32) -> Vec<u8> {
    let mut cdb = vec![opcode, flags];
    match opcode >> 5 {
        1 | 2 => {
            cdb.extend((lba as u32).to_be_bytes());
            cdb.push(0);
            cdb.extend((blocks as u16).to_be_bytes());
        }
        5 => {
            cdb.extend((lba as u32).to_be_bytes());
            cdb.extend(blocks.to_be_bytes());
            cdb.push(0);
        }
        _ => {
            cdb.extend(lba.to_be_bytes());
            cdb.extend(blocks.to_be_bytes());
            cdb.push(0);
        }
    }
    cdb.push(0);
    cdb
}

/// Bytes that tell their place.
fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 7) as u8 ^ seed).collect()
}

const BLOCKS: u64 = VOLUME_BYTES / 512;
const READS: [u8; 3] = [0x28, 0xa8, 0x88];
const WRITES: [u8; 3] = [0x2a, 0xaa, 0x8a];
const MISCOMPARE: (u8, u16) = (0xe, 0x1d00);
const OUT_OF_RANGE: (u8, u16) = (5, 0x2100);
const INVALID_FIELD: (u8, u16) = (5, 0x2400);

#[test]
fn what_is_written_is_read_in_every_form() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    for (read, write) in READS.into_iter().zip(WRITES) {
        let data = pattern(write, 5 * 512);
        house.send_data(&a, 0, &blocks(write, 0, 77, 5), &data).good();
        assert_eq!(house.units[0].1.data[77 * 512..82 * 512], data);
        assert_eq!(house.send(&a, 0, &blocks(read, 0, 77, 5)).good(), data);
    }
    // Six bytes: the address has 21 bits, and no blocks means 256.
    let data = pattern(9, 256 * 512);
    house.send_data(&a, 0, &[0x0a, 0, 1, 0, 0, 0], &data).good();
    assert_eq!(house.send(&a, 0, &[0x08, 0xe0, 1, 0, 0, 0]).good(), data);
    assert_eq!(house.send(&a, 0, &[0x08, 0x1f, 0, 0, 1, 0]).sense(), OUT_OF_RANGE);
    let data = pattern(11, 512);
    let atomic = [0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0];
    house.send_data(&a, 0, &atomic, &data).good();
    assert_eq!(house.units[0].1.data[3 * 512..4 * 512], data);
}

#[test]
fn ranges_and_lengths_are_checked_before_anything_is_done() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    for opcode in READS.into_iter().chain(WRITES) {
        for (lba, count, good) in [
            (BLOCKS - 1, 1, true),
            (BLOCKS - 1, 2, false),
            (BLOCKS, 0, false),
            (BLOCKS, 1, false),
            (0, 0, true),
            (u64::from(u32::MAX), 1, false),
        ] {
            let data = vec![1; if READS.contains(&opcode) { 0 } else { count as usize * 512 }];
            let answer = house.send_data(&a, 0, &blocks(opcode, 0, lba, count), &data);
            if good {
                answer.good();
            } else {
                assert_eq!(answer.sense(), OUT_OF_RANGE, "{opcode:02x} {lba} {count}");
            }
        }
    }
    assert_eq!(house.send(&a, 0, &blocks(0x88, 0, u64::MAX, 2)).sense(), OUT_OF_RANGE);
    // More than MAXIMUM TRANSFER LENGTH.
    let mut large = House::of([UnitConfig { size: 1 << 30, ..config(0, BlockFormat::B512) }]);
    large.units[0].1.data.truncate(0);
    let b = large.initiator("b", 1);
    let answer = large.send(&b, 0, &blocks(0x88, 0, 0, 16385));
    assert_eq!((answer.sense(), answer.field()), (INVALID_FIELD, (true, 10, None)));
    assert_eq!(large.send(&b, 0, &blocks(0xa8, 0, 0, 16385)).field(), (true, 6, None));
    // None of its data is asked for, then.
    let command = forebay_scsi::parse(&blocks(0x8a, 0, 0, 16385)).expect("well formed");
    assert_eq!(large.units[0].0.data_out_len(&command), 0);
}

#[test]
fn a_write_of_less_than_announced_writes_whole_blocks() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let data = pattern(3, 4 * 512);
    for (received, written) in [(4 * 512, 4), (3 * 512 + 511, 3), (512, 1), (511, 0), (0, 0)] {
        house.units[0].1.data.fill(0xee);
        let response = house.run(&a, 0, &blocks(0x2a, 0, 8, 4), &data[..received], received as u64);
        assert_eq!(response.status, Status::Good);
        let (here, behind) = house.units[0].1.data[8 * 512..].split_at(written * 512);
        assert_eq!(here, &data[..written * 512], "{received} bytes");
        assert!(behind.iter().all(|&byte| byte == 0xee), "{received} bytes");
    }
}

#[test]
fn a_read_hands_out_the_engine_s_own_buffers() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let Step::Medium(op, task) = house.begin(&a, 0, &blocks(0x28, 0x08, 16, 16), &[], 0) else {
        panic!("a read needs the volume")
    };
    assert!(matches!(op, Op::Read { at: 8192, len: 8192 }));
    let part = house.arena.copy(&[7; 8192]).freeze();
    let Step::Done(response) = house.resume(0, task, Ok(forebay_scsi::Outcome::Data(vec![part.clone()])))
    else {
        panic!("that was all")
    };
    let DataIn::Parts(parts) = response.data_in else { panic!("buffers") };
    assert_eq!(parts[0].as_ptr(), part.as_ptr());
}

#[test]
fn force_unit_access_reaches_the_volume() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    for (flags, wanted) in [(0x08, true), (0x10, false), (0, false)] {
        for opcode in WRITES {
            let step = house.begin(&a, 0, &blocks(opcode, flags, 0, 1), &[1; 512], 512);
            let Step::Medium(Op::Write { fua, .. }, _) = step else { panic!("{step:?}") };
            assert_eq!(fua, wanted);
        }
    }
    house.send(&a, 0, &blocks(0x35, 0, 0, 0)).good();
    house.send(&a, 0, &blocks(0x91, 0, 5, 1)).good();
    assert_eq!(house.units[0].1.flushes, 2);
    // COMPARE AND WRITE and ORWRITE have no such flag below: they are flushed.
    house.send_data(&a, 0, &caw(8, 0, 1), &[0; 1024]).good();
    house.send_data(&a, 0, &blocks(0x8b, 0x08, 0, 1), &[0; 512]).good();
    assert_eq!(house.units[0].1.flushes, 4);
    assert_eq!(house.send(&a, 0, &blocks(0x35, 0, BLOCKS, 0)).sense(), OUT_OF_RANGE);
}

fn caw(flags: u8, lba: u64, count: u8) -> Vec<u8> {
    let mut cdb = blocks(0x89, flags, lba, 0);
    cdb[13] = count;
    cdb
}

#[test]
fn verifying() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    // Over the length of a piece, so that comparing goes on in the next.
    let data = pattern(5, 3 << 20);
    house.units[0].1.write(512, &data);
    let count = data.len() as u32 / 512;
    for opcode in [0x2f, 0xaf, 0x8f] {
        house.send(&a, 0, &blocks(opcode, 0, 1, count)).good();
        house.send_data(&a, 0, &blocks(opcode, 2, 1, count), &data).good();
        for at in [0, 1 << 20, data.len() - 1] {
            let mut wrong = data.clone();
            wrong[at] ^= 0x80;
            let answer = house.send_data(&a, 0, &blocks(opcode, 2, 1, count), &wrong);
            assert_eq!(answer.sense(), MISCOMPARE, "byte {at}");
        }
        // One block, compared with each (BYTCHK 11b).
        house.units[0].1.write(0, &[b'x'; 4096]);
        house.send_data(&a, 0, &blocks(opcode, 6, 0, 8), &[b'x'; 512]).good();
        assert_eq!(house.send_data(&a, 0, &blocks(opcode, 6, 0, 9), &[b'x'; 512]).sense(), MISCOMPARE);
        house.units[0].1.write(512, &data);
        let answer = house.send(&a, 0, &blocks(opcode, 4, 0, 1));
        assert_eq!((answer.sense(), answer.field()), (INVALID_FIELD, (true, 1, Some(2))));
        let wrong_length = house.send_data(&a, 0, &blocks(opcode, 2, 0, 2), &[0; 512]);
        assert_eq!(wrong_length.sense(), INVALID_FIELD);
    }
    assert!(house.units[0].1.longest <= 1 << 20, "long commands go in pieces");
}

#[test]
fn write_and_verify_compares_what_it_wrote() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let data = pattern(8, 3 * 512);
    for opcode in [0x2e, 0xae, 0x8e] {
        for check in [0, 2] {
            house.units[0].1.data.fill(0);
            house.send_data(&a, 0, &blocks(opcode, check, 9, 3), &data).good();
            assert_eq!(house.units[0].1.data[9 * 512..12 * 512], data);
        }
        assert_eq!(house.send_data(&a, 0, &blocks(opcode, 6, 9, 3), &data).field(), (true, 1, Some(2)));
    }
    // A medium that does not keep what it was given is found out.
    let Step::Medium(Op::Write { fua: true, .. }, task) =
        house.begin(&a, 0, &blocks(0x2e, 2, 0, 1), &[7; 512], 512)
    else {
        panic!("written first, and through")
    };
    let Step::Medium(Op::Read { .. }, task) = house.resume(0, task, Ok(forebay_scsi::Outcome::Done)) else {
        panic!("read afterwards")
    };
    let other = vec![house.arena.copy(&[8; 512]).freeze()];
    let Step::Done(response) = house.resume(0, task, Ok(forebay_scsi::Outcome::Data(other))) else {
        panic!("done")
    };
    assert_eq!((response.status, response.sense[2]), (Status::CheckCondition, 0xe));
}

#[test]
fn compare_and_write() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    house.units[0].1.write(1024, &[b'a'; 1024]);
    let both = [[b'a'; 1024], [b'b'; 1024]].concat();
    house.send_data(&a, 0, &caw(0, 2, 2), &both).good();
    assert_eq!(house.units[0].1.data[1024..2048], [b'b'; 1024]);
    let mut expected = [b'b'; 1024];
    expected[700] = b'x';
    let answer = house.send_data(&a, 0, &caw(0, 2, 2), &[expected, [b'c'; 1024]].concat());
    assert_eq!(answer.sense(), MISCOMPARE);
    assert_eq!(
        (answer.sense[0], &answer.sense[3..7]),
        (0xf0, &700u32.to_be_bytes()[..]),
        "where they differ"
    );
    assert_eq!(house.units[0].1.data[1024..2048], [b'b'; 1024], "nothing was written");
    house.send(&a, 0, &caw(0, 0, 0)).good();
    for len in [512, 1024, 1536, 3072, 4096] {
        let answer = house.send_data(&a, 0, &caw(0, 2, 2), &vec![0; len]);
        assert_eq!(answer.status, Status::CheckCondition, "{len} bytes for two blocks twice");
        assert_eq!(answer.sense() == MISCOMPARE, len == 2048);
    }
    house.send_data(&a, 0, &caw(0, 0, 255), &vec![0; 2 * 255 * 512]);
}

#[test]
fn or_write_keeps_what_others_write_meanwhile() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let old = pattern(1, 3 << 20);
    house.units[0].1.write(0, &old);
    let mask = pattern(0xf0, (3 << 20) - 512);
    let cdb = blocks(0x8b, 0, 1, mask.len() as u32 / 512);
    // Between reading and writing a piece, twice.
    house.units[0].1.interference.extend([(600, 0x01), (601, 0x02)]);
    house.send_data(&a, 0, &cdb, &mask).good();
    let mut wanted = old;
    (wanted[600], wanted[601]) = (0x01, 0x02);
    wanted[512..].iter_mut().zip(&mask).for_each(|(byte, mask)| *byte |= mask);
    assert!(house.units[0].1.data[..3 << 20] == wanted);
}

#[test]
fn write_same() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let block = pattern(0x55, 512);
    for opcode in [0x41, 0x93] {
        for (lba, count) in [(0, 1), (3, 4), (5, 5000)] {
            house.units[0].1.data.fill(0xee);
            house.send_data(&a, 0, &blocks(opcode, 0, lba, count), &block).good();
            let (from, to) = (lba as usize * 512, (lba as usize + count as usize) * 512);
            let data = &house.units[0].1.data;
            assert!(data[from..to].chunks(512).all(|here| here == block), "{lba}+{count}");
            assert!(data[..from].iter().chain(&data[to..]).all(|&byte| byte == 0xee), "{lba}+{count}");
        }
        // Zeros, with UNMAP and without: read as zeros and take no space.
        for flags in [0x08, 0] {
            house.units[0].1.write(0, &vec![0xee; 65536]);
            house.send_data(&a, 0, &blocks(opcode, flags, 1, 100), &[0; 512]).good();
            assert!(house.units[0].1.data[512..101 * 512].iter().all(|&byte| byte == 0));
            assert_eq!((house.units[0].1.data[511], house.units[0].1.data[101 * 512]), (0xee, 0xee));
            assert_eq!(statuses(&mut house, &a, 0)[..2], [(0, 16, 0), (16, 80, 1)]);
        }
        for (flags, bit) in [(0x10, 4), (0x04, 2), (0x02, 1), (0x20, 5)] {
            let answer = house.send_data(&a, 0, &blocks(opcode, flags, 0, 1), &block);
            assert_eq!(answer.sense(), INVALID_FIELD);
            assert_eq!(answer.field().1, 1, "bit {bit}");
        }
        assert_eq!(house.send_data(&a, 0, &blocks(opcode, 0, 0, 0), &block).sense(), INVALID_FIELD, "WSNZ");
        for len in [0, 256, 1024] {
            let answer = house.send_data(&a, 0, &blocks(opcode, 0, 0, 1), &vec![1; len]);
            assert_eq!(answer.sense(), INVALID_FIELD, "{len} bytes are no block");
        }
    }
    // NDOB: no data.
    house.units[0].1.write(0, &[0xee; 16384]);
    house.send(&a, 0, &blocks(0x93, 0x01, 0, 32)).good();
    assert!(house.units[0].1.data[..16384].iter().all(|&byte| byte == 0));
}

/// All descriptors of GET LBA STATUS: (LBA, blocks, provisioning).
fn statuses(house: &mut House, a: &Initiator, lba: u64) -> Vec<(u64, u32, u8)> {
    let mut cdb = blocks(0x9e, 0x12, lba, 65535);
    cdb[1] = 0x12;
    let data = house.send(a, 0, &cdb).good();
    let len = u32::from_be_bytes(data[..4].try_into().expect("four bytes")) as usize;
    assert_eq!(len + 4, data.len());
    let descriptor = |bytes: &[u8]| {
        let lba = u64::from_be_bytes(bytes[..8].try_into().expect("eight bytes"));
        (lba, u32::from_be_bytes(bytes[8..12].try_into().expect("four bytes")), bytes[12])
    };
    data[8..].chunks_exact(16).map(descriptor).collect()
}

fn unmap(ranges: &[(u64, u32)]) -> (Vec<u8>, Vec<u8>) {
    let mut list = vec![0; 8];
    list[..2].copy_from_slice(&(6 + 16 * ranges.len() as u16).to_be_bytes());
    list[2..4].copy_from_slice(&(16 * ranges.len() as u16).to_be_bytes());
    for (lba, blocks) in ranges {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let [high, low] = (list.len() as u16).to_be_bytes();
    (vec![0x42, 0, 0, 0, 0, 0, 0, high, low, 0], list)
}

#[test]
fn unmap_zeroes_what_it_is_told_to() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    house.units[0].1.write(0, &vec![0xee; 1 << 20]);
    let (cdb, list) = unmap(&[(1, 3), (10, 30), (64, 64), (200, 0), (BLOCKS, 0)]);
    house.send_data(&a, 0, &cdb, &list).good();
    let data = &house.units[0].1.data[..1 << 20];
    for (lba, block) in data.chunks(512).enumerate() {
        let is_zero = matches!(lba, 1..4 | 10..40 | 64..128);
        assert!(block.iter().all(|&byte| byte == if is_zero { 0 } else { 0xee }), "LBA {lba}");
    }
    // Only whole volume blocks, of 16 here, give back their space.
    let expected = [(0, 16, 0), (16, 16, 1), (32, 32, 0), (64, 64, 1), (128, 1920, 0), (2048, 6144, 1)];
    assert_eq!(statuses(&mut house, &a, 0), expected);
    assert_eq!(statuses(&mut house, &a, 67)[0], (67, 61, 1), "from the middle");
    let mut one = blocks(0x9e, 0x12, 0, 24);
    one[1] = 0x12;
    assert_eq!(house.send(&a, 0, &one).good().len(), 24, "one descriptor");

    let (cdb, list) = unmap(&[(0, 8), (BLOCKS - 1, 2)]);
    assert_eq!(house.send_data(&a, 0, &cdb, &list).sense(), OUT_OF_RANGE);
    assert_eq!(house.units[0].1.data[0], 0xee, "nothing is done when one range is wrong");
    assert_eq!(house.send_data(&a, 0, &cdb, &list[..16]).sense(), (5, 0x1a00));
    house.send(&a, 0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    assert_eq!(house.send_data(&a, 0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 7, 0], &[0; 7]).sense(), (5, 0x1a00));
    let (cdb, list) = unmap(&[(0, 0); 257]);
    assert_eq!(house.send_data(&a, 0, &cdb, &list).sense(), (5, 0x2600), "too many descriptors");
    assert_eq!(house.send(&a, 0, &[0x42, 1, 0, 0, 0, 0, 0, 0, 0, 0]).field(), (true, 1, Some(0)), "anchored");
}

/// As some initiators send them: a descriptor for each block, in any order, and some of them twice.
#[test]
fn ranges_of_an_unmap_list_that_meet_are_one() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    house.units[0].1.write(0, &[0xee; 65536]);
    let mut ranges: Vec<(u64, u32)> = (0..48).rev().map(|lba| (lba, 1)).collect();
    ranges.extend([(20, 9), (48, 3), (60, 2), (64, 16)]);
    let (cdb, list) = unmap(&ranges);
    house.send_data(&a, 0, &cdb, &list).good();
    for (lba, block) in house.units[0].1.data[..65536].chunks(512).enumerate() {
        let is_zero = matches!(lba, 0..51 | 60..62 | 64..80);
        assert!(block.iter().all(|&byte| byte == if is_zero { 0 } else { 0xee }), "LBA {lba}");
    }
    assert_eq!(statuses(&mut house, &a, 0)[..3], [(0, 48, 1), (48, 16, 0), (64, 16, 1)]);
}

/// Zeroing the ends needs space; giving back whole blocks must work without.
#[test]
fn unmap_works_in_a_full_pool() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    house.units[0].1.write(0, &[0xee; 65536]);
    house.units[0].1.failures.extend([Some(IoError::NoSpace)]);
    let (cdb, list) = unmap(&[(8, 48), (64, 16)]);
    house.send_data(&a, 0, &cdb, &list).good();
    assert_eq!(statuses(&mut house, &a, 0)[..3], [(0, 16, 0), (16, 32, 1), (48, 16, 0)]);
    house.units[0].1.failures.extend([Some(IoError::NoSpace), Some(IoError::NoSpace)]);
    assert_eq!(house.send_data(&a, 0, &cdb, &list).sense(), (7, 0x2707), "not for ever");
}

#[test]
fn failures_of_the_volume_are_told_in_the_standard_s_words() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    for (error, sense) in [
        (IoError::Corrupt, (3, 0x1100)),
        (IoError::NoSpace, (7, 0x2707)),
        (IoError::Io, (4, 0x4400)),
        (IoError::Suspended, (2, 0x0403)),
        (IoError::ReadOnly, (7, 0x2700)),
        (IoError::Gone, (5, 0x2500)),
        (IoError::OutOfRange, OUT_OF_RANGE),
    ] {
        for (cdb, data) in
            [(blocks(0x28, 0, 0, 1), 0), (blocks(0x2a, 0, 0, 1), 512), (blocks(0x35, 0, 0, 0), 0)]
        {
            house.units[0].1.failures.push_back(Some(error));
            assert_eq!(house.send_data(&a, 0, &cdb, &vec![0; data]).sense(), sense, "{error:?}");
        }
    }
}

#[test]
fn protection_information_is_refused() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    let opcodes =
        READS.into_iter().chain(WRITES).chain([0x2e, 0xae, 0x8e, 0x2f, 0xaf, 0x8f, 0x8b, 0x89, 0x9c]);
    for opcode in opcodes {
        for protect in 1..8u8 {
            let answer = house.send(&a, 0, &blocks(opcode, protect << 5, 0, 0));
            assert_eq!((answer.sense(), answer.field()), (INVALID_FIELD, (true, 1, Some(7))), "{opcode:02x}");
        }
    }
}

#[test]
fn prefetching_is_bounded() {
    let mut house = House::new(1);
    let a = house.initiator("a", 1);
    for opcode in [0x34, 0x90] {
        house.send(&a, 0, &blocks(opcode, 0, 0, 0)).good();
        house.send(&a, 0, &blocks(opcode, 2, BLOCKS - 1, 1)).good();
        assert_eq!(house.send(&a, 0, &blocks(opcode, 0, BLOCKS - 1, 2)).sense(), OUT_OF_RANGE);
    }
    assert!(house.units[0].1.longest <= 8 << 20);
}

#[test]
fn native_blocks_of_4_kib() {
    let mut house = House::of([config(0, BlockFormat::B4096)]);
    let a = house.initiator("a", 1);
    assert_eq!((house.units[0].0.block_bytes(), house.units[0].0.blocks()), (4096, VOLUME_BYTES / 4096));
    let data = pattern(1, 8192);
    house.send_data(&a, 0, &blocks(0x2a, 0, 3, 2), &data).good();
    assert_eq!(house.units[0].1.data[3 * 4096..5 * 4096], data);
    let capacity = house.send(&a, 0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]).good();
    assert_eq!(capacity, [0, 0, 3, 0xff, 0, 0, 16, 0]);
}

#[test]
fn a_protected_unit_writes_nothing() {
    let mut house =
        House::of([UnitConfig { read_only: true, sync: SyncPolicy::Always, ..config(0, BlockFormat::B512) }]);
    let a = house.initiator("a", 1);
    house.units[0].1.data.fill(0xee);
    let (unmap_cdb, unmap_list) = unmap(&[(0, 16)]);
    let mut writes: Vec<(Vec<u8>, Vec<u8>)> = vec![(unmap_cdb, unmap_list), (caw(0, 0, 1), vec![0xee; 1024])];
    for opcode in WRITES.into_iter().chain([0x2e, 0xae, 0x8e, 0x41, 0x93, 0x8b]) {
        writes.push((blocks(opcode, 0, 0, 1), vec![0; 512]));
    }
    writes.push((vec![0x0a, 0, 0, 0, 1, 0], vec![0; 512]));
    for (cdb, data) in writes {
        assert_eq!(house.send_data(&a, 0, &cdb, &data).sense(), (7, 0x2700), "{cdb:02x?}");
    }
    assert!(house.units[0].1.data.iter().all(|&byte| byte == 0xee));
    assert_eq!(house.send(&a, 0, &blocks(0x28, 0, 0, 1)).good(), [0xee; 512]);
    assert_eq!(house.send(&a, 0, &[0x1a, 8, 8, 0, 24, 0]).good()[2], 0x90, "WP, DPOFUA");
}
