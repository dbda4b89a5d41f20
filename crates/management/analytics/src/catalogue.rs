//! What there is to ask for: layers, their nouns, and by what these break down. One table, from which expressions are checked, rows are bounded, and
//! people are told what there is.
//!
//! Numbers of layers, nouns and dimensions are on disk: they never change their meaning, and new ones come at the end.

use std::fmt;

/// What a breakdown calls rows that are not kept by themselves.
pub const OTHERS: &str = "others";
/// What a breakdown calls rows that do not have the dimension: a volume without a project.
pub const NONE: &str = "none";

macro_rules! names {
    ($(#[$doc:meta])* $kind:ident { $($variant:ident = $code:literal $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $kind { $($variant = $code,)* }

        impl $kind {
            pub const ALL: &[$kind] = &[$($kind::$variant,)*];

            /// As expressions have it.
            pub fn name(self) -> &'static str {
                match self { $($kind::$variant => $name,)* }
            }
            pub fn find(name: &str) -> Option<$kind> {
                match name { $($name => Some($kind::$variant),)* _ => None }
            }
            /// As blocks have it.
            pub fn code(self) -> u8 {
                self as u8
            }
            pub fn of_code(code: u8) -> Option<$kind> {
                match code { $($code => Some($kind::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names! {
    /// Where something is counted.
    Layer {
        Nbd = 1 "nbd",
        Iscsi = 2 "iscsi",
        Volume = 3 "volume",
        Qos = 4 "qos",
        Pool = 5 "pool",
        Disk = 6 "disk",
        Cache = 7 "cache",
        Cpu = 8 "cpu",
        Memory = 9 "memory",
        Nic = 10 "nic",
        Observer = 11 "observer",
    }
}

names! {
    /// What is counted. The same noun may be of another kind in another layer.
    Noun {
        Ops = 1 "ops",
        Bytes = 2 "bytes",
        Latency = 3 "latency",
        Size = 4 "size",
        Offset = 5 "offset",
        Failed = 6 "failed",
        Time = 7 "time",
        Asked = 8 "asked",
        Done = 9 "done",
        Late = 10 "late",
        Waiting = 11 "waiting",
        P50 = 12 "p50",
        P99 = 13 "p99",
        Missed = 14 "missed",
        Used = 15 "used",
        Free = 16 "free",
        Busy = 17 "busy",
        Blocks = 18 "blocks",
        Packets = 19 "packets",
        Rows = 20 "rows",
        Merged = 21 "merged",
        Lost = 22 "lost",
    }
}

names! {
    /// By what it breaks down.
    Dimension {
        Op = 1 "op",
        Client = 2 "client",
        Volume = 3 "volume",
        Project = 4 "project",
        Level = 5 "level",
        Stage = 6 "stage",
        Cause = 7 "cause",
        Pool = 8 "pool",
        Class = 9 "class",
        Group = 10 "group",
        Device = 11 "device",
        Source = 12 "source",
        Part = 13 "part",
        Direction = 14 "direction",
    }
}

/// What a statistic is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// How much happened: a rate.
    Counter,
    /// How much there was.
    Gauge(Together),
    /// A histogram.
    Spread(Scale),
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge(_) => "gauge",
            Kind::Spread(_) => "spread",
        }
    }
}

/// What a gauge is of several rows at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Together {
    Sum,
    Mean,
    /// The mean of percentiles would be no percentile; the worst is at least true of one volume.
    Greatest,
}

/// What the buckets of a histogram mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// As [`forebay_probe::Histogram`] has them.
    Log,
    /// So many of one size.
    Linear(u16),
}

impl Scale {
    pub fn buckets(self) -> u16 {
        match self {
            Scale::Log => forebay_probe::BUCKETS as u16,
            Scale::Linear(parts) => parts,
        }
    }

    /// The least value of a bucket.
    pub fn least(self, bucket: u16) -> u64 {
        match self {
            Scale::Log => forebay_probe::bounds(bucket).0,
            Scale::Linear(_) => u64::from(bucket),
        }
    }

    /// The greatest value of a bucket.
    pub fn greatest(self, bucket: u16) -> u64 {
        match self {
            Scale::Log => forebay_probe::bounds(bucket).1,
            Scale::Linear(_) => u64::from(bucket),
        }
    }
}

/// One noun of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Statistic {
    pub layer: Layer,
    pub noun: Noun,
    pub kind: Kind,
    /// Of the values in an answer.
    pub unit: &'static str,
    pub dimensions: &'static [Dimension],
    /// For people.
    pub sentence: &'static str,
}

/// How many 64ths a volume has.
pub const OFFSET_PARTS: u16 = 64;

const LOG: Kind = Kind::Spread(Scale::Log);
const OFFSETS: Kind = Kind::Spread(Scale::Linear(OFFSET_PARTS));
const SUM: Kind = Kind::Gauge(Together::Sum);
const MEAN: Kind = Kind::Gauge(Together::Mean);
const GREATEST: Kind = Kind::Gauge(Together::Greatest);

use Dimension as D;

const PROTOCOL: &[D] = &[D::Op, D::Client, D::Volume, D::Project, D::Level];
const FAILED: &[D] = &[D::Client, D::Volume, D::Project, D::Level];
const VOLUME: &[D] = &[D::Volume, D::Project, D::Level];
const STAGES: &[D] = &[D::Volume, D::Project, D::Level, D::Stage];
const CAUSES: &[D] = &[D::Volume, D::Project, D::Level, D::Cause];
const POOL: &[D] = &[D::Pool];
const WORK: &[D] = &[D::Pool, D::Class];
const DISK: &[D] = &[D::Pool, D::Group, D::Device, D::Op];
const DISK_WHOLE: &[D] = &[D::Pool, D::Group, D::Device];
const CACHE: &[D] = &[D::Pool, D::Source];
const PART: &[D] = &[D::Part];
const NIC: &[D] = &[D::Device, D::Direction];

const fn row(
    (layer, noun): (Layer, Noun),
    kind: Kind,
    unit: &'static str,
    dimensions: &'static [D],
    sentence: &'static str,
) -> Statistic {
    Statistic { layer, noun, kind, unit, dimensions, sentence }
}

/// All statistics, in the order in which they are listed.
pub const STATISTICS: &[Statistic] = {
    use Kind::Counter;
    use Layer::*;
    use Noun::*;
    &[
        row((Nbd, Ops), Counter, "per-second", PROTOCOL, "Requests of NBD clients."),
        row((Nbd, Bytes), Counter, "bytes-per-second", PROTOCOL, "Bytes that NBD clients read and write."),
        row((Nbd, Failed), Counter, "per-second", FAILED, "Failed requests of NBD clients."),
        row(
            (Nbd, Latency),
            LOG,
            "ns",
            PROTOCOL,
            "Latency of requests of NBD clients, from arrival to reply.",
        ),
        row((Nbd, Size), LOG, "bytes", PROTOCOL, "Sizes of requests of NBD clients."),
        row(
            (Nbd, Offset),
            OFFSETS,
            "sixty-fourths",
            PROTOCOL,
            "Offsets of requests of NBD clients, in 64ths of the volume.",
        ),
        row((Iscsi, Ops), Counter, "per-second", PROTOCOL, "Commands of iSCSI hosts."),
        row((Iscsi, Bytes), Counter, "bytes-per-second", PROTOCOL, "Bytes that iSCSI hosts read and write."),
        row((Iscsi, Failed), Counter, "per-second", FAILED, "Failed commands of iSCSI hosts."),
        row(
            (Iscsi, Latency),
            LOG,
            "ns",
            PROTOCOL,
            "Latency of commands of iSCSI hosts, from arrival to reply.",
        ),
        row((Iscsi, Size), LOG, "bytes", PROTOCOL, "Sizes of commands of iSCSI hosts."),
        row(
            (Iscsi, Offset),
            OFFSETS,
            "sixty-fourths",
            PROTOCOL,
            "Offsets of commands of iSCSI hosts, in 64ths of the volume.",
        ),
        row((Volume, Ops), Counter, "per-second", VOLUME, "Requests that volumes served, from any source."),
        row(
            (Volume, Bytes),
            Counter,
            "bytes-per-second",
            VOLUME,
            "Bytes read from volumes and written to them.",
        ),
        row((Volume, Failed), Counter, "per-second", VOLUME, "Failed requests to volumes."),
        row(
            (Volume, Time),
            Counter,
            "ns-per-second",
            STAGES,
            "Time of requests by stage: held back by a limit, waiting for space in the log, queued for the disks, at the disks, paused.",
        ),
        row((Qos, Asked), Counter, "per-second", VOLUME, "Requests that arrived."),
        row((Qos, Done), Counter, "per-second", VOLUME, "Requests that were completed."),
        row(
            (Qos, Late),
            Counter,
            "per-second",
            VOLUME,
            "Requests that took longer than the level's latency goal.",
        ),
        row((Qos, Waiting), SUM, "requests", VOLUME, "Requests that were waiting or in progress."),
        row((Qos, P50), GREATEST, "ns", VOLUME, "Latency p50 of a volume; of several volumes, the highest."),
        row((Qos, P99), GREATEST, "ns", VOLUME, "Latency p99 of a volume; of several volumes, the highest."),
        row((Qos, Missed), SUM, "volumes", CAUSES, "Volumes whose service level was missed."),
        row(
            (Pool, Time),
            Counter,
            "ns-per-second",
            WORK,
            "Time that work takes of the pool, by class of work.",
        ),
        row((Pool, Size), SUM, "bytes", POOL, "Size of pools."),
        row((Pool, Used), SUM, "bytes", POOL, "Used space of pools."),
        row((Pool, Free), SUM, "bytes", POOL, "Space of pools that is neither used nor reserved."),
        row((Pool, Lost), SUM, "bytes", POOL, "Stored data that is unrecoverable."),
        row((Disk, Ops), Counter, "per-second", DISK, "Requests to disks."),
        row((Disk, Bytes), Counter, "bytes-per-second", DISK, "Bytes read from disks and written to them."),
        row((Disk, Latency), LOG, "ns", DISK, "Latency of requests to disks."),
        row(
            (Disk, Busy),
            MEAN,
            "thousandths",
            DISK_WHOLE,
            "Share of the time that disks were busy; of several disks, the mean.",
        ),
        row((Cache, Blocks), Counter, "per-second", CACHE, "Blocks that were read, by source."),
        row((Cpu, Used), SUM, "thousandths", PART, "CPU use of the appliance: 1000 is one core."),
        row((Memory, Used), SUM, "bytes", PART, "Memory that the appliance uses."),
        row((Nic, Bytes), Counter, "bytes-per-second", NIC, "Bytes through physical network ports."),
        row((Nic, Packets), Counter, "per-second", NIC, "Packets through physical network ports."),
        row((Observer, Time), Counter, "ns-per-second", &[], "Time that collecting statistics takes."),
        row((Observer, Rows), SUM, "rows", &[], "Rows of statistics in a second."),
        row(
            (Observer, Merged),
            Counter,
            "per-second",
            &[],
            "Rows that were merged into others because a layer had too many.",
        ),
    ]
};

/// The statistic of a layer with this noun.
pub fn find(layer: Layer, noun: Noun) -> Option<&'static Statistic> {
    STATISTICS.iter().find(|one| one.layer == layer && one.noun == noun)
}

impl Layer {
    pub fn statistics(self) -> impl Iterator<Item = &'static Statistic> {
        STATISTICS.iter().filter(move |one| one.layer == self)
    }

    /// By which noun rows are the greatest of their layer: the least are merged first.
    pub fn weight(self) -> Noun {
        match self {
            Layer::Nbd | Layer::Iscsi | Layer::Volume | Layer::Disk => Noun::Ops,
            Layer::Qos => Noun::Asked,
            Layer::Pool | Layer::Observer => Noun::Time,
            Layer::Cache => Noun::Blocks,
            Layer::Cpu | Layer::Memory => Noun::Used,
            Layer::Nic => Noun::Bytes,
        }
    }
}

impl Statistic {
    /// Spreads that a bracket may show this counter's events by.
    pub fn spreads(&self) -> impl Iterator<Item = &'static Statistic> {
        let counts_events = self.kind == Kind::Counter && self.noun == Noun::Ops;
        self.layer.statistics().filter(move |one| counts_events && matches!(one.kind, Kind::Spread(_)))
    }

    pub fn scale(&self) -> Option<Scale> {
        match self.kind {
            Kind::Spread(scale) => Some(scale),
            _ => None,
        }
    }
}

impl fmt::Display for Statistic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.layer, self.noun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_statistic_is_there_once_and_can_be_ranked() {
        let mut seen = HashSet::new();
        for one in STATISTICS {
            assert!(seen.insert((one.layer, one.noun)), "{one} twice");
            assert!(one.sentence.ends_with('.') && !one.unit.is_empty(), "{one}");
            assert_eq!(find(one.layer, one.noun), Some(one));
            assert!(find(one.layer, one.layer.weight()).is_some(), "{}", one.layer);
            // The greatest number of labels that a row can have; blocks are read into a table of this size.
            assert!(one.dimensions.len() <= crate::LABELS_MAX);
        }
        for layer in Layer::ALL {
            assert!(layer.statistics().next().is_some(), "{layer} has nothing");
            assert_eq!(
                (Layer::of_code(layer.code()), Layer::find(layer.name())),
                (Some(*layer), Some(*layer))
            );
        }
    }

    #[test]
    fn only_requests_have_heat_maps() {
        let names = |layer, noun| -> Vec<&str> {
            find(layer, noun).unwrap().spreads().map(|spread| spread.noun.name()).collect()
        };
        assert_eq!(names(Layer::Nbd, Noun::Ops), ["latency", "size", "offset"]);
        assert_eq!(names(Layer::Disk, Noun::Ops), ["latency"]);
        assert!(names(Layer::Nbd, Noun::Bytes).is_empty() && names(Layer::Nbd, Noun::Latency).is_empty());
        assert!(names(Layer::Volume, Noun::Ops).is_empty());
    }

    /// The page and the table are of one mind about what there is.
    #[test]
    fn the_page_names_every_layer_and_noun() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/reference/analytics.md");
        let page = std::fs::read_to_string(path).unwrap();
        for one in STATISTICS {
            let name = format!("`{}`", one.layer);
            let row =
                page.lines().find(|line| line.split('|').nth(1).is_some_and(|cell| cell.contains(&name)));
            let row = row.unwrap_or_else(|| panic!("no row for {}", one.layer));
            for word in [one.noun.name()].into_iter().chain(one.dimensions.iter().map(|d| d.name())) {
                assert!(
                    row.contains(&format!("`{word}`")) || row.contains(word),
                    "{one}: {word} is not in its row"
                );
            }
        }
    }
}
