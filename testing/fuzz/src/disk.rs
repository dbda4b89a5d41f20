//! What a disk can hold that this engine did not write.
//!
//! Structures on disk carry checksums, which stop random bytes at the door; but a checksum is no proof of good
//! will. So each target lays the input over a valid structure, sets the checksum right, and decodes: whatever is
//! accepted must survive being written and read again.

use forebay_base::codec::{Reader, Writer};
use forebay_base::{Checksum, Id, WallTime};
use forebay_device::{
    Compatibility, DiskEntry, DiskStatus, Enclosure, Feature, GroupEntry, Label, Owner, SlotRef,
    SuperblockSlot, record_bytes,
};
use forebay_log::{Chain, FRAME_HEADER, Frame, FrameContext, decode_records, encode_frame};
use forebay_pool::flash_index::{Index, Place};
use forebay_pool::flash_segment::{Cached, SEGMENT_BYTES, Segment, UNIT_BYTES};
use forebay_space::{
    Bits, CHUNK_ENTRY_BYTES, ChunkEntry, ChunkId, ChunkKind, PTR_BYTES, Ptr, decode_record, encode_record,
};
use forebay_tree::{FANOUT, NODE_BODY, Pointers, decode_ptrs, leaf_body};

const AT: u64 = 4096;
const POOL: Id = Id(0x1234);

/// Lays patches over `bytes`: two bytes of place, one of length, then what to put there.
fn patch(bytes: &mut [u8], mut patches: &[u8]) {
    while let [high, low, len, rest @ ..] = patches {
        let place = usize::from(u16::from_be_bytes([*high, *low])) % bytes.len();
        let len = usize::from(*len % 32).min(rest.len()).min(bytes.len() - place);
        bytes[place..place + len].copy_from_slice(&rest[..len]);
        patches = &rest[len..];
    }
}

/// Sets the checksum at `at` right.
fn seal(bytes: &mut [u8], at: usize) {
    let sum = Checksum::of_with_hole(bytes, at);
    bytes[at..at + 16].copy_from_slice(&sum.0.to_le_bytes());
}

pub fn label(data: &[u8]) {
    let _ = Label::decode(data, AT);
    let disk = DiskEntry {
        id: Id(7),
        group: 0,
        status: DiskStatus::Online,
        slots: 256,
        size: 1 << 30,
        sector_physical: 512,
        stale_since: 0,
        heir_of: None,
        enclosure: Enclosure::default(),
    };
    let group = GroupEntry {
        role: 0,
        data: 1,
        redundancy: 1,
        slot_bytes: 1 << 20,
        cell_bytes: 1 << 20,
        leaving: false,
    };
    let label = Label {
        features: vec![Feature::new(Compatibility::ReadOnly, "later")],
        pool: POOL,
        pool_name: "tank".into(),
        disk: 0,
        owner: Owner::default(),
        generation: 3,
        created: WallTime(5),
        shards: 2,
        groups: vec![group],
        disks: vec![disk, DiskEntry { id: Id(8), status: DiskStatus::Failed, ..disk }],
    };
    let mut bytes = label.encode(AT);
    patch(&mut bytes, data);
    seal(&mut bytes, 16);
    if let Ok(label) = Label::decode(&bytes, AT) {
        assert_eq!(Label::decode(&label.encode(AT), AT), Ok(label));
    }
}

pub fn superblock(data: &[u8]) {
    let _ = SuperblockSlot::decode(data, AT);
    let mut bytes =
        SuperblockSlot { pool: POOL, owner: Owner::default(), generation: 9, payload: vec![5; 300] }
            .encode(AT);
    patch(&mut bytes, data);
    seal(&mut bytes, 8);
    if let Some(slot) = SuperblockSlot::decode(&bytes, AT) {
        assert_eq!(SuperblockSlot::decode(&slot.encode(AT), AT), Some(slot));
    }
}

/// The first byte says how many records the frame claims; the input is their bytes, and patches of the frame's header.
pub fn log(data: &[u8]) {
    let [count, records @ ..] = data else { return };
    let (context, chain) = (FrameContext { pool: POOL, shard: 1, owner: Owner::default() }, Chain::default());
    let _ = Frame::decode(data, context, &chain);
    let mut bytes = vec![0; Frame::length_for(records.len())];
    bytes[FRAME_HEADER..FRAME_HEADER + records.len()].copy_from_slice(records);
    encode_frame(&mut bytes, context, &chain, 1, 0, u32::from(*count), records.len());
    let (frame, payload) = Frame::decode(&bytes, context, &chain).expect("a frame that was just made");
    assert_eq!(payload, records);
    if let Ok(decoded) = decode_records(payload, frame.records) {
        let mut again = vec![0; decoded.iter().map(|record| record.len()).sum()];
        let mut writer = Writer::new(&mut again);
        decoded.iter().for_each(|record| record.encode(&mut writer));
        assert_eq!(decode_records(&again, frame.records), Ok(decoded));
    }
    patch(&mut bytes[8..FRAME_HEADER], records);
    seal(&mut bytes, 8);
    let claimed = Frame::peek(&bytes, context, &chain);
    if let Some((frame, payload)) = Frame::decode(&bytes, context, &chain) {
        assert_eq!(claimed, Some(frame.length));
        let _ = decode_records(payload, frame.records);
        let next = frame.next();
        assert_eq!((next.position, next.sequence), (u64::from(frame.length), 1));
    }
}

/// A line of the chunk table, and the record that it leads to.
pub fn chunk(data: &[u8]) {
    let slots = vec![SlotRef { disk: 1, slot: 2 }; 2];
    let mut stored = Bits::new(100);
    stored.set(3, 50);
    let (mut record, record_sum) = encode_record(POOL, 4, ChunkId(7), &stored);
    let (id, kind) = (ChunkId(7), ChunkKind::Data { class: 1 });
    let entry = ChunkEntry { record_sum, ..ChunkEntry::fresh(id, kind, 0, 100, slots) };
    let mut line = [0; CHUNK_ENTRY_BYTES];
    entry.encode(&mut Writer::new(&mut line));
    patch(&mut line, data);
    let decoded = ChunkEntry::decode(&mut Reader::new(&line)).expect("a whole line");
    let Some(mut entry) = decoded else { return };
    let mut again = [0; CHUNK_ENTRY_BYTES];
    entry.encode(&mut Writer::new(&mut again));
    assert_eq!(ChunkEntry::decode(&mut Reader::new(&again)), Ok(Some(entry.clone())));
    let _ = decode_record(data, POOL, &entry);
    record.resize(record_bytes(u64::from(entry.units)) as usize, 0);
    patch(&mut record, data);
    seal(&mut record, 8);
    entry.record_sum = Checksum(u128::from_le_bytes(record[8..24].try_into().expect("16 bytes")));
    if let Some((bits, _)) = decode_record(&record, POOL, &entry) {
        assert_eq!(bits.len(), entry.units);
        let (again, record_sum) = encode_record(POOL, 4, entry.id, &bits);
        assert_eq!(decode_record(&again, POOL, &ChunkEntry { record_sum, ..entry }), Some((bits, 4)));
    }
}

/// Pointers of a node's body: whatever they say, asking them must not panic.
pub fn node(data: &[u8]) {
    let mut body = vec![0; NODE_BODY];
    patch(&mut body, data);
    let pointers = decode_ptrs(&body);
    assert_eq!(pointers.len() as u64, FANOUT);
    for ptr in &pointers {
        let _ = (ptr.is_hole(), ptr.addr().chunk(), ptr.addr().unit(), ptr.addr().offset());
        let _ = (ptr.bytes(), ptr.units(), ptr.birth());
        let mut bytes = [0; PTR_BYTES];
        ptr.encode(&mut Writer::new(&mut bytes));
        assert_eq!(Ptr::decode(&mut Reader::new(&bytes)), Ok(*ptr));
    }
    assert!(leaf_body(Pointers::from(pointers).iter()).is_none_or(|again| again == body));
}

/// A segment's header on a cache disk, and what an import notes of it: no block is outside the segment, nor in its header, nor in another, and the
/// index says of each what the header does.
pub fn cache(data: &[u8]) {
    let _ = Segment::decode(data, AT);
    let blocks = (0..32).map(|nth| Cached { tag: nth << 32, units: 1 + nth as u8 % 8 }).collect();
    let mut bytes = Segment { pool: POOL, number: 9, blocks }.encode(AT);
    patch(&mut bytes, data);
    seal(&mut bytes, 8);
    let Some(segment) = Segment::decode(&bytes, AT) else { return };
    assert_eq!(Segment::decode(&segment.encode(AT), AT).as_ref(), Some(&segment));
    let mut index = Index::new(64);
    let mut end = 1;
    for (tag, place) in segment.places(3) {
        let (unit, units) = (u64::from(place.unit), u64::from(place.units));
        assert!(unit == end && units > 0, "{place:?} behind unit {end}");
        end += units;
        assert!(end * UNIT_BYTES <= SEGMENT_BYTES, "{place:?}");
        index.insert(tag, place, |_| 1);
        assert_eq!(index.find(tag), Some(Place { segment: segment.number, ..place }));
    }
    assert!(index.blocks().count() <= segment.blocks.len());
    for (tag, place) in segment.places(3) {
        index.forget(tag);
        assert_eq!(index.find(tag), None, "{place:?} was forgotten");
    }
}
