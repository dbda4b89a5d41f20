//! Holds `docs/development/disk-format.md` against the code: every row of its tables must find the field's value where it says.

use crate::added::Added;
use crate::bookmarks::Gap;
use crate::damage::{Damage, Lost};
use crate::flash_segment::{Cached, Segment};
use crate::format::{ShardRoot, Super};
use crate::items::{ROW_BYTES, Row};
use crate::projects::Inherits;
use crate::record::{DatasetKind, DatasetRecord, DatasetState};
use crate::reserve::Own;
use crate::spec::{
    Host, PoolSpeed, Scrub, ScrubSchedule, ScrubState, SnapshotKeep, SnapshotSchedule, SyncPolicy,
    VolumeFormat,
};
use crate::table_tree::{HOMED_REF_BYTES, Ref, Root};
use forebay_base::checksum::hash_64;
use forebay_base::codec::Writer;
use forebay_base::{Checksum, Id, WallTime};
use forebay_compress::{Codec, Compression, Kind};
use forebay_device::{
    Compatibility, DiskEntry, DiskStatus, Enclosure, ErrorCounts, Feature, GroupEntry, Label, Owner, SlotRef,
    SuperblockSlot,
};
use forebay_log::{Chain, FRAME_HEADER, FrameContext, encode_frame};
use forebay_space::{
    Addr, Bits, CHUNK_ENTRY_BYTES, ChunkEntry, ChunkId, ChunkKind, PTR_BYTES, Ptr, encode_record,
};
use forebay_tree::{Mapped, NODE_BYTES, NodeHeader, encode_node};
use std::collections::BTreeMap;
use std::time::Duration;

const PAGE: &str = include_str!("../../../../docs/development/disk-format.md");

/// Rows of the page's tables: table → (offset, bytes, field).
fn tables() -> BTreeMap<String, Vec<(usize, usize, String)>> {
    let mut tables: BTreeMap<String, Vec<(usize, usize, String)>> = BTreeMap::new();
    let mut current = None;
    for line in PAGE.lines() {
        if let Some(name) = line.strip_prefix("<!-- table: ") {
            current = Some(name.trim_end_matches(" -->").to_string());
        } else if !line.starts_with('|') && !line.is_empty() {
            current = None;
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let (Some(name), [offset, bytes, field]) = (&current, &cells[..])
            && let (Ok(offset), Ok(bytes)) = (offset.parse(), bytes.parse())
        {
            tables.entry(name.clone()).or_default().push((offset, bytes, field.to_string()));
        }
    }
    tables
}

fn encoded(len: usize, encode: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut bytes = vec![0; len];
    encode(&mut Writer::new(&mut bytes));
    bytes
}

/// Every field of `name` has this value in `bytes`, and the page has exactly these fields.
fn check(name: &str, bytes: &[u8], fields: &[(&str, &[u8])]) {
    let tables = tables();
    let rows = tables.get(name).unwrap_or_else(|| panic!("the page has no table {name}"));
    assert_eq!(rows.len(), fields.len(), "fields of {name}");
    for (offset, len, field) in rows {
        let (_, value) = fields.iter().find(|(known, _)| field.starts_with(known)).unwrap_or_else(|| {
            panic!("the page gives {name} a field '{field}' that the code does not have");
        });
        let mut want = value.to_vec();
        want.resize(*len, 0);
        assert_eq!(&bytes[*offset..offset + len], want, "{name}: '{field}' at {offset}");
    }
}

fn le<const N: usize>(value: u128) -> [u8; N] {
    value.to_le_bytes()[..N].try_into().expect("at most 16 bytes")
}

fn sample_entry() -> ChunkEntry {
    let slots = vec![SlotRef { disk: 0x1112, slot: 0x13141516 }];
    let kind = ChunkKind::Data { class: 5 };
    let fresh = ChunkEntry::fresh(ChunkId(0x21222), kind, 7, 0x412, slots);
    let (free, places, lines, changed) = (0x3a1, 0x17, 0x5, 0x9988_7766);
    ChunkEntry {
        order: 0x51,
        record_sum: Checksum(0x31),
        alternate: 1,
        free,
        places,
        lines,
        changed,
        ..fresh
    }
}

fn sample_ptr() -> Ptr {
    Ptr::new(Addr::new(ChunkId(0x123456), 0x1234), 8192, 0x77, Checksum(0x99))
}

#[test]
fn pointers_entries_and_records() {
    let ptr = encoded(PTR_BYTES, |w| sample_ptr().encode(w));
    let addr = sample_ptr().addr().0;
    check(
        "pointer",
        &ptr,
        &[
            ("address", &le::<6>(addr.into())),
            ("sectors", &[16]),
            ("birth", &[0x77]),
            ("compression", &[]),
            ("flags", &[]),
            ("checksum", &[0x99]),
        ],
    );
    let entry = encoded(CHUNK_ENTRY_BYTES, |w| sample_entry().encode(w));
    check(
        "entry",
        &entry,
        &[
            ("chunk", &le::<4>(0x21222)),
            ("kind", &[0]),
            ("block class", &[5]),
            ("group", &[7]),
            ("units", &le::<4>(0x412)),
            ("order", &[0x51]),
            ("record checksum", &[0x31]),
            ("record alternate", &[1]),
            ("slots", &[1]),
            ("free", &le::<4>(0x3a1)),
            ("places", &[0x17]),
            ("lines", &[0x5]),
            ("changed", &le::<8>(0x9988_7766)),
            ("first slot", &[0x12, 0x11, 0x16, 0x15, 0x14, 0x13]),
        ],
    );
    let (record, sum) = encode_record(Id(0xabc), 0x61, ChunkId(0x71), &Bits::new(0x81));
    check(
        "record",
        &record,
        &[
            ("magic", b"FBCHUNK\x01"),
            ("checksum", &le::<16>(sum.0)),
            ("pool id", &le::<16>(0xabc)),
            ("generation", &[0x61]),
            ("chunk", &[0x71]),
            ("units", &[0x81]),
        ],
    );
}

#[test]
fn segments_of_the_cache() {
    let blocks = vec![Cached { tag: 0x1122_3344_5566_7788, units: 2 }];
    let bytes = Segment { pool: Id(0xabc), number: 0x51, blocks }.encode(0x300000);
    let sum = bytes[8..24].to_vec();
    check(
        "segment",
        &bytes,
        &[
            ("magic", b"FBAYCACH"),
            ("checksum", &sum),
            ("pool id", &le::<16>(0xabc)),
            ("own byte address", &le::<4>(0x300000)),
            ("number", &[0x51]),
            ("blocks", &[1]),
            ("first block: the low", &0x1122_3344_5566_7788u64.to_le_bytes()),
            ("first block: units", &[2]),
        ],
    );
}

#[test]
fn label_and_superblock() {
    let group = GroupEntry {
        role: 1,
        data: 1,
        redundancy: 2,
        slot_bytes: 1 << 20,
        cell_bytes: 1 << 16,
        leaving: true,
    };
    let (id, status) = (Id(0xd1), DiskStatus::Failed);
    let disk = DiskEntry {
        id,
        group: 0,
        status,
        slots: 0x101,
        size: 0x1234567,
        sector_physical: 8192,
        stale_since: 0x99,
        heir_of: Some(0x41),
        enclosure: Enclosure::new("box").expect("a short name"),
    };
    let label = Label {
        features: vec![Feature::new(Compatibility::ReadOnly, "more")],
        pool: Id(0xabc),
        pool_name: "tank".into(),
        disk: 0,
        owner: Owner::default(),
        generation: 0x11,
        created: WallTime(0x22),
        shards: 3,
        groups: vec![group],
        disks: vec![disk],
    };
    let bytes = label.encode(65536);
    let sum = bytes[16..32].to_vec();
    check(
        "label",
        &bytes,
        &[
            ("magic", b"FOREBAY\x01"),
            ("version", &[2]),
            ("header bytes", &le::<2>(256)),
            ("label bytes", &le::<4>(4096)),
            ("checksum", &sum),
            ("own byte address", &le::<4>(65536)),
            ("pool id", &le::<16>(0xabc)),
            ("generation", &[0x11]),
            ("created", &[0x22]),
            ("this disk's index", &[0]),
            ("shards", &[3]),
            ("groups", &[1]),
            ("disks", &[1]),
            ("pool name", b"tank"),
            ("ownership epoch", &[]),
            ("node", &[]),
            ("features", &[1]),
        ],
    );
    check(
        "feature",
        &bytes[256 + 64 + 64..],
        &[("compatibility", &[1]), ("name bytes", &[4]), ("name", b"more")],
    );
    check(
        "group",
        &bytes[256..320],
        &[
            ("role", &[1]),
            ("data slots", &[1]),
            ("redundancy", &[2]),
            ("leaving", &[1]),
            ("slot bytes", &le::<8>(1 << 20)),
            ("cell bytes", &le::<8>(1 << 16)),
        ],
    );
    check(
        "disk",
        &bytes[320..384],
        &[
            ("disk id", &[0xd1]),
            ("group", &[0]),
            ("status", &[1]),
            ("slots", &le::<4>(0x101)),
            ("size", &le::<8>(0x1234567)),
            ("physical sector", &le::<4>(8192)),
            ("stale since", &[0x99]),
            ("heir of", &[0x42]),
            ("enclosure", b"box"),
        ],
    );
    let owner = Owner { epoch: 0x99, node: 1 };
    let slot = SuperblockSlot { pool: Id(0xabc), owner, generation: 0x33, payload: vec![7; 300] };
    let slot = slot.encode(0x20000);
    check(
        "superblock",
        &slot,
        &[
            ("magic", b"FBAYSUPR"),
            ("checksum", &slot[8..24]),
            ("pool id", &le::<16>(0xabc)),
            ("own byte address", &le::<8>(0x20000)),
            ("generation", &[0x33]),
            ("payload bytes", &le::<4>(300)),
            ("node", &[1]),
            ("ownership epoch", &[0x99]),
        ],
    );
    assert_eq!(slot[72], 7, "the payload starts at byte 72");
}

#[test]
fn payload_dataset_node_and_frame() {
    let tail = Chain { position: 0x1000, sequence: 0x42, previous: Checksum(0x43) };
    let catalog = sample_ptr();
    let table = Ptr::new(Addr::new(ChunkId(9), 4), NODE_BYTES as u32, 1, Checksum(2));
    let slots = vec![SlotRef { disk: 0x1112, slot: 0x13141516 }];
    let homed = Root { at: Ref { ptr: table, slots }, height: 1 };
    let root = ShardRoot {
        table: homed.clone(),
        catalog: Root { at: Ref { ptr: catalog, slots: Vec::new() }, height: 2 },
        damage: Root { at: Ref { ptr: table, slots: Vec::new() }, height: 3 },
        registry: Root { at: Ref { ptr: table, slots: Vec::new() }, height: 4 },
        tail,
        cut: 0x44,
        sealed: 0x45,
        scrub: Some((0x45, 0x47)),
        next_number: 0x48,
    };
    let speed = PoolSpeed {
        measured: WallTime(0x31),
        read_iops: 0x32,
        write_iops: 0x33,
        read_bytes: 0x34,
        write_bytes: 0x35,
        read_latency: Duration::from_nanos(0x37),
        write_latency: Duration::from_nanos(0x38),
        window: Duration::from_nanos(0x36),
    };
    let scrubs = ScrubSchedule { last: WallTime(0x54), every_seconds: 0x55 };
    let pool = Super {
        incarnation: 0x51,
        epoch: 0x52,
        label_generation: 0x53,
        exported: true,
        scrubs,
        trash_keep_seconds: 0x58,
        speed: Some(speed),
        scrub: Some(Scrub {
            state: ScrubState::Done,
            since: WallTime(0x81),
            ended: Some(WallTime(0x82)),
            bytes_done: 0x83,
            bytes_total: 0x84,
            repaired: 0x85,
            lost: 0x86,
        }),
        errors: vec![ErrorCounts {
            read: 0x87,
            write: 0x88,
            checksum: 0x89,
            repaired: 0x8a,
            ..Default::default()
        }],
        host: Host { id: Id(0x56), name: "W".into() },
        clock: WallTime(0x59),
        shards: vec![root],
    };
    let bytes = pool.encode();
    check(
        "payload",
        &bytes,
        &[
            ("version", &[5]),
            ("shards", &[1]),
            ("flags", &[1]),
            ("incarnation", &[0x51]),
            ("epoch", &[0x52]),
            ("label generation", &[0x53]),
            ("last whole scrub", &[0x54]),
            ("seconds between scrubs", &[0x55]),
            ("seconds in the trash", &[0x58]),
            ("host that has the pool", &[0x56]),
            ("that host's name", &[0x57]),
            ("pool clock", &[0x59]),
        ],
    );
    check(
        "shard",
        &bytes[192..],
        &[
            ("root of the chunk table", &encoded(HOMED_REF_BYTES, |w| homed.at.encode(true, w))),
            ("root of the catalog", &encoded(PTR_BYTES, |w| catalog.encode(w))),
            ("root of what is lost", &encoded(PTR_BYTES, |w| table.encode(w))),
            ("levels of the chunk table", &[1]),
            ("levels of the catalog", &[2]),
            ("levels of what is lost", &[3]),
            ("levels of the registry", &[4]),
            ("log tail position", &le::<8>(0x1000)),
            ("log tail sequence", &[0x42]),
            ("log tail link", &[0x43]),
            ("cut", &[0x44]),
            ("sealed", &[0x45]),
            ("scrub's dataset", &[0x46]),
            ("scrub's leaf", &[0x47]),
            ("next dataset number", &[0x48]),
            ("root of the registry", &encoded(PTR_BYTES, |w| table.encode(w))),
        ],
    );
    check(
        "reference",
        &encoded(HOMED_REF_BYTES, |w| homed.at.encode(true, w)),
        &[
            ("pointer", &encoded(PTR_BYTES, |w| table.encode(w))),
            ("slots", &[1]),
            ("first slot", &[&le::<2>(0x1112)[..], &le::<4>(0x13141516)].concat()),
        ],
    );
    check(
        "speed",
        &bytes[192 + 256..],
        &[
            ("when it was measured", &[0x31]),
            ("reads of 8 KiB", &[0x32]),
            ("durable writes", &[0x33]),
            ("bytes read", &[0x34]),
            ("bytes written", &[0x35]),
            ("window", &[0x36]),
            ("one read", &[0x37]),
            ("one durable write", &[0x38]),
        ],
    );
    check(
        "last scrub",
        &bytes[192 + 256 + 64..],
        &[
            ("state", &[3]),
            ("disks", &[1]),
            ("since", &[0x81]),
            ("ended", &[0x82]),
            ("bytes read", &[0x83]),
            ("bytes in use", &[0x84]),
            ("repaired", &[0x85]),
            ("lost", &[0x86]),
        ],
    );
    check(
        "errors of a disk",
        &bytes[192 + 256 + 64 + 56..],
        &[
            ("disk", &[]),
            ("failed reads", &[0x87]),
            ("failed writes", &[0x88]),
            ("wrong reads", &[0x89]),
            ("repaired", &[0x8a]),
        ],
    );
    let lost = Lost {
        family: Id(0x91),
        level: 0,
        index: 0x92,
        bytes: 0x4000,
        found: WallTime(0x93),
        accepted: true,
    };
    let mut damage = Damage::default();
    damage.note(Addr(0x94), lost);
    check(
        "lost",
        &damage.encode()[0],
        &[
            ("place", &[0x94]),
            ("bytes", &le::<4>(0x4000)),
            ("level", &[0]),
            ("flags", &[1]),
            ("family", &[0x91]),
            ("index", &[0x92]),
            ("found", &[0x93]),
        ],
    );
    let row = Row { number: 0xa1, piece: 0xa2, pieces: 0xa4, key_bytes: 0xa5, content: &[0xa3; 492] };
    let mut item = [0; ROW_BYTES];
    row.encode(&mut item);
    check(
        "item",
        &item,
        &[
            ("number", &[0xa1]),
            ("piece:", &[0xa2]),
            ("pieces:", &[0xa4]),
            ("bytes here", &le::<2>(492)),
            ("key bytes", &[0xa5]),
        ],
    );
    let record = DatasetRecord {
        number: 0x61,
        state: DatasetState::Trashed,
        sync: SyncPolicy::Standard,
        created: WallTime(0x64),
        root: catalog,
        mapped: Mapped { blocks: 0x65, units: 0x6f },
        compression: Compression::Zstd(3),
        height: 2,
        family: Id(0x66),
        epoch: 0x67,
        cursor: 0x68,
        parent: Some(0x69),
        volume: 0x6b,
        held: true,
        template: true,
        scheduled: true,
        schedule: SnapshotSchedule {
            every_seconds: 0x6c,
            keep: SnapshotKeep { last: 0x6d, hourly: 0x7d, daily: 0x7e, weekly: 0x7f, monthly: 0x80 },
        },
        deleted: WallTime(0x6e),
        origin: Id(0x6f),
        base: Id(0x70),
        received: 0x71,
        peer: Id(0x75),
        format: VolumeFormat::EagerZeroedThick,
        inherits: Inherits(0x35),
        level: Id(0x78),
        gap: Gap { after: 0x79, before: 0x7c },
        own: Own { blocks: 0x72, since: 0x73, strays: 0x74 },
        added: Added { units: 0x76 },
        retain_until: WallTime(0x7b),
        quota: 0x77,
        ..DatasetRecord::new(DatasetKind::Attributes, Id(0x62), 13, 0x63, "a/b".into())
    };
    check(
        "dataset",
        &record.encode(),
        &[
            ("number", &[0x61]),
            ("kind", &[2]),
            ("state", &[2]),
            ("sync", &[1]),
            ("log2", &[13]),
            ("id", &[0x62]),
            ("size", &[0x63]),
            ("created", &[0x64]),
            ("root", &encoded(PTR_BYTES, |w| catalog.encode(w))),
            ("mapped blocks", &[0x65]),
            ("tree height", &[2]),
            ("mapped units", &[0x6f]),
            ("name bytes", &[3]),
            ("name", b"a/b"),
            ("family", &[0x66]),
            ("epoch", &[0x67]),
            ("deleted before leaf", &[0x68]),
            ("parent", &[0x6a]),
            ("volume", &[0x6b]),
            ("flags", &[7]),
            ("seconds between snapshots", &[0x6c]),
            ("kept", &[0x6d]),
            ("hourly", &[0x7d]),
            ("daily", &[0x7e]),
            ("weekly", &[0x7f]),
            ("monthly", &[0x80]),
            ("deleted, in ms", &[0x6e]),
            ("compression", &[35]),
            ("origin", &[0x6f]),
            ("base", &[0x70]),
            ("received", &[0x71]),
            ("level", &[0x78]),
            ("gap after", &[0x79]),
            ("gap before", &[0x7c]),
            ("peer", &[0x75]),
            ("format", &[2]),
            ("inherits", &[0x35]),
            ("own blocks", &[0x72]),
            ("own since", &[0x73]),
            ("strays", &[0x74]),
            ("added units", &[0x76]),
            ("quota", &[0x77]),
            ("retain until", &[0x7b]),
        ],
    );
    let (mut codec, block) = (Codec::default(), vec![7; 8192]);
    let (kind, packed) = codec.pack(Compression::Lz4, &block).expect("alike");
    assert_eq!(kind, Kind::Lz4);
    let payload = u32::from_le_bytes(packed[..4].try_into().expect("four"));
    let hash = ("hash", &hash_64(&block).to_le_bytes()[..]);
    check("packed", packed, &[("payload", &payload.to_le_bytes()), hash]);
    let header = NodeHeader { object: 0x72, ..NodeHeader::of_blocks(Id(0xabc), Id(0xdef), 3, 0x71) };
    let mut node = vec![0; NODE_BYTES];
    encode_node(&header, catalog, &[], &mut node);
    check(
        "node",
        &node,
        &[
            ("magic", b"FBND"),
            ("version", &[2]),
            ("kind of tree", &[0]),
            ("level", &[3]),
            ("bytes of a pointer", &[32]),
            ("pool id", &le::<16>(0xabc)),
            ("owner id", &le::<16>(0xdef)),
            ("object", &[0x72]),
            ("own address", &le::<8>(catalog.addr().0.into())),
            ("birth", &[0x77]),
            ("ownership epoch", &[]),
            ("index", &[0x71]),
        ],
    );
    let mut frame = vec![0; 4096];
    let context = FrameContext { pool: Id(0xabc), shard: 0x81, owner: Owner { epoch: 0x85, node: 1 } };
    let written = encode_frame(&mut frame, context, &tail, 0x82, 0x83, 0x84, 100);
    check(
        "frame",
        &frame,
        &[
            ("magic", b"FBLOGFRM"),
            ("checksum", &le::<16>(written.sum.0)),
            ("pool id", &le::<16>(0xabc)),
            ("shard", &[0x81]),
            ("version", &[1]),
            ("records", &[0x84]),
            ("sequence", &[0x42]),
            ("position", &le::<8>(0x1000)),
            ("incarnation", &[0x82]),
            ("durable", &[0x83]),
            ("length", &le::<4>(4096)),
            ("payload bytes", &[100]),
            ("link", &[0x43]),
            ("ownership epoch", &[0x85]),
            ("node", &[1]),
            ("header checksum", &frame[116..120]),
        ],
    );
    assert_eq!(FRAME_HEADER, 120);
}
