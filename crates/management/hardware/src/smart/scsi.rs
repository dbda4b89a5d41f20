//! SCSI and SAS: log pages of SPC-4 and SBC-3 (error counters 02h, 03h and 05h, self-test results 10h, solid state media 11h), the list of grown
//! defects, and informational exceptions.

use super::{SelfTest, SelfTestResult, Smart, celsius, count, latest, percent, text};
use serde_json::Value;

/// Fills in what is SCSI's. Whether there was anything.
pub(super) fn read(document: &Value, smart: &mut Smart) -> bool {
    let errors = &document["scsi_error_counter_log"];
    let kinds = ["read", "write", "verify"].map(|kind| count(&errors[kind]["total_uncorrected_errors"]));
    let uncorrected = kinds.iter().flatten().copied().reduce(u64::saturating_add);
    smart.counters.reported_uncorrectable = uncorrected;
    smart.counters.grown_defects = count(&document["scsi_grown_defect_list"]);
    smart.counters.pending = count(&document["scsi_pending_defects"]["count"]);
    let wear = percent(&document["scsi_percentage_used_endurance_indicator"]);
    smart.wear_percent = smart.wear_percent.or(wear);
    // Disks of the SPC-5 time say 0 in the old page and the truth in the environmental reports.
    let reports = &document["scsi_environmental_reports"]["temperature_1"];
    smart.temperature.now = smart.temperature.now.or_else(|| celsius(&reports["current"]));
    smart.temperature.lifetime_max =
        smart.temperature.lifetime_max.or_else(|| celsius(&reports["lifetime_maximum"]));
    smart.self_test = self_test(document);
    uncorrected.is_some() || smart.counters.grown_defects.is_some() || smart.wear_percent.is_some()
}

/// Entry 0 is the latest of twenty. Results: SPC-4, Self-Test Results log page.
fn self_test(document: &Value) -> Option<SelfTest> {
    latest((0..20).filter_map(|number| {
        let entry = document.get(format!("scsi_self_test_{number}"))?;
        let result = match count(&entry["result"]["value"])? {
            0 => SelfTestResult::Passed,
            1 | 2 => SelfTestResult::Interrupted,
            3..=7 => SelfTestResult::Failed,
            15 => SelfTestResult::Running,
            _ => return None,
        };
        let text = text(&entry["result"]["string"]).unwrap_or_default();
        Some(SelfTest { result, text, power_on_hours: count(&entry["power_on_time"]["hours"]) })
    }))
}
