//! `forebay validate`: reference architectures on modelled disks.

use crate::live;
use forebay_cli::{Connect, Exit, Failure, Validate, ValidateRun, ValidateSize};
use forebay_reference::{Configuration, Report, html, references};
use forebay_sizing::{Answer, Catalogue, Options, Wanted, search};
use forebay_workload::fio;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Longer files are no configurations.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub fn validate(command: Validate, json: bool, connect: Connect) -> Result<Exit, Failure> {
    match command {
        Validate::List => list(json),
        Validate::Run(options) if options.live => live::run(&options, &chosen(&options)?, json, connect),
        Validate::Run(options) => run(options, json),
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
        println!("{name}  {title}\n   {} cases after {source}", cases.len());
    }
    Ok(Exit::Ok)
}

/// The whole of a file that somebody has written.
fn read(path: &Path) -> Result<String, Failure> {
    let failed = |error: String| {
        Failure::new(Exit::Usage, error, "Give the path of a text file").object(path.display().to_string())
    };
    let mut text = String::new();
    let file = fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    file.map_err(|error| failed(format!("cannot be read: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(failed("is longer than 1 MiB".into()));
    }
    Ok(text)
}

fn write(path: &Path, text: String) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| {
        let remedy = "Give a path that can be written";
        Failure::new(Exit::Failed, format!("cannot be written: {error}"), remedy)
            .object(path.display().to_string())
    })
}

fn import(path: &Path, json: bool) -> Result<Exit, Failure> {
    let workloads = fio::workloads(&read(path)?).map_err(|error| {
        let remedy = "Leave the option out if it does not matter, or describe the workload by hand (docs/validation.md)";
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
        let remedy = "Correct the file; docs/validation.md has an example of each";
        Failure::new(Exit::Usage, detail, remedy).object(path.display().to_string())
    };
    let ValidateSize { workloads, catalogue, seed, runs, configuration } = options;
    let wanted = Wanted::parse(&read(workloads)?).map_err(|mistake| wrong(workloads, mistake.0))?;
    let offered = Catalogue::parse(&read(catalogue)?).map_err(|mistake| wrong(catalogue, mistake.0))?;
    let answer: Answer = search(&wanted, &offered, Options { seed: *seed, runs_max: *runs as usize })
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
        let parsed = Configuration::parse(&text).map_err(|mistake| {
            failed(
                mistake.to_string(),
                "Correct the file; `forebay validate list --json` shows the keys of one that is right",
            )
        });
        return parsed.map(|configuration| vec![configuration]);
    }
    let mut all = references();
    all.retain(|reference| name == "all" || reference.name.eq_ignore_ascii_case(name));
    match all.is_empty() {
        true => {
            let remedy =
                "`forebay validate list` shows those that there are; a file's name has a dot or a slash";
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
            return wrong(mistake.to_string(), "Give another --scale");
        }
    }
    Ok(chosen)
}

fn run(options: ValidateRun, json: bool) -> Result<Exit, Failure> {
    let reports = Report::make_all(chosen(&options)?, options.seed, options.seeds).map_err(|error| {
        let remedy =
            "This is a mistake of Forebay's or of the configuration; `--seed` tries another course of events";
        Failure::new(Exit::Failed, error, remedy).object(&options.name)
    })?;
    if json {
        println!("{}", serde_json::json!(reports));
    } else {
        reports.iter().for_each(|report| print!("{}", report.text()));
    }
    if let Some(path) = &options.report {
        fs::write(path, html(&reports)).map_err(|error| {
            let remedy = "Give a path that can be written";
            Failure::new(Exit::Failed, format!("cannot be written: {error}"), remedy)
                .object(path.display().to_string())
        })?;
    }
    let unexplained = reports.iter().flat_map(|report| &report.cases).any(|case| case.is_unexplained());
    Ok(if unexplained { Exit::Failed } else { Exit::Ok })
}
