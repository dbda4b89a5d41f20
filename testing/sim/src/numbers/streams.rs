//! What a client that reads in sequence gets from disks that turn, alone and beside others that read at random.

use super::{BLOCK, Bench, Figure, Machine, SECTOR, bench_on, failed};
use crate::harness::Failure;
use forebay_base::MIB;
use forebay_pool::{Layout, Volume, VolumeInfo};
use forebay_simulation::Sheet;
use forebay_simulation::model::DISK_7K2;
use futures_util::future::join;
use std::time::Duration;

const DISKS: usize = 4;
/// The disks are as wide as any, with so many times fewer tracks.
const SCALE: u64 = 3000;
/// One request of the stream, and all of it.
const REQUEST: usize = 256 << 10;
const STREAM: u64 = 192 * MIB;
const RANDOM: u64 = 192 * MIB;
const DEPTH: usize = 8;
const RUN: Duration = Duration::from_secs(3);

impl Bench {
    /// Bytes a second of one request after the other from the beginning, again and again, for so long.
    async fn stream(&self, info: &VolumeInfo) -> Result<f64, Failure> {
        let volume = Volume::open(&self.rt, info.id).map_err(failed)?;
        let (begun, mut bytes) = (self.rt.now(), 0);
        while self.rt.now().since(begun) < RUN.as_nanos() as u64 {
            volume.read(bytes % info.size, REQUEST).await.map_err(failed)?;
            bytes += REQUEST as u64;
        }
        Ok(bytes as f64 / (self.rt.now().since(begun) as f64 / 1e9))
    }
}

pub fn streams() -> Result<Vec<Figure>, Failure> {
    let sheet = Sheet::Disk(DISK_7K2);
    let machine = Machine {
        sheet: Some(sheet.scaled(SCALE)),
        memory: 64 * MIB,
        ..Machine::of(Layout::Mirror, DISKS, sheet.bytes() / SCALE / MIB, SECTOR)
    };
    bench_on(machine, async |bench| {
        let stream = bench.volume("stream", STREAM).await?;
        let random = bench.volume("random", RANDOM).await?;
        let alone = bench.stream(&stream).await?;
        let others_alone = bench.load_for(&random, DEPTH, 0, RUN).await?;
        let (beside, others) = join(bench.stream(&stream), bench.load_for(&random, DEPTH, 0, RUN)).await;
        let (beside, others) = (beside?, others?);
        let (rate, stream) = (DISK_7K2.outer as f64, "a stream of 256 KiB reads on four 7.2K disks");
        Ok(vec![
            Figure::with_goal(&format!("{stream} / the rate of one of them"), alone / rate, 1.5..=2.1),
            Figure::with_goal(
                &format!("{stream}, beside {DEPTH} random readers / alone"),
                beside / alone,
                0.2..=1.0,
            ),
            Figure::plain(
                &format!("{DEPTH} random readers of {} KiB beside that stream / alone", BLOCK >> 10),
                others.iops / others_alone.iops,
            ),
        ])
    })
}
