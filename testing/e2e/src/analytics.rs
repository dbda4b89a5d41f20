//! What the analytics tell beside what a client measured itself: fio's own counts and latencies are the oracle.
//!
//! fio loads two volumes at once, differently. Afterwards requests and bytes of each, by operation, must be what fio counted, to one in a hundred; what half
//! and 99 of 100 requests took at the server can be no more than what they took at the client, but for a histogram's eighth. Then the
//! daemon is killed, and what was told before is told again.

use crate::host::{Context, Directory, Outcome, run};
use crate::server::{Export, Forebay, Server};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

const SIZE: u64 = 256 << 20;
/// Between the end of a second and the moment when it can be asked for, also while other tests use the processors.
const SETTLE: Duration = Duration::from_secs(10);

struct Load {
    volume: &'static str,
    options: &'static str,
}

const LOADS: [Load; 2] = [
    Load { volume: "database", options: "--rw=randrw --rwmixread=75 --bs=8k --iodepth=16" },
    Load { volume: "backup", options: "--rw=write --bs=256k --iodepth=4" },
];

/// What a client measured of one operation, or what the analytics say of it.
#[derive(Clone, Copy, Default, Debug)]
struct Measured {
    requests: f64,
    bytes: f64,
    p50_ns: f64,
    p99_ns: f64,
}

pub fn agree(binary: &Path, directory: &Directory) -> Outcome<String> {
    let mut server = Forebay::create(binary, directory, "mirror", 2, 4 << 30)?;
    let mut exports = Vec::new();
    for load in &LOADS {
        exports.push(server.create_volume(load.volume, SIZE, "8K", false)?);
    }
    let fio = run(&command(&server, &exports, directory))?;
    std::thread::sleep(SETTLE);
    // Its warnings come first.
    let json = fio.find("\n{").map_or(&fio[..], |at| &fio[at..]);
    let jobs: Value = serde_json::from_str(json).context("fio's JSON")?;
    let mut figures = Vec::new();
    for (nth, export) in exports.iter().enumerate() {
        for operation in ["read", "write"] {
            let theirs = of_fio(&jobs["jobs"][nth][operation]);
            if theirs.requests > 0.0 {
                figures.push(compare(export, operation, theirs, told(&server, export, operation)?)?);
            }
        }
    }
    let before = told(&server, &exports[0], "read")?.requests;
    server.kill();
    server.start()?;
    let after = told(&server, &exports[0], "read")?.requests;
    if after < before {
        return Err(format!("{before} reads were told of before the daemon was killed, {after} after it"));
    }
    figures.push("the same after kill -9".into());
    server.stop()?;
    Ok(figures.join("; "))
}

fn command(server: &Forebay, exports: &[Export], directory: &Directory) -> String {
    let jobs = LOADS.iter().zip(exports).map(|(load, export)| {
        format!("--name={} --ioengine=nbd --uri={} {}", load.volume, server.uri(export), load.options)
    });
    let jobs: Vec<String> = jobs.collect();
    let state = directory.path().display();
    format!(
        "fio --output-format=json --aux-path={state} --time_based --runtime=8 --size={SIZE} --norandommap {}",
        jobs.join(" ")
    )
}

fn of_fio(operation: &Value) -> Measured {
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let percentile = |name: &str| number(&operation["clat_ns"]["percentile"][name]);
    Measured {
        requests: number(&operation["total_ios"]),
        bytes: number(&operation["io_bytes"]),
        p50_ns: percentile("50.000000"),
        p99_ns: percentile("99.000000"),
    }
}

fn told(server: &Forebay, export: &Export, operation: &str) -> Outcome<Measured> {
    let of = format!("[op={operation}][volume={}]", export.name);
    let ask = |noun: &str, step: &str| -> Outcome<Value> {
        let words = [
            "stat",
            "query",
            &format!("nbd.{noun}{of}"),
            "--from",
            "-120",
            "--to",
            "0",
            "--step",
            step,
            "--json",
        ];
        serde_json::from_str(&server.cli(&words)?).context("the answer's JSON")
    };
    let sum = |answer: &Value| -> f64 {
        let values = answer["lines"][0]["values"].as_array().map(Vec::as_slice).unwrap_or_default();
        values.iter().filter_map(Value::as_f64).sum()
    };
    // All of it is one step: percentiles are of all requests together.
    let latency = ask("latency", "120")?;
    let quantile = |name: &str| {
        let lines = latency["lines"].as_array().map(Vec::as_slice).unwrap_or_default();
        let line = lines.iter().find(|line| line["labels"]["quantile"] == name);
        let values = line.and_then(|line| line["values"].as_array()).map(Vec::as_slice).unwrap_or_default();
        values.iter().filter_map(Value::as_f64).fold(0.0, f64::max)
    };
    Ok(Measured {
        requests: sum(&ask("ops", "1")?),
        bytes: sum(&ask("bytes", "1")?),
        p50_ns: quantile("p50"),
        p99_ns: quantile("p99"),
    })
}

fn compare(export: &Export, operation: &str, theirs: Measured, ours: Measured) -> Outcome<String> {
    let off = |ours: f64, theirs: f64| (ours / theirs - 1.0).abs();
    if off(ours.requests, theirs.requests) > 0.01 || off(ours.bytes, theirs.bytes) > 0.01 {
        return Err(format!("{} {operation}: fio counted {theirs:?}, the analytics {ours:?}", export.name));
    }
    // Both round up within a histogram: ours to an eighth, fio's to one in 128.
    if ours.p50_ns == 0.0 || ours.p50_ns > theirs.p50_ns * 1.14 || ours.p99_ns > theirs.p99_ns * 1.3 {
        return Err(format!(
            "{} {operation}: fio waited {theirs:?}, the analytics say {ours:?}",
            export.name
        ));
    }
    Ok(format!(
        "{} {operation}: {} requests of {}, p50 {:.2} and p99 {:.2} of the client's",
        export.name,
        ours.requests,
        theirs.requests,
        ours.p50_ns / theirs.p50_ns,
        ours.p99_ns / theirs.p99_ns
    ))
}
