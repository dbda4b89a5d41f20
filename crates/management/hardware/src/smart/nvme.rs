//! NVMe: the SMART / Health Information log (NVM Express Base Specification 2.0, log 02h) and the self-test log (06h).

use super::{NvmeWarning, SelfTest, SelfTestResult, Smart, celsius, count, latest, percent, text};
use serde_json::Value;

/// Fills in what is NVMe's. Whether there was anything.
pub(super) fn read(document: &Value, smart: &mut Smart) -> bool {
    let log = &document["nvme_smart_health_information_log"];
    smart.spare_percent = percent(&log["available_spare"]);
    smart.spare_threshold_percent = percent(&log["available_spare_threshold"]);
    smart.wear_percent = percent(&log["percentage_used"]).or(smart.wear_percent);
    smart.counters.media_errors = count(&log["media_errors"]);
    smart.power_on_hours = count(&log["power_on_hours"]).or(smart.power_on_hours);
    smart.power_cycles = count(&log["power_cycles"]).or(smart.power_cycles);
    smart.error_log_count = count(&log["num_err_log_entries"]);
    smart.temperature.now = celsius(&log["temperature"]).or(smart.temperature.now);
    let limits = &document["nvme_composite_temperature_threshold"];
    smart.temperature.operating_max = celsius(&limits["warning"]).or(smart.temperature.operating_max);
    smart.temperature.critical = celsius(&limits["critical"]).or(smart.temperature.critical);
    let bits = count(&log["critical_warning"]).or_else(|| count(&document["smart_status"]["nvme"]["value"]));
    smart.nvme_warnings = warnings(bits.unwrap_or(0));
    smart.self_test = self_test(&document["nvme_self_test_log"]);
    log.is_object()
}

fn warnings(bits: u64) -> Vec<NvmeWarning> {
    const NAMED: [NvmeWarning; 6] = [
        NvmeWarning::SpareBelowThreshold,
        NvmeWarning::Temperature,
        NvmeWarning::ReliabilityDegraded,
        NvmeWarning::ReadOnly,
        NvmeWarning::BackupFailed,
        NvmeWarning::PersistentMemoryUnreliable,
    ];
    let set = (0..8u8).filter(|bit| bits >> bit & 1 == 1);
    set.map(|bit| NAMED.get(usize::from(bit)).copied().unwrap_or(NvmeWarning::Unknown(bit))).collect()
}

/// Results: the Device Self-test log of the specification.
fn self_test(log: &Value) -> Option<SelfTest> {
    let now = &log["current_self_test_operation"];
    if count(&now["value"]).is_some_and(|value| value & 0xf != 0) {
        let text = text(&now["string"]).unwrap_or_default();
        return Some(SelfTest { result: SelfTestResult::Running, text, power_on_hours: None });
    }
    // Unused places of the log are null.
    latest(log["table"].as_array()?.iter().filter_map(|entry| {
        let result = match count(&entry["self_test_result"]["value"])? {
            0 => SelfTestResult::Passed,
            // By a command, a reset, the removal of the namespace, a format, for an unknown reason, or by sanitize.
            1..=4 | 8 | 9 => SelfTestResult::Interrupted,
            5..=7 => SelfTestResult::Failed,
            _ => return None,
        };
        let text = text(&entry["self_test_result"]["string"]).unwrap_or_default();
        Some(SelfTest { result, text, power_on_hours: count(&entry["power_on_hours"]) })
    }))
}
