//! What a disk's figures mean: a pure function from a reading, and an earlier one, to a state and its reasons.
//!
//! | State | Rule | Source |
//! |---|---|---|
//! | failing | the disk's own verdict is "failed" (ATA, SCSI) | ATA8-ACS `SMART RETURN STATUS`; SPC-4 informational exceptions |
//! | failing | a pre-failure attribute is at or below its threshold now | SFF-8035i: failure is expected within 24 hours |
//! | failing | NVMe: spare below threshold, reliability degraded, read-only, backup of the cache failed | NVMe Base 2.0, SMART / Health Information log, critical warning bits 0, 2, 3, 4 |
//! | failing | the latest self-test failed | ACS-3, SPC-4 and NVMe: self-test results |
//! | warning | NVMe: temperature, persistent memory, unknown bits | the same, bits 1, 5, 6, 7 |
//! | warning | sectors pending (197) or uncorrectable (198), any | Backblaze, "What SMART stats tell us about hard drives" (2016): five attributes, 5, 187, 188, 197, 198, of which any above 0 predicts failure |
//! | warning | errors reported to the host (187; SCSI uncorrected errors; NVMe media errors), any | the same; data was lost to the host |
//! | warning | reallocated sectors (5) or grown defects: more than before, or [`REALLOCATED_MANY`] and more | the same, with Google, "Failure trends in a large disk drive population" (2007): failures gather in the weeks after new ones, and most disks with a few that stay live on |
//! | warning | command timeouts (188): more than before | Backblaze; a constant number is from a power cut long ago |
//! | warning | CRC errors (199): more than before | ATA: the cable, the backplane or the controller, seldom the disk |
//! | warning | wear of [`WEAR_HIGH`] % and more | ACS-4 and NVMe: 100 is the rated endurance, and no failure by itself |
//! | warning | spare within [`SPARE_MARGIN`] points above its threshold | – |
//! | warning | temperature at or above the disk's own limit, without one [`HOT_ROTATING`] or [`HOT_FLASH`] °C | the disk; makers' data sheets give 60 and 70 |
//! | warning | an attribute was below its threshold once, or is and is no pre-failure one; temperature in the past is left out | SFF-8035i |
//! | warning | the disk did not answer the query | a disk that hangs is not well, whatever it says later |
//! | unknown | no reading, or one without anything to judge | |
//!
//! Age is no reason, nor is the number of entries in an error log: NVMe disks count every command there that they do not know.

use crate::smart::{Counters, NoReading, NvmeWarning, Protocol, Reading, SelfTestResult, Smart};
use serde::{Deserialize, Serialize};

/// Reallocated sectors, or grown defects, that are many even where they do not grow.
pub const REALLOCATED_MANY: u64 = 100;
/// Percent of the rated endurance from which a replacement should be ordered.
pub const WEAR_HIGH: u32 = 90;
/// Points of spare above the threshold.
pub const SPARE_MARGIN: u32 = 5;
/// °C where a disk names no limit of its own.
pub const HOT_ROTATING: i32 = 60;
/// °C where a disk names no limit of its own.
pub const HOT_FLASH: i32 = 70;
/// Attributes of temperature: what was too hot once is not so now.
const TEMPERATURE_ATTRIBUTES: [u8; 2] = [190, 194];

/// How a disk is, and why.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Health {
    pub state: HealthState,
    /// One plain sentence each, the worst first; empty for a good disk.
    pub reasons: Vec<String>,
}

/// From best to worst, `Unknown` between: nothing bad is known, and nothing good.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    Good,
    Unknown,
    /// Look at it: order a replacement, check the cable, cool it.
    Warning,
    /// Replace it.
    Failing,
}

/// Judges a reading. `earlier` is one of the same disk from some time before, such as a week ([`crate::History`] keeps it): what grew since
/// counts. A disk in standby is judged by the earlier reading.
pub fn judge(reading: &Reading, earlier: Option<&Smart>) -> Health {
    match (reading, earlier) {
        (Reading::Values(now), earlier) => judge_values(now, earlier.map(|earlier| &earlier.counters)),
        (Reading::Standby, Some(earlier)) => {
            let mut health = judge_values(earlier, None);
            health.reasons.push("The disk is in standby; this is its last report.".into());
            health
        }
        (Reading::Standby, None) => {
            unknown("The disk is in standby, and was not woken to ask for its health.".into())
        }
        (Reading::None(why @ (NoReading::TimedOut(_) | NoReading::Abandoned)), _) => Health {
            state: HealthState::Warning,
            reasons: vec![format!("{why} It may hang; check the disk, its cable and its controller.")],
        },
        (Reading::None(why), _) => unknown(why.to_string()),
    }
}

fn unknown(reason: String) -> Health {
    Health { state: HealthState::Unknown, reasons: vec![reason] }
}

/// Collects reasons.
#[derive(Default)]
struct Verdict {
    failing: Vec<String>,
    warnings: Vec<String>,
}

fn judge_values(now: &Smart, earlier: Option<&Counters>) -> Health {
    let mut verdict = Verdict::default();
    verdict.own_verdict(now);
    verdict.attributes(now);
    verdict.counters(now, earlier);
    verdict.flash(now);
    verdict.temperature(now);
    let state = match (&*verdict.failing, &*verdict.warnings) {
        ([], []) if says_nothing(now) => {
            return unknown("The disk reports no values that show its health.".into());
        }
        ([], []) => HealthState::Good,
        ([], _) => HealthState::Warning,
        _ => HealthState::Failing,
    };
    Health { state, reasons: [verdict.failing, verdict.warnings].concat() }
}

/// Whether neither the disk's own verdict nor a single counter is there.
fn says_nothing(now: &Smart) -> bool {
    now.passed.is_none()
        && now.counters == Counters::default()
        && now.wear_percent.is_none()
        && now.spare_percent.is_none()
}

impl Verdict {
    fn own_verdict(&mut self, now: &Smart) {
        for warning in &now.nvme_warnings {
            match warning {
                NvmeWarning::SpareBelowThreshold => {
                    self.failing.push("The disk has fewer spare blocks than its threshold.".into());
                }
                NvmeWarning::ReliabilityDegraded => {
                    self.failing.push("The disk reports that errors have degraded its reliability.".into());
                }
                NvmeWarning::ReadOnly => self.failing.push("The disk has become read-only.".into()),
                NvmeWarning::BackupFailed => self.failing.push(
                    "The disk's protection against power failure has failed: writes it has acknowledged may be lost.".into(),
                ),
                NvmeWarning::Temperature => {
                    self.warnings.push("The disk reports that it is too hot or too cold.".into());
                }
                NvmeWarning::PersistentMemoryUnreliable => {
                    self.warnings.push("The disk's persistent memory has become unreliable.".into());
                }
                NvmeWarning::Unknown(bit) => {
                    self.warnings.push(format!("The disk reports an unknown critical warning (bit {bit})."));
                }
            }
        }
        // NVMe's verdict is the warnings above.
        let is_told = now.protocol == Protocol::Nvme && !now.nvme_warnings.is_empty();
        if now.passed == Some(false) && !is_told {
            self.failing.push("The disk reports that it is failing (SMART status).".into());
        }
        if let Some(test) = now.self_test.as_ref().filter(|test| test.result == SelfTestResult::Failed) {
            let at = test.power_on_hours.map_or(String::new(), |hours| format!(" at {hours} power-on hours"));
            let said = if test.text.is_empty() { String::new() } else { format!(": {}", test.text) };
            self.failing.push(format!("The latest self-test of the disk failed{at}{said}."));
        }
    }

    fn attributes(&mut self, now: &Smart) {
        for one in &now.failed_attributes {
            let named = format!("{} (attribute {})", one.name, one.id);
            match (one.is_now, one.is_prefailure) {
                (true, true) => {
                    self.failing.push(format!("{named} has reached the maker's failure threshold."))
                }
                (true, false) => self.warnings.push(format!("{named} has reached the maker's threshold.")),
                (false, _) if TEMPERATURE_ATTRIBUTES.contains(&one.id) => {}
                (false, _) => {
                    self.warnings.push(format!("{named} has been below the maker's threshold before."))
                }
            }
        }
    }

    fn counters(&mut self, now: &Smart, earlier: Option<&Counters>) {
        let (counters, before) = (&now.counters, earlier.copied().unwrap_or_default());
        let grown =
            |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?).filter(|grown| *grown > 0);
        for (what, is_any) in [
            ("could not be read and wait to be rewritten", counters.pending),
            ("could not be read in the disk's own scan", counters.uncorrectable),
        ] {
            if let Some(count) = is_any.filter(|count| *count > 0) {
                self.warnings.push(format!("{} {what}.", sectors(count)));
            }
        }
        let lost = [
            (
                counters.reported_uncorrectable,
                before.reported_uncorrectable,
                "errors that it could not correct",
            ),
            (counters.media_errors, before.media_errors, "reads of data that it could not return"),
        ];
        for (count, before, what) in lost {
            if let Some(count) = count.filter(|count| *count > 0) {
                let more = grown(Some(count), before)
                    .map_or(String::new(), |grown| format!(", {grown} of them new"));
                self.warnings.push(format!("The disk has counted {count} {what}{more}."));
            }
        }
        let replaced = [
            (counters.reallocated, before.reallocated, "replaced by spare ones"),
            (counters.grown_defects, before.grown_defects, "found defective in use"),
        ];
        for (count, before, what) in replaced {
            match (count, grown(count, before)) {
                (Some(count), Some(grown)) => {
                    self.warnings.push(format!("{} been {what}, {grown} of them new.", have(count)));
                }
                (Some(count), None) if count >= REALLOCATED_MANY => {
                    self.warnings.push(format!("{} been {what}.", have(count)));
                }
                _ => {}
            }
        }
        if let Some(new) = grown(counters.command_timeouts, before.command_timeouts) {
            self.warnings.push(format!("Commands timed out {new} more times; check power and cable."));
        }
        if let Some(new) = grown(counters.cable_errors, before.cable_errors) {
            self.warnings.push(format!(
                "{new} more transfers arrived damaged; check cable, backplane and controller."
            ));
        }
    }

    fn flash(&mut self, now: &Smart) {
        if let Some(wear) = now.wear_percent.filter(|wear| *wear >= WEAR_HIGH) {
            self.warnings.push(format!("{wear} % of the rated endurance is used; plan a replacement."));
        }
        if let (Some(spare), Some(threshold)) = (now.spare_percent, now.spare_threshold_percent) {
            let is_told = now.nvme_warnings.contains(&NvmeWarning::SpareBelowThreshold);
            if spare < threshold && !is_told {
                self.failing.push(format!(
                    "{spare} % of the spare blocks is left, less than the threshold of {threshold} %."
                ));
            } else if spare >= threshold && spare - threshold <= SPARE_MARGIN && spare < 100 {
                self.warnings.push(format!(
                    "{spare} % of the spare blocks is left; at less than {threshold} % the disk is failing."
                ));
            }
        }
    }

    fn temperature(&mut self, now: &Smart) {
        let flash = now.protocol == Protocol::Nvme || now.wear_percent.is_some();
        let usual = if flash { HOT_FLASH } else { HOT_ROTATING };
        let limits = [now.temperature.operating_max, now.temperature.critical];
        // A limit below any room is none.
        let limit = limits.into_iter().flatten().filter(|limit| *limit >= 40).min().unwrap_or(usual);
        let is_told = now.nvme_warnings.contains(&NvmeWarning::Temperature);
        if let Some(degrees) = now.temperature.now.filter(|degrees| *degrees >= limit) {
            let text = format!("The disk is {degrees} °C hot; its limit is {limit} °C.");
            // The figure says more than the bit.
            if is_told {
                self.warnings.retain(|text| !text.contains("too hot or too cold"));
            }
            self.warnings.push(text);
        }
    }
}

fn sectors(count: u64) -> String {
    if count == 1 { "1 sector".into() } else { format!("{count} sectors") }
}

fn have(count: u64) -> String {
    if count == 1 { "1 sector has".into() } else { format!("{count} sectors have") }
}
