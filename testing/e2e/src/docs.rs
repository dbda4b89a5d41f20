//! What tutorials and how-to pages say is true: their blocks of commands are typed in, a page at a time.
//!
//! Each page has a directory of its own. A page that starts no daemon finds one, with a pool `tank` of two files and what the lines of its comment
//! `<!-- given: … -->` make. Output that a page shows is compared; where it shows none, the command has to succeed. A block that cannot be typed in here, because
//! it is for another machine, program or disk, is fenced as `console example`: the tests of the command line parse it.

use crate::console::{self, Shell, Step};
use crate::host::{Context, Directory, Outcome};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDERS: &[&str] = &["docs/tutorials", "docs/how-to"];

pub fn are_true(binary: &Path, directory: &Directory) -> Outcome<String> {
    let (mut typed, mut examples, mut count) = (0, 0, 0);
    let mut failures = Vec::new();
    let pages = pages()?;
    for path in &pages {
        let page = Page::read(path)?;
        typed += page.steps.len();
        examples += page.examples;
        if !page.steps.is_empty() {
            count += 1;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            failures.extend(page.type_in(binary, directory, &name).err());
        }
    }
    match failures.is_empty() {
        true => Ok(format!("{typed} commands on {count} of {} pages; {examples} are examples", pages.len())),
        false => Err(failures.join("\n")),
    }
}

fn pages() -> Outcome<Vec<PathBuf>> {
    let mut pages = Vec::new();
    for folder in FOLDERS {
        let entries = fs::read_dir(folder).context(format!("{folder} (run from the project's directory)"))?;
        pages.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
    }
    pages.retain(|path| path.extension().is_some_and(|kind| kind == "md"));
    pages.sort();
    Ok(pages)
}

#[derive(Default)]
struct Page {
    path: String,
    given: Vec<String>,
    steps: Vec<Step>,
    examples: usize,
}

impl Page {
    fn read(path: &Path) -> Outcome<Page> {
        let mut page = Page { path: path.display().to_string(), ..Page::default() };
        let text = fs::read_to_string(path).context(&page.path)?;
        let given = text.split_once("<!-- given:").and_then(|(_, rest)| rest.split_once("-->"));
        let given = given.map_or("", |(given, _)| given).lines().map(|line| line.trim().to_owned());
        page.given = given.filter(|line| !line.is_empty()).collect();
        for block in console::blocks(&text) {
            match block.mark.as_str() {
                "" => page.steps.extend(block.steps().context(&page.path)?),
                "example" => page.examples += block.commands(),
                mark => return Err(format!("{}: what is a block `console {mark}`?", page.path)),
            }
        }
        Ok(page)
    }

    fn type_in(&self, binary: &Path, directory: &Directory, name: &str) -> Outcome {
        let mut shell = Shell::start(binary, directory, name)?;
        let mut first = Vec::new();
        if !self.steps.iter().any(Step::starts_a_daemon) {
            first.push("export FOREBAY_DATA=$PWD/../data".to_owned());
            first.push("forebay serve &".into());
            first.push("truncate -s 100G ../tank0 ../tank1".into());
            first.push("forebay pool create tank --layout mirror --no-calibrate ../tank0 ../tank1".into());
        }
        for line in first.iter().chain(&self.given) {
            shell.step(&format!("{} (given)", self.path), &Step::new(line), true)?;
        }
        for step in &self.steps {
            shell.step(&self.path, step, true)?;
        }
        Ok(())
    }
}
