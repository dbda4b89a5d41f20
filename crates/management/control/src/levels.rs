//! Service levels: those that are built in, and those that administrators created.
//!
//! A volume or project has the id of a level in its pool, and a pool moves between appliances; what the id means is the appliance's, in the file `levels`
//! ([`crate::store`]). The engine is told before any pool is imported, and with each change. An id that is unknown here has no effect,
//! and is shown as it is.

use crate::convert;
use crate::hosts::{conflict, full};
use crate::rules::invalid;
use crate::store::{Kept, Store};
use forebay_api::{Code, LEVEL_NONE, LevelSpec, Problem, show_duration, show_micros, show_rate_exact};
use forebay_base::Id;
use forebay_pool::{self as engine, BUILT_IN_LEVELS};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::ops::RangeInclusive;

const VERSION: u32 = 1;
/// People tell a few apart; each core of the engine knows all of them.
pub const LEVELS_MAX: usize = 256;
/// The engine counts in whole nanoseconds of a request and picoseconds of a byte: at these rates 100 and 9.
const IOPS_MAX: u64 = 10_000_000;
const BYTES_MAX: u64 = 100_000_000_000;
/// Clients give up requests that take too long, after 30 s in Linux: at this ceiling the longest, of 32 MiB, takes about as long.
const CEILING_BYTES_RANGE: RangeInclusive<u64> = 1_000_000..=BYTES_MAX;
/// 32 writes, what NBD clients have at a time, in three seconds.
const CEILING_IOPS_RANGE: RangeInclusive<u64> = 10..=IOPS_MAX;
/// As the API has them.
pub const CEILING_IOPS: &str = "max_iops";
pub const CEILING_BYTES: &str = "max_bytes_per_second";
/// From less than any disk takes to longer than any client waits.
const LATENCY_US: RangeInclusive<u64> = 100..=60_000_000;
/// An hour of a ceiling at once is no ceiling any more.
const BURST_SECONDS: RangeInclusive<u64> = 1..=3600;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Level {
    pub id: String,
    pub name: String,
    pub created_unix_ms: u64,
    /// Grows with each change: the ETag.
    pub revision: u64,
    pub spec: LevelSpec,
}

impl Level {
    pub fn engine_id(&self) -> Id {
        self.id.parse().expect("ids are made here, and checked when they are read")
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Content {
    pub version: u32,
    pub levels: Vec<Level>,
}

pub type Levels = Store<Content>;

impl Default for Content {
    fn default() -> Content {
        Content { version: VERSION, levels: Vec::new() }
    }
}

fn built_in() -> impl Iterator<Item = Level> {
    BUILT_IN_LEVELS.iter().map(|(id, name, level)| Level {
        id: id.to_string(),
        name: name.to_string(),
        created_unix_ms: 0,
        revision: 0,
        spec: convert::level(level),
    })
}

pub fn is_built_in(id: Id) -> bool {
    BUILT_IN_LEVELS.iter().any(|(built_in, ..)| *built_in == id)
}

impl Content {
    /// Those that are built in first.
    pub fn all(&self) -> impl Iterator<Item = Level> {
        built_in().chain(self.levels.iter().cloned())
    }

    pub fn find(&self, name: &str) -> Result<Level, Problem> {
        self.all().find(|level| level.name == name || level.id == name).ok_or_else(|| {
            Problem::new(Code::NotFound, "there is no such level")
                .object(name)
                .remedy("`forebay level list` shows them; `forebay level create NAME` creates one.")
        })
    }

    /// One that can be changed.
    pub fn find_mut(&mut self, name: &str) -> Result<&mut Level, Problem> {
        let Level { id, name, .. } = self.find(name)?;
        self.levels.iter_mut().find(|level| level.id == id).ok_or_else(|| {
            Problem::new(Code::Conflict, "the level is built in and cannot be changed")
                .object(name)
                .remedy("Create your own level with `forebay level create NAME`.")
        })
    }

    /// The id of the level that a volume or project is asked to have: zero for none.
    pub fn asked(&self, name: Option<&str>) -> Result<Option<Id>, Problem> {
        name.map(|name| match name {
            LEVEL_NONE => Ok(Id(0)),
            name => self.find(name).map(|level| level.engine_id()).map_err(|problem| problem.field("level")),
        })
        .transpose()
    }

    /// As volumes and projects are shown; nothing where it is unknown here.
    pub fn name_of(&self, id: Id) -> Option<String> {
        if id == Id(0) {
            return Some(LEVEL_NONE.into());
        }
        let built_in = BUILT_IN_LEVELS.iter().find(|(built_in, ..)| *built_in == id);
        // A list of volumes asks for each of them.
        let text = id.to_string();
        let made = || self.levels.iter().find(|level| level.id == text).map(|level| level.name.clone());
        built_in.map(|(_, name, _)| name.to_string()).or_else(made)
    }

    /// Levels as the engine is to know them.
    pub fn for_engine(&self) -> BTreeMap<Id, engine::Level> {
        self.levels.iter().map(|level| (level.engine_id(), convert::level_in(&level.spec))).collect()
    }
}

impl Kept for Content {
    const FILE: &'static str = "levels";
    const VERSION: u32 = VERSION;
    const WHAT: &'static str = "levels";
    const REMEDY: &'static str = "Restore the file from a backup. Or move it away, start the daemon again, create levels with `forebay level create \
                                  NAME`, and give them to volumes and projects.";

    fn version(&self) -> u32 {
        self.version
    }

    fn check(&self) -> Result<(), Problem> {
        if self.levels.len() > LEVELS_MAX {
            return Err(full("levels", LEVELS_MAX));
        }
        let is_id = |text: &str| text.parse::<Id>().is_ok_and(|id| id.to_string() == text);
        if let Some(level) = self.levels.iter().find(|level| !is_id(&level.id)) {
            let detail = format!("`{}` is not the UUID of a level", level.id);
            return Err(invalid("id", detail, "Levels get their ids automatically."));
        }
        let (mut names, mut ids) = (HashSet::from([LEVEL_NONE.to_string()]), HashSet::new());
        for level in self.all() {
            if !names.insert(level.name.clone()) || !ids.insert(level.engine_id()) {
                let detail = match &*level.name {
                    LEVEL_NONE => "this name stands for volumes without a level",
                    _ => "a level with this name exists",
                };
                return Err(conflict(&level.name, "name", detail.into(), "Choose another name."));
            }
            check_spec(&level.spec).map_err(|problem| problem.object(level.name))?;
        }
        Ok(())
    }
}

fn check_range(field: &str, number: u64, range: RangeInclusive<u64>) -> Result<(), Problem> {
    if range.contains(&number) {
        return Ok(());
    }
    let remedy = format!("Give {} to {}, or none.", range.start(), range.end());
    Err(invalid(field, format!("{number} is out of range"), &remedy))
}

/// Whether a ceiling, of whatever, may be this.
pub fn check_ceiling(field: &str, rate: u64) -> Result<(), Problem> {
    let range = if field == CEILING_IOPS { CEILING_IOPS_RANGE } else { CEILING_BYTES_RANGE };
    check_range(field, rate, range)
}

/// Whether a level may say this.
pub fn check_spec(spec: &LevelSpec) -> Result<(), Problem> {
    let numbers = [
        ("min_iops", spec.min_iops, 1..=IOPS_MAX),
        ("min_bytes_per_second", spec.min_bytes_per_second, 1..=BYTES_MAX),
        ("latency_us", spec.latency_us, LATENCY_US),
        (CEILING_IOPS, spec.max_iops, CEILING_IOPS_RANGE),
        (CEILING_BYTES, spec.max_bytes_per_second, CEILING_BYTES_RANGE),
        ("burst_seconds", spec.burst_seconds.map(u64::from), BURST_SECONDS),
    ];
    for (field, number, range) in numbers {
        number.map_or(Ok(()), |number| check_range(field, number, range))?;
    }
    for (field, minimum, limit) in [
        (CEILING_IOPS, spec.min_iops, spec.max_iops),
        (CEILING_BYTES, spec.min_bytes_per_second, spec.max_bytes_per_second),
    ] {
        if let (Some(minimum), Some(limit)) = (minimum, limit)
            && limit < minimum
        {
            let detail = format!("the limit, {limit}, is less than the minimum, {minimum}");
            return Err(invalid(
                field,
                detail,
                "Raise the limit to the minimum or more, or lower the minimum.",
            ));
        }
    }
    let has_ceiling = spec.max_iops.is_some() || spec.max_bytes_per_second.is_some();
    if spec.burst_seconds.is_some() && !has_ceiling {
        let remedy = "Give a limit, too, or omit the burst (`none` removes it).";
        return Err(invalid("burst_seconds", "a burst needs a limit".into(), remedy));
    }
    Ok(())
}

/// All that a level says, a few words each; other words wherever it says something else.
pub fn in_words(spec: &LevelSpec) -> [String; 7] {
    let said = |what: &str, value: Option<String>| match value {
        Some(value) => format!("{what} {value}"),
        None => format!("no {what}"),
    };
    let iops = |iops: Option<u64>| iops.map(|iops| format!("of {iops} IOPS"));
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| format!("of {}", show_rate_exact(bytes)));
    [
        format!("class {}", spec.class.name()),
        said("minimum", iops(spec.min_iops)),
        said("minimum rate", bytes(spec.min_bytes_per_second)),
        said("latency goal", spec.latency_us.map(|us| format!("of {}", show_micros(us)))),
        said("limit", iops(spec.max_iops)),
        said("rate limit", bytes(spec.max_bytes_per_second)),
        said("burst", spec.burst_seconds.map(|seconds| format!("of {}", show_duration(seconds)))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::DataDir;
    use crate::test_directory;
    use std::sync::Arc;

    fn level(name: &str, id: u128, spec: LevelSpec) -> Level {
        Level { id: Id(id).to_string(), name: name.into(), created_unix_ms: 1, revision: 1, spec }
    }

    fn open(temp: &tempfile::TempDir) -> Result<Levels, Problem> {
        Levels::open(Arc::new(DataDir::open(temp.path()).unwrap()))
    }

    fn add(levels: &Levels, level: Level) -> Result<(), Problem> {
        levels.change(|content| {
            content.levels.push(level);
            Ok(())
        })
    }

    #[test]
    fn names_and_ids_stand_for_what_they_did_before_a_restart() {
        let temp = test_directory();
        let spec = LevelSpec { max_iops: Some(50), burst_seconds: Some(3), ..LevelSpec::default() };
        add(&open(&temp).unwrap(), level("gold", 77, spec.clone())).unwrap();
        let content = open(&temp).unwrap().content();
        assert_eq!((content.find("gold"), content.all().count()), (Ok(level("gold", 77, spec)), 6));
        assert_eq!(content.asked(Some("gold")), Ok(Some(Id(77))));
        assert_eq!(content.asked(Some(&Id(77).to_string())), Ok(Some(Id(77))));
        assert_eq!(content.asked(Some("mission-critical")), Ok(Some(Id(1))));
        assert_eq!((content.asked(Some("none")), content.asked(None)), (Ok(Some(Id(0))), Ok(None)));
        let unknown = content.asked(Some("silver")).unwrap_err();
        assert_eq!((unknown.code, unknown.field.as_deref()), (Code::NotFound, Some("level")));
        let names = [0, 1, 77, 78].map(|id| content.name_of(Id(id)));
        let names = names.each_ref().map(|name| name.as_deref());
        assert_eq!(names, [Some("none"), Some("mission-critical"), Some("gold"), None]);
        let engine = content.for_engine();
        assert_eq!((engine.len(), engine[&Id(77)].ceiling.iops), (1, 50));
        assert_eq!(engine[&Id(77)].burst, std::time::Duration::from_secs(3));
    }

    #[test]
    fn a_name_means_one_level_and_the_built_in_stay() {
        let temp = test_directory();
        let levels = open(&temp).unwrap();
        add(&levels, level("gold", 77, LevelSpec::default())).unwrap();
        for (name, id) in
            [("gold", 78), ("mission-critical", 78), ("none", 78), ("silver", 77), ("silver", 3)]
        {
            let problem = add(&levels, level(name, id, LevelSpec::default())).unwrap_err();
            assert_eq!(
                (problem.code, problem.field.as_deref()),
                (Code::Conflict, Some("name")),
                "{name} {id}"
            );
        }
        let refused = levels.plan(|content| content.find_mut("non-critical-1").map(drop)).unwrap_err();
        assert!(refused.code == Code::Conflict && refused.remedy.is_some(), "{refused:?}");
        levels.plan(|content| content.find_mut("gold").map(drop)).unwrap();
        for nth in 1..LEVELS_MAX {
            add(&levels, level(&format!("l{nth}"), 100 + nth as u128, LevelSpec::default())).unwrap();
        }
        assert_eq!(add(&levels, level("last", 99, LevelSpec::default())).unwrap_err().code, Code::Busy);
    }

    #[test]
    fn numbers_have_bounds_and_a_ceiling_is_above_its_floor() {
        let none = LevelSpec::default();
        let cases = [
            (LevelSpec { min_iops: Some(0), ..none.clone() }, "min_iops"),
            (LevelSpec { min_iops: Some(IOPS_MAX + 1), ..none.clone() }, "min_iops"),
            (LevelSpec { min_bytes_per_second: Some(0), ..none.clone() }, "min_bytes_per_second"),
            (LevelSpec { latency_us: Some(99), ..none.clone() }, "latency_us"),
            (LevelSpec { max_iops: Some(9), ..none.clone() }, "max_iops"),
            (LevelSpec { max_bytes_per_second: Some(999_999), ..none.clone() }, "max_bytes_per_second"),
            (LevelSpec { min_iops: Some(20), max_iops: Some(19), ..none.clone() }, "max_iops"),
            (LevelSpec { burst_seconds: Some(1), ..none.clone() }, "burst_seconds"),
            (LevelSpec { burst_seconds: Some(0), max_iops: Some(10), ..none.clone() }, "burst_seconds"),
        ];
        for (spec, field) in cases {
            let problem = check_spec(&spec).expect_err("it is refused");
            assert_eq!((problem.code, problem.field.as_deref()), (Code::Invalid, Some(field)), "{spec:?}");
            assert!(problem.remedy.is_some());
        }
        check_spec(&none).unwrap();
        check_spec(&LevelSpec { min_iops: Some(20), max_iops: Some(20), ..none }).unwrap();
        built_in().for_each(|level| check_spec(&level.spec).unwrap());
    }

    #[test]
    fn who_reads_sees_what_is_written_while_it_is_changed() {
        let temp = test_directory();
        let levels = open(&temp).unwrap();
        let add = |content: &mut Content| {
            content.levels.push(level("gold", 77, LevelSpec::default()));
            assert_eq!(levels.content().levels, []);
            Ok(())
        };
        levels.change(add).unwrap();
        assert_eq!(levels.content().levels.len(), 1);
    }

    #[test]
    fn the_least_difference_is_seen_in_words() {
        let rates = [1_450_000_000, 1_500_000_000, 1_500_000_001, 1_501_000_000];
        let specs = rates.map(|rate| LevelSpec { max_bytes_per_second: Some(rate), ..LevelSpec::default() });
        let words: HashSet<_> = specs.iter().map(in_words).collect();
        assert_eq!(words.len(), rates.len(), "{words:?}");
    }

    #[test]
    fn a_damaged_file_is_refused_and_left_as_it_is() {
        let one = |spec: &str| {
            format!(
                r#"{{"version":1,"levels":[{{"id":"{}","name":"gold","created_unix_ms":1,"revision":1,"spec":{spec}}}]}}"#,
                Id(77)
            )
        };
        let temp = test_directory();
        let dir = DataDir::open(temp.path()).unwrap();
        dir.write("levels", one(r#"{"class":"non-critical"}"#).as_bytes()).unwrap();
        drop(dir);
        open(&temp).unwrap();
        let no_id = r#"{"version":1,"levels":[{"id":"x","name":"gold","created_unix_ms":1,"revision":1,"spec":{"class":"non-critical"}}]}"#;
        let zero = one(r#"{"class":"non-critical","max_iops":0}"#);
        for text in ["{", r#"{"version":2,"levels":[]}"#, "[]", no_id, &zero] {
            let dir = DataDir::open(temp.path()).unwrap();
            dir.write("levels", text.as_bytes()).unwrap();
            drop(dir);
            let problem = open(&temp).err().unwrap_or_else(|| panic!("accepted: {text}"));
            assert_eq!(problem.code, Code::Corrupt, "{text}");
            assert!(problem.object.unwrap().ends_with("levels") && problem.remedy.is_some());
            assert_eq!(std::fs::read_to_string(temp.path().join("levels")).unwrap(), text);
        }
    }
}
