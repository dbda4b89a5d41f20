//! `forebay validate`: reference architectures on modelled disks.

use crate::live;
use crate::progress::progress;
use forebay_cli::{Connect, Exit, Failure, Validate, ValidateRun, ValidateSize};
use forebay_reference::{Configuration, Report, html, references};
use forebay_sizing::{Answer, Catalogue, Options, Wanted, search};
use forebay_workload::trace::{REQUESTS_MAX, Recorded};
use forebay_workload::{Workload, fio};
use std::fs;
use std::io::Read;
use std::path::Path;

/// Longer files are no configurations.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Longer ones are no traces: a line of a request has less than this.
const TRACE_BYTES_MAX: u64 = REQUESTS_MAX as u64 * 100;

pub fn validate(command: Validate, json: bool, connect: Connect) -> Result<Exit, Failure> {
    match command {
        Validate::List => list(json),
        Validate::Run(options) => run(options, json, connect),
        Validate::Size(options) => size(&options, json),
        Validate::Import { path } => import(&path, json),
    }
}

fn list(json: bool) -> Result<Exit, Failure> {
    if json {
        println!("{}", serde_json::json!(references()));
        return Ok(Exit::Ok);
    }
    for Configuration { name, title, source, cases, .. } in references() {
        println!("{name}  {title}\n   {} cases from {source}", cases.len());
    }
    Ok(Exit::Ok)
}

/// The whole of a file that somebody has written.
fn read(path: &Path) -> Result<String, Failure> {
    read_at_most(path, FILE_BYTES_MAX).map_err(|error| {
        Failure::new(Exit::Usage, error, "Give the path of a text file").object(path.display().to_string())
    })
}

fn read_at_most(path: &Path, most: u64) -> Result<String, String> {
    let mut text = String::new();
    let file = fs::File::open(path).and_then(|file| file.take(most + 1).read_to_string(&mut text));
    file.map_err(|error| format!("cannot be read: {error}"))?;
    match text.len() as u64 > most {
        true => Err(format!("is longer than {} MiB", most >> 20)),
        false => Ok(text),
    }
}

/// Reads traces whose paths are from where this file is.
fn beside(file: &Path) -> impl Fn(&str) -> Result<String, String> + '_ {
    let directory = file.parent().unwrap_or(Path::new(""));
    move |path| read_at_most(&directory.join(path), TRACE_BYTES_MAX)
}

/// Whether a file says that it is a trace.
fn is_trace(path: &Path) -> bool {
    let mut start = [0; 14];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *b"forebay-trace "
}

/// A trace as a workload: its file is named, and what it is like is said for whoever reads that.
fn traced(path: &Path) -> Result<(Workload, Recorded), Failure> {
    let recorded = read_at_most(path, TRACE_BYTES_MAX).and_then(|text| Recorded::parse(&text));
    let recorded = recorded.map_err(|error| {
        let remedy = "Record it again with `forebay volume trace VOLUME`";
        Failure::new(Exit::Usage, error, remedy).object(path.display().to_string())
    })?;
    let requests = &recorded.requests;
    let bytes: u64 = requests.iter().map(|request| u64::from(request.bytes)).sum();
    let reads = requests.iter().filter(|request| !request.is_write).count();
    let count = requests.len().max(1);
    let name = recorded.volume.rsplit('/').next().unwrap_or_default().chars();
    let name: String = name.filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(64).collect();
    let workload = Workload {
        name: if name.is_empty() { "trace".into() } else { name },
        block_kib: (bytes / count as u64 / 4096 * 4).clamp(4, 32 << 10),
        read_percent: (reads * 100 / count) as u8,
        size_gib: recorded.volume_bytes.div_ceil(1 << 30).max(1),
        outstanding: 256,
        trace: Some(path.display().to_string().into()),
        ..Workload::default()
    };
    Ok((workload, recorded))
}

fn write(path: &Path, text: String) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        let remedy = "Give a path that this user can write";
        Failure::new(Exit::Failed, format!("cannot be written: {error}"), remedy)
            .object(path.display().to_string())
    })
}

fn import(path: &Path, json: bool) -> Result<Exit, Failure> {
    if is_trace(path) {
        let (workload, recorded) = traced(path)?;
        if json {
            println!("{}", serde_json::json!([workload]));
            return Ok(Exit::Ok);
        }
        let table = toml::to_string(&workload).expect("every part of it can be written");
        let Recorded { requests, others, lost, longest_us, mean_us, block_bytes, .. } = &recorded;
        println!(
            "# {} reads and writes in {} s, {others} other requests, {lost} missing; recorded latency {:.3} ms on average, {:.3} ms at most.",
            requests.len(),
            recorded.seconds(),
            mean_us / 1e3,
            *longest_us as f64 / 1e3
        );
        println!(
            "# block-kib, read-percent and access describe the requests; the requests themselves come from the trace file."
        );
        println!("[[workload]]\n{table}volume-block-kib = {}\n", block_bytes >> 10);
        return Ok(Exit::Ok);
    }
    let workloads = fio::workloads(&read(path)?).map_err(|error| {
        let remedy = "Omit the option if it does not matter, or describe the workload by hand (docs/how-to/validation.md)";
        Failure::new(Exit::Usage, error.to_string(), remedy).object(path.display().to_string())
    })?;
    if json {
        println!("{}", serde_json::json!(workloads));
        return Ok(Exit::Ok);
    }
    for workload in workloads {
        let table = toml::to_string(&workload).expect("every part of it can be written");
        println!("[[workload]]\n{table}volume-block-kib = 8\n");
    }
    Ok(Exit::Ok)
}

fn size(options: &ValidateSize, json: bool) -> Result<Exit, Failure> {
    let wrong = |path: &Path, detail: String| {
        let remedy = "Correct the file; docs/how-to/validation.md has an example of each";
        Failure::new(Exit::Usage, detail, remedy).object(path.display().to_string())
    };
    let ValidateSize { workloads, catalogue, seed, runs, configuration } = options;
    let mut wanted = Wanted::parse(&read(workloads)?).map_err(|mistake| wrong(workloads, mistake.0))?;
    wanted.read_traces(beside(workloads)).map_err(|mistake| wrong(workloads, mistake.0))?;
    let offered = Catalogue::parse(&read(catalogue)?).map_err(|mistake| wrong(catalogue, mistake.0))?;
    let answer: Answer = search(
        &wanted,
        &offered,
        Options { seed: *seed, runs_max: *runs as usize },
        &progress("layouts tried, at most", false),
    )
    .map_err(|error| wrong(workloads, error))?;
    match json {
        true => println!("{}", serde_json::json!(answer)),
        false => print!("{}", answer.text()),
    }
    if let (Some(path), Some(text)) = (configuration, &answer.configuration) {
        write(path, text.clone())?;
    }
    Ok(if answer.chosen.is_some() { Exit::Ok } else { Exit::Failed })
}

/// Those that are asked for.
fn configurations(name: &str) -> Result<Vec<Configuration>, Failure> {
    if name.contains(['.', '/']) {
        let failed = |error: String, remedy: &str| Failure::new(Exit::Usage, error, remedy).object(name);
        let text = read(Path::new(name))?;
        let mut configuration = Configuration::parse(&text).map_err(|mistake| {
            failed(
                mistake.to_string(),
                "Correct the file; `forebay validate list --json` shows valid configurations",
            )
        })?;
        configuration.read_traces(beside(Path::new(name))).map_err(|mistake| {
            failed(
                mistake.to_string(),
                "Give the path of a trace that `forebay volume trace VOLUME` has written",
            )
        })?;
        return Ok(vec![configuration]);
    }
    let mut all = references();
    all.retain(|reference| name == "all" || reference.name.eq_ignore_ascii_case(name));
    match all.is_empty() {
        true => {
            let remedy = "`forebay validate list` lists them. The name of a file needs a dot or a slash";
            Err(Failure::new(Exit::NotFound, "there is no such reference architecture", remedy).object(name))
        }
        false => Ok(all),
    }
}

/// Those that are asked for, as they are asked for.
fn chosen(options: &ValidateRun) -> Result<Vec<Configuration>, Failure> {
    let mut chosen = configurations(&options.name)?;
    for configuration in &mut chosen {
        let machine = &mut configuration.machine;
        machine.seconds = options.seconds.unwrap_or(machine.seconds);
        machine.scale = options.scale.unwrap_or(machine.scale);
        if let Some(name) = &options.case {
            configuration.cases.retain(|case| case.name == *name);
        }
        let wrong = |detail: String, remedy: &str| {
            Err(Failure::new(Exit::Usage, detail, remedy).object(&configuration.name))
        };
        if configuration.cases.is_empty() {
            return wrong("there is no such case".into(), "`forebay validate list --json` shows the cases");
        }
        if let Err(mistake) = Configuration::parse(&configuration.toml()) {
            return wrong(mistake.to_string(), "Give another --scale or --seconds");
        }
    }
    Ok(chosen)
}

/// Runs the model.
pub fn make(options: &ValidateRun, configurations: Vec<Configuration>) -> Result<Vec<Report>, Failure> {
    Report::make_all(configurations, options.seed, options.seeds, &progress("runs complete", true)).map_err(
        |error| {
            let remedy = "This is an error in Forebay or in the configuration. Another `--seed` may avoid it";
            Failure::new(Exit::Failed, error, remedy).object(&options.name)
        },
    )
}

fn run(options: ValidateRun, json: bool, connect: Connect) -> Result<Exit, Failure> {
    let chosen = chosen(&options)?;
    let (reports, is_good) = match options.live {
        true => live::run(&options, chosen, connect)?,
        false => (make(&options, chosen)?, true),
    };
    if json {
        println!("{}", serde_json::json!(reports));
    } else {
        reports.iter().for_each(|report| print!("{}", report.text()));
    }
    if let Some(path) = &options.report {
        write(path, html(&reports))?;
    }
    let unexplained = reports.iter().flat_map(|report| &report.cases).any(|case| case.is_unexplained());
    Ok(if unexplained || !is_good { Exit::Failed } else { Exit::Ok })
}
