//! `forebay report`: reports that the appliance keeps.

use crate::arguments::DryRun;
use crate::client::Call;
use crate::commands::{Outcome, Session};
use crate::failure::{Exit, Failure};
use crate::listing::{self, Shown};
use crate::size::show_time;
use crate::table::Cell;
use clap::{Subcommand, ValueEnum};
use forebay_api::{self as api, Operation, ReportCreate, show_size};
use std::fs::File;
use std::io::{Read, stdout};
use std::path::{Path, PathBuf};

/// The daemon takes half as much.
const FILE_BYTES_MAX: u64 = 8 << 20;

#[derive(Subcommand, Debug)]
pub enum ReportCommand {
    /// Store a report, such as one of `forebay validate run`
    Add {
        /// The report's name, 1 to 100 characters
        name: String,
        /// An HTML page, figures in a .json file, or one of each
        #[arg(value_name = "FILE", required = true, num_args = 1..=2)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        dry_run: DryRun,
    },
    /// List reports
    List,
    /// Show a report's creation time, its creator and its size
    Show {
        /// Name or UUID
        name: String,
    },
    /// Print a report
    Export {
        /// Name or UUID
        name: String,
        /// The page (html) or the figures (json)
        #[arg(long, default_value = "html")]
        format: Part,
    },
    /// Delete a report
    Delete {
        /// Name or UUID
        name: String,
        #[command(flatten)]
        dry_run: DryRun,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Part {
    Html,
    Json,
}

fn read(path: &Path) -> Result<String, Failure> {
    let failed = |why: String| {
        Failure::new(Exit::Usage, why, "Give an HTML page or a .json file.")
            .object(path.display().to_string())
    };
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    read.map_err(|error| failed(format!("cannot be read: {error}")))?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(failed(format!("is longer than {}", show_size(FILE_BYTES_MAX)))),
        false => Ok(text),
    }
}

fn request(name: String, files: &[PathBuf]) -> Result<ReportCreate, Failure> {
    let mut report = ReportCreate { name, ..ReportCreate::default() };
    for path in files {
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        let part = if is_json { &mut report.json } else { &mut report.html };
        if part.replace(read(path)?).is_some() {
            let remedy = "Give at most one HTML page and one .json file.";
            return Err(Failure::new(Exit::Usage, "a report has one file of each kind", remedy)
                .object(path.display().to_string()));
        }
    }
    Ok(report)
}

impl Session {
    pub fn report(&self, command: ReportCommand) -> Outcome {
        match command {
            ReportCommand::Add { name, files, dry_run } => {
                let report = request(name.clone(), &files)?;
                let call = Call::new(Operation::ReportCreate).body(&report).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.one(&answer.parse::<api::Report>()?, |_| self.say(format!("Report {name} is stored.")))
            }
            ReportCommand::List => self.list(&self.client.all(Operation::ReportList, &[])?, show_reports),
            ReportCommand::Show { name } => {
                let one: api::Report = self.client.get(Call::of(Operation::ReportShow, &name))?;
                self.row(&one, show_reports)
            }
            ReportCommand::Export { name, format } => {
                let format = match format {
                    Part::Html => "html",
                    Part::Json => "json",
                };
                let call = Call::of(Operation::ReportDownload, &name).query("format", format);
                self.client.download(call, &mut stdout())?;
                Ok(Exit::Ok)
            }
            ReportCommand::Delete { name, dry_run } => {
                let call = Call::of(Operation::ReportDelete, &name).dry_run(dry_run.dry_run);
                let answer = self.client.call(call)?;
                if dry_run.dry_run {
                    return self.plan(&answer);
                }
                self.done(&name, "deleted", format!("Report {name} is deleted."))
            }
        }
    }
}

fn show_reports(reports: &[api::Report]) -> Shown {
    let bytes = |bytes: Option<u64>| Cell::number(bytes.map_or(String::new(), show_size));
    let rows = reports.iter().map(|one| {
        vec![
            Cell::text(&one.name),
            Cell::text(show_time(one.created_unix_ms)),
            Cell::text(&one.by),
            bytes(one.html_bytes),
            bytes(one.json_bytes),
        ]
    });
    listing::table(&["NAME", "CREATED (UTC)", "BY", "HTML", "JSON"], rows.collect(), "No reports.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_where_their_names_say() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).unwrap();
            dir.path().join(name)
        };
        let (page, figures, other) = (file("a.html", "<p>"), file("a.json", "[]"), file("b.json", "{}"));
        let report = request("r".into(), &[figures.clone(), page]).unwrap();
        assert_eq!((report.html.as_deref(), report.json.as_deref()), (Some("<p>"), Some("[]")));
        assert_eq!(request("r".into(), &[figures, other]).unwrap_err().exit, Exit::Usage);
        assert!(request("r".into(), &[dir.path().join("none")]).is_err());
        let long = file("long.html", &"x".repeat(FILE_BYTES_MAX as usize + 1));
        assert!(request("r".into(), &[long]).is_err());
    }
}
