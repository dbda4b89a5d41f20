//! What callers ask for and what they are told: plain values, `Send`, in base units.

use crate::damage::DamageStatus;
use crate::promises::Standing;
use forebay_base::{Id, WallTime};
use forebay_compress::Compression;
use forebay_device::ErrorCounts;
use forebay_qos::Rate;
use std::time::Duration;

pub use crate::schedule::{SnapshotKeep, SnapshotSchedule};

/// How a group of disks protects data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    Single,
    Mirror,
    Mirror3,
    /// `data` cells and `parity` cells in every line: any `parity` disks may fail.
    Parity {
        data: u8,
        parity: u8,
    },
}

impl Layout {
    /// Disks that hold a part of each chunk of data.
    pub fn width(self) -> usize {
        usize::from(self.data()) + usize::from(self.redundancy())
    }
    /// Disks whose worth of data a chunk holds.
    pub fn data(self) -> u8 {
        match self {
            Layout::Single | Layout::Mirror | Layout::Mirror3 => 1,
            Layout::Parity { data, .. } => data,
        }
    }
    /// Disks that a group can lose.
    pub fn redundancy(self) -> u8 {
        match self {
            Layout::Single => 0,
            Layout::Mirror => 1,
            Layout::Mirror3 => 2,
            Layout::Parity { parity, .. } => parity,
        }
    }
    /// The layout with these numbers.
    pub(crate) fn of(data: u8, redundancy: u8) -> Layout {
        match (data, redundancy) {
            (1, 0) => Layout::Single,
            (1, 1) => Layout::Mirror,
            (1, 2) => Layout::Mirror3,
            (data, parity) => Layout::Parity { data, parity },
        }
    }
    /// `single`, `mirror`, `mirror3`, or `D+P` with 2 to 16 data and 1 to 3 parity cells.
    pub fn parse(text: &str) -> Option<Layout> {
        if let Some((data, parity)) = text.split_once('+') {
            let layout = Layout::Parity { data: data.parse().ok()?, parity: parity.parse().ok()? };
            return (layout.is_possible() && layout.to_string() == text).then_some(layout);
        }
        [Layout::Single, Layout::Mirror, Layout::Mirror3].into_iter().find(|l| l.to_string() == text)
    }
    /// Whether there is such a layout.
    pub fn is_possible(self) -> bool {
        match self {
            Layout::Single | Layout::Mirror | Layout::Mirror3 => true,
            Layout::Parity { data, parity } => (2..=16).contains(&data) && (1..=3).contains(&parity),
        }
    }
}

impl std::fmt::Display for Layout {
    /// The name on the command line.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Layout::Single => f.write_str("single"),
            Layout::Mirror => f.write_str("mirror"),
            Layout::Mirror3 => f.write_str("mirror3"),
            Layout::Parity { data, parity } => write!(f, "{data}+{parity}"),
        }
    }
}

/// What a group is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Data,
    Log,
}

/// A pool to create.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    pub name: String,
    pub layout: Layout,
    /// Paths of the data disks.
    pub disks: Vec<String>,
    /// Paths of the log disks: one group, mirrored when there are two or three. Empty: the log lives on the data disks.
    pub log_disks: Vec<String>,
    /// Paths of disks that wait to take the place of a data disk that fails.
    pub spare_disks: Vec<String>,
    /// Paths of disks that hold copies of what is read at random: flash beside disks that turn.
    pub cache_disks: Vec<String>,
    /// Names of the boxes that disks are in, by path: chunks are laid so that the loss of one box is, if it can be, no more than the layout can lose.
    pub enclosures: Vec<(String, String)>,
    /// Physical sectors in bytes, by path, of disks that do not say them right: powers of two from 512 to 65 536.
    pub sectors: Vec<(String, u32)>,
    /// Independent single-threaded owners of volumes, fixed for the pool's life: 1 to 32.
    pub shards: usize,
    /// Bytes of intent log per shard; by default a 32nd of the data space, 4 MiB to 1 GiB.
    pub log_bytes: Option<u64>,
    /// Take disks that are not empty, whatever is on them; never such as are in use.
    pub force: bool,
}

impl PoolSpec {
    /// All disks: data, log, spare, cache.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.disks.iter().chain(&self.log_disks).chain(&self.spare_disks).chain(&self.cache_disks)
    }
}

/// When a write is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncPolicy {
    /// When it is durable.
    #[default]
    Always,
    /// At once; durable with FUA or the next flush.
    Standard,
    /// At once; flush and FUA do nothing. Seconds of writes are lost with the power. For scratch data.
    Disabled,
}

impl SyncPolicy {
    pub fn name(self) -> &'static str {
        match self {
            SyncPolicy::Always => "always",
            SyncPolicy::Standard => "standard",
            SyncPolicy::Disabled => "disabled",
        }
    }
    pub fn parse(text: &str) -> Option<SyncPolicy> {
        [SyncPolicy::Always, SyncPolicy::Standard, SyncPolicy::Disabled]
            .into_iter()
            .find(|s| s.name() == text)
    }
}

/// What is kept ready for a volume's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VolumeFormat {
    /// Nothing: space is taken as it is written.
    #[default]
    Thin,
    /// Space for its whole size is held; what is written counts as used.
    ZeroedThick,
    /// Space for its whole size is held and counts as used.
    EagerZeroedThick,
}

impl VolumeFormat {
    pub fn name(self) -> &'static str {
        match self {
            VolumeFormat::Thin => "thin",
            VolumeFormat::ZeroedThick => "zeroedthick",
            VolumeFormat::EagerZeroedThick => "eagerzeroedthick",
        }
    }
    pub fn parse(text: &str) -> Option<VolumeFormat> {
        [VolumeFormat::Thin, VolumeFormat::ZeroedThick, VolumeFormat::EagerZeroedThick]
            .into_iter()
            .find(|format| format.name() == text)
    }
}

/// How a pool is imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Import {
    /// Nothing is written to any disk; what the log has is in memory.
    pub read_only: bool,
    /// Although another host had it last, and did not export it; although the log ends too early, so that the last writes are
    /// lost; with `read_only` also although more disks are missing than the layout can lose.
    pub force: bool,
}

impl Import {
    /// Whether what cannot be read is left out, and the rest is shown.
    pub fn is_rescue(&self) -> bool {
        self.read_only && self.force
    }
}

/// The machine that the engine runs on, as superblocks name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The same after every start, and of no other machine.
    pub id: Id,
    /// For people; of a longer name the first 64 bytes are kept.
    pub name: String,
}

/// A volume to create.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    pub pool: String,
    /// Name within the pool: `[PROJECT/]NAME`, 1 to 200 bytes of letters, digits and `._-/`.
    pub name: String,
    /// Bytes: 1 MiB to 64 TiB, a multiple of the block size.
    pub size: u64,
    /// Bytes: a power of two from 4 KiB to 128 KiB.
    pub block_size: u32,
    /// Absent: inherited.
    pub sync: Option<SyncPolicy>,
    pub compression: Option<Compression>,
    pub format: VolumeFormat,
    /// The id of a service level; zero for none.
    pub level: Option<Id>,
    /// It is not mapped to whom its project says.
    pub own_hosts: bool,
}

/// What becomes of a property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Setting<T> {
    #[default]
    Keep,
    /// From now on it has a value of its own.
    Own(T),
    /// From now on it has the value that it would have if nobody had set it.
    Inherit,
}

impl<T> Setting<T> {
    /// The change, if it is one: to a value of its own, or to what it inherits.
    pub fn said(self) -> Option<Option<T>> {
        match self {
            Setting::Keep => None,
            Setting::Own(value) => Some(Some(value)),
            Setting::Inherit => Some(None),
        }
    }
}

/// What of a volume changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeChange {
    pub sync: Setting<SyncPolicy>,
    /// For what is written from now on.
    pub compression: Setting<Compression>,
    pub schedule: Setting<SnapshotSchedule>,
    /// The id of a service level; zero for none. In force at once, also for what waits.
    pub level: Setting<Id>,
    /// Only whether they are its own: who they are the engine does not know.
    pub hosts: Setting<()>,
}

/// Where the value of a property comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It was set here.
    Own,
    Project,
    /// Nobody has set it.
    Default,
}

/// Where the values of a volume's inheritable properties come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    pub sync: Source,
    pub compression: Source,
    pub schedule: Source,
    pub level: Source,
    /// [`Source::Project`] in any project: the engine does not know whether that says hosts.
    pub hosts: Source,
}

/// What volumes have of their project where they have nothing of their own. What is absent here, they have by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectProperties {
    pub sync: Option<SyncPolicy>,
    pub compression: Option<Compression>,
    pub schedule: Option<SnapshotSchedule>,
    /// The id of a service level.
    pub level: Option<Id>,
    /// For whoever creates volumes: those that there are stay as they are. A power of two from 4 KiB to 128 KiB.
    pub block_size: Option<u32>,
    pub format: Option<VolumeFormat>,
    /// Bytes that all that belongs to the project may take, see [`ProjectInfo::used`].
    pub quota: Option<u64>,
    /// What clients of all its volumes together get at most in a second.
    pub ceiling: Rate,
}

/// What of a project changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectChange {
    pub sync: Setting<SyncPolicy>,
    pub compression: Setting<Compression>,
    pub schedule: Setting<SnapshotSchedule>,
    pub level: Setting<Id>,
    pub block_size: Setting<u32>,
    pub format: Setting<VolumeFormat>,
    /// At least 1 MiB; [`Setting::Inherit`] for none. It may be less than what is used.
    pub quota: Setting<u64>,
    /// Requests and bytes in a second; [`Setting::Inherit`] for no bound.
    pub max_iops: Setting<u64>,
    pub ceiling_bytes: Setting<u64>,
}

/// Volumes that have properties in common: those whose names begin with its name and a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectInfo {
    pub id: Id,
    pub pool: String,
    pub name: String,
    pub properties: ProjectProperties,
    /// How many volumes it has, and how many of those in the trash besides.
    pub volumes: u32,
    pub trashed: u32,
    /// Bytes: the sizes of its volumes, and what they have written.
    pub size: u64,
    pub mapped: u64,
    /// Bytes of the pool, without redundancy, that count towards its quota: what its volumes and their snapshots take, those in the trash, on
    /// the way here or away and being given back too, and what is held for its reserved volumes.
    pub used: u64,
    pub created: WallTime,
}

/// A volume as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    pub id: Id,
    pub pool: String,
    pub name: String,
    pub size: u64,
    pub block_size: u32,
    pub sync: SyncPolicy,
    pub compression: Compression,
    /// The name of the project that it belongs to, and whether it inherits from there.
    pub project: Option<String>,
    pub project_id: Option<Id>,
    /// The id of its service level; zero for none.
    pub level: Id,
    /// Whether the floor of its level is kept; nothing without one.
    pub standing: Option<Standing>,
    pub sources: Sources,
    /// Its pool was imported to be read only.
    pub read_only: bool,
    /// The pool's shard that owns it, and the core on which that shard runs.
    pub shard: usize,
    pub core: usize,
    pub format: VolumeFormat,
    /// Bytes of blocks that hold data, and what of the pool's space they take, without redundancy: less where they are compressed.
    pub mapped: u64,
    pub stored: u64,
    /// Processor time for compressing and expanding its blocks since the import, in nanoseconds.
    pub packing_nanos: u64,
    pub unpacking_nanos: u64,
    /// Bytes that are held for it and not used yet, and bytes that count as used by it: of an eagerzeroedthick one, its whole size.
    pub reserved: u64,
    pub used: u64,
    pub created: WallTime,
    /// The snapshot that it was cloned from, `VOLUME@NAME`; absent when it was not, or no longer needs it.
    pub origin: Option<String>,
    /// How many snapshots it has, and bytes of blocks that only they still have: counted when one volume is asked for, absent in lists.
    pub snapshots: u32,
    pub snapshot_bytes: Option<u64>,
    /// Bytes that read as errors, as far as is known.
    pub damaged: u64,
    pub schedule: SnapshotSchedule,
}

/// A volume as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub id: Id,
    pub pool: String,
    /// The volume that it is a snapshot of, and its own name behind the `@`.
    pub volume: String,
    pub name: String,
    /// The volume's then.
    pub size: u64,
    pub block_size: u32,
    pub created: WallTime,
    /// Bytes of blocks that held data.
    pub mapped: u64,
    /// Bytes of blocks that nothing else has: what deleting it alone gives back. Absent when something of it cannot be read.
    pub unique: Option<u64>,
    /// Nobody can delete it before: by the machine's clock as it is now. Absent when it is not retained.
    pub retained_until: Option<WallTime>,
    /// Not to be deleted until it is let go.
    pub held: bool,
    /// Made to be cloned; it is not deleted either.
    pub template: bool,
    /// Taken by the volume's schedule, which will delete it.
    pub scheduled: bool,
    /// Volumes cloned from it, and others that go back to it: it cannot be deleted as long as there are any. In the trash they are marked so.
    pub clones: Vec<String>,
}

/// What of a snapshot changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotChange {
    pub held: Option<bool>,
    pub template: Option<bool>,
    /// Retained for so many seconds from now; not for less than it is already.
    pub retain_seconds: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolState {
    Online,
    /// Serving with less redundancy than the layout promises.
    Degraded,
    /// Writes stopped after a failure that redundancy could not absorb; reads go on.
    Suspended,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskState {
    Online,
    /// Taken out after an error; its contents are stale.
    Failed,
    /// Not found at import.
    Missing,
    /// Taken out by the administrator.
    Offline,
    /// Out of service after an error; all that was on it has been rebuilt elsewhere.
    Rebuilt,
    /// Out of service after an error; it held copies only.
    Empty,
    /// Serving, while all that is on it moves to other disks.
    Leaving,
    /// Waiting to take the place of a disk that fails.
    Spare,
    /// Serving copies of what is read often.
    Cache,
}

/// One disk of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStatus {
    pub id: Id,
    /// Its index in the label, as events name it; and the first that it had: one that came back may be listed under both for a while.
    pub number: u16,
    pub joined_as: u16,
    /// Where it was last found; empty when missing.
    pub path: String,
    pub size: u64,
    /// Bytes: as it was given, or as the device said, when the disk joined.
    pub sector_physical: u32,
    /// What the device says now; nothing when it is not there.
    pub sector_reported: Option<u32>,
    pub rotational: bool,
    /// The box it is in; empty when nobody said.
    pub enclosure: String,
    pub state: DiskState,
    pub errors: ErrorCounts,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its index in the label.
    pub number: u16,
    pub role: Role,
    pub layout: Layout,
    /// All that is in it moves to other groups; then its disks leave the pool.
    pub leaving: bool,
    /// Bytes after mirroring or parity.
    pub size: u64,
    pub used: u64,
    pub disks: Vec<DiskStatus>,
}

/// What a pool's disks can do together, redundancy and log included, with requests of 8 KiB at random places and of 1 MiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PoolSpeed {
    /// Small requests in a second; writes are durable.
    pub read_iops: u64,
    pub write_iops: u64,
    /// Bytes in a second, in large requests.
    pub read_bytes: u64,
    pub write_bytes: u64,
    /// What a small request takes that is alone on its shard.
    pub read_latency: Duration,
    pub write_latency: Duration,
    /// How much work is in flight at most, in the time that the pool takes for it.
    pub window: Duration,
    pub measured: WallTime,
}

/// One pool. Sizes are in bytes of user data space (after mirroring).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    pub id: Id,
    pub name: String,
    pub state: PoolState,
    /// Imported so that nothing is written to its disks.
    pub read_only: bool,
    pub groups: Vec<GroupStatus>,
    pub shards: usize,
    pub size: u64,
    /// What is in use, and what eagerzeroedthick volumes have not written yet.
    pub used: u64,
    pub free: u64,
    /// Of what is free: held for zeroedthick volumes.
    pub reserved: u64,
    /// The sizes of all volumes, those in the trash too.
    pub provisioned: u64,
    pub checkpoint: u64,
    /// Fullest shard's log, in thousandths.
    pub log_fill_permille: u32,
    pub created: WallTime,
    /// Slots of disks on their way to other disks, if any are.
    pub healing: Option<Healing>,
    /// What is lost.
    pub damage: DamageStatus,
    /// The last scrub.
    pub scrub: Option<Scrub>,
    pub scrubs: ScrubSchedule,
    /// When the next one begins by itself, unless the pool has something more urgent to do.
    pub scrub_next: Option<WallTime>,
    /// How long deleted volumes are kept; with 0 they are not.
    pub trash_keep_seconds: u32,
    /// Nothing before it was measured.
    pub speed: Option<PoolSpeed>,
    /// In millionths of the pool's time: what of it can be promised, if it was measured, and what the floors of all volumes would take.
    pub promisable: Option<u64>,
    pub promised: u64,
    /// Nothing without cache disks.
    pub cache: Option<CacheStatus>,
}

/// What a pool's cache disks hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheStatus {
    /// Bytes that there are for copies, and those that hold some: no more than memory has names for.
    pub size: u64,
    pub held: u64,
    /// In thousandths, how much came from cache disks of what clients read from these or from the pool's disks of late; nothing if that was nothing.
    pub hits_permille: Option<u32>,
}

/// What is being done to restore or spread redundancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healing {
    /// Bytes of disk that still have to be rebuilt or moved, and those that were, since the work began.
    pub bytes_left: u64,
    pub bytes_done: u64,
    pub since: WallTime,
    /// Why it does not go on: what it waits for. Empty when it does.
    pub blocked: String,
}

impl Healing {
    pub(crate) fn since(since: WallTime) -> Healing {
        Healing { bytes_left: 0, bytes_done: 0, since, blocked: String::new() }
    }
}

/// Reading everything to find what has rotted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Scrub {
    pub state: ScrubState,
    /// Bytes of disk that were read and checked, and bytes in use when it began: every copy is read, and parity twice.
    pub bytes_done: u64,
    pub bytes_total: u64,
    /// Bad places that are right again, and those that could not be put right.
    pub repaired: u64,
    pub lost: u64,
    pub since: WallTime,
    pub ended: Option<WallTime>,
}

/// How long a new pool keeps deleted volumes: 7 days.
pub const TRASH_KEEP_SECONDS: u32 = 7 * 24 * 3600;

/// How a volume is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeDelete {
    /// It may have snapshots: they go with it.
    pub with_snapshots: bool,
    /// It does not wait in the trash.
    pub purge: bool,
}

/// A volume in the trash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrashInfo {
    pub id: Id,
    pub pool: String,
    /// What it was called; another volume may be called that now.
    pub name: String,
    pub size: u64,
    pub block_size: u32,
    /// Bytes of blocks that hold data.
    pub mapped: u64,
    /// Snapshots that wait with it.
    pub snapshots: u32,
    pub deleted: WallTime,
    /// From when on it is purged.
    pub purge: WallTime,
}

/// When a pool is scrubbed without being told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubSchedule {
    /// When a scrub was last through; 0 when none was.
    pub last: WallTime,
    /// From then, or the pool's creation, to the next; 0 for never.
    pub every_seconds: u32,
}

impl Default for ScrubSchedule {
    /// Every thirty days.
    fn default() -> ScrubSchedule {
        ScrubSchedule { last: WallTime(0), every_seconds: 30 * 24 * 3600 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ScrubState {
    #[default]
    Running,
    /// It goes on when it is started again.
    Paused,
    Done,
    /// It was ended before it was through.
    Stopped,
}

/// A change that an import would make or refuse, for `pool import` without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolFound {
    pub id: Id,
    pub name: String,
    pub disks_found: Vec<String>,
    pub disks_missing: usize,
    /// Who has it, as far as these disks tell; nothing when it is exported.
    pub host: Option<Host>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// Something an administrator may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: WallTime,
    pub severity: Severity,
    /// Stable, dotted: `disk.failed`, `block.repaired`, `pool.imported`.
    pub code: &'static str,
    pub object: String,
    pub message: String,
}

/// A run of equal state within a volume, for block-status queries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Bytes.
    pub len: u64,
    /// False: reads as zeros and occupies no space.
    pub mapped: bool,
}

/// On which side of a move something was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MoveSide {
    /// Where the volume was.
    Moved,
    /// Where it goes.
    Arriving,
}

/// What a move has left that waits for the other pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MoveLeft {
    /// The volume's.
    pub id: Id,
    pub pool: String,
    pub name: String,
    pub size: u64,
    pub side: MoveSide,
    /// The other pool.
    pub peer: Id,
    /// Whether it has all that was acknowledged until the switch.
    pub is_complete: bool,
}
