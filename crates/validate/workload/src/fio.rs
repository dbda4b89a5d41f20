//! Jobs of fio as workloads: what a job file says, as far as a workload can say it, and a refusal by name of the rest.
//!
//! A job file is of sections `[name]` with lines `option=value`, `option` alone meaning true; `[global]` gives the jobs after it what they do not say. Options that only say how fio
//! asks (its engine, files, log files) change nothing here and are passed over; any other that is not understood is refused, because leaving it out would make another
//! workload of it.

use crate::{Access, Workload};
use std::collections::BTreeMap;

/// Job files are short; what is longer is none.
const TEXT_MAX: usize = 1 << 20;
const JOBS_MAX: usize = 256;
const GIB: u64 = 1 << 30;

/// How fio asks, and not what for.
const PASSED_OVER: [&str; 28] = [
    "ioengine",
    "direct",
    "filename",
    "directory",
    "runtime",
    "time_based",
    "ramp_time",
    "group_reporting",
    "name",
    "thread",
    "norandommap",
    "randrepeat",
    "fallocate",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "log_avg_msec",
    "stonewall",
    "invalidate",
    "description",
    "create_on_open",
    "randseed",
    "allrandrepeat",
    "disk_util",
    "iodepth_batch",
    "percentile_list",
    "loops",
    "end_fsync",
];

/// A mistake in a job file, in words: what, in which job, on which line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobError {
    /// From 1.
    pub line: usize,
    pub message: String,
}

impl std::fmt::Display for JobError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

type Options = BTreeMap<String, (usize, String)>;

/// The workloads of a job file, in its order.
pub fn workloads(text: &str) -> Result<Vec<Workload>, JobError> {
    let whole = |message: String| JobError { line: 1, message };
    if text.len() > TEXT_MAX {
        return Err(whole("longer than 1 MiB: this is not a job file".into()));
    }
    let (mut global, mut jobs): (Options, Vec<(usize, String, Options)>) = Default::default();
    let mut is_global = true;
    for (nth, line) in text.lines().enumerate() {
        let (number, line) = (nth + 1, line.trim());
        let wrong = |message: String| JobError { line: number, message };
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            is_global = name == "global";
            if !is_global {
                if jobs.len() >= JOBS_MAX {
                    return Err(wrong(format!("more than {JOBS_MAX} jobs")));
                }
                jobs.push((number, name.into(), global.clone()));
            }
            continue;
        }
        let (option, value) = line.split_once('=').unwrap_or((line, "1"));
        let options = match jobs.last_mut() {
            Some((.., options)) if !is_global => options,
            _ if is_global => &mut global,
            _ => return Err(wrong("an option before the first [job]".into())),
        };
        options.insert(option.trim().to_ascii_lowercase(), (number, value.trim().to_string()));
    }
    if jobs.is_empty() {
        return Err(whole("there is no [job]".into()));
    }
    jobs.into_iter().map(|(line, name, options)| workload(line, &name, options)).collect()
}

/// A size as fio writes it: `4k`, `8KiB`, `1g`, or bytes; its units are of 1024.
fn size(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, unit) = lower.split_at(digits);
    let shift = match unit.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn workload(line: usize, name: &str, options: Options) -> Result<Workload, JobError> {
    let mut name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    name.truncate(64);
    let mut made = Workload { name, block_kib: 4, ..Workload::default() };
    let (mut mixed, mut bytes, mut jobs, mut depth) = (None, None, 1, 1);
    let (mut kind, mut rates) = ((line, String::from("read")), None);
    for (option, (line, value)) in options {
        let wrong = |why: &str| JobError { line, message: format!("{option}={value}: {why}") };
        let number = || value.parse::<u64>().map_err(|_| wrong("give a whole number"));
        let bounded = |most: u64| {
            number().and_then(|number| match number {
                1.. if number <= most => Ok(number),
                _ => Err(wrong(&format!("give 1 to {most}"))),
            })
        };
        match option.as_str() {
            "rw" | "readwrite" => kind = (line, value),
            "bs" | "blocksize" => {
                let block = size(&value).filter(|block| block % 4096 == 0 && *block > 0);
                made.block_kib = block.ok_or_else(|| wrong("give one size, a multiple of 4k"))? >> 10;
            }
            "size" | "filesize" => {
                bytes = Some(size(&value).ok_or_else(|| wrong("give a size such as 10g"))?)
            }
            "iodepth" => depth = bounded(4096)?,
            "numjobs" => jobs = bounded(4096)?,
            "rwmixread" => mixed = Some(number()?.min(101)),
            "rwmixwrite" => mixed = Some(100u64.checked_sub(number()?).unwrap_or(101)),
            "rate_iops" => rates = Some((line, value)),
            // Microseconds unless it says otherwise.
            "thinktime" => {
                let (number, unit) = value.split_at(value.find(char::is_alphabetic).unwrap_or(value.len()));
                let micros = match unit {
                    "" | "us" => 1,
                    "ms" => 1000,
                    "s" => 1_000_000,
                    _ => return Err(wrong("give microseconds, or ms or s")),
                };
                let micros = number.parse::<u64>().ok().and_then(|number| number.checked_mul(micros));
                let micros = micros.ok_or_else(|| wrong("give a whole number"))?;
                if micros % 1000 != 0 {
                    return Err(wrong("give whole milliseconds"));
                }
                made.think_ms = micros / 1000;
            }
            "random_distribution" => match value.split_once(':').unwrap_or((&value, "1.1")) {
                ("random", _) => {}
                ("zipf", theta) => {
                    made.theta = Some(theta.parse().map_err(|_| wrong("give zipf:THETA"))?);
                }
                _ => return Err(wrong("give random or zipf:THETA")),
            },
            passed if PASSED_OVER.contains(&passed) => {}
            _ => return Err(wrong("this option is not supported, and without it the workload would differ")),
        }
    }
    let (line, kind) = kind;
    let wrong = |message: String| JobError { line, message };
    let (access, reads) = match kind.as_str() {
        "read" => (Access::Sequential, 100),
        "write" => (Access::Sequential, 0),
        "randread" => (Access::Random, 100),
        "randwrite" => (Access::Random, 0),
        "rw" | "readwrite" => (Access::Sequential, mixed.unwrap_or(50)),
        "randrw" => (Access::Random, mixed.unwrap_or(50)),
        other => {
            return Err(wrong(format!("rw={other}: give read, write, randread, randwrite, rw or randrw")));
        }
    };
    made.read_percent = u8::try_from(reads).unwrap_or(u8::MAX);
    made.access = if made.theta.is_some() && access == Access::Random { Access::Zipfian } else { access };
    if access != Access::Random {
        made.theta = None;
    }
    made.outstanding = u32::try_from(depth * jobs).unwrap_or(u32::MAX);
    if access == Access::Sequential && jobs > 1 {
        made.streams = jobs as u32;
    }
    if let Some((line, value)) = rates {
        // Of reads, and of writes if they have another.
        let wrong = |why: &str| JobError { line, message: format!("rate_iops={value}: {why}") };
        let each: Vec<u64> = value
            .split(',')
            .map(|part| part.trim().parse().map_err(|_| wrong("give whole numbers")))
            .collect::<Result<_, _>>()?;
        let is_both = made.read_percent > 0 && made.read_percent < 100;
        let one = match (&each[..], is_both, made.read_percent) {
            // A job that reads and writes has the rate for each of them.
            ([rate], true, _) => rate.saturating_mul(2),
            ([rate], false, _) | ([rate, _], false, 100) | ([_, rate], false, 0) => *rate,
            ([read, write], true, _) => read.saturating_add(*write),
            _ => return Err(wrong("give one rate, or one for reads and one for writes")),
        };
        made.rate = Some(one.saturating_mul(jobs));
    }
    // Each job of a random workload has the same file; sequences have parts of a volume.
    let all = bytes.map(|bytes| if made.streams > 1 { bytes.saturating_mul(jobs) } else { bytes });
    made.size_gib = all.map_or(1, |bytes| bytes.div_ceil(GIB).max(1));
    match made.problem() {
        Some(message) => Err(wrong(message)),
        None => Ok(made),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        workloads(text).expect_err(text).to_string()
    }

    #[test]
    fn a_job_file_becomes_workloads() {
        let text = "; OLTP and a backup\n[global]\nioengine=libaio\ndirect=1\nbs=8k\nsize=20g\n\n\
                    [oltp]\nrw=randrw\nrwmixread=70\niodepth=16\nnumjobs=4\nrandom_distribution=zipf:0.9\nthinktime=2ms\n\
                    [mail]\nrw=randrw\nrate_iops=100,50\niodepth=8\n\
                    [backup job]\nrw=write\nbs=256KiB\niodepth=4\nnumjobs=2\nsize=10g\nrate_iops=10\n";
        let [oltp, mail, backup] = &workloads(text).expect("it is understood")[..] else {
            panic!("three jobs")
        };
        let wanted = Workload {
            name: "oltp".into(),
            block_kib: 8,
            read_percent: 70,
            access: Access::Zipfian,
            theta: Some(0.9),
            size_gib: 20,
            outstanding: 64,
            think_ms: 2,
            ..Workload::default()
        };
        assert_eq!(*oltp, wanted);
        assert_eq!((mail.read_percent, mail.rate, mail.access), (50, Some(150), Access::Random));
        assert_eq!((backup.name.as_str(), backup.block_kib, backup.read_percent), ("backup-job", 256, 0));
        assert_eq!((backup.streams, backup.outstanding, backup.size_gib), (2, 8, 20));
        assert_eq!(backup.rate, Some(20));
    }

    #[test]
    fn what_is_not_understood_is_refused_by_name_and_line() {
        for (text, message) in [
            ("[a]\nrw=randread\nverify=crc32c\n", "line 3: verify=crc32c: this option is not supported"),
            ("[a]\nrw=trim\n", "line 2: rw=trim"),
            ("[a]\nbs=4k,8k\n", "line 2: bs=4k,8k"),
            ("[a]\nbs=512\n", "a multiple of 4k"),
            ("[a]\niodepth=0\n", "give 1 to 4096"),
            ("[a]\nrwmixread=130\nrw=randrw\n", "read-percent"),
            ("[a]\nrandom_distribution=pareto:0.2\n", "give random or zipf"),
            ("[a]\nthinktime=1500\n", "whole milliseconds"),
            ("[a]\nrate_iops=1,2,3\n", "rate_iops=1,2,3"),
            ("[a]\nsize=99999999999999999999g\n", "give a size"),
            ("[global]\nrw=read\n", "there is no [job]"),
            ("", "there is no [job]"),
        ] {
            let refused = refusal(text);
            assert!(refused.contains(message), "{refused}");
        }
    }

    #[test]
    fn no_text_is_a_panic() {
        let parts = [
            "[a]",
            "[global]",
            "rw=randrw",
            "bs=",
            "size=18446744073709551615t",
            "rate_iops=,",
            "=",
            "thinktime=µs",
            "numjobs=4096",
            "iodepth=4096",
            "\u{0}",
            "[",
        ];
        let mut random = forebay_base::Random::new(5);
        for _ in 0..20_000 {
            let count = random.below(8);
            let text: Vec<&str> =
                (0..count).map(|_| parts[random.below(parts.len() as u64) as usize]).collect();
            // Whatever it says of it.
            let _ = workloads(&text.join("\n"));
        }
    }
}
