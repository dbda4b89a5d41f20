//! Reports that are kept: a list, and beside it a file for each page and each table of figures.
//!
//! Files are written before the list has them and removed after it has them no longer, so a crash leaves files that belong to no report, which the next start
//! removes, and never a report without what it says. What a report says is never looked into: it comes from a client, and is shown as such.

use crate::directory::DataDir;
use crate::request::Failure;
use crate::store::{Kept, Store};
use forebay_api::{Code, Problem, Report, ReportCreate};
use forebay_base::Id;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use tokio::sync::{Semaphore, SemaphorePermit};

const VERSION: u32 = 1;
const DIRECTORY: &str = "report-files";
/// Some for each change of the hardware, for years.
const REPORTS_MAX: usize = 64;
/// A page with pictures.
const PART_BYTES_MAX: usize = 4 << 20;
const NAME_CHARS_MAX: usize = 100;
/// Each takes its body's size in memory, some times over.
const UPLOADS_MAX: usize = 2;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub version: u32,
    pub reports: Vec<Report>,
}

impl Default for Content {
    fn default() -> Content {
        Content { version: VERSION, reports: Vec::new() }
    }
}

impl Content {
    pub fn place(&self, name: &str) -> Result<usize, Problem> {
        let place = self.reports.iter().position(|one| one.id == name || one.name == name);
        place.ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such report")
                .object(name)
                .remedy("`forebay report list` shows them.")
        })
    }
}

impl Kept for Content {
    const FILE: &'static str = "reports";
    const VERSION: u32 = VERSION;
    const WHAT: &'static str = "reports";
    const REMEDY: &'static str = "Restore the file from a backup. Or move it away and start the daemon again; the reports are then lost.";

    fn version(&self) -> u32 {
        self.version
    }

    fn check(&self) -> Result<(), Problem> {
        if self.reports.len() > REPORTS_MAX {
            return Err(Problem::new(Code::Busy, format!("there are {REPORTS_MAX} reports already"))
                .remedy("Delete some that are no longer needed."));
        }
        let mut known = HashSet::new();
        for one in &self.reports {
            if !one.id.parse::<Id>().is_ok_and(|id| id.to_string() == one.id) {
                return Err(Problem::new(Code::Invalid, format!("`{}` is not the UUID of a report", one.id)));
            }
            let is_name = (1..=NAME_CHARS_MAX).contains(&one.name.chars().count())
                && !one.name.chars().any(char::is_control)
                && one.name.trim() == one.name;
            if !is_name {
                return Err(Problem::new(Code::Invalid, "this cannot be the name of a report")
                    .field("name")
                    .remedy("Give 1 to 100 visible characters, without spaces at either end."));
            }
            if !known.insert(&one.name) || !known.insert(&one.id) {
                return Err(Problem::new(Code::Conflict, "a report with this name exists")
                    .object(&*one.name)
                    .field("name")
                    .remedy("Choose another name, or delete the existing report."));
            }
        }
        Ok(())
    }
}

/// One of the two things that a report may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    Html,
    Json,
}

impl Part {
    const ALL: [Part; 2] = [Part::Html, Part::Json];

    pub fn name(self) -> &'static str {
        match self {
            Part::Html => "html",
            Part::Json => "json",
        }
    }

    fn of(self, request: &ReportCreate) -> Option<&str> {
        match self {
            Part::Html => request.html.as_deref(),
            Part::Json => request.json.as_deref(),
        }
    }

    fn file(self, id: &str) -> String {
        format!("{DIRECTORY}/{id}.{}", self.name())
    }
}

/// What a client sends, if it can be kept.
pub fn check(request: &ReportCreate) -> Result<(), Problem> {
    if request.html.is_none() && request.json.is_none() {
        return Err(Problem::new(Code::Invalid, "the report is empty")
            .field("html")
            .remedy("Send html, json, or both."));
    }
    for part in Part::ALL {
        if part.of(request).is_some_and(|text| text.len() > PART_BYTES_MAX) {
            return Err(Problem::new(Code::TooLarge, format!("it is longer than {PART_BYTES_MAX} bytes"))
                .field(part.name())
                .remedy("Store the whole report elsewhere, and a summary here."));
        }
    }
    let json = request
        .json
        .as_deref()
        .map_or(Ok(()), |text| serde_json::from_str::<serde::de::IgnoredAny>(text).map(drop));
    json.map_err(|error| {
        Problem::new(Code::Invalid, format!("this is not JSON: {error}"))
            .field("json")
            .remedy("Send what `forebay validate run --model NAME --json` prints.")
    })
}

pub struct Reports {
    dir: Arc<DataDir>,
    store: Store<Content>,
    uploads: Semaphore,
}

impl Reports {
    pub fn open(dir: Arc<DataDir>) -> Result<Reports, Problem> {
        let store = Store::<Content>::open(dir.clone())?;
        let known: HashSet<String> =
            store.content().reports.iter().flat_map(|one| Part::ALL.map(|part| part.file(&one.id))).collect();
        let tidied = dir.make(DIRECTORY).and_then(|()| {
            for entry in std::fs::read_dir(dir.file(DIRECTORY))? {
                let entry = entry?;
                let is_ours = entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| known.contains(&format!("{DIRECTORY}/{name}")));
                if !is_ours {
                    std::fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        });
        tidied.map_err(|error: io::Error| {
            Problem::new(Code::Io, format!("reports cannot be kept: {error}"))
                .object(dir.file(DIRECTORY).display().to_string())
                .remedy("Check that the directory is writable and has space.")
        })?;
        Ok(Reports { dir, store, uploads: Semaphore::new(UPLOADS_MAX) })
    }

    pub fn content(&self) -> Arc<Content> {
        self.store.content()
    }

    /// A place for a body of such a size.
    pub fn begin(&self) -> Result<SemaphorePermit<'_>, Failure> {
        self.uploads.try_acquire().map_err(|_| {
            Problem::new(Code::Busy, "too many reports are being sent")
                .remedy("Try again in a moment.")
                .into()
        })
    }

    fn adding(one: &Report) -> impl FnOnce(&mut Content) -> Result<(), Problem> + use<> {
        let one = one.clone();
        |content: &mut Content| {
            content.reports.push(one);
            Ok(())
        }
    }

    pub fn plan(&self, one: &Report) -> Result<(), Problem> {
        self.store.plan(Self::adding(one))
    }

    /// Blocks on the disk, like all that follow.
    pub fn add(&self, one: &Report, request: &ReportCreate) -> Result<(), Problem> {
        self.plan(one)?;
        let written = Part::ALL.iter().try_for_each(|part| match part.of(request) {
            Some(text) => self.dir.write(&part.file(&one.id), text.as_bytes()),
            None => Ok(()),
        });
        let written = written.map_err(|error| self.dir.cannot_write("the report", DIRECTORY, &error));
        let added = written.and_then(|()| self.store.change(Self::adding(one)));
        if added.is_err() {
            self.forget(&one.id);
        }
        added
    }

    pub fn delete(&self, id: &str) -> Result<Report, Problem> {
        let gone =
            self.store.change(|content| content.place(id).map(|place| content.reports.remove(place)))?;
        self.forget(&gone.id);
        Ok(gone)
    }

    /// What cannot be removed now the next start removes.
    fn forget(&self, id: &str) {
        for part in Part::ALL {
            let _ = std::fs::remove_file(self.dir.file(&part.file(id)));
        }
    }

    /// What a report says.
    pub fn read(&self, one: &Report, part: Part) -> Result<Vec<u8>, Problem> {
        let missing =
            |detail: String| Problem::new(Code::NotFound, detail).object(&*one.name).field("format");
        match self.dir.read(&part.file(&one.id)) {
            Ok(Some(bytes)) => Ok(bytes),
            Ok(None) => {
                Err(missing(format!("the report has no {}", part.name())).remedy("Ask for the other format."))
            }
            Err(error) => Err(Problem::new(Code::Io, format!("the report cannot be read: {error}"))
                .object(&*one.name)
                .remedy("Check the data directory and its disk.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_directory;

    fn report(n: u64, name: &str) -> Report {
        let id = Id(u128::from(n)).to_string();
        Report {
            id,
            name: name.into(),
            created_unix_ms: n,
            by: "anna".into(),
            html_bytes: Some(1),
            json_bytes: None,
        }
    }

    fn page(text: &str) -> ReportCreate {
        ReportCreate { html: Some(text.into()), ..ReportCreate::default() }
    }

    #[test]
    fn reports_survive_and_orphans_do_not() {
        let path = test_directory();
        let dir = Arc::new(DataDir::open(path.path()).unwrap());
        let reports = Reports::open(dir.clone()).unwrap();
        let (first, second) = (report(1, "first"), report(2, "second"));
        reports.add(&first, &page("<p>1")).unwrap();
        reports.add(&second, &page("<p>2")).unwrap();
        assert_eq!(reports.add(&report(3, "first"), &page("x")).unwrap_err().code, Code::Conflict);
        assert!(dir.read(&Part::Html.file(&report(3, "").id)).unwrap().is_none());
        reports.delete("second").unwrap();
        // Of a daemon that was killed between file and list.
        dir.write(&Part::Json.file(&report(9, "").id), b"{}").unwrap();
        drop(reports);
        let reports = Reports::open(dir.clone()).unwrap();
        assert_eq!(reports.content().reports, std::slice::from_ref(&first));
        assert_eq!(reports.read(&first, Part::Html).unwrap(), b"<p>1");
        assert_eq!(reports.read(&first, Part::Json).unwrap_err().code, Code::NotFound);
        assert_eq!(std::fs::read_dir(dir.file(DIRECTORY)).unwrap().count(), 1);
    }

    #[test]
    fn number_and_size_are_bounded() {
        let path = test_directory();
        let reports = Reports::open(Arc::new(DataDir::open(path.path()).unwrap())).unwrap();
        for n in 0..REPORTS_MAX as u64 {
            reports.add(&report(n, &format!("r{n}")), &page("x")).unwrap();
        }
        assert_eq!(reports.add(&report(99, "more"), &page("x")).unwrap_err().code, Code::Busy);
        assert_eq!(check(&page(&"x".repeat(PART_BYTES_MAX + 1))).unwrap_err().code, Code::TooLarge);
        assert_eq!(check(&ReportCreate::default()).unwrap_err().field.as_deref(), Some("html"));
        let json = |text: &str| ReportCreate { json: Some(text.into()), ..ReportCreate::default() };
        assert_eq!(check(&json("{")).unwrap_err().field.as_deref(), Some("json"));
        check(&json("[1]")).unwrap();
        let two = [reports.begin().unwrap(), reports.begin().unwrap()];
        assert!(reports.begin().is_err());
        drop(two);
        reports.begin().map(drop).unwrap();
    }
}
