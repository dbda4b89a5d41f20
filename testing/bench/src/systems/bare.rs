//! The device: fio with io_uring and O_DIRECT on the file itself, `O_DSYNC` for durable writes.

use super::System;
use crate::measure::{Direction, Measured, Work};
use forebay_e2e::host::{Context, Outcome, run};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

pub struct Bare {
    file: PathBuf,
    /// Bytes of the file that are used: as many as a volume has elsewhere.
    size: u64,
}

impl Bare {
    pub fn new(file: PathBuf, size: u64) -> Bare {
        Bare { file, size }
    }
}

impl System for Bare {
    fn name(&self) -> &'static str {
        "bare device"
    }
    fn remark(&self) -> String {
        "fio, io_uring, O_DIRECT; durable writes with O_DSYNC; CPU is fio's own threads".into()
    }
    fn run(&mut self, work: &Work, limit: Duration, seed: u64) -> Outcome<Measured> {
        let way = match (work.direction, work.random) {
            (Direction::Read, true) => "randread",
            (Direction::Read, false) => "read",
            (Direction::Mixed, true) => "randrw --rwmixread=75",
            (Direction::Mixed, false) => "rw --rwmixread=75",
            (_, true) => "randwrite",
            (_, false) => "write",
        };
        let sync = if work.direction == Direction::DurableWrite { "--sync=dsync" } else { "" };
        let most =
            work.requests_max(self.size).map_or(String::new(), |count| format!("--number_ios={count}"));
        let text = run(&format!(
            "fio --name=bare --filename={} --size={} --ioengine=io_uring --direct=1 --rw={way} --bs={} --iodepth={} \
             --numjobs={} --time_based --runtime={}ms --norandommap --randseed={seed} --overwrite=1 --output-format=json \
             --lat_percentiles=1 --unified_rw_reporting=1 --group_reporting {sync} {most}",
            self.file.display(),
            self.size,
            work.size,
            work.depth,
            work.connections,
            limit.as_millis(),
        ))?;
        parse(&text, work)
    }
}

fn parse(text: &str, work: &Work) -> Outcome<Measured> {
    let report: Value = serde_json::from_str(text).context("fio's JSON")?;
    let job = &report["jobs"][0];
    let side = &job["mixed"];
    let number =
        |value: &Value| value.as_f64().ok_or_else(|| format!("a number is missing in fio's JSON: {value}"));
    // From when a request is made, as everybody else's are counted; *clat* leaves out what handing it to the kernel takes.
    let percentile = |name: &str| Ok::<f64, String>(number(&side["lat_ns"]["percentile"][name])? / 1000.0);
    let iops = number(&side["iops"])?;
    let seconds = number(&side["runtime"])? / 1000.0;
    // Shares of the time of all jobs together.
    let cpu =
        (number(&job["usr_cpu"])? + number(&job["sys_cpu"])?) / 100.0 * number(&job["job_runtime"])? / 1000.0;
    Ok(Measured {
        iops,
        mb_per_s: iops * work.size as f64 / 1e6,
        p50_us: percentile("50.000000")?,
        p99_us: percentile("99.000000")?,
        p999_us: percentile("99.900000")?,
        cpu_us_per_io: cpu * 1e6 / (iops * seconds).max(1.0),
    })
}
