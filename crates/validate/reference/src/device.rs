//! A measured device as people write it in a configuration, and as `forebay disk model` prints it.
//!
//! A configuration has these in `[[device]]` tables, and its machine names them like the models that come with the product. Figures are bounded: whatever a file
//! says, the model's arithmetic holds and time goes on.

use forebay_simulation::Sheet;
use forebay_simulation::model::{MeasuredCosts, MeasuredSheet, POINTS, Pauses, Spread};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longer is no answer of a device: an hour.
const NS_MAX: u64 = 3_600_000_000_000;
/// A byte that takes a tenth of a millisecond.
const BYTE_PS_MAX: u64 = 100_000_000;
const MIB_MAX: u64 = 64 << 20;
/// Pauses that come more often leave no time between them.
const PAUSE_EVERY_NS_MIN: u64 = 1000;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeviceModel {
    pub name: String,
    /// How its figures were come by.
    #[serde(default)]
    pub source: String,
    pub size_mib: u64,
    /// Requests that it works on at a time; 0: as many as there are.
    #[serde(default)]
    pub at_once: u64,
    pub read: DeviceCosts,
    pub write: DeviceCosts,
    /// Nanoseconds, at the points of [`POINTS`].
    pub flush_ns: Spread,
    /// Between two moments at which the device stands still; 0: there are none.
    pub pause_every_ns: u64,
    pub pause_ns: Spread,
}

/// What a request costs; see [`MeasuredCosts`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct DeviceCosts {
    /// Among few requests and among many.
    pub command_ns: [u64; 2],
    pub byte_ps: [u64; 2],
    pub latency_ns: u64,
    pub latency_byte_ps: u64,
    /// Thousandths of the latency.
    pub spread: Spread,
}

fn is_rising(spread: &Spread) -> bool {
    spread.is_sorted() && spread[POINTS.len() - 1] <= NS_MAX
}

impl DeviceCosts {
    fn problem(&self) -> Option<&'static str> {
        let times = [self.latency_ns].into_iter().chain(self.command_ns);
        let bytes = [self.latency_byte_ps].into_iter().chain(self.byte_ps);
        if times.into_iter().any(|ns| ns > NS_MAX) {
            Some("a time is longer than an hour")
        } else if bytes.into_iter().any(|ps| ps > BYTE_PS_MAX) {
            Some("a byte takes more than 0.1 ms")
        } else if !self.spread.is_sorted() || self.spread[POINTS.len() - 1] > 1_000_000 {
            Some("spread: give rising figures, at most 1000000 thousandths")
        } else {
            None
        }
    }

    fn costs(&self) -> MeasuredCosts {
        MeasuredCosts {
            command: self.command_ns.map(Duration::from_nanos),
            byte_ps: self.byte_ps,
            latency: Duration::from_nanos(self.latency_ns),
            latency_byte_ps: self.latency_byte_ps,
            spread: self.spread,
        }
    }
}

impl DeviceModel {
    /// What is wrong with it, if anything.
    pub fn problem(&self) -> Option<String> {
        let wrong = if let Some(wrong) = self.read.problem().or(self.write.problem()) {
            wrong.into()
        } else if !(1..=MIB_MAX).contains(&self.size_mib) {
            format!("size-mib is {}: give 1 to {MIB_MAX}", self.size_mib)
        } else if !is_rising(&self.flush_ns) || !is_rising(&self.pause_ns) {
            "flush-ns and pause-ns: give rising figures of at most an hour".into()
        } else if self.pause_every_ns != 0 && !(PAUSE_EVERY_NS_MIN..=NS_MAX).contains(&self.pause_every_ns) {
            format!("pause-every-ns is {}: give 0 for none, or at least 1000", self.pause_every_ns)
        } else {
            return None;
        };
        Some(format!("device '{}': {wrong}", self.name))
    }

    pub fn sheet(&self) -> Sheet {
        let pauses = Pauses { every: Duration::from_nanos(self.pause_every_ns), lasting: self.pause_ns };
        let (read, write) = (self.read.costs(), self.write.costs());
        Sheet::Measured(MeasuredSheet {
            bytes: self.size_mib << 20,
            at_once: self.at_once,
            read,
            write,
            flush: self.flush_ns,
            pauses,
        })
    }

    /// As a table that a configuration can have.
    pub fn toml(&self) -> String {
        let body = toml::to_string(self).expect("every part of it can be written");
        // Tables of a device's own belong to the device.
        format!(
            "[[device]]\n{}",
            body.replace("[read]", "[device.read]").replace("[write]", "[device.write]")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> DeviceModel {
        let costs = DeviceCosts {
            command_ns: [20_000, 10_000],
            byte_ps: [500, 400],
            latency_ns: 30_000,
            latency_byte_ps: 100,
            spread: [500, 800, 900, 1000, 1200, 1500, 2000, 3000, 9000],
        };
        DeviceModel {
            name: "mine".into(),
            source: "measured".into(),
            size_mib: 1024,
            at_once: 12,
            read: costs.clone(),
            write: costs,
            flush_ns: [1_000_000; 9],
            pause_every_ns: 0,
            pause_ns: [0; 9],
        }
    }

    #[test]
    fn what_is_printed_can_be_read() {
        #[derive(Deserialize)]
        struct Tables {
            device: Vec<DeviceModel>,
        }
        let text = format!("{}\n{}", model().toml(), model().toml());
        let tables: Tables = toml::from_str(&text).expect("it is TOML");
        assert_eq!(tables.device, [model(), model()]);
        assert_eq!(model().problem(), None);
    }

    #[test]
    fn figures_that_are_no_devices_are_refused() {
        let broken: [fn(&mut DeviceModel); 6] = [
            |model| model.size_mib = 0,
            |model| model.read.command_ns[1] = u64::MAX,
            |model| model.write.byte_ps[0] = u64::MAX,
            |model| model.read.spread[3] = 0,
            |model| model.flush_ns[8] = u64::MAX,
            |model| model.pause_every_ns = 1,
        ];
        for change in broken {
            let mut model = model();
            change(&mut model);
            assert!(model.problem().is_some_and(|problem| problem.starts_with("device 'mine': ")));
        }
    }
}
