//! `forebay disk model`: a device is measured, a model fitted, and both are asked the same.
//!
//! Reading disturbs nothing. Writing destroys what is there: it takes a file in which nothing is yet, or somebody who says so; the range that is asked is then written once
//! from end to end first, because what was never written is read without the device, and is allocated when it is. Slices of all shapes take turns, several rounds of them, and
//! what counts of each is the round in the middle: a machine that does other things meanwhile disturbs some of them.

use crate::fit::{LARGE, Measured, fit, grid, modelled, workloads};
use crate::probe::{Shape, flushes, slice};
use forebay_base::Random;
use forebay_reference::DeviceModel;
use forebay_runtime::{Disk, OpenMode, Rt, uring};
use serde::Serialize;
use std::fmt::Write;
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::time::Duration;

const MIB: u64 = 1 << 20;
/// Of a device, what is asked at most: beyond most memories that are in the way.
const READ_MAX: u64 = 64 << 30;
/// What is written at most, and read where it was written.
const WRITE_MAX: u64 = 512 * MIB;
const ROUNDS: u64 = 5;
/// Anything smaller is no disk.
const SIZE_MIN: u64 = 16 * MIB;

#[derive(Clone, Debug)]
pub struct DeviceOptions {
    pub path: String,
    /// Also measure writes; what is there is lost.
    pub write: bool,
    /// Somebody has said that it may be lost.
    pub may_lose: bool,
    pub seconds: u64,
}

/// Why there is no model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Something is there that would be lost.
    NotEmpty,
    /// It is too small, and how small it is.
    TooSmall(u64),
    /// Nothing but holes to read.
    OnlyHoles,
    Failed(String),
}

/// What the model says of a workload, and what the device did.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judged {
    pub workload: &'static str,
    /// Requests a second.
    pub device_iops: f64,
    pub model_iops: f64,
    pub device_p99_us: f64,
    pub model_p99_us: f64,
    /// Of the device's figure.
    pub iops_error: f64,
    pub p99_error: f64,
    /// How far a round was from the one in the middle: more than the error, and the machine was too busy to say.
    pub unrest: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeviceReport {
    pub model: DeviceModel,
    /// A table for a configuration.
    pub toml: String,
    pub judged: Vec<Judged>,
    pub wrote: bool,
}

/// How far a model may be off: of throughput and of the 99th percentile.
pub const BOUNDS: [f64; 2] = [0.15, 0.25];

impl Judged {
    fn new(workload: &'static str, measured: &Measured, model: &DeviceModel) -> Judged {
        let ours = modelled(model, measured.shape);
        let (device_iops, device_p99) = (measured.rate(), measured.p99());
        Judged {
            workload,
            device_iops,
            model_iops: ours.rate(),
            device_p99_us: device_p99 / 1e3,
            model_p99_us: ours.p99() as f64 / 1e3,
            iops_error: ours.rate() / device_iops - 1.0,
            p99_error: ours.p99() as f64 / device_p99 - 1.0,
            unrest: measured.unrest(),
        }
    }

    pub fn is_within(&self) -> bool {
        self.iops_error.abs() <= BOUNDS[0] && self.p99_error.abs() <= BOUNDS[1]
    }
}

impl DeviceReport {
    /// For people: comments around what a configuration takes.
    pub fn text(&self) -> String {
        let mut text = self.toml.clone();
        text.push_str("\n# The model compared with the device, in workloads that the model was not fitted to. Rates are IOPS.\n");
        let _ = writeln!(
            text,
            "# {:<46}{:>10}{:>10}{:>8}{:>12}{:>10}{:>8}{:>9}",
            "", "device", "model", "error", "p99 device", "model", "error", "spread"
        );
        for one in &self.judged {
            let _ = writeln!(
                text,
                "# {:<46}{:>10.0}{:>10.0}{:>+7.0}%{:>9.0} µs{:>7.0} µs{:>+7.0}%{:>8.0}%",
                one.workload,
                one.device_iops,
                one.model_iops,
                one.iops_error * 100.0,
                one.device_p99_us,
                one.model_p99_us,
                one.p99_error * 100.0,
                one.unrest * 100.0
            );
        }
        let within = self.judged.iter().filter(|one| one.is_within()).count();
        let _ = writeln!(
            text,
            "# {within} of {} are within {:.0} % of the device's IOPS and {:.0} % of its p99. Spread is how far a round was from the median round.",
            self.judged.len(),
            BOUNDS[0] * 100.0,
            BOUNDS[1] * 100.0
        );
        if !self.wrote {
            text.push_str("# Writes were not measured (--write measures them): the model takes writes to cost as much as reads, and flushes nothing.\n");
        }
        text
    }
}

/// Whether nothing was ever written to a file; of a device nobody can say.
fn is_empty(file: &File) -> bool {
    let is_file = file.metadata().is_ok_and(|metadata| metadata.file_type().is_file());
    is_file && rustix::fs::seek(file, rustix::fs::SeekFrom::Data(0)) == Err(rustix::io::Errno::NXIO)
}

/// Measures a device and fits a model to it.
pub fn model_device(options: &DeviceOptions) -> Result<DeviceReport, Refused> {
    let failed = |error: std::io::Error| Refused::Failed(error.to_string());
    let kind = std::fs::metadata(&options.path).map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(Refused::Failed("neither a file nor a block device".into()));
    }
    let empty = is_empty(&File::open(&options.path).map_err(failed)?);
    if options.write && !empty && !options.may_lose {
        return Err(Refused::NotEmpty);
    }
    if !options.write && empty {
        return Err(Refused::OnlyHoles);
    }
    let options = options.clone();
    let ended = uring::block_on(move |rt| async move { measure(&rt, &options).await });
    ended.map_err(|error| Refused::Failed(error.to_string()))?
}

async fn measure(rt: &Rt, options: &DeviceOptions) -> Result<DeviceReport, Refused> {
    let told = |error: forebay_runtime::DiskError| Refused::Failed(error.to_string());
    let mode = if options.write { OpenMode::ReadWrite } else { OpenMode::Read };
    let disk = rt.open_disk(&options.path, mode).map_err(|error| Refused::Failed(error.to_string()))?;
    let whole = disk.geometry().size / LARGE * LARGE;
    if whole < SIZE_MIN {
        return Err(Refused::TooSmall(disk.geometry().size));
    }
    // What takes no room when it is compressed would be no data to some devices.
    let mut content = rt.arena().take_zeroed(LARGE as usize);
    Random::new(1).fill(&mut content);
    let content = content.freeze();
    let size = if options.write { whole.min(WRITE_MAX) } else { whole.min(READ_MAX) };
    if options.write {
        for at in (0..size).step_by(LARGE as usize) {
            disk.write(at, vec![content.clone()]).await.map_err(told)?;
        }
        disk.flush().await.map_err(told)?;
    }
    let is_measured = |shape: &Shape| options.write || shape.write_percent == 0;
    let mut measured: Vec<Measured> = grid()
        .into_iter()
        .chain(workloads().map(|(_, shape)| shape))
        .filter(is_measured)
        .map(|shape| Measured { shape, slices: Vec::new() })
        .collect();
    let (count, flushing) = (measured.len() as u64, u64::from(options.write));
    let lasting = Duration::from_secs(options.seconds) / (ROUNDS * (count + flushing)) as u32;
    let mut flushed = Vec::new();
    for round in 0..ROUNDS {
        for (nth, one) in measured.iter_mut().enumerate() {
            let seed = round * count + nth as u64;
            let asked = slice(rt, &disk, (one.shape, size), seed, (lasting, usize::MAX), &content).await;
            one.slices.push(asked.map_err(told)?);
            // What was written and waits to be is the next one's otherwise.
            if one.shape.write_percent > 0 {
                disk.flush().await.map_err(told)?;
            }
        }
        if options.write {
            flushed.extend(flushes(rt, &disk, size, round, lasting, &content).await.map_err(told)?);
        }
    }
    Ok(report(options, &disk, &measured, &flushed))
}

fn report(options: &DeviceOptions, disk: &Disk, measured: &[Measured], flushed: &[u32]) -> DeviceReport {
    let grid: Vec<Measured> = measured.iter().filter(|one| grid().contains(&one.shape)).cloned().collect();
    let source = format!(
        "fitted by `forebay disk model PATH` to {}, {} s, {}",
        options.path,
        options.seconds,
        if options.write { "reads and writes" } else { "reads only" }
    );
    let name = options.path.rsplit('/').next().unwrap_or("device");
    let model = fit(name, &source, (disk.geometry().size / MIB).max(1), &grid, flushed);
    let judge = |(workload, shape): (&'static str, Shape)| {
        let one = measured.iter().find(|one| one.shape == shape)?;
        Some(Judged::new(workload, one, &model))
    };
    let judged = workloads().into_iter().filter_map(judge).collect();
    DeviceReport { toml: model.toml(), judged, wrote: options.write, model }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(path: &std::path::Path, write: bool) -> DeviceOptions {
        DeviceOptions { path: path.display().to_string(), write, may_lose: false, seconds: 3 }
    }

    #[test]
    fn what_holds_something_is_not_written_to() {
        let directory = std::env::temp_dir().join(format!("forebay-device-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a directory");
        let path = directory.join("disk");
        let file = File::create(&path).expect("a file");
        file.set_len(MIB).expect("a size");
        assert_eq!(model_device(&options(&path, false)), Err(Refused::OnlyHoles));
        assert_eq!(model_device(&options(&path, true)), Err(Refused::TooSmall(MIB)));
        std::fs::write(&path, vec![7; 32 * MIB as usize]).expect("contents");
        assert_eq!(model_device(&options(&path, true)), Err(Refused::NotEmpty));
        // Reads are measured, and nothing changes.
        let report = model_device(&options(&path, false)).expect("it is measured");
        assert_eq!((report.judged.len(), report.model.size_mib, report.wrote), (2, 32, false));
        assert_eq!(report.model.problem(), None);
        assert!(std::fs::read(&path).expect("contents").iter().all(|byte| *byte == 7));
        // An empty one is.
        std::fs::remove_file(&path).expect("it is there");
        File::create(&path).expect("a file").set_len(32 * MIB).expect("a size");
        let report = model_device(&options(&path, true)).expect("it is measured");
        assert_eq!((report.judged.len(), report.wrote), (6, true));
        assert!(report.model.flush_ns[8] > 0);
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}
