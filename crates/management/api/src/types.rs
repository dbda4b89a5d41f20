//! The objects of the API.
//!
//! Sizes are in bytes and times in milliseconds since 1970-01-01 UTC; the field's name says so. Requests with unknown
//! fields are refused, so that a misspelt option is an error. Answers may get further fields.

use crate::{PoolDamage, PoolSpeed, Scrub, ScrubSchedule};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// One page of a list, in a stable order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Give it as `cursor` to get the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// How a group of disks protects data. `single`, `mirror` (2 copies), `mirror3` (3 copies), or `D+P`: stripes of D
/// data strips, 2 to 16, and P parity strips, 1 to 3. Any P strips of a stripe may be lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Layout {
    Single,
    Mirror,
    Mirror3,
    Parity { data: u8, parity: u8 },
}

impl utoipa::PartialSchema for Layout {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some(
                "How a group of disks protects data. `single`, `mirror` (2 copies), `mirror3` (3 copies), or `D+P`: stripes of D \
                 data strips, 2 to 16, and P parity strips, 1 to 3. Any P strips of a stripe may be lost.",
            ))
            .pattern(Some(r"^(single|mirror|mirror3|([2-9]|1[0-6])\+[1-3])$"))
            .examples(["4+1"])
            .into()
    }
}

impl ToSchema for Layout {}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Layout::Single => f.write_str("single"),
            Layout::Mirror => f.write_str("mirror"),
            Layout::Mirror3 => f.write_str("mirror3"),
            Layout::Parity { data, parity } => write!(f, "{data}+{parity}"),
        }
    }
}

impl From<Layout> for String {
    fn from(layout: Layout) -> String {
        layout.to_string()
    }
}

impl TryFrom<String> for Layout {
    type Error = String;

    fn try_from(text: String) -> Result<Layout, String> {
        text.parse()
    }
}

impl std::str::FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        if let Some((data, parity)) = text.split_once('+') {
            let number =
                |text: &str, most: u8| text.parse().ok().filter(|number| (1..=most).contains(number));
            if let (Some(data @ 2..), Some(parity)) = (number(data, 16), number(parity, 3)) {
                return Ok(Layout::Parity { data, parity });
            }
            return Err("choose D+P with 2 to 16 data and 1 to 3 parity disks, such as 4+1".into());
        }
        let known = [Layout::Single, Layout::Mirror, Layout::Mirror3];
        let found = known.into_iter().find(|layout| layout.to_string() == text);
        found.ok_or_else(|| "choose single, mirror, mirror3 or D+P, such as 4+1".into())
    }
}

/// The use of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Data,
    Log,
}

/// When a write is acknowledged. `always`: when it is durable. `standard`: at once; it is durable with FUA or the
/// next flush. `disabled`: at once; for scratch data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    #[default]
    Always,
    Standard,
    Disabled,
}

/// A statement about an object, true or false, that a person or a script can wait for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    /// For example `Ready`, `Redundant` or `Rebuilding`.
    #[serde(rename = "type")]
    pub kind: String,
    pub status: bool,
    /// One stable word, for example `Online` or `Failed`.
    pub reason: String,
    /// A sentence for people; empty when all is well.
    pub message: String,
}

/// `unavailable`: the daemon knows the pool but has not imported it. Its condition `Ready` says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolState {
    Online,
    Degraded,
    Suspended,
    Unavailable,
    /// The pool has unrecoverable data that is not accepted yet. Its conditions say what else is wrong.
    Damaged,
}

/// A pool.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Pool {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: PoolSpec,
    pub status: PoolStatus,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolSpec {
    /// The first data group's layout; absent while the pool is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    pub disks: Vec<String>,
    pub log_disks: Vec<String>,
    pub spare_disks: Vec<String>,
    #[serde(default)]
    pub cache_disks: Vec<String>,
    /// How long deleted volumes stay in the trash; 0: no trash. Absent while the pool is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trash_keep_seconds: Option<u32>,
    /// Fill levels in percent at which an event is recorded.
    #[serde(default)]
    pub threshold_percents: Vec<u8>,
}

/// Changes to a pool. Absent fields stay as they are.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSet {
    /// How long deleted volumes stay in the trash, including those already there: 60 (a minute) to 315360000 (ten
    /// years); 0: no trash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trash_keep_seconds: Option<u32>,
    /// All thresholds of the pool: 1 to 8 values of 1 to 100 percent. An event is recorded when used and reserved
    /// space reaches a threshold, and when it is well below it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_percents: Option<Vec<u8>>,
}

/// Sizes are space for user data, without redundancy; 0 while the pool is unavailable.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    pub state: PoolState,
    /// Imported read-only: nothing is written to its disks.
    #[serde(default)]
    pub read_only: bool,
    pub size_bytes: u64,
    /// Stored data, and space of eagerzeroedthick volumes that is not written yet.
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// The part of `free_bytes` that is reserved for zeroedthick volumes.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// The rest of `free_bytes`: for thin volumes, snapshots and new volumes.
    pub available_bytes: u64,
    /// Total size of all volumes, including those in the trash.
    #[serde(default)]
    pub provisioned_bytes: u64,
    /// `provisioned_bytes` in thousandths of the pool's size.
    #[serde(default)]
    pub provisioned_permille: u64,
    /// Days until all space that is not reserved is used, at the current rate. Absent without a forecast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_in_days: Option<u64>,
    pub shards: u32,
    /// Number of the newest checkpoint.
    pub checkpoint: u64,
    /// How full the fullest shard's intent log is, in thousandths.
    pub log_fill_permille: u32,
    pub created_unix_ms: u64,
    pub groups: Vec<Group>,
    /// A rebuild, or data that moves to other disks; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuild: Option<Rebuild>,
    /// Unrecoverable data.
    #[serde(default)]
    pub damage: PoolDamage,
    /// The last scrub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Scrub>,
    /// When scrubs start automatically.
    #[serde(default)]
    pub scrub_schedule: ScrubSchedule,
    /// Measured performance; absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<PoolSpeed>,
    /// Share of the pool's time that can be guaranteed, in thousandths; absent before the first measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee_max_permille: Option<u32>,
    /// Share of the pool's time that the minimums of all volumes take together, in thousandths.
    #[serde(default)]
    pub guaranteed_permille: u32,
    /// Absent in a pool without cache disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PoolCache>,
}

/// Contents of a pool's cache disks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolCache {
    /// Space for copies.
    pub size_bytes: u64,
    /// Space that holds copies. The index in memory may keep it below `size_bytes`.
    pub held_bytes: u64,
    /// Share of the last minute's client reads from cache disks and data disks that cache disks served, in
    /// thousandths. Absent without such reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits_permille: Option<u32>,
}

/// The result of a trim, in its task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolTrimmed {
    /// Free space that was reported to the disks.
    pub discarded_bytes: u64,
    /// Names of the disks that do not support discards.
    pub disks_without: Vec<String>,
}

/// The result of a search for zeros, in its task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeReclaimed {
    /// Bytes of zeros that became holes of the volume. Snapshots keep their blocks.
    pub reclaimed_bytes: u64,
}

/// Data that moves to other disks because a disk failed, is replaced, leaves, returned, or was added. It starts
/// automatically, and continues after a restart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Rebuild {
    /// Space on disks that is still to be rebuilt or drained; 0 while data only spreads over new disks.
    pub left_bytes: u64,
    /// Data written to other disks since the start. Free space is not counted.
    pub done_bytes: u64,
    pub since_unix_ms: u64,
    /// Why the rebuild cannot continue; absent when it can. It is retried every few seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Number in the pool, as long as the group exists.
    pub number: u16,
    pub role: Role,
    pub layout: Layout,
    /// The group is drained: its data moves to other groups, then its disks leave the pool. `size_bytes` is the
    /// remainder.
    #[serde(default)]
    pub leaving: bool,
    /// Without mirror copies and parity.
    pub size_bytes: u64,
    pub used_bytes: u64,
    pub disks: Vec<Disk>,
}

/// A pool to create.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter.
    pub name: String,
    pub layout: Layout,
    /// Absolute paths of block devices or files, at least as many as the layout needs.
    pub disks: Vec<String>,
    /// Absolute paths of the log group's disks: none, or 1 to 3 that mirror each other.
    #[serde(default)]
    pub log_disks: Vec<String>,
    /// Absolute paths of spare disks, which replace data disks that fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare_disks: Vec<String>,
    /// Absolute paths of flash disks for copies of data that is read at random. Losing one loses no data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_disks: Vec<String>,
    /// Enclosures of the disks: names by path. Data is laid out so that, where the number of disks allows it, the
    /// loss of one enclosure is no more than the layout can lose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub enclosures: BTreeMap<String, String>,
    /// Physical sector size in bytes, by path, for disks that report it wrongly: a power of two from 512 to 65536. It
    /// is kept with the disk. Volumes should not have smaller blocks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sectors: BTreeMap<String, u32>,
    /// Number of shards, which serve volumes in parallel: 1 to 32, fixed for the pool's life. Default: the number of
    /// the daemon's cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// Size of the intent log of each shard. Default: derived from the data space, at most 1 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// Take disks that are not empty; their contents are lost. Disks in use are never taken.
    #[serde(default)]
    pub force: bool,
    /// Measure the pool's performance after its creation, in a task of its own that takes some seconds.
    #[serde(default = "yes")]
    pub calibrate: bool,
}

fn yes() -> bool {
    true
}

/// Disks to add to a pool. Without `layout` they join a data group, and data spreads over them in the background.
/// With `layout` they become a new group, which new data also goes to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolAdd {
    /// Absolute paths of block devices or files.
    pub disks: Vec<String>,
    /// The disks become a new group with this layout. It must be able to lose as many disks as the other groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Number of the data group that they join. Required when the pool has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u16>,
    /// Add them as spare disks, which replace a disk that fails.
    #[serde(default)]
    pub spare: bool,
    /// Add them as cache disks, which hold only copies of data that is read at random.
    #[serde(default)]
    pub cache: bool,
    /// Enclosure of the disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// Enclosures of single disks: names by path, where they differ from `enclosure`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub enclosures: BTreeMap<String, String>,
    /// Physical sector size in bytes, by path, for disks that report it wrongly.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sectors: BTreeMap<String, u32>,
    /// Take disks that are not empty; their contents are lost. Disks in use are never taken.
    #[serde(default)]
    pub force: bool,
}

/// The replacement of a disk. The old disk's data moves to it, or is rebuilt when the old disk is out of service.
/// Then the old disk leaves the pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskReplace {
    /// Absolute path of the new disk. Default: a spare disk of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// The new disk's physical sector size in bytes, if the disk reports it wrongly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_bytes: Option<u32>,
    /// Take a disk that is not empty; its contents are lost. A disk in use is never taken.
    #[serde(default)]
    pub force: bool,
}

/// A disk that returns to service. It gets a new number, and a copy of the data written without it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskOnline {
    /// Absolute path of the disk now. Default: its last path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Makes a disk's light blink: the daemon reads from it, a second on and a second off.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskLocate {
    /// Duration in seconds: 1 to 3600. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
}

/// The disks of a pool, and how to import it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// Absolute paths of block devices or files.
    pub disks: Vec<String>,
    /// Write nothing to any disk. The log is applied in memory, volumes can be read, and every change is refused. The
    /// pool stays read-only over restarts of the daemon, until it is exported.
    #[serde(default)]
    pub read_only: bool,
    /// Import although another host had the pool last and did not export it: if that host still writes to the disks,
    /// the pool is destroyed. Also import although the end of the log is lost: the last acknowledged writes are lost
    /// with it. With `read_only`, also import although more disks are missing than the layout can lose: their data
    /// cannot be read.
    #[serde(default)]
    pub force: bool,
    /// A new name for the pool, from now on. Its iSCSI target and NBD exports have it, too: clients connect to the new
    /// names. Not with `read_only`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_name: Option<String>,
}

/// Disks to search for pools.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskPaths {
    /// Absolute paths of block devices or files.
    pub disks: Vec<String>,
}

/// A pool whose labels were found on disks.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolFound {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub disks_found: Vec<String>,
    pub disks_missing: u64,
    /// Name of the host that has the pool, according to these disks; absent when it is exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolsFound {
    pub items: Vec<PoolFound>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskState {
    Online,
    /// Taken out of service after an error; its contents are stale.
    Failed,
    /// Not found at import.
    Missing,
    /// Taken out of service by an administrator.
    Offline,
    /// Taken out of service after an error; its data has been rebuilt on other disks.
    Rebuilt,
    /// A spare or cache disk that failed or is missing: it held no data of its own.
    Empty,
    /// In service while its data moves to other disks.
    Leaving,
    /// Waiting to replace a disk that fails.
    Spare,
    /// In service with copies of data that is read at random.
    Cache,
}

/// A disk of a pool. Its name is its path, empty when it is missing. Paths of this API take its UUID, or
/// `POOL/NUMBER` or `POOL/PATH` as one segment: `tank%2F3`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Disk {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub spec: DiskSpec,
    pub status: DiskStatus,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskSpec {
    pub pool: String,
    pub role: Role,
    /// Its enclosure; absent when none was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskStatus {
    /// Unique in its pool while the disk belongs to it; a disk that returns gets another.
    pub number: u16,
    /// The number under which it joined, if it has returned since. For a while the disk may be listed under both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_as: Option<u16>,
    /// Last known path of a missing disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_path: Option<String>,
    pub state: DiskState,
    pub size_bytes: u64,
    /// Physical sector size, as given or as the disk reported it when it joined. For a smaller write the disk has to
    /// read, modify and write a sector.
    pub sector_physical_bytes: u32,
    /// Physical sector size that the disk reports now; absent when it is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_reported_bytes: Option<u32>,
    pub rotational: bool,
    /// Failed reads since the pool was imported or the disk was cleared.
    pub errors_read: u64,
    /// Failed writes since the pool was imported or the disk was cleared.
    pub errors_write: u64,
    /// Reads that returned wrong data.
    pub errors_checksum: u64,
    /// Unreadable or wrong places that were rewritten.
    pub repaired: u64,
    /// Places that recently could not be read, each counted once. The count halves in a day. At most 256.
    pub errors_read_recent: u64,
    /// Places that recently held wrong data, each counted once. The count halves in a day. At most 256.
    pub errors_checksum_recent: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Waiting to run; can be cancelled.
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl TaskState {
    pub fn is_final(self) -> bool {
        matches!(self, TaskState::Succeeded | TaskState::Failed | TaskState::Cancelled)
    }
}

/// Long work. Tasks are kept in memory until the daemon restarts. A restart does not harm the work itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Task {
    #[schema(format = "uuid")]
    pub id: String,
    /// `pool.create`, `pool.import`, `pool.export`, `pool.destroy`, `pool.add`, `pool.scrub`, `pool.trim`,
    /// `pool.calibrate`, `pool.damage_accept`, `group.remove`, `disk.replace`, `disk.remove`, `disk.offline`,
    /// `disk.online`, `disk.clear`, `disk.locate`, `volume.move`, `volume.reclaim`.
    pub name: String,
    pub object: String,
    pub state: TaskState,
    /// Progress in thousandths; absent when it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress_permille: Option<u32>,
    /// Bytes per second; absent when the task does not move data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bytes_per_second: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Eta>,
    pub cancellable: bool,
    pub started_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_unix_ms: Option<u64>,
    /// The object after the task, when the task succeeded and leaves one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<serde_json::Value>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::Problem>,
}

/// Remaining time of a task: between `seconds_low` and `seconds_high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Eta {
    pub seconds_low: u64,
    pub seconds_high: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warning,
    Error,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Grows by one with each event, across restarts.
    pub sequence: u64,
    pub at_unix_ms: u64,
    pub severity: Severity,
    /// Stable, dotted: `disk.failed`, `pool.imported`.
    pub code: String,
    pub object: String,
    pub message: String,
}

/// The role of a token or user. `viewer` reads. `operator` also changes volumes, service levels and the hosts that
/// see volumes. `admin` also changes pools, disks, tokens and users.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    Viewer,
    Operator,
    Admin,
}

impl Access {
    pub fn name(self) -> &'static str {
        match self {
            Access::Viewer => "viewer",
            Access::Operator => "operator",
            Access::Admin => "admin",
        }
    }
}

/// An access token, without its secret.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Token {
    #[schema(format = "uuid")]
    pub id: String,
    pub name: String,
    pub role: Access,
    pub created_unix_ms: u64,
    pub expires_unix_ms: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenCreate {
    /// 1 to 63 letters, digits and `._-`, starting with a letter.
    pub name: String,
    pub role: Access,
    /// Lifetime in seconds: 1 to 31536000 (a year). Default: 90 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
}

/// A new name for a token. Its secret stays.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSet {
    pub name: String,
}

/// A new token with its secret, which is shown this once and stored only as a hash.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenCreated {
    pub token: Token,
    /// Send it as `Authorization: Bearer SECRET`.
    pub secret: String,
}

/// The answer to `?dry_run=true`: the request is valid and would do this. Nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// `pool.create`, `volume.delete`, …
    pub action: String,
    pub object: String,
    /// What would change, a sentence each.
    pub changes: Vec<String>,
}
