//! ATA: attributes (ATA8-ACS and makers' habits), device statistics (ACS-4, log 04h), self-test and error logs.
//!
//! An attribute has a normalised value, which falls from 100 or so towards its threshold, and a raw value, which means what the maker likes.
//! smartctl knows for most models how to print the raw value, so its text goes first. What Seagate packs into one number is taken
//! apart here as well, for models that smartctl does not know.

use super::{Counters, FailedAttribute, SelfTest, SelfTestResult, Smart, count, latest, percent, text};
use serde_json::Value;

/// More attributes than the 30 that fit the page are no ATA.
const ATTRIBUTES_MAX: usize = 64;
/// Endurance used, percent: device statistics page 7 (solid state device), offset 8.
const STATISTICS_SSD: (u64, u64) = (7, 8);

/// Fills in what is ATA's. Whether there was anything.
pub(super) fn read(document: &Value, smart: &mut Smart) -> bool {
    let table = document["ata_smart_attributes"]["table"].as_array();
    let attributes: Vec<&Value> = table.into_iter().flatten().take(ATTRIBUTES_MAX).collect();
    let raw = |id: u64| attributes.iter().find(|one| count(&one["id"]) == Some(id)).and_then(|one| raw(one));
    smart.counters = Counters {
        reallocated: raw(5),
        pending: raw(197).or_else(|| count(&document["ata_pending_defects_log"]["count"])),
        uncorrectable: raw(198),
        reported_uncorrectable: raw(187),
        command_timeouts: raw(188),
        cable_errors: raw(199),
        ..Counters::default()
    };
    // The standard's own figure goes before what smartctl guesses from attributes.
    let guessed = smart.wear_percent.or_else(|| attributes.iter().find_map(|one| wear(one)));
    smart.wear_percent = statistic(document, STATISTICS_SSD).or(guessed).filter(|_| !is_rotating(document));
    for one in attributes {
        smart.failed_attributes.extend(failed(one));
    }
    smart.self_test = self_test(document);
    let log = &document["ata_smart_error_log"];
    smart.error_log_count = count(&log["extended"]["count"]).or_else(|| count(&log["summary"]["count"]));
    table.is_some_and(|table| !table.is_empty())
}

fn is_rotating(document: &Value) -> bool {
    count(&document["rotation_rate"]).is_some_and(|rate| rate > 0)
}

/// What an attribute counts.
fn raw(attribute: &Value) -> Option<u64> {
    // `12 (0 3)`: the count, and details behind it.
    let printed =
        attribute["raw"]["string"].as_str().map(|text| text.split_whitespace().take(4).collect::<Vec<_>>());
    let value = count(&attribute["raw"]["value"]);
    let number = match printed.as_deref() {
        // `0 0 12`: three counters of 16 bits, of which the last counts all.
        Some([first, second, last])
            if [first, second, last].iter().all(|word| word.parse::<u16>().is_ok()) =>
        {
            last.parse().ok()
        }
        Some([first, ..]) => first.parse().ok().or(value),
        _ => value,
    };
    // No disk has four thousand million bad sectors: the high words are other counters.
    number.map(|number| if number > u64::from(u32::MAX) { number & 0xffff } else { number })
}

/// Percent of the endurance used, from an attribute whose normalised value is what is left. The same number is something else at another
/// maker (202 of Samsung is a status), so the name counts.
fn wear(attribute: &Value) -> Option<u32> {
    const NAMES: [&str; 7] = [
        "Media_Wearout_Indicator",
        "Percent_Lifetime_Remain",
        "Wear_Leveling_Count",
        "SSD_Life_Left",
        "Remaining_Lifetime_Perc",
        "Perc_Rated_Life_Remain",
        "Drive_Life_Remaining",
    ];
    let name = attribute["name"].as_str()?;
    let left = count(&attribute["value"])?;
    // 253 and the like: the disk has no figure.
    (NAMES.iter().any(|known| name.starts_with(known)) && left <= 100).then(|| 100 - left as u32)
}

/// A figure of the device statistics that the disk calls valid.
fn statistic(document: &Value, (page, offset): (u64, u64)) -> Option<u32> {
    let pages = document["ata_device_statistics"]["pages"].as_array()?;
    let page = pages.iter().find(|one| count(&one["number"]) == Some(page))?;
    let entry = page["table"].as_array()?.iter().find(|one| count(&one["offset"]) == Some(offset))?;
    if entry["flags"]["valid"] == false {
        return None;
    }
    percent(&entry["value"])
}

fn failed(attribute: &Value) -> Option<FailedAttribute> {
    let is_now = match attribute["when_failed"].as_str()? {
        "now" => true,
        "past" => false,
        _ => return None,
    };
    Some(FailedAttribute {
        id: u8::try_from(count(&attribute["id"])?).ok()?,
        name: text(&attribute["name"])?.replace('_', " "),
        is_prefailure: attribute["flags"]["prefailure"] == true,
        is_now,
    })
}

/// The latest self-test of the log, or the one that runs.
fn self_test(document: &Value) -> Option<SelfTest> {
    let status = &document["ata_smart_data"]["self_test"]["status"];
    // ACS-3, self-test execution status: the upper four bits are the result, 15 for one in progress.
    if count(&status["value"]).is_some_and(|value| value >> 4 == 15) {
        let text = text(&status["string"]).unwrap_or_else(|| "in progress".into());
        return Some(SelfTest { result: SelfTestResult::Running, text, power_on_hours: None });
    }
    let log = &document["ata_smart_self_test_log"];
    let table = ["extended", "standard"].iter().find_map(|kind| log[*kind]["table"].as_array())?;
    latest(table.iter().filter_map(|entry| {
        let result = match count(&entry["status"]["value"])? >> 4 {
            0 => SelfTestResult::Passed,
            1 | 2 => SelfTestResult::Interrupted,
            3..=8 => SelfTestResult::Failed,
            15 => SelfTestResult::Running,
            _ => return None,
        };
        let text = text(&entry["status"]["string"]).unwrap_or_default();
        Some(SelfTest { result, text, power_on_hours: count(&entry["lifetime_hours"]) })
    }))
}
