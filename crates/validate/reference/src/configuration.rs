//! A reference architecture as people write it: TOML with machines, workloads, how both are put together, and what was published of it.

use crate::device::DeviceModel;
use forebay_pool::{Class, Compression, Layout, Level, Rate};
use forebay_simulation::Sheet;
use forebay_simulation::model::SHEETS;
use forebay_workload::{Trace, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::time::Duration;

/// Groups, disks and volumes that a case may have: more is a mistake in the file.
const GROUPS_MAX: u32 = 64;
const DISKS_MAX: u32 = 128;
const VOLUMES_MAX: usize = 256;
const SCALE_MAX: u64 = 4096;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// What the disks of a case may hold: it is in memory.
const BYTES_MAX: u64 = 16 * GIB;
const CACHE_DISKS_MAX: u32 = 16;
const CACHE_GIB_MAX: u64 = 64 << 10;
const SECONDS_MAX: u64 = 3600;
const PORTS_MAX: u32 = 64;
const CORES_MAX: u32 = 1024;
/// A second, which nothing of a request takes.
const NANOS_MAX: u64 = 1_000_000_000;
/// Other numbers of requests at a time that a case may be run with.
const LOADS_MAX: usize = 16;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Configuration {
    pub name: String,
    pub title: String,
    #[serde(default)]
    pub source: String,
    /// What a reader of the figures has to know, and what was emulated.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Where the source contradicts itself, and what was taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub traps: Vec<String>,
    /// How far our figures and the published ones are of the same thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likeness: Option<Likeness>,
    /// Models of devices that somebody has measured.
    #[serde(default, rename = "device", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceModel>,
    pub machine: Machine,
    #[serde(rename = "workload")]
    pub workloads: Vec<Client>,
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// How far a comparison goes, and why no further.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Likeness {
    pub verdict: Verdict,
    pub reasons: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same load on devices of the same kind and number.
    Comparable,
    /// Something that matters had to be assumed or is of another make: orders and ratios mean something, figures little.
    Indicative,
    NotComparable,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Comparable => "comparable",
            Verdict::Indicative => "indicative",
            Verdict::NotComparable => "not comparable",
        })
    }
}

/// The controllers' processors, and what requests cost them.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Processor {
    /// Of all controllers together.
    pub cores: u32,
    /// Nanoseconds of a read and of a write, and of each KiB of data.
    pub read_ns: u64,
    pub write_ns: u64,
    pub kib_ns: u64,
    /// For each compression that volumes have, nanoseconds of a KiB to compress it and to expand it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub compression: BTreeMap<String, [u64; 2]>,
    /// Where these figures were measured.
    pub source: String,
}

/// What all cases run on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Machine {
    /// A modelled disk, by name.
    pub disk: String,
    /// A modelled device for the intent log of each pool, mirrored; without it the log is on the data disks.
    pub log: Option<String>,
    /// A modelled device for copies of what is read at random, in pools that have such.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
    pub memory_mib: u64,
    /// Gigabits a second of each port of the network that all clients share, each way.
    #[serde(default = "network_gbit")]
    pub network_gbit: u64,
    /// Ports of that rate, which requests take by turns.
    #[serde(default = "one_port", skip_serializing_if = "is_one_port")]
    pub network_ports: u32,
    /// Without it processors take no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<Processor>,
    /// Disks and volumes are so many times smaller than they are said to be. Distances of the arm, rates and times stay.
    pub scale: u64,
    /// How long clients work before they are measured, and how long they are.
    pub warm_seconds: u64,
    pub seconds: u64,
}

/// What is said nothing else of.
fn network_gbit() -> u64 {
    10
}

fn one_port() -> u32 {
    1
}

fn is_one_port(ports: &u32) -> bool {
    *ports == 1
}

/// A workload, what it needs, and what its volume is promised.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Client {
    #[serde(flatten)]
    pub workload: Workload,
    /// Bytes of the volume's blocks in KiB.
    pub volume_block_kib: u64,
    /// Of its volume; without it nothing is compressed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<String>,
    pub needs: Option<Needs>,
    pub level: Option<Promise>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Needs {
    pub iops: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Promise {
    pub class: ClassName,
    #[serde(default)]
    pub min_iops: u64,
    /// MiB a second.
    #[serde(default)]
    pub min_mib: u64,
    pub latency_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    MissionCritical,
    BusinessCritical,
    NonCritical,
}

/// One way to put disks and workloads together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Case {
    pub name: String,
    #[serde(rename = "pool")]
    pub pools: Vec<Pool>,
    /// Instead of the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    #[serde(default)]
    pub published: String,
    /// Figures of workloads, of all clients of each together.
    #[serde(default)]
    pub figures: Vec<Figure>,
    /// The workloads whose needs were met, where that was published.
    pub published_met: Option<Vec<String>>,
    /// How many of the workloads, where only that was.
    pub published_count: Option<usize>,
    /// Where ours is another answer than the published one, why.
    pub differs: Option<String>,
    /// It is also run with so many requests at a time of each closed loop, each time for so long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<Curve>,
}

/// Loads at which rate and latency are looked at.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Curve {
    pub outstanding: Vec<u32>,
    pub seconds: u64,
}

/// What was published that a workload got.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Figure {
    pub workload: String,
    pub measure: Measure,
    pub value: f64,
    /// It is a ratio to what the same workload, or the other one, got in the case of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_workload: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Requests a second, and 10⁶ bytes a second.
    Iops,
    Megabytes,
    /// Means in milliseconds.
    MeanMs,
    ReadMs,
    WriteMs,
    /// Where several requests make an order.
    OrdersPerMinute,
    /// Requests a second that a cache in the client answered.
    HitsPerSecond,
    /// Requests a second that came to the pool: all others.
    PoolRequests,
    /// Bytes of data to what of the pool they take.
    CompressionRatio,
    /// Of the time of all processors, of all workloads of the case.
    ProcessorPercent,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Measure::Iops => "IOPS",
            Measure::Megabytes => "MB/s",
            Measure::MeanMs => "mean ms",
            Measure::ReadMs => "mean ms of reads",
            Measure::WriteMs => "mean ms of writes",
            Measure::OrdersPerMinute => "orders/min",
            Measure::HitsPerSecond => "IOPS from the client's cache",
            Measure::PoolRequests => "IOPS to the pool",
            Measure::CompressionRatio => "compression",
            Measure::ProcessorPercent => "% of the processors (of the case)",
        })
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pool {
    /// Instead of the machine's, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
    /// What the disks say of their physical sectors: 512, 4096 or 8192 bytes; the models say 4096.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sector_bytes: Option<u32>,
    /// No pool at all: workloads have the bare disks, a MiB of each in turn.
    #[serde(default, skip_serializing_if = "is_false")]
    pub bare: bool,
    pub layout: LayoutName,
    /// Of each group; without it as many as the layout has to have.
    pub disks: Option<u32>,
    pub groups: u32,
    /// Disks besides, for those that fail.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub spares: u32,
    /// Disks for copies of what is read at random.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// What fails while it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails: Option<Fails>,
    /// A volume for each; a name may come several times.
    pub workloads: Vec<String>,
}

/// Disks for copies of what is read at random.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Cache {
    pub disks: u32,
    /// Of each, before it is made smaller.
    pub gib: u64,
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// A disk of a pool, by its number from 0 through all groups, is gone so many seconds after the measurement has begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Fails {
    pub disk: u32,
    pub after_seconds: u64,
}

/// `single`, `mirror`, `mirror3` or `DATA+PARITY`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LayoutName(pub Layout);

impl TryFrom<String> for LayoutName {
    type Error = String;

    fn try_from(name: String) -> Result<LayoutName, String> {
        let refused =
            || format!("'{name}' is not a layout: give single, mirror, mirror3, or DATA+PARITY such as 4+1");
        Layout::parse(&name).map(LayoutName).ok_or_else(refused)
    }
}

impl From<LayoutName> for String {
    fn from(layout: LayoutName) -> String {
        layout.0.to_string()
    }
}

/// What is wrong with a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake(pub String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Client {
    pub fn compression(&self) -> Compression {
        let named = self.compression.as_deref().and_then(|name| name.parse().ok());
        named.unwrap_or(Compression::Off)
    }
}

impl Promise {
    pub fn level(&self) -> Level {
        let class = match self.class {
            ClassName::MissionCritical => Class::MissionCritical,
            ClassName::BusinessCritical => Class::BusinessCritical,
            ClassName::NonCritical => Class::NonCritical,
        };
        let floor = Rate { iops: self.min_iops, bytes: self.min_mib << 20 };
        Level { class, floor, latency: self.latency_ms.map(Duration::from_millis), ..Level::default() }
    }
}

/// The modelled device of this name that comes with the product.
pub fn sheet(name: &str) -> Option<Sheet> {
    SHEETS.into_iter().find(|sheet| sheet.name() == name)
}

/// By the paths of their files.
pub type Traces = BTreeMap<String, Trace>;

/// Reads traces, each once; `read` gives a file's text.
pub fn traces(
    paths: impl Iterator<Item = String>,
    read: impl Fn(&str) -> Result<String, String>,
) -> Result<Traces, Mistake> {
    let mut traces = Traces::new();
    for path in paths {
        if let Entry::Vacant(missing) = traces.entry(path) {
            let path = missing.key();
            let trace = read(path).and_then(|text| Trace::read(path, &text));
            let trace = trace.map_err(|problem| Mistake(format!("trace {path}: {problem}")))?;
            missing.insert(trace);
        }
    }
    Ok(traces)
}

impl Configuration {
    /// The modelled device of this name, and where its figures are from.
    pub fn sheet(&self, name: &str) -> Option<(Sheet, String)> {
        let own = self.devices.iter().find(|device| device.name == name);
        let own = own.map(|device| (device.sheet(), device.source.clone()));
        own.or_else(|| sheet(name).map(|sheet| (sheet, sheet.source().to_string())))
    }

    pub fn parse(text: &str) -> Result<Configuration, Mistake> {
        let configuration: Configuration =
            toml::from_str(text).map_err(|error| Mistake(error.to_string()))?;
        configuration.check()?;
        Ok(configuration)
    }

    /// Takes in what the files of traces say; `read` gives a file's text.
    pub fn read_traces(&mut self, read: impl Fn(&str) -> Result<String, String>) -> Result<(), Mistake> {
        let paths =
            self.workloads.iter().filter_map(|client| Some(client.workload.trace.as_ref()?.path.clone()));
        let traces = traces(paths, read)?;
        self.take_traces(&traces);
        Ok(())
    }

    /// Takes in traces that were read.
    pub fn take_traces(&mut self, traces: &Traces) {
        for trace in self.workloads.iter_mut().filter_map(|client| client.workload.trace.as_mut()) {
            if let Some(read) = traces.get(&trace.path) {
                trace.clone_from(read);
            }
        }
    }

    /// As people write it.
    pub fn toml(&self) -> String {
        toml::to_string(self).expect("every part of it can be written")
    }

    pub fn client(&self, name: &str) -> Option<&Client> {
        self.workloads.iter().find(|client| client.workload.name == name)
    }

    fn check(&self) -> Result<(), Mistake> {
        let Machine { disk, log, cache, scale, memory_mib, network_gbit, seconds, warm_seconds, .. } =
            &self.machine;
        let of_pools = self.cases.iter().flat_map(|case| &case.pools).filter_map(|pool| pool.disk.as_ref());
        for name in [disk].into_iter().chain(log).chain(cache).chain(of_pools) {
            if self.sheet(name).is_none() {
                let own = self.devices.iter().map(|device| device.name.clone());
                let names: Vec<String> = SHEETS.iter().map(|sheet| sheet.name().into()).chain(own).collect();
                return Err(Mistake(format!(
                    "there is no model of '{name}'; the models are {}",
                    names.join(", ")
                )));
            }
        }
        if let Some(problem) = self.devices.iter().find_map(DeviceModel::problem) {
            return Err(Mistake(problem));
        }
        let ranges = [
            ("scale", *scale, SCALE_MAX),
            ("memory-mib", *memory_mib, 1 << 16),
            ("network-gbit", *network_gbit, 10_000),
            ("seconds", *seconds, SECONDS_MAX),
            ("warm-seconds", *warm_seconds, SECONDS_MAX),
            ("network-ports", self.machine.network_ports.into(), PORTS_MAX.into()),
        ];
        for (name, value, most) in ranges {
            if !(1..=most).contains(&value) {
                return Err(Mistake(format!("{name} is {value}: give 1 to {most}")));
            }
        }
        if let Some(processor) = &self.machine.processor {
            let Processor { cores, read_ns, write_ns, kib_ns, compression, .. } = processor;
            let times = [read_ns, write_ns, kib_ns].into_iter().chain(compression.values().flatten());
            if !(1..=CORES_MAX).contains(cores) || times.into_iter().any(|time| *time > NANOS_MAX) {
                return Err(Mistake(format!(
                    "processor: give 1 to {CORES_MAX} cores, and times of at most {NANOS_MAX} ns"
                )));
            }
        }
        if let Some(problem) = self.workloads.iter().find_map(|client| client.workload.problem()) {
            return Err(Mistake(problem));
        }
        for (nth, client) in self.workloads.iter().enumerate() {
            let (name, block) = (&client.workload.name, client.volume_block_kib);
            if self.workloads[..nth].iter().any(|other| other.workload.name == *name) {
                return Err(Mistake(format!("workload '{name}' is defined twice")));
            }
            if !block.is_power_of_two() || !(4..=128).contains(&block) {
                let message = format!("volume-block-kib is {block}: give a power of two from 4 to 128");
                return Err(Mistake(format!("workload '{name}': {message}")));
            }
            if let Some(compression) = &client.compression {
                if let Err(error) = compression.parse::<Compression>() {
                    return Err(Mistake(format!("workload '{name}': {error}")));
                }
                let processor = self.machine.processor.as_ref();
                if processor.is_some_and(|known| !known.compression.contains_key(compression)) {
                    let message = format!("the processor's compression has no costs for {compression}");
                    return Err(Mistake(format!("workload '{name}': {message}")));
                }
            }
            if client.workload.size_gib * GIB / scale < (client.workload.block_bytes() * 8).max(MIB) {
                let message =
                    format!("{} GiB are too few for its requests at scale {scale}", client.workload.size_gib);
                return Err(Mistake(format!(
                    "workload '{name}': {message}: give a larger size-gib, or a smaller scale"
                )));
            }
        }
        if self.cases.is_empty() {
            return Err(Mistake("there is no case".into()));
        }
        self.cases.iter().try_for_each(|case| {
            self.check_case(case).map_err(|problem| Mistake(format!("case '{}': {problem}", case.name)))
        })
    }

    fn check_case(&self, case: &Case) -> Result<(), String> {
        let volumes = || case.pools.iter().flat_map(|pool| &pool.workloads);
        if let Some(name) = volumes().find(|name| self.client(name).is_none()) {
            return Err(format!("there is no workload '{name}'"));
        }
        let figures = case.figures.iter().map(|figure| &figure.workload);
        let told = case.published_met.iter().flatten().chain(figures);
        if let Some(name) = told.into_iter().find(|name| volumes().all(|volume| volume != *name)) {
            return Err(format!("'{name}' has published figures, but is in no pool"));
        }
        let own = [case.warm_seconds, case.seconds].into_iter().flatten();
        if own.into_iter().any(|seconds| !(1..=SECONDS_MAX).contains(&seconds)) {
            return Err(format!("warm-seconds, seconds: give 1 to {SECONDS_MAX}"));
        }
        for figure in &case.figures {
            let Figure { workload, over, over_workload, .. } = figure;
            let other = over.as_ref().map(|over| (over, self.cases.iter().find(|case| case.name == *over)));
            let workload = over_workload.as_ref().unwrap_or(workload);
            let has_it = |case: &Case| case.pools.iter().any(|pool| pool.workloads.contains(workload));
            match other {
                Some((over, None)) => return Err(format!("there is no case '{over}' for a ratio")),
                Some((over, Some(case))) if !has_it(case) => {
                    return Err(format!("there is no workload '{workload}' in case '{over}' for a ratio"));
                }
                None if over_workload.is_some() => {
                    return Err("over-workload: give it together with over".into());
                }
                _ => {}
            }
        }
        if let Some(Curve { outstanding, seconds }) = &case.curve
            && (outstanding.is_empty()
                || outstanding.len() > LOADS_MAX
                || outstanding.iter().any(|load| !(1..=4096).contains(load))
                || !(1..=SECONDS_MAX).contains(seconds))
        {
            return Err(format!(
                "curve: give 1 to {LOADS_MAX} loads of 1 to 4096 outstanding, and 1 to {SECONDS_MAX} seconds"
            ));
        }
        let groups: u32 = case.pools.iter().map(|pool| pool.groups.min(GROUPS_MAX + 1)).sum();
        let is_empty = case.pools.iter().any(|pool| pool.groups == 0 || pool.workloads.is_empty());
        if case.pools.is_empty() || is_empty || groups > GROUPS_MAX || volumes().count() > VOLUMES_MAX {
            return Err(format!(
                "give pools with a group and a workload each, {GROUPS_MAX} groups and {VOLUMES_MAX} volumes at most"
            ));
        }
        let mut bytes = 0;
        for pool in &case.pools {
            let layout = pool.layout.0;
            let least = layout.width() as u32;
            if pool.disks.is_some_and(|disks| !(least..=DISKS_MAX).contains(&disks)) {
                return Err(format!("groups of {layout} have {least} to {DISKS_MAX} disks"));
            }
            let all = pool.disks.unwrap_or(least) * pool.groups;
            if let Some(Fails { disk, after_seconds }) = pool.fails {
                let seconds = case.seconds.unwrap_or(self.machine.seconds);
                if disk >= all || pool.bare {
                    return Err(format!("fails: give a disk of the pool, 0 to {}", all - 1));
                }
                if after_seconds >= seconds {
                    return Err(format!(
                        "after-seconds of fails: the measurement lasts {seconds} s, give less"
                    ));
                }
            }
            if let Some(cache) = pool.cache
                && (self.machine.cache.is_none()
                    || pool.bare
                    || !(1..=CACHE_DISKS_MAX).contains(&cache.disks)
                    || !(1..=CACHE_GIB_MAX).contains(&cache.gib))
            {
                return Err(format!(
                    "cache: give a pool 1 to {CACHE_DISKS_MAX} disks of 1 to {CACHE_GIB_MAX} GiB, and the machine a model of cache disk"
                ));
            }
            if pool.spares > DISKS_MAX || (pool.spares > 0 && pool.bare) {
                return Err(format!("spares: give at most {DISKS_MAX}, and none with bare disks"));
            }
            if pool.sector_bytes.is_some_and(|bytes| ![512, 4096, 8192].contains(&bytes)) {
                return Err("sector-bytes: give 512, 4096 or 8192".into());
            }
            let mut clients = pool.workloads.iter().filter_map(|name| self.client(name));
            let is_odd =
                |workload: &Workload| workload.trace.is_some() || !1024u64.is_multiple_of(workload.block_kib);
            if pool.bare && clients.any(|client| is_odd(&client.workload)) {
                return Err(
                    "bare disks take no traces, and only requests of which a MiB is a multiple".into()
                );
            }
            let data: u64 = pool
                .workloads
                .iter()
                .filter_map(|name| self.client(name))
                .map(|client| client.workload.size_gib)
                .sum();
            let cache = pool.cache.map_or(0, |cache| u64::from(cache.disks) * cache.gib);
            let stored = data * layout.width() as u64 / u64::from(layout.data()) + cache;
            bytes += stored * GIB / self.machine.scale;
        }
        if bytes > BYTES_MAX {
            let scale = (self.machine.scale * bytes.div_ceil(BYTES_MAX)).next_power_of_two();
            return Err(format!(
                "its volumes would take {} GiB of this machine's memory: give a scale of {scale}",
                bytes / GIB
            ));
        }
        Ok(())
    }
}
