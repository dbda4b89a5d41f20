//! Events and the page that explains them name the same codes: whoever gets one finds out what it means and what to do.
//!
//! A code counts as told where it follows a severity (`Severity::Error, "disk.failed"`) or who did it (`&who, "volume.created"`) in the
//! source, above its tests; the page's table is the one in `docs/reference/events.md` behind `<!-- table: events -->`. A code of the table that
//! is told in another way only has to stand in the source at all.

use crate::Breach;
use crate::text::Kind;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PAGE: &str = "docs/reference/events.md";
const TABLE: &str = "<!-- table: events -->";

pub fn check(root: &Path) -> Vec<Breach> {
    let mut sources = String::new();
    let mut told = BTreeMap::new();
    for path in crate::text::files(root, "crates", Kind::Rust) {
        let Ok(text) = fs::read_to_string(root.join(&path)) else { continue };
        for code in codes(&text) {
            told.entry(code.to_string()).or_insert_with(|| path.display().to_string());
        }
        sources.push_str(&text);
    }
    let page = fs::read_to_string(root.join(PAGE)).unwrap_or_default();
    let explained = explained(&page);
    let unexplained = told.iter().filter(|(code, _)| !explained.contains(&code.as_str()));
    let unexplained = unexplained.map(|(code, place)| Breach {
        rule: "event",
        place: place.clone(),
        message: format!(
            "the event `{code}` is not in the table of {PAGE}: say what it means and what to do"
        ),
    });
    let untold = explained.iter().filter(|code| !sources.contains(&format!("\"{code}\"")));
    let untold = untold.map(|code| Breach {
        rule: "event",
        place: PAGE.into(),
        message: format!("nothing tells the event `{code}`: remove it from the table"),
    });
    unexplained.chain(untold).collect()
}

/// Codes that follow a severity or a person.
fn codes(text: &str) -> impl Iterator<Item = &str> {
    let text = text.split("\nmod tests").next().unwrap_or_default();
    ["Severity::", "&who"].into_iter().flat_map(|mark| text.split(mark).skip(1)).filter_map(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_alphabetic()).strip_prefix(',')?;
        let (code, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
        code.contains('.').then_some(code)
    })
}

/// Codes in the first column of the table.
fn explained(page: &str) -> Vec<&str> {
    let table = page.split_once(TABLE).map_or("", |(_, rest)| rest).trim_start();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.strip_prefix("| `")?.split_once('`').map(|(code, _)| code)).collect()
}
