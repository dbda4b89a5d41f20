//! The objects of the API.
//!
//! Sizes are bytes, times are milliseconds since 1970-01-01 UTC, both in the field's name. What a client sends
//! refuses unknown fields, so that a misspelt option is an error and not silence; what it receives may grow.

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

/// How a group of disks protects data.
/// `single`, `mirror` (2 copies), `mirror3`, or `D+P`: lines of D data cells, 2 to 16, and P parity cells, 1 to 3, of which any
/// P may be lost.
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
                "How a group of disks protects data: `single`, `mirror` (2 copies), `mirror3`, or `D+P`: lines of D data cells, 2 to \
                 16, and P parity cells, 1 to 3, of which any P may be lost.",
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

/// What a group is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Data,
    Log,
}

/// When a write is acknowledged: `always` when it is durable; `standard` at once, durable with FUA or the next flush;
/// `disabled` at once, for scratch data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sync {
    #[default]
    Always,
    Standard,
    Disabled,
}

/// Something true or false about an object that a person or a script may wait for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    /// `Ready`, `Redundant`, `Healing`.
    #[serde(rename = "type")]
    pub kind: String,
    pub status: bool,
    /// One stable word: `Online`, `DiskMissing`.
    pub reason: String,
    /// A sentence for people; empty when all is well.
    pub message: String,
}

/// `unavailable`: remembered by the daemon but not imported; its condition `Ready` says why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PoolState {
    Online,
    Degraded,
    Suspended,
    Unavailable,
    /// Something is lost that nobody has accepted yet, whatever else there is: its conditions say that.
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
    /// How long deleted volumes wait in the trash; 0 when they do not. Absent while the pool is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trash_keep_seconds: Option<u32>,
    /// How full the pool is, in percent, when somebody wants to hear of it.
    #[serde(default)]
    pub threshold_percents: Vec<u8>,
}

/// What to change of a pool; what is absent stays.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSet {
    /// How long deleted volumes wait in the trash, those that are there already, too: 60 (a minute) to 315360000 (ten
    /// years); 0 for not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trash_keep_seconds: Option<u32>,
    /// All of the pool's thresholds, 1 to 8 of 1 to 100 percent: an event tells when what is used or reserved reaches one, and when it is well below
    /// it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold_percents: Option<Vec<u8>>,
}

/// Sizes are user data space, after mirroring; zero while the pool is unavailable.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolStatus {
    pub state: PoolState,
    /// Imported so that nothing is written to its disks.
    #[serde(default)]
    pub read_only: bool,
    pub size_bytes: u64,
    /// What is stored, and what eagerzeroedthick volumes have not written yet.
    pub used_bytes: u64,
    pub free_bytes: u64,
    /// Of what is free: held for zeroedthick volumes.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// The rest of what is free: for thin volumes, snapshots and new volumes.
    pub available_bytes: u64,
    /// The sizes of all volumes, those in the trash too; and how much that is of the pool's size, in thousandths.
    #[serde(default)]
    pub provisioned_bytes: u64,
    #[serde(default)]
    pub provisioned_permille: u64,
    /// Days until nothing is free that is not held, at the rate of late; absent when that is not to be foreseen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_in_days: Option<u64>,
    pub shards: u32,
    /// Number of the newest checkpoint.
    pub checkpoint: u64,
    /// How full the fullest shard's intent log is, in thousandths.
    pub log_fill_permille: u32,
    pub created_unix_ms: u64,
    pub groups: Vec<Group>,
    /// What restores or spreads redundancy in the background; absent when there is nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healing: Option<Healing>,
    /// What is lost.
    #[serde(default)]
    pub damage: PoolDamage,
    /// The last scrub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub: Option<Scrub>,
    /// When the pool is scrubbed by itself.
    #[serde(default)]
    pub scrub_schedule: ScrubSchedule,
    /// Absent before it was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<PoolSpeed>,
    /// In thousandths of the pool's time: what of it can be promised, absent before it was measured, and what the floors of all volumes would take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promisable_permille: Option<u32>,
    #[serde(default)]
    pub promised_permille: u32,
    /// Absent in a pool without cache disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PoolCache>,
}

/// What a pool's cache disks hold.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolCache {
    /// What there is for copies, and how much of it holds some. More than memory has names for is never held.
    pub size_bytes: u64,
    pub held_bytes: u64,
    /// In thousandths, how much came from cache disks of what clients read from these or from the data disks in the last minute; absent when that was nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits_permille: Option<u32>,
}

/// What came of a trim: the result of its task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct PoolTrimmed {
    /// Free space that the disks were told of.
    pub discarded_bytes: u64,
    /// Names of the disks that have no command for it.
    pub disks_without: Vec<String>,
}

/// What came of a search for zeros: the result of its task.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct VolumeReclaimed {
    /// Bytes of zeros that the volume has as holes from now on. Snapshots keep what they have.
    pub reclaimed_bytes: u64,
}

/// Data on its way to other disks, because one failed, is replaced, leaves, returned, or was added. It begins by itself, and
/// goes on after a restart.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Healing {
    /// Room on disks that still has to be rebuilt or vacated; zero while data only spreads over new disks.
    pub left_bytes: u64,
    /// What was written to other disks since it began; space in which nothing is stored is not.
    pub done_bytes: u64,
    pub since_unix_ms: u64,
    /// Why it does not go on; absent when it does. It is tried again every few seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Group {
    /// Number in the pool, as long as it is there.
    pub number: u16,
    pub role: Role,
    pub layout: Layout,
    /// All that is in it moves to other groups; then its disks leave the pool. `size_bytes` is what is still there.
    #[serde(default)]
    pub leaving: bool,
    /// After mirroring or parity.
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
    /// Absolute paths of block devices or files: as many as the layout has copies, or more.
    pub disks: Vec<String>,
    /// Absolute paths of the log group's disks: none, or 1 to 3, which mirror each other.
    #[serde(default)]
    pub log_disks: Vec<String>,
    /// Absolute paths of disks that wait to take the place of a data disk that fails.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spare_disks: Vec<String>,
    /// Absolute paths of flash that holds copies of what is read from the data disks at random; nothing is lost with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cache_disks: Vec<String>,
    /// The boxes that disks are in, names by path: data is laid so that the loss of one box is, where the numbers allow it, no
    /// more than the layout can lose.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub enclosures: BTreeMap<String, String>,
    /// Physical sectors in bytes, by path, of disks that do not say them right: powers of two from 512 to 65536. Kept with the disk;
    /// volumes should not have smaller blocks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sectors: BTreeMap<String, u32>,
    /// Owners of volumes that work in parallel, 1 to 32, for the pool's life. Default: the daemon's cores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<u32>,
    /// Intent log per shard; by default chosen from the data space, at most 1 GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    /// Take disks that are not empty; what they hold is lost. Disks in use are never taken.
    #[serde(default)]
    pub force: bool,
    /// Measure what it can do as soon as it is there, with a task of its own that takes some seconds.
    #[serde(default = "yes")]
    pub calibrate: bool,
}

fn yes() -> bool {
    true
}

/// Disks to add to a pool: to a data group that it has, over which data then spreads in the background, or, with a layout, as a
/// group of their own, which new data goes to as well.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolAdd {
    /// Absolute paths of block devices or files.
    pub disks: Vec<String>,
    /// They become a group with this layout, which can lose as many disks as the groups that there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
    /// Number of the data group that they join. Needed when the pool has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u16>,
    /// They wait to take the place of a disk that fails, instead of serving at once.
    #[serde(default)]
    pub spare: bool,
    /// They hold copies of what is read from the data disks at random, and nothing else.
    #[serde(default)]
    pub cache: bool,
    /// The box that they are in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// The boxes that disks are in, names by path, where it is not that one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub enclosures: BTreeMap<String, String>,
    /// Physical sectors in bytes, by path, of disks that do not say them right.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sectors: BTreeMap<String, u32>,
    /// Take disks that are not empty; what they hold is lost. Disks in use are never taken.
    #[serde(default)]
    pub force: bool,
}

/// What takes a disk's place. What is on the old one moves, or is rebuilt when it does not serve; then it leaves the pool.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskReplace {
    /// Absolute path of the new disk. Default: a spare disk of the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
    /// The new disk's physical sector in bytes, where it does not say it right.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_bytes: Option<u32>,
    /// Take a disk that is not empty; what it holds is lost. A disk in use is never taken.
    #[serde(default)]
    pub force: bool,
}

/// A disk that returns. It gets a new number, and a copy of what was written without it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskOnline {
    /// Absolute path where it is now. Default: where it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// Makes a disk's light blink, by reading from it a second on and a second off.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskLocate {
    /// 1 to 3600. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
}

/// Where a pool's disks are, and how it is imported.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolImport {
    /// Absolute paths of block devices or files.
    pub disks: Vec<String>,
    /// Nothing is written to any disk, whatever happens: what the log holds is applied in memory, volumes can be read, and every change
    /// is refused. It stays so over restarts of the daemon, until the pool is exported.
    #[serde(default)]
    pub read_only: bool,
    /// Although another host had it last and did not export it (if that one still writes to the disks, the pool is destroyed), or the end of
    /// the log is lost (and with it the last acknowledged writes); with `read_only` also although more disks are missing than the layout
    /// can lose (what was on them cannot be read).
    #[serde(default)]
    pub force: bool,
}

/// Where to look for pools.
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
    /// Name of the host that has it, as far as these disks tell; absent when it is exported.
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
    /// Taken out after an error; its contents are stale.
    Failed,
    /// Not found at import.
    Missing,
    /// Taken out by an administrator.
    Offline,
    /// Out of service; all that was on it has been rebuilt elsewhere, if it did not hold copies only.
    Empty,
    /// Serving, while what is on it moves to other disks.
    Leaving,
    /// Waiting to take the place of a disk that fails.
    Spare,
    /// Serving copies of what is read from the data disks at random.
    Cache,
}

/// A disk of a pool. Its name is its path, empty when it is missing. In paths of this API it is named by its UUID, or as
/// `POOL/NUMBER` or `POOL/PATH`, as one segment: `tank%2F3`.
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
    /// The box that it is in; absent when nobody said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DiskStatus {
    /// Unique in its pool while it is there; a disk that returns gets another.
    pub number: u16,
    /// The number under which it joined, if it has come back since: for a while it may be listed under both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_as: Option<u16>,
    /// Where it was when it was last there; of one that is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_path: Option<String>,
    pub state: DiskState,
    pub size_bytes: u64,
    /// What it reads, modifies and writes when it is asked to write less: as it was given, or as it said when it joined.
    pub sector_physical_bytes: u32,
    /// What it says now; absent when it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sector_reported_bytes: Option<u32>,
    pub rotational: bool,
    /// Requests that it failed, since the pool was imported or the disk cleared.
    pub errors_read: u64,
    pub errors_write: u64,
    /// Reads that were not what had been written.
    pub errors_checksum: u64,
    /// Places that were unreadable or wrong and were rewritten.
    pub repaired: u64,
    /// Places of late that it could not read, each counted once, and less as time goes by: half after a day. At most 256.
    pub errors_read_recent: u64,
    /// The same of places that were not what had been written.
    pub errors_checksum_recent: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Waits for its turn; can be cancelled.
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

/// Long work. Kept in memory: a restart of the daemon forgets it (the work itself is crash-safe).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Task {
    #[schema(format = "uuid")]
    pub id: String,
    /// `pool.create`, `pool.import`, `pool.export`, `pool.destroy`, `pool.add`, `disk.replace`, `disk.remove`, `disk.offline`,
    /// `disk.online`, `disk.clear`, `disk.locate`.
    pub name: String,
    pub object: String,
    pub state: TaskState,
    /// Thousandths done; absent when it cannot be known.
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
    /// The object as it is afterwards, when the task succeeded and leaves one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub result: Option<serde_json::Value>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<crate::Problem>,
}

/// When a task will be done: between `seconds_low` and `seconds_high` from now.
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

/// What a token or user may do: `viewer` reads, `operator` also changes volumes, service levels and the hosts that see volumes,
/// `admin` also pools, disks, tokens and users.
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
    /// 1 to 31536000 (a year). Default: 90 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
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
