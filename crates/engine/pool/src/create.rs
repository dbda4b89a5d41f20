//! Creating a pool: everything is checked first; labels are written last, so that half a pool is none.

use crate::EngineConfig;
use crate::candidate::{check_new, open_disk};
use crate::damage::Damage;
use crate::error::{Error, ErrorKind};
use crate::flash::bytes_min;
use crate::format::{SHARDS_MAX, ShardRoot, Super};
use crate::import::{build_array, lines};
use crate::index::{Datasets, Snapshots};
use crate::items::Items;
use crate::registry::PoolShared;
use crate::retention::PoolClock;
use crate::sectors::{check_sectors, given, put_sectors, sector_of};
use crate::shard::{FrozenShard, Log, Shard, ShardParts};
use crate::slots::SlotMap;
use crate::spec::{Import, Layout, PoolSpec, ScrubSchedule, TRASH_KEEP_SECONDS};
use crate::tables::{Tables, table_nodes};
use crate::volumes::check_name;
use forebay_base::{GIB, Id, KIB, MIB};
use forebay_device::{
    DISKS_MAX, DiskEntry, DiskLayout, DiskStatus, ENCLOSURE_BYTES, Enclosure, GroupEntry, Label, LayoutError,
    Owner, SUPERBLOCKS_BYTES, SuperblockSlot, UNIT, write_label, write_superblock,
};
use forebay_log::{Chain, Ring};
use forebay_runtime::{Cores, Disk, Rt};
use forebay_space::{Chunk, ChunkEntry, ChunkKind, NODE_UNITS, Space};
use futures_util::future::join_all;
use std::rc::Rc;
use std::sync::Arc;

const LOG_BYTES_MIN: u64 = 512 * KIB;
/// With parity, what goes into lines in use passes through the log: the largest block and its parity take a quarter of this.
const LOG_BYTES_MIN_LINES: u64 = 3 * MIB;
const LOG_BYTES_MAX: u64 = GIB;
/// A block of the most common size is on one disk.
const CELL_BYTES_MIN: u64 = 16 * KIB;
/// A disk reads on at little cost once it is there; flash does not seek, and small lines are sooner full.
const CELL_BYTES_FLASH: u64 = 64 * KIB;
const CELL_BYTES_DISK: u64 = 128 * KIB;
const FIRST_GENERATION: u64 = 1;
const FIRST_EPOCH: u64 = 1;

pub(crate) fn invalid(field: &'static str, object: &str, message: impl Into<String>, remedy: &str) -> Error {
    Error::new(ErrorKind::Invalid(field), object, message).remedy(remedy)
}

/// Checks the name that a pool is to have.
pub(crate) fn check_pool_name(name: &str, field: &'static str) -> Result<(), Error> {
    check_name(name, name, field)?;
    if name.contains('/') || name.len() > 63 {
        let message = "a pool's name has at most 63 characters and no /";
        return Err(invalid(field, name, message, "Choose another name"));
    }
    Ok(())
}

/// Checks what can be checked without the disks.
fn check_spec(spec: &PoolSpec) -> Result<(), Error> {
    check_pool_name(&spec.name, "name")?;
    check_layout(&spec.name, spec.layout, &spec.disks)?;
    if spec.paths().count() > DISKS_MAX {
        let most = format!("a pool has at most {DISKS_MAX} disks");
        return Err(invalid("disks", &spec.name, &most, "Give fewer disks, or create several pools"));
    }
    check_enclosures(&spec.name, &spec.enclosures, |path| spec.paths().any(|disk| disk == path))?;
    check_sectors(&spec.name, &spec.sectors, |path| spec.paths().any(|disk| disk == path))?;
    if spec.log_disks.len() > 3 {
        return Err(invalid(
            "log_disks",
            &spec.name,
            "a log group has 1, 2 (mirrored) or 3 disks",
            "Give fewer log disks",
        ));
    }
    if !(1..=SHARDS_MAX).contains(&spec.shards) {
        return Err(invalid(
            "shards",
            &spec.name,
            format!("{} shards are not possible", spec.shards),
            "Give 1 to 32",
        ));
    }
    Ok(())
}

/// Checks that there is such a layout, and disks enough for it.
pub(crate) fn check_layout(pool: &str, layout: Layout, disks: &[String]) -> Result<(), Error> {
    if !layout.is_possible() {
        let message = format!("there is no layout {layout}");
        return Err(invalid("layout", pool, message, "Give 2 to 16 data and 1 to 3 parity disks"));
    }
    if disks.len() < layout.width() {
        let message =
            format!("layout {layout} needs {} disks, and {} are given", layout.width(), disks.len());
        return Err(invalid("disks", pool, message, "Give more disks or another layout"));
    }
    Ok(())
}

/// Checks names of boxes, by path.
pub(crate) fn check_enclosures(
    pool: &str,
    enclosures: &[(String, String)],
    is_disk: impl Fn(&String) -> bool,
) -> Result<(), Error> {
    for (path, name) in enclosures {
        if !is_disk(path) {
            let message = format!("{path} is not one of the pool's disks");
            return Err(invalid("enclosures", pool, message, "Write the path as in the list of disks"));
        }
        if Enclosure::new(name).is_none() {
            let message =
                format!("an enclosure's name has at most {ENCLOSURE_BYTES} bytes, and '{name}' has more");
            return Err(invalid("enclosures", pool, message, "Choose a shorter name"));
        }
    }
    Ok(())
}

/// Enters the boxes that disks at these paths are in.
pub(crate) fn put_in_boxes<'a>(
    entries: &mut [DiskEntry],
    paths: impl Iterator<Item = &'a String>,
    enclosures: &[(String, String)],
) {
    for (entry, path) in entries.iter_mut().zip(paths) {
        let named = enclosures.iter().find(|(disk, _)| disk == path);
        entry.enclosure = named.and_then(|(_, name)| Enclosure::new(name)).unwrap_or_default();
    }
}

/// Checks that each shard can have a part of a cache disk.
pub(crate) fn check_cache_disk(path: &str, disk: &Disk, shards: usize) -> Result<(), Error> {
    let (bytes, least) = (disk.geometry().size, bytes_min(shards));
    if bytes < least {
        let message = format!("the disk has {bytes} bytes; a cache for {shards} shards needs {least} bytes");
        return Err(invalid("cache_disks", path, message, "Give a larger disk"));
    }
    Ok(())
}

/// Bytes of a cell: of small disks less, so that a chunk has lines to choose from.
fn cell_bytes(slot_bytes: u64, most: u64) -> u64 {
    (1 << (slot_bytes / 16).ilog2()).clamp(CELL_BYTES_MIN, most)
}

/// A group's entry and its disks' entries.
pub(crate) fn plan_group(
    rt: &Rt,
    role: u8,
    layout: Layout,
    group: u16,
    disks: &[Disk],
) -> (GroupEntry, Vec<DiskEntry>) {
    let smallest = disks.iter().map(|disk| disk.geometry().size).min().expect("a group has a disk");
    let (data, redundancy) = (layout.data(), layout.redundancy());
    let slot_bytes = DiskLayout::slot_bytes_for(smallest, data.into());
    let cell_bytes = match data {
        1 => slot_bytes,
        _ if disks.iter().any(|disk| disk.geometry().rotational) => cell_bytes(slot_bytes, CELL_BYTES_DISK),
        _ => cell_bytes(slot_bytes, CELL_BYTES_FLASH),
    };
    let entry = GroupEntry { role, data, redundancy, slot_bytes, cell_bytes, leaving: false };
    let describe = |disk: &Disk| DiskEntry {
        slots: slots_of(disk, &entry).expect("the size was checked"),
        ..describe(rt, group, disk)
    };
    (entry, disks.iter().map(describe).collect())
}

/// A new disk of a group, with no slots yet.
pub(crate) fn describe(rt: &Rt, group: u16, disk: &Disk) -> DiskEntry {
    let geometry = disk.geometry();
    DiskEntry {
        id: Id::from_random(rt.random(), rt.random()),
        group,
        status: DiskStatus::Online,
        slots: 0,
        size: geometry.size,
        sector_physical: geometry.sector_physical,
        stale_since: 0,
        heir_of: None,
        enclosure: Enclosure::default(),
    }
}

/// Slots that a disk has for a group.
pub(crate) fn slots_of(disk: &Disk, group: &GroupEntry) -> Result<u32, LayoutError> {
    let layout = DiskLayout::new(disk.geometry().size, group.slot_bytes, u64::from(group.data))?;
    Ok(layout.slots)
}

/// Opens the disks, data before log, unless something speaks against making this pool on them. Writes nothing.
pub(crate) async fn examine(rt: &Rt, spec: &PoolSpec) -> Result<Vec<Disk>, Error> {
    check_spec(spec)?;
    let mut disks: Vec<Disk> = Vec::new();
    for path in spec.paths() {
        let disk = open_disk(rt, path, spec.force, None).await?;
        check_new(path, &disk, &disks)?;
        sector_of(path, &disk, given(&spec.sectors, path))?;
        if spec.cache_disks.contains(path) {
            check_cache_disk(path, &disk, spec.shards)?;
        }
        disks.push(disk);
    }
    Ok(disks)
}

/// Formats the disks of a new pool. It can be imported afterwards.
pub(crate) async fn create(
    rt: &Rt,
    cores: &Cores,
    config: &EngineConfig,
    spec: &PoolSpec,
) -> Result<(), Error> {
    let disks = examine(rt, spec).await?;
    let (data, others) = disks.split_at(spec.disks.len());
    let (log, others) = others.split_at(spec.log_disks.len());
    let (spare, cache) = others.split_at(spec.spare_disks.len());
    let (group, mut entries) = plan_group(rt, 0, spec.layout, 0, data);
    let mut groups = vec![group];
    if !log.is_empty() {
        let (group, more) = plan_group(rt, 1, Layout::of(1, (log.len() - 1) as u8), 1, log);
        groups.push(group);
        entries.extend(more);
    }
    for (disks, status) in [(spare, DiskStatus::Spare), (cache, DiskStatus::Cache)] {
        entries.extend(disks.iter().map(|disk| DiskEntry { status, ..describe(rt, 0, disk) }));
    }
    put_in_boxes(&mut entries, spec.paths(), &spec.enclosures);
    put_sectors(&mut entries, spec.paths(), &spec.sectors);
    let label = Label {
        features: Vec::new(),
        pool: Id::from_random(rt.random(), rt.random()),
        pool_name: spec.name.clone(),
        disk: 0,
        owner: Owner::default(),
        generation: 1,
        created: rt.wall(),
        shards: spec.shards as u16,
        groups,
        disks: entries,
    };
    let shared = Arc::new(PoolShared::new(
        label.pool,
        spec.name.clone(),
        cores.clone(),
        config,
        Import::default(),
        1 << 20,
        spec.shards,
        PoolClock::from(rt.wall(), rt),
    ));
    let roots = format_shards(rt, &shared, &label, &disks, spec).await?;
    let failed = |disk: usize| {
        let path = spec.paths().nth(disk).cloned().unwrap_or_default();
        move |error: forebay_runtime::DiskError| {
            Error::new(ErrorKind::Io, path, format!("writing failed: {error}"))
        }
    };
    let pool = Super {
        incarnation: 0,
        epoch: FIRST_EPOCH,
        label_generation: 1,
        exported: true,
        scrubs: ScrubSchedule::default(),
        trash_keep_seconds: TRASH_KEEP_SECONDS,
        speed: None,
        scrub: None,
        errors: Vec::new(),
        host: config.host.clone(),
        clock: rt.wall(),
        shards: roots,
    };
    let (owner, generation, payload) = (Owner::default(), FIRST_GENERATION, pool.encode());
    let slot = SuperblockSlot { pool: label.pool, owner, generation, payload };
    let zeros = rt.arena().take_zeroed(SUPERBLOCKS_BYTES).freeze();
    let superblocks = disks.iter().enumerate().map(async |(index, disk)| {
        disk.write(DiskLayout::superblock_at(0, 0), vec![zeros.clone()]).await.map_err(failed(index))?;
        write_superblock(rt, disk, &slot).await.map_err(failed(index))?;
        disk.flush().await.map_err(failed(index))
    });
    join_all(superblocks).await.into_iter().collect::<Result<Vec<()>, Error>>()?;
    let labels = disks.iter().enumerate().map(async |(index, disk)| {
        let own = Label { disk: index as u16, ..label.clone() };
        write_label(rt, disk, Some(&own)).await.map_err(failed(index))
    });
    join_all(labels).await.into_iter().collect::<Result<Vec<()>, Error>>().map(drop)
}

/// Writes each shard's first checkpoint: a log ring and nothing else.
async fn format_shards(
    rt: &Rt,
    shared: &Arc<PoolShared>,
    label: &Label,
    disks: &[Disk],
    spec: &PoolSpec,
) -> Result<Vec<ShardRoot>, Error> {
    let mut slots = SlotMap::new(label);
    let log_group = label.groups.len() as u16 - 1;
    let chunk_bytes = u64::from(slots.units(log_group, ChunkKind::Log)) * UNIT;
    let space_bytes = slots.chunks(log_group).0 * chunk_bytes;
    let share = if log_group == 0 { 16 } else { 2 };
    let has_lines = label.groups.iter().any(|group| group.data > 1);
    let log_bytes_min = if has_lines { LOG_BYTES_MIN_LINES } else { LOG_BYTES_MIN };
    let log_bytes = spec
        .log_bytes
        .unwrap_or(space_bytes / share / spec.shards as u64)
        .clamp(log_bytes_min, LOG_BYTES_MAX.max(spec.log_bytes.unwrap_or(0)));
    let log_chunks = log_bytes.div_ceil(chunk_bytes);
    let nodes_each = u64::from(slots.units(0, ChunkKind::Node) / NODE_UNITS);
    let node_chunks = node_chunks(log_chunks as usize, nodes_each as usize);
    // All of it is found before anything is written.
    let mut planned = Vec::new();
    for _ in 0..spec.shards {
        let full = || {
            Error::new(
                ErrorKind::NoSpace,
                &*spec.name,
                format!("the disks have no room for the logs of {} shards", spec.shards),
            )
            .remedy("Give larger disks or fewer shards")
        };
        let mut take = |group: u16, kind: ChunkKind, count: usize| {
            let chunks = (0..count).map(|order| slots.take(group, kind, order as u32).ok_or_else(full));
            chunks.collect::<Result<Vec<ChunkEntry>, Error>>()
        };
        let log = take(log_group, ChunkKind::Log, log_chunks as usize)?;
        let nodes = take(0, ChunkKind::Node, node_chunks)?;
        planned.push((log, nodes.into_iter().map(|chunk| ChunkEntry { order: 0, ..chunk })));
    }
    let (_, left) = slots.chunks(0);
    if left < spec.shards as u64 * 8 {
        let message = format!(
            "the disks have room for {left} chunks for {} shards, and each shard needs at least 8",
            spec.shards
        );
        return Err(
            Error::new(ErrorKind::NoSpace, &*spec.name, message).remedy("Give larger disks or fewer shards")
        );
    }
    let mut roots = Vec::new();
    for (index, (log, nodes)) in planned.into_iter().enumerate() {
        let ring_chunks: Vec<_> = log.iter().map(|chunk| chunk.slots.clone()).collect();
        let mut space = Space::new(lines(label));
        log.into_iter().chain(nodes).for_each(|chunk| space.insert(Chunk::fresh(chunk)));
        let failed = |_| -> forebay_raid::Recorded { Box::pin(std::future::ready(())) };
        let members = disks.iter().cloned().map(Some).collect();
        let array = build_array(rt, label, members, &shared.healths, shared.crowds.clone(), Box::new(failed));
        let start = Chain { position: 0, sequence: 1, previous: Default::default() };
        let ring = Ring { chunk_bytes, chunks: ring_chunks.len() };
        let log = Log::new(ring, ring_chunks, start, 0);
        let parts = ShardParts {
            damage: Damage::default(),
            items: Items::default(),
            space,
            datasets: Datasets::default(),
            snapshots: Snapshots::default(),
            log,
            tables: Tables::default(),
            sealed: 1,
            epoch: FIRST_EPOCH,
            next_number: 0,
        };
        let shard = Rc::new(Shard::new(rt.clone(), shared.clone(), index, array, false, parts));
        let frozen: FrozenShard = shard.freeze_now();
        *shard.frozen.borrow_mut() = Some(frozen);
        let root = shard.write_checkpoint(FIRST_GENERATION).await;
        roots.push(root.map_err(|error| {
            Error::new(ErrorKind::Io, &*spec.name, format!("formatting failed: {error}"))
        })?);
    }
    Ok(roots)
}

/// Chunks of `nodes_each` nodes that a shard's first checkpoint needs: for its table, which lists them and the log's.
fn node_chunks(log_chunks: usize, nodes_each: usize) -> usize {
    let fits = |count: &usize| table_nodes(0, log_chunks + count) <= count * nodes_each;
    (1..).find(fits).expect("a chunk has more nodes than a line of a table")
}
