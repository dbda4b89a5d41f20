//! A reference architecture as people write it: TOML with machines, workloads, how both are put together, and what was published of it.

use forebay_pool::{Class, Layout, Level, Rate};
use forebay_simulation::Sheet;
use forebay_simulation::model::SHEETS;
use forebay_workload::Workload;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Groups, disks and volumes that a case may have: more is a mistake in the file.
const GROUPS_MAX: u32 = 64;
const VOLUMES_MAX: usize = 256;
const SCALE_MAX: u64 = 4096;
const SECONDS_MAX: u64 = 3600;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Configuration {
    pub name: String,
    pub title: String,
    pub source: String,
    /// What a reader of the figures has to know: what was emulated, and where the source contradicts itself.
    #[serde(default)]
    pub notes: Vec<String>,
    pub machine: Machine,
    #[serde(rename = "workload")]
    pub workloads: Vec<Client>,
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// What all cases run on.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Machine {
    /// A modelled disk, by name.
    pub disk: String,
    /// A modelled device for the intent log of each pool, mirrored; without it the log is on the data disks.
    pub log: Option<String>,
    pub memory_mib: u64,
    /// Disks and volumes are so many times smaller than they are said to be. Distances of the arm, rates and times stay.
    pub scale: u64,
    /// How long clients work before they are measured, and how long they are.
    pub warm_seconds: u64,
    pub seconds: u64,
}

/// A workload, what it needs, and what its volume is promised.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Client {
    #[serde(flatten)]
    pub workload: Workload,
    /// Bytes of the volume's blocks in KiB.
    pub volume_block_kib: u64,
    pub needs: Option<Needs>,
    pub level: Option<Promise>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Needs {
    pub iops: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Promise {
    pub class: ClassName,
    #[serde(default)]
    pub floor_iops: u64,
    /// MiB a second.
    #[serde(default)]
    pub floor_mib: u64,
    pub latency_ms: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassName {
    MissionCritical,
    BusinessCritical,
    NonCritical,
}

/// One way to put disks and workloads together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Case {
    pub name: String,
    #[serde(rename = "pool")]
    pub pools: Vec<Pool>,
    pub published: String,
    /// The workloads whose needs were met, where that was published.
    pub published_met: Option<Vec<String>>,
    /// Where another answer than the published one is right, why.
    pub differs: Option<String>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pool {
    pub layout: LayoutName,
    pub groups: u32,
    /// A volume for each; a name may come several times.
    pub workloads: Vec<String>,
}

/// `single`, `mirror`, `mirror3` or `DATA+PARITY`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LayoutName(pub Layout);

impl TryFrom<String> for LayoutName {
    type Error = String;

    fn try_from(name: String) -> Result<LayoutName, String> {
        let parity = || {
            let (data, parity) = name.split_once('+')?;
            let (data, parity) = (data.parse().ok()?, parity.parse().ok()?);
            ((2..=16).contains(&data) && (1..=3).contains(&parity)).then_some(Layout::Parity { data, parity })
        };
        let known = [Layout::Single, Layout::Mirror, Layout::Mirror3];
        let layout = known.into_iter().find(|layout| layout.to_string() == name).or_else(parity);
        let refused = || format!("'{name}' is no layout: give single, mirror, mirror3, or such as 4+1");
        layout.map(LayoutName).ok_or_else(refused)
    }
}

impl From<LayoutName> for String {
    fn from(layout: LayoutName) -> String {
        layout.0.to_string()
    }
}

/// What is wrong with a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mistake(pub String);

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Promise {
    pub fn level(&self) -> Level {
        let class = match self.class {
            ClassName::MissionCritical => Class::MissionCritical,
            ClassName::BusinessCritical => Class::BusinessCritical,
            ClassName::NonCritical => Class::NonCritical,
        };
        let floor = Rate { iops: self.floor_iops, bytes: self.floor_mib << 20 };
        Level { class, floor, latency: self.latency_ms.map(Duration::from_millis), ..Level::default() }
    }
}

/// The modelled device of this name.
pub fn sheet(name: &str) -> Option<Sheet> {
    SHEETS.into_iter().find(|sheet| sheet.name() == name)
}

impl Configuration {
    pub fn parse(text: &str) -> Result<Configuration, Mistake> {
        let configuration: Configuration =
            toml::from_str(text).map_err(|error| Mistake(error.to_string()))?;
        configuration.check()?;
        Ok(configuration)
    }

    /// As people write it.
    pub fn toml(&self) -> String {
        toml::to_string(self).expect("every part of it can be written")
    }

    pub fn client(&self, name: &str) -> Option<&Client> {
        self.workloads.iter().find(|client| client.workload.name == name)
    }

    fn check(&self) -> Result<(), Mistake> {
        let Machine { disk, log, scale, memory_mib, seconds, warm_seconds } = &self.machine;
        for name in [disk].into_iter().chain(log) {
            if sheet(name).is_none() {
                let names: Vec<&str> = SHEETS.iter().map(Sheet::name).collect();
                return Err(Mistake(format!(
                    "there is no model of '{name}'; there are {}",
                    names.join(", ")
                )));
            }
        }
        let ranges = [
            ("scale", *scale, SCALE_MAX),
            ("memory-mib", *memory_mib, 1 << 16),
            ("seconds", *seconds, SECONDS_MAX),
            ("warm-seconds", *warm_seconds, SECONDS_MAX),
        ];
        for (name, value, most) in ranges {
            if !(1..=most).contains(&value) {
                return Err(Mistake(format!("{name} is {value}: give 1 to {most}")));
            }
        }
        if let Some(problem) = self.workloads.iter().find_map(|client| client.workload.problem()) {
            return Err(Mistake(problem));
        }
        for case in &self.cases {
            let mut volumes = case.pools.iter().flat_map(|pool| &pool.workloads);
            let unknown = volumes.clone().chain(case.published_met.iter().flatten());
            if let Some(name) = unknown.into_iter().find(|name| self.client(name).is_none()) {
                return Err(Mistake(format!("case '{}': there is no workload '{name}'", case.name)));
            }
            let groups: u32 = case.pools.iter().map(|pool| pool.groups.min(GROUPS_MAX + 1)).sum();
            if volumes.by_ref().count() > VOLUMES_MAX || !(1..=GROUPS_MAX).contains(&groups) {
                let message =
                    format!("at most {VOLUMES_MAX} volumes and 1 to {GROUPS_MAX} groups are possible");
                return Err(Mistake(format!("case '{}': {message}", case.name)));
            }
        }
        Ok(())
    }
}
