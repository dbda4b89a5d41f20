//! Worksheets that are remembered.

use super::answers::{self, LIMIT_DEFAULT};
use crate::store::{Kept, Store};
use forebay_analytics::{Ask, LIMIT_MAX};
use forebay_api::{Code, Problem, WorksheetGraph, WorksheetSpec};
use forebay_base::Id;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ops::{Range, RangeInclusive};

const VERSION: u32 = 1;
/// As many as a person can find something in. As many intervals may be pinned.
pub const WORKSHEETS_MAX: usize = 200;
const NAME_CHARS_MAX: usize = 100;
const GRAPHS_MAX: usize = 24;
const TITLE_CHARS_MAX: usize = 200;
/// Of a graph that follows what happens: up to as long as seconds are kept.
const SECONDS: RangeInclusive<u64> = 10..=7 * 86_400;
const LAST_UNIX_S: u64 = 1 << 40;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Worksheet {
    pub id: String,
    pub name: String,
    pub created_unix_ms: u64,
    pub changed_unix_ms: u64,
    pub revision: u64,
    /// Made when something went wrong, and not changed since.
    #[serde(default)]
    pub captured: bool,
    pub spec: WorksheetSpec,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub version: u32,
    pub worksheets: Vec<Worksheet>,
}

pub type Worksheets = Store<Content>;

impl Default for Content {
    fn default() -> Content {
        Content { version: VERSION, worksheets: Vec::new() }
    }
}

fn invalid(field: &str, detail: String, remedy: &str) -> Problem {
    Problem::new(Code::Invalid, detail).field(field).remedy(remedy)
}

impl Content {
    fn place(&self, name: &str) -> Result<usize, Problem> {
        let place = self.worksheets.iter().position(|one| one.id == name || one.name == name);
        place.ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such worksheet")
                .object(name)
                .remedy("`forebay worksheet list` shows them.")
        })
    }

    pub fn find(&self, name: &str) -> Result<&Worksheet, Problem> {
        self.place(name).map(|place| &self.worksheets[place])
    }

    pub fn find_mut(&mut self, name: &str) -> Result<&mut Worksheet, Problem> {
        self.place(name).map(|place| &mut self.worksheets[place])
    }

    pub fn remove(&mut self, name: &str) -> Result<Worksheet, Problem> {
        self.place(name).map(|place| self.worksheets.remove(place))
    }

    /// Ids of those whose interval is pinned.
    pub fn pinned(&self) -> Vec<String> {
        self.worksheets.iter().filter(|one| one.spec.pinned).map(|one| one.id.clone()).collect()
    }
}

impl Kept for Content {
    const FILE: &'static str = "worksheets";
    const VERSION: u32 = VERSION;
    const WHAT: &'static str = "worksheets";
    const REMEDY: &'static str = "Restore the file from a backup. Or move it away and start the daemon again; the worksheets and their pinned data \
                                  are then lost.";

    fn version(&self) -> u32 {
        self.version
    }

    /// Not what expressions mean: one that a later version does not know is still the worksheet's.
    fn check(&self) -> Result<(), Problem> {
        if self.worksheets.len() > WORKSHEETS_MAX {
            return Err(Problem::new(Code::Busy, format!("there are {WORKSHEETS_MAX} worksheets already"))
                .remedy("Delete some that are no longer needed."));
        }
        let mut known = HashSet::new();
        for one in &self.worksheets {
            let is_id = one.id.parse::<Id>().is_ok_and(|id| id.to_string() == one.id);
            if !is_id {
                return Err(invalid("id", format!("`{}` is not the UUID of a worksheet", one.id), ""));
            }
            check_name(&one.name)?;
            check_spec(&one.spec).map_err(|problem| problem.object(&*one.name))?;
            if !known.insert(&one.name) || !known.insert(&one.id) {
                return Err(Problem::new(Code::Conflict, "a worksheet with this name exists")
                    .object(&*one.name)
                    .field("name")
                    .remedy("Choose another name, or change the existing worksheet."));
            }
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), Problem> {
    let is_fine = (1..=NAME_CHARS_MAX).contains(&name.chars().count())
        && !name.chars().any(char::is_control)
        && name.trim() == name;
    match is_fine {
        true => Ok(()),
        false => Err(invalid(
            "name",
            "this cannot be the name of a worksheet".into(),
            "Give 1 to 100 visible characters, without spaces at either end.",
        )),
    }
}

fn check_spec(spec: &WorksheetSpec) -> Result<(), Problem> {
    if !(1..=GRAPHS_MAX).contains(&spec.graphs.len()) {
        let remedy = format!("Give 1 to {GRAPHS_MAX}.");
        return Err(invalid("spec.graphs", format!("{} graphs", spec.graphs.len()), &remedy));
    }
    for (nth, WorksheetGraph { expression, title, limit }) in spec.graphs.iter().enumerate() {
        let field = |name: &str| format!("spec.graphs[{nth}].{name}");
        if expression.chars().count() > forebay_analytics::CHARS_MAX {
            return Err(invalid(
                &field("expression"),
                "the expression is too long".into(),
                "Use a shorter expression.",
            ));
        }
        let title = title.as_deref().unwrap_or_default();
        if title.chars().count() > TITLE_CHARS_MAX || title.chars().any(char::is_control) {
            let remedy = format!("Give at most {TITLE_CHARS_MAX} visible characters, or no title.");
            return Err(invalid(&field("title"), "this cannot be the title of a graph".into(), &remedy));
        }
        if limit.is_some_and(|limit| !(1..=LIMIT_MAX as u32).contains(&limit)) {
            return Err(invalid(
                &field("limit"),
                "the limit is out of range".into(),
                "Give 1 to 100, or none.",
            ));
        }
    }
    match (spec.seconds, spec.from_unix_s, spec.to_unix_s) {
        (Some(seconds), None, None) if SECONDS.contains(&seconds) => {}
        (Some(_), None, None) => {
            let remedy = format!("Give {} to {}.", SECONDS.start(), SECONDS.end());
            return Err(invalid("spec.seconds", "the interval is out of range".into(), &remedy));
        }
        (None, Some(from), Some(to)) if from < to && to <= LAST_UNIX_S => {}
        (None, Some(_), Some(_)) => {
            let detail = "the interval ends before it begins".to_string();
            return Err(invalid("spec.to_unix_s", detail, "Give a later end, in seconds since 1970."));
        }
        _ => {
            let remedy = "Give `seconds` for an interval that ends now, or `from_unix_s` and `to_unix_s`.";
            return Err(invalid("spec.seconds", "there is no interval, or more than one".into(), remedy));
        }
    }
    if spec.pinned && spec.seconds.is_some() {
        let detail = "an interval that ends now cannot be pinned".to_string();
        return Err(invalid(
            "spec.pinned",
            detail,
            "Give `from_unix_s` and `to_unix_s` instead of `seconds`.",
        ));
    }
    Ok(())
}

/// Whether all expressions are understood.
pub fn check_expressions(spec: &WorksheetSpec) -> Result<(), Problem> {
    for (nth, graph) in spec.graphs.iter().enumerate() {
        answers::parse(&graph.expression, &format!("spec.graphs[{nth}].expression"))?;
    }
    Ok(())
}

/// The interval of a worksheet, now.
pub fn interval(spec: &WorksheetSpec, now_unix_s: u64) -> Range<u64> {
    match (spec.from_unix_s, spec.to_unix_s) {
        (Some(from), Some(to)) => from..to,
        _ => now_unix_s.saturating_sub(spec.seconds.unwrap_or(*SECONDS.start()))..now_unix_s,
    }
}

/// The questions of a worksheet's graphs, each in the finest steps that its interval allows.
pub fn questions(spec: &WorksheetSpec, now_unix_s: u64) -> Result<Vec<Ask>, Problem> {
    let Range { start: from, end: to } = interval(spec, now_unix_s);
    let graphs = spec.graphs.iter().enumerate();
    let question = |(nth, graph): (usize, &WorksheetGraph)| {
        let expression = answers::parse(&graph.expression, &format!("spec.graphs[{nth}].expression"))?;
        let step_seconds = ((to - from) <= forebay_analytics::POINTS_MAX).then_some(1);
        Ok(Ask { expression, from, to, step_seconds, limit: graph.limit.unwrap_or(LIMIT_DEFAULT) as usize })
    };
    graphs.map(question).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(expression: &str) -> WorksheetGraph {
        WorksheetGraph { expression: expression.into(), ..WorksheetGraph::default() }
    }

    fn live() -> WorksheetSpec {
        WorksheetSpec { graphs: vec![graph("nbd.ops")], seconds: Some(300), ..WorksheetSpec::default() }
    }

    fn fixed(from: u64, to: u64) -> WorksheetSpec {
        let spec = live();
        WorksheetSpec { seconds: None, from_unix_s: Some(from), to_unix_s: Some(to), ..spec }
    }

    #[test]
    fn bounds_are_kept_and_named() {
        let title = |title: &str| WorksheetSpec {
            graphs: vec![WorksheetGraph { title: Some(title.into()), ..graph("nbd.ops") }],
            ..live()
        };
        let limit = |limit| WorksheetSpec {
            graphs: vec![graph("nbd.ops"), WorksheetGraph { limit: Some(limit), ..graph("nbd.ops") }],
            ..live()
        };
        for (spec, field) in [
            (WorksheetSpec { graphs: vec![], ..live() }, "spec.graphs"),
            (WorksheetSpec { graphs: vec![graph("nbd.ops"); 25], ..live() }, "spec.graphs"),
            (WorksheetSpec { graphs: vec![graph(&"x".repeat(1001))], ..live() }, "spec.graphs[0].expression"),
            (title("a\nb"), "spec.graphs[0].title"),
            (limit(0), "spec.graphs[1].limit"),
            (limit(101), "spec.graphs[1].limit"),
            (WorksheetSpec { seconds: Some(9), ..live() }, "spec.seconds"),
            (WorksheetSpec { seconds: None, ..live() }, "spec.seconds"),
            (WorksheetSpec { seconds: Some(20), ..fixed(1, 2) }, "spec.seconds"),
            (WorksheetSpec { to_unix_s: None, ..fixed(1, 2) }, "spec.seconds"),
            (fixed(2, 2), "spec.to_unix_s"),
            (fixed(2, u64::MAX), "spec.to_unix_s"),
            (WorksheetSpec { pinned: true, ..live() }, "spec.pinned"),
        ] {
            let problem = check_spec(&spec).expect_err(field);
            assert_eq!((problem.code, problem.field.as_deref()), (Code::Invalid, Some(field)));
            assert!(problem.remedy.is_some());
        }
        for spec in [live(), fixed(1, 2), WorksheetSpec { pinned: true, ..fixed(1, 2) }, limit(100)] {
            check_spec(&spec).unwrap();
        }
        let unknown = WorksheetSpec { graphs: vec![graph("nbd.ops"), graph("nbd.nops")], ..live() };
        let problem = check_expressions(&unknown).unwrap_err();
        assert_eq!(problem.field.as_deref(), Some("spec.graphs[1].expression"));
        check_spec(&unknown).expect("the file is still read when it is not known any more");
    }

    #[test]
    fn a_name_means_one_worksheet() {
        let one = |name: &str, id: u128| Worksheet {
            id: Id(id).to_string(),
            name: name.into(),
            created_unix_ms: 1,
            changed_unix_ms: 1,
            revision: 1,
            captured: false,
            spec: live(),
        };
        let content = |worksheets| Content { worksheets, ..Content::default() };
        content(vec![one("Why was db slow?", 1), one("b/c", 2)]).check().unwrap();
        for (worksheets, code) in [
            (vec![one("a", 1), one("a", 2)], Code::Conflict),
            (vec![one("a", 1), one("b", 1)], Code::Conflict),
            (vec![one("", 1)], Code::Invalid),
            (vec![one(" a", 1)], Code::Invalid),
            (vec![one(&"x".repeat(101), 1)], Code::Invalid),
            ((0..=WORKSHEETS_MAX).map(|nth| one(&nth.to_string(), nth as u128)).collect(), Code::Busy),
        ] {
            assert_eq!(content(worksheets).check().unwrap_err().code, code);
        }
    }

    #[test]
    fn questions_have_the_finest_step_there_is() {
        let asked = |spec: &WorksheetSpec| {
            let asked = questions(spec, 1_000_000).unwrap().remove(0);
            (asked.from, asked.to, asked.step_seconds)
        };
        assert_eq!(asked(&live()), (999_700, 1_000_000, Some(1)));
        assert_eq!(asked(&fixed(5, 10_005)), (5, 10_005, Some(1)));
        assert_eq!(asked(&fixed(5, 86_405)), (5, 86_405, None));
    }
}
