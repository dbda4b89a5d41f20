//! Devices that take the time their data sheets say.
//!
//! A *sheet* holds what a maker publishes of a device, and nothing else: no figure here was chosen to meet a result. (The manuals named have seeks, tracks and rates;
//! capacity, buffer and interface are what the makers sell the models as.) What a sheet does not say, the
//! model does not have. A disk of a world gets a model with [`crate::World::set_model`]; the image's first byte is the device's, so an image smaller than the
//! device is its outer part.
//!
//! What is left out: errors and their retries, thermal throttling, the wear of flash and the pauses of its garbage collection (sheets give means over minutes), and
//! hits of reads in what a disk has of earlier reads and writes, but for what it has read on since the last one. A discard takes the time of a write.

mod flash;
mod measured;
mod mechanical;

use crate::disk::Work;
use crate::image::PAGE;
use flash::Flash;
use measured::Measured;
use mechanical::Mechanical;
use std::time::Duration;

pub use measured::{FEW, MANY, MeasuredCosts, MeasuredSheet, POINTS, Pauses, Spread};

/// What a data sheet says of a device.
#[expect(
    clippy::large_enum_variant,
    reason = "a machine has few, and they are copied as the other sheets are"
)]
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sheet {
    Disk(DiskSheet),
    Flash(FlashSheet),
    Measured(MeasuredSheet),
}

/// A disk that turns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DiskSheet {
    pub name: &'static str,
    pub source: &'static str,
    pub bytes: u64,
    /// Revolutions a minute.
    pub rpm: u32,
    /// Tracks of one surface.
    pub tracks: u32,
    /// Bytes a second, where the disk begins and where it ends.
    pub outer: u64,
    pub inner: u64,
    /// Bytes a second of the interface.
    pub interface: u64,
    /// What the controller needs before the arm moves.
    pub overhead: Duration,
    pub read: Seeks,
    pub write: Seeks,
    /// Bytes of memory for writes and for what is read ahead.
    pub buffer: u64,
}

/// How long the arm takes, settling included: to the next track, over all pairs of places on average, and from end to end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seeks {
    pub track: Duration,
    pub average: Duration,
    pub full: Duration,
}

/// A flash device with an interface of its own kind, whose writes are safe from power loss once acknowledged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashSheet {
    pub name: &'static str,
    pub source: &'static str,
    pub bytes: u64,
    pub read: FlashRates,
    pub write: FlashRates,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlashRates {
    /// Requests of 4 KiB a second at random places, many at a time; and of 8 KiB, where the sheet has it.
    pub iops_4k: u32,
    pub iops_8k: Option<u32>,
    /// Bytes a second in sequence.
    pub bytes: u64,
    /// Of a small request by itself.
    pub latency: Duration,
}

const fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// 7 200 revolutions a minute, 1 TB.
pub const DISK_7K2: DiskSheet = DiskSheet {
    name: "7.2K",
    source: "Seagate Constellation.2 SAS (ST91000640SS) product manual, rev. H, 5.1 and 5.2",
    bytes: 1_000_204_886_016,
    rpm: 7200,
    tracks: 165_800,
    // The internal rate.
    outer: 163_000_000,
    inner: 84_000_000,
    interface: 600_000_000,
    overhead: micros(200),
    read: Seeks { track: micros(230), average: micros(7500), full: micros(17_060) },
    write: Seeks { track: micros(440), average: micros(8500), full: micros(18_080) },
    buffer: 64 << 20,
};

/// 10 000 revolutions a minute, 73 GB.
pub const DISK_10K: DiskSheet = DiskSheet {
    name: "10K",
    source: "Seagate Savvio SAS (ST973401SS) product manual, rev. D, 4.1 and 4.2",
    bytes: 73_407_865_856,
    rpm: 10_000,
    tracks: 51_052,
    // The internal rate: 753 to 506 Mbit/s.
    outer: 94_125_000,
    inner: 63_250_000,
    interface: 300_000_000,
    overhead: micros(200),
    read: Seeks { track: micros(200), average: micros(4000), full: micros(8100) },
    write: Seeks { track: micros(600), average: micros(4400), full: micros(8600) },
    buffer: 8 << 20,
};

/// 15 000 revolutions a minute, 146 GB.
pub const DISK_15K: DiskSheet = DiskSheet {
    name: "15K",
    source: "Seagate Cheetah 15K.5 (ST3146855SS) data sheet, which was not available: check its figures, except the mean seek of writes and the outer \
             rate, which others quote. It gives no tracks (here: those of four heads at the mean rate) and no full-stroke seek \
             (here: from a square root through the other two)",
    bytes: 146_815_733_760,
    rpm: 15_000,
    tracks: 92_700,
    // The sustained rate.
    outer: 125_000_000,
    inner: 73_000_000,
    interface: 300_000_000,
    overhead: micros(200),
    read: Seeks { track: micros(200), average: micros(3500), full: micros(6390) },
    write: Seeks { track: micros(400), average: micros(4000), full: micros(7150) },
    buffer: 16 << 20,
};

/// Flash behind SATA, 400 GB.
pub const FLASH_SATA: FlashSheet = FlashSheet {
    name: "SATA flash",
    source: "Intel SSD DC S3700 product specification",
    bytes: 400_088_457_216,
    read: FlashRates { iops_4k: 75_000, iops_8k: Some(47_500), bytes: 500_000_000, latency: micros(50) },
    write: FlashRates { iops_4k: 36_000, iops_8k: Some(20_000), bytes: 460_000_000, latency: micros(65) },
};

/// Flash behind NVMe, 2 TB.
pub const FLASH_NVME: FlashSheet = FlashSheet {
    name: "NVMe flash",
    source: "Intel SSD DC P3700 product specification 330566-005US",
    bytes: 2_000_398_934_016,
    read: FlashRates { iops_4k: 460_000, iops_8k: None, bytes: 2_800_000_000, latency: micros(20) },
    write: FlashRates { iops_4k: 175_000, iops_8k: None, bytes: 2_000_000_000, latency: micros(20) },
};

/// All of them.
pub const SHEETS: [Sheet; 5] = [
    Sheet::Disk(DISK_7K2),
    Sheet::Disk(DISK_10K),
    Sheet::Disk(DISK_15K),
    Sheet::Flash(FLASH_SATA),
    Sheet::Flash(FLASH_NVME),
];

/// One operation, as the device sees it.
pub(crate) struct Order {
    work: Work,
    at: u64,
    bytes: u64,
    kind: Kind,
    /// How many times longer it takes than it should.
    slower: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Read,
    /// One that must be on the medium when it is over, or not.
    Write {
        durable: bool,
    },
    Flush,
}

impl Order {
    pub fn new(work: Work, slower: u32) -> Order {
        let (at, kind) = match &work {
            Work::Read { at, .. } => (*at, Kind::Read),
            Work::Write(write) => (write.at, Kind::Write { durable: write.durable }),
            Work::Flush { .. } => (0, Kind::Flush),
        };
        Order { at, bytes: work.bytes(), kind, slower, work }
    }
}

/// A device at work.
pub(crate) trait Device {
    fn accept(&mut self, now: u64, order: Order);

    /// When something is over, or the next thing begins.
    fn next(&self) -> Option<u64>;

    /// Lets time pass until `now`; gives what is over, in order.
    fn advance(&mut self, now: u64) -> Vec<Work>;

    /// Nanoseconds of all that it has begun.
    fn busy(&self) -> u64;
}

impl Sheet {
    pub fn name(&self) -> &'static str {
        match self {
            Sheet::Disk(sheet) => sheet.name,
            Sheet::Flash(sheet) => sheet.name,
            Sheet::Measured(_) => "measured",
        }
    }

    pub fn source(&self) -> &'static str {
        match self {
            Sheet::Disk(sheet) => sheet.source,
            Sheet::Flash(sheet) => sheet.source,
            Sheet::Measured(_) => "measured by the author of the configuration",
        }
    }

    pub fn bytes(&self) -> u64 {
        match self {
            Sheet::Disk(sheet) => sheet.bytes,
            Sheet::Flash(sheet) => sheet.bytes,
            Sheet::Measured(sheet) => sheet.bytes,
        }
    }

    /// The same device with so many times less room on it: as wide and as fast, with fewer tracks.
    pub fn scaled(&self, times: u64) -> Sheet {
        let fewer = |bytes: u64| bytes / times / PAGE as u64 * PAGE as u64;
        match *self {
            Sheet::Disk(sheet) => {
                let tracks = (u64::from(sheet.tracks) / times).max(1) as u32;
                Sheet::Disk(DiskSheet { bytes: fewer(sheet.bytes), tracks, ..sheet })
            }
            Sheet::Flash(sheet) => Sheet::Flash(FlashSheet { bytes: fewer(sheet.bytes), ..sheet }),
            Sheet::Measured(sheet) => Sheet::Measured(MeasuredSheet { bytes: fewer(sheet.bytes), ..sheet }),
        }
    }

    /// A device like this; its chances follow the seed.
    pub(crate) fn device(&self, seed: u64) -> Box<dyn Device> {
        match self {
            Sheet::Disk(sheet) => Box::new(Mechanical::new(*sheet)),
            Sheet::Flash(sheet) => Box::new(Flash::new(*sheet)),
            Sheet::Measured(sheet) => Box::new(Measured::new(*sheet, seed)),
        }
    }
}

/// Nanoseconds that bytes take at so many a second.
fn transfer(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64
}
