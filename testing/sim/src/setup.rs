//! What a run consists of: a function of its seed, unless the command line says otherwise.
//!
//! Everything that a failure needs to happen again is in a [`Setup`]; [`Setup::options`] writes it as the arguments
//! of `sim replay`. Pools are as small as the engine allows, so that an image costs little; what matters to
//! recovery (checkpoints, laps of the log, reuse of space) is a matter of counts, not of sizes.

use crate::harness::Conditions;
use forebay_base::planted::TableShape;
use forebay_base::{MIB, Random};
use forebay_pool::{Compression, GroupAdd, Layout, PoolSpec, SyncPolicy};
use forebay_runtime::Limits;

/// Name of the pool that every run makes.
pub const POOL: &str = "tank";

/// References in a node of a table that is cut small.
const FAN_OUT: u64 = 3;
/// Datasets that a shard can have where no row lowers the limit: more than any run makes.
const DATASETS_MAX: usize = 1 << 20;

/// What is tried: parity with more cells than parity, with as many, and with more parity than data.
pub const LAYOUTS: [Layout; 6] = [
    Layout::Single,
    Layout::Mirror,
    Layout::Mirror3,
    Layout::Parity { data: 2, parity: 1 },
    Layout::Parity { data: 3, parity: 2 },
    Layout::Parity { data: 2, parity: 3 },
];

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    pub seed: u64,
    pub layout: Layout,
    /// Chunk widths of data disks: 2 makes a mirror of four disks.
    pub groups: usize,
    pub log_disks: usize,
    pub cache_disks: usize,
    /// Data disks, if not as many as the widths need; and the enclosures that they are spread over in turn, none when 0.
    pub disks: Option<usize>,
    pub enclosures: usize,
    pub shards: usize,
    pub disk_mib: u64,
    pub log_kib: u64,
    pub volumes: usize,
    /// Tasks that issue operations side by side.
    pub clients: usize,
    pub operations: u64,
    /// One sync policy for all volumes; `None` mixes them.
    pub sync: Option<SyncPolicy>,
    /// One compression for all volumes; `None` mixes them.
    pub compression: Option<Compression>,
    /// Whether volumes are created, resized and deleted on the way.
    pub management: bool,
    /// Whether sync policies change on the way, of volumes and of a project, and volumes are zeroed whole.
    pub policies: bool,
    /// Whether items of the pool's registry change on the way.
    pub registry: bool,
    /// Whether volumes and snapshots of histories get other names.
    pub renames: bool,
    /// Whether ready tasks run in a drawn order.
    pub shuffle: bool,
    /// Whether a second group joins, of another width and of larger disks.
    pub second: bool,
    /// See [`Conditions`].
    pub strict_turns: bool,
    /// Requests that the disks of a core may have at a time.
    pub requests: usize,
    /// Records in a leaf of a table, and few references in a node above, so that the tables of small pools have several levels; 0 for what the format has. Not
    /// too few: a table must stay small beside what it lists.
    pub table_records: u64,
    /// Datasets that a shard can have, where a row lowers the limit.
    pub datasets_max: Option<usize>,
}

impl Setup {
    /// The run of a seed: every choice drawn.
    pub fn from_seed(seed: u64) -> Setup {
        let mut random = Random::new(seed ^ 0x5e7_0b5);
        let mut pick = |from: &[u64]| from[random.below(from.len() as u64) as usize];
        Setup {
            seed,
            layout: LAYOUTS[pick(&[0, 1, 1, 2, 3, 4]) as usize],
            groups: pick(&[1, 1, 1, 2]) as usize,
            log_disks: pick(&[0, 0, 0, 1, 2]) as usize,
            disks: None,
            enclosures: 0,
            shards: pick(&[1, 1, 2, 4]) as usize,
            disk_mib: pick(&[22, 22, 26, 38]),
            log_kib: pick(&[256, 512, 1024]),
            volumes: pick(&[1, 2, 3]) as usize,
            clients: pick(&[1, 2, 4, 8]) as usize,
            operations: pick(&[60, 120, 120, 240, 800]),
            sync: None,
            compression: None,
            management: pick(&[0, 1]) == 1,
            shuffle: pick(&[0, 1, 1]) == 1,
            second: pick(&[0, 0, 1]) == 1,
            cache_disks: pick(&[0, 0, 1, 2]) as usize,
            strict_turns: pick(&[0, 0, 0, 0, 0, 0, 0, 1]) == 1,
            policies: pick(&[0, 0, 0, 1]) == 1,
            // Few, so that some wait.
            requests: pick(&[512, 512, 512, 24]) as usize,
            table_records: pick(&[0, 24, 48]),
            datasets_max: None,
            registry: pick(&[0, 0, 1]) == 1,
            renames: pick(&[0, 1]) == 1,
        }
    }

    pub fn conditions(&self) -> Conditions {
        Conditions { strict_turns: self.strict_turns, tables: self.tables(), ..Conditions::of(self.shards) }
    }

    /// How tables are cut.
    pub fn tables(&self) -> Option<TableShape> {
        let datasets = self.datasets_max.unwrap_or(DATASETS_MAX);
        let records = self.table_records;
        // Bitmaps of the smallest chunks have some 8 bytes.
        let maps_bytes = if records == 24 { 0 } else { 64 };
        let nodes = if records == 24 { 3 } else { 8 };
        let shape = TableShape { per_leaf: records, fan_out: FAN_OUT, datasets, maps_bytes, nodes };
        (records > 0).then_some(shape)
    }

    /// What disks may have at a time.
    pub fn limits(&self) -> Limits {
        Limits { ordinary: self.requests, ..Limits::CORE }
    }

    /// Slots that a chunk can lose.
    pub fn redundancy(&self) -> usize {
        usize::from(self.layout.redundancy())
    }

    pub fn data_disks(&self) -> usize {
        self.disks.unwrap_or(self.layout.width() * self.groups)
    }

    /// Disks that the pool begins with.
    fn first_disks(&self) -> usize {
        self.data_disks() + self.log_disks + self.cache_disks
    }

    /// Their paths: data first, then log, then cache.
    pub fn paths(&self) -> Vec<String> {
        (0..self.first_disks()).map(|index| format!("sim{index}")).collect()
    }

    /// The enclosure of each data disk: as many disks that follow each other in one.
    fn boxes(&self) -> Vec<(String, String)> {
        let each = self.data_disks().div_ceil(self.enclosures.max(1));
        let disks = if self.enclosures == 0 { 0 } else { self.data_disks() };
        (0..disks).map(|disk| (format!("sim{disk}"), format!("box{}", disk / each))).collect()
    }

    /// The largest block that fits into a chunk: a disk has 256 slots, of 64 KiB when it is small.
    pub fn block_bytes_max(&self) -> u32 {
        if self.disk_mib < 36 { 64 << 10 } else { 128 << 10 }
    }

    pub fn disk_bytes(&self) -> u64 {
        self.disk_mib * MIB
    }

    pub fn pool_spec(&self) -> PoolSpec {
        let mut disks = self.paths();
        let mut log_disks = disks.split_off(self.data_disks());
        let cache_disks = log_disks.split_off(self.log_disks);
        PoolSpec {
            name: POOL.into(),
            layout: self.layout,
            disks,
            log_disks,
            spare_disks: Vec::new(),
            cache_disks,
            enclosures: self.boxes(),
            sectors: Vec::new(),
            shards: self.shards,
            log_bytes: Some(self.log_kib << 10),
            force: false,
        }
    }

    /// The second group's disks come after all others.
    pub fn second_disks(&self) -> std::ops::Range<usize> {
        let first = self.first_disks();
        let count = self.second_layout().width() + self.seed as usize % 2;
        first..first + if self.second { count } else { 0 }
    }

    fn second_layout(&self) -> Layout {
        match self.layout {
            Layout::Parity { data: 2, parity } => Layout::Parity { data: 3, parity },
            Layout::Parity { parity, .. } => Layout::Parity { data: 2, parity },
            same => same,
        }
    }

    pub fn second_disk_bytes(&self) -> u64 {
        self.disk_bytes() + (4 + self.seed % 3 * 16) * MIB
    }

    /// What joins.
    pub fn second_group(&self) -> GroupAdd {
        let disks = self.second_disks().map(|disk| format!("sim{disk}")).collect();
        let (enclosures, sectors) = (Vec::new(), Vec::new());
        GroupAdd { layout: self.second_layout(), disks, enclosures, sectors, force: false }
    }

    /// The arguments of `sim replay` that make this run again.
    pub fn options(&self) -> String {
        let drawn = Setup::from_seed(self.seed);
        let mut text = format!("--seed {}", self.seed);
        let mut add = |name: &str, same: bool, value: String| {
            if !same {
                text += &format!(" --{name} {value}");
            }
        };
        add("layout", self.layout == drawn.layout, self.layout.to_string());
        add("groups", self.groups == drawn.groups, self.groups.to_string());
        add("log-disks", self.log_disks == drawn.log_disks, self.log_disks.to_string());
        add("cache-disks", self.cache_disks == drawn.cache_disks, self.cache_disks.to_string());
        add("shards", self.shards == drawn.shards, self.shards.to_string());
        add("disk-mib", self.disk_mib == drawn.disk_mib, self.disk_mib.to_string());
        add("log-kib", self.log_kib == drawn.log_kib, self.log_kib.to_string());
        add("volumes", self.volumes == drawn.volumes, self.volumes.to_string());
        add("clients", self.clients == drawn.clients, self.clients.to_string());
        add("operations", self.operations == drawn.operations, self.operations.to_string());
        add("sync", self.sync == drawn.sync, self.sync.map_or("mixed", SyncPolicy::name).into());
        let compression = self.compression.map_or("mixed".into(), |one| one.to_string());
        add("compression", self.compression == drawn.compression, compression);
        add("management", self.management == drawn.management, self.management.to_string());
        add("policies", self.policies == drawn.policies, self.policies.to_string());
        add("registry", self.registry == drawn.registry, self.registry.to_string());
        add("renames", self.renames == drawn.renames, self.renames.to_string());
        add("second", self.second == drawn.second, self.second.to_string());
        add("strict-turns", self.strict_turns == drawn.strict_turns, self.strict_turns.to_string());
        add("table-records", self.table_records == drawn.table_records, self.table_records.to_string());
        add("requests", self.requests == drawn.requests, self.requests.to_string());
        add("shuffle", self.shuffle == drawn.shuffle, self.shuffle.to_string());
        text
    }

    /// Takes one option of [`Setup::options`] but the seed. False when it is not one of them.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let bad = || format!("--{name} does not take {value:?}");
        let number = || value.parse::<u64>().map_err(|_| bad());
        let truth = || value.parse::<bool>().map_err(|_| bad());
        match name {
            "layout" => self.layout = Layout::parse(value).ok_or_else(bad)?,
            "groups" => self.groups = number()? as usize,
            "log-disks" => self.log_disks = number()? as usize,
            "cache-disks" => self.cache_disks = number()? as usize,
            "shards" => self.shards = number()? as usize,
            "disk-mib" => self.disk_mib = number()?,
            "log-kib" => self.log_kib = number()?,
            "volumes" => self.volumes = number()? as usize,
            "clients" => self.clients = number()? as usize,
            "operations" => self.operations = number()?,
            "sync" if value == "mixed" => self.sync = None,
            "sync" => self.sync = Some(SyncPolicy::parse(value).ok_or_else(bad)?),
            "compression" if value == "mixed" => self.compression = None,
            "compression" => self.compression = Some(value.parse().map_err(|_| bad())?),
            "management" => self.management = truth()?,
            "policies" => self.policies = truth()?,
            "registry" => self.registry = truth()?,
            "renames" => self.renames = truth()?,
            "second" => self.second = truth()?,
            "strict-turns" => self.strict_turns = truth()?,
            "table-records" => self.table_records = number()?,
            "requests" => self.requests = number()? as usize,
            "shuffle" => self.shuffle = truth()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_strict_in_one_seed_of_eight() {
        let strict = (0..800).filter(|seed| Setup::from_seed(*seed).strict_turns).count();
        assert!((80..=120).contains(&strict), "{strict} of 800");
    }

    #[test]
    fn options_make_the_same_setup_again() {
        for seed in 0..50 {
            let mut setup = Setup::from_seed(seed);
            setup.layout = Layout::Mirror3;
            setup.operations = 77;
            setup.strict_turns = true;
            setup.requests = 77;
            setup.table_records = 5;
            setup.sync = Some(SyncPolicy::Standard);
            setup.compression = Some(Compression::Gzip(1));
            let text = setup.options();
            let words: Vec<&str> = text.split(' ').collect();
            let mut again = Setup::from_seed(words[1].parse().expect("the seed is a number"));
            for pair in words[2..].chunks(2) {
                assert_eq!(again.set(pair[0].trim_start_matches('-'), pair[1]), Ok(true));
            }
            assert_eq!(again, setup);
        }
    }
}
