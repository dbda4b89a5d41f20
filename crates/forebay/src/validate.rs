//! `forebay validate`: reference architectures on modelled disks.

use forebay_cli::{Exit, Failure, Validate, ValidateRun};
use forebay_reference::{Configuration, Report, html, references};
use std::fs;
use std::io::Read;

/// Longer files are no configurations.
const FILE_BYTES_MAX: u64 = 1 << 20;

pub fn validate(command: Validate, json: bool) -> Result<Exit, Failure> {
    match command {
        Validate::List => list(json),
        Validate::Run(options) => run(options, json),
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

/// Those that are asked for.
fn configurations(name: &str) -> Result<Vec<Configuration>, Failure> {
    if name.contains(['.', '/']) {
        let failed = |error: String, remedy: &str| Failure::new(Exit::Usage, error, remedy).object(name);
        let mut text = String::new();
        let file =
            fs::File::open(name).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
        file.map_err(|error| failed(format!("cannot be read: {error}"), "Give the path of a TOML file"))?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(failed("is longer than 1 MiB".into(), "Give the path of a configuration"));
        }
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

fn run(options: ValidateRun, json: bool) -> Result<Exit, Failure> {
    let mut reports = Vec::new();
    for mut configuration in configurations(&options.name)? {
        if let Some(seconds) = options.seconds {
            configuration.machine.seconds = seconds;
        }
        let name = configuration.name.clone();
        let made = Report::make(configuration, options.seed);
        let remedy =
            "This is a mistake of Forebay's or of the configuration; `--seed` tries another course of events";
        reports.push(made.map_err(|error| Failure::new(Exit::Failed, error, remedy).object(name))?);
    }
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
