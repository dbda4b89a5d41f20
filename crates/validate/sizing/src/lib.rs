//! The cheapest layout that keeps every promise, and why it is that one.
//!
//! Layouts are made of a catalogue (kinds of disks and log devices with prices, layouts, numbers of groups) and tried in the order of their price, on the model, until one keeps all
//! promises: what is cheaper has failed, and says at what; what is dearer is not needed. What cannot be enough whatever the model says (data that does not fit, more writes than
//! the disks' interfaces take) is not tried. The same files and seed give the same answer, on any number of processors.

mod bound;
mod search;

pub use search::{Answer, Candidate, Options, Tried, Verdict, search};

use forebay_reference::{Configuration, DeviceModel, Mistake, Traces, traces};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

const PRICE_MAX: u64 = 1_000_000_000_000;
const GROUPS_MAX: u32 = 64;
const KINDS_MAX: usize = 32;

/// What can be bought.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Catalogue {
    /// Such as `mirror` or `4+1`.
    pub layouts: Vec<String>,
    /// Groups of a pool, at most.
    pub groups_max: u32,
    #[serde(rename = "disk")]
    pub disks: Vec<Offer>,
    /// For the intent log: always two, that mirror each other.
    #[serde(default, rename = "log")]
    pub logs: Vec<Offer>,
    /// Models that `forebay disk model` has fitted.
    #[serde(default, rename = "device")]
    pub devices: Vec<DeviceModel>,
}

/// A kind of device and the price of one, in whatever currency.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Offer {
    pub model: String,
    pub price: u64,
}

impl Catalogue {
    pub fn parse(text: &str) -> Result<Catalogue, Mistake> {
        let catalogue: Catalogue = toml::from_str(text).map_err(|error| Mistake(error.to_string()))?;
        let Catalogue { layouts, groups_max, disks, logs, .. } = &catalogue;
        let wrong = if disks.is_empty() || layouts.is_empty() {
            "give at least one disk and one layout".into()
        } else if disks.len() > KINDS_MAX || logs.len() > KINDS_MAX || layouts.len() > KINDS_MAX {
            format!("give at most {KINDS_MAX} disks, logs and layouts each")
        } else if !(1..=GROUPS_MAX).contains(groups_max) {
            format!("groups-max is {groups_max}: give 1 to {GROUPS_MAX}")
        } else if disks.iter().chain(logs).any(|offer| offer.price > PRICE_MAX) {
            format!("a price is more than {PRICE_MAX}")
        } else {
            return Ok(catalogue);
        };
        Err(Mistake(wrong))
    }
}

/// What a pool is wanted for: a configuration without cases, whose machine has no disks yet.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted {
    table: Table,
    /// A volume for each.
    workloads: Vec<String>,
    traces: Traces,
}

impl Wanted {
    pub fn parse(text: &str) -> Result<Wanted, Mistake> {
        let mut table: Table = toml::from_str(text).map_err(|error| Mistake(error.to_string()))?;
        for (key, why) in
            [("case", "the search makes the cases"), ("device", "the list of offers has the devices")]
        {
            if table.contains_key(key) {
                return Err(Mistake(format!("{key}: {why}; leave it out")));
            }
        }
        let machine = table.get("machine").and_then(Value::as_table);
        let Some(machine) = machine else { return Err(Mistake("there is no [machine]".into())) };
        if machine.contains_key("disk") || machine.contains_key("log") {
            return Err(Mistake("the search chooses disk and log of the machine; leave them out".into()));
        }
        for (key, text) in [("name", "sizing"), ("title", "Workloads that need a pool")] {
            table.entry(key).or_insert_with(|| Value::from(text));
        }
        let listed = table.get("workload").and_then(Value::as_array).into_iter().flatten();
        let name = |workload: &Value| workload.get("name").and_then(Value::as_str).map(str::to_string);
        let workloads: Vec<String> = listed.filter_map(name).collect();
        if workloads.is_empty() {
            return Err(Mistake("there is no [[workload]]".into()));
        }
        Ok(Wanted { table, workloads, traces: Traces::new() })
    }

    /// Takes in what the files of traces say; `read` gives a file's text.
    pub fn read_traces(&mut self, read: impl Fn(&str) -> Result<String, String>) -> Result<(), Mistake> {
        let listed = self.table.get("workload").and_then(Value::as_array).into_iter().flatten();
        let paths = listed.filter_map(|workload| Some(workload.get("trace")?.as_str()?.to_string()));
        self.traces = traces(paths, read)?;
        Ok(())
    }

    /// All of it on one pool of this kind.
    fn configuration(&self, catalogue: &Catalogue, candidate: &Candidate) -> Result<Configuration, Mistake> {
        let mut table = self.table.clone();
        if let Some(machine) = table.get_mut("machine").and_then(Value::as_table_mut) {
            machine.insert("disk".into(), candidate.disk.clone().into());
            if let Some(log) = &candidate.log {
                machine.insert("log".into(), log.clone().into());
            }
        }
        let pool = Table::from_iter([
            ("layout".to_string(), Value::from(candidate.layout.clone())),
            ("groups".to_string(), Value::from(i64::from(candidate.groups))),
            ("workloads".to_string(), Value::from(self.workloads.clone())),
        ]);
        let case = Table::from_iter([
            ("name".to_string(), Value::from(candidate.to_string())),
            ("pool".to_string(), Value::Array(vec![pool.into()])),
        ]);
        table.insert("case".into(), Value::Array(vec![case.into()]));
        let devices = catalogue
            .devices
            .iter()
            .map(|device| Value::try_from(device).map_err(|error| Mistake(error.to_string())));
        let devices = devices.collect::<Result<Vec<_>, _>>()?;
        if !devices.is_empty() {
            table.insert("device".into(), devices.into());
        }
        let mut configuration = Configuration::parse(&table.to_string())?;
        configuration.take_traces(&self.traces);
        Ok(configuration)
    }
}
