//! Is every kind of disk read right, and judged as an experienced administrator would?

use forebay_hardware::HealthState::{Failing, Good, Unknown, Warning};
use forebay_hardware::{
    HealthState, History, Identity, NoReading, NvmeWarning, Protocol, Reading, SelfTestResult, Smart, judge,
    parse,
};
use std::fs;
use std::path::PathBuf;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/smart")
}

fn output(name: &str) -> Vec<u8> {
    fs::read(directory().join(format!("{name}.json"))).expect("the answer is there")
}

fn values(name: &str) -> Smart {
    match parse(&output(name)) {
        Reading::Values(values) => *values,
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn every_disk_gets_the_state_and_the_reason_that_it_deserves() {
    // Each reason by a part of its sentence, in order; no more than these.
    let cases: &[(&str, HealthState, &[&str])] = &[
        ("ata-seagate-exos-x16", Good, &[]),
        (
            "ata-seagate-3tb-failing",
            Failing,
            &[
                "failing (SMART status)",
                "self-test of the disk failed at 38190 power-on hours: Completed: read failure",
                "Reallocated Sector Ct (attribute 5) has reached the maker's failure threshold",
                "424 sectors could not be read and wait",
                "424 sectors could not be read in the disk's own scan",
                "96 errors that it could not correct",
                "37816 sectors have been replaced",
            ],
        ),
        (
            "ata-seagate-ironwolf-pending",
            Warning,
            &["8 sectors could not be read and wait", "8 sectors could not be read in"],
        ),
        ("ata-seagate-hot-once", Good, &[]),
        ("ata-wd-red-cable", Good, &[]),
        ("ata-wd-ultrastar-hc550", Good, &[]),
        ("ata-toshiba-mg08-three-reallocated", Good, &[]),
        ("ata-toshiba-mg08-nineteen-reallocated", Good, &[]),
        ("ata-toshiba-many-reallocated", Warning, &["248 sectors have been replaced by spare ones."]),
        ("ata-hgst-selftest-failed", Failing, &["self-test of the disk failed at 62991 power-on hours"]),
        ("ata-hgst-helium-low", Failing, &["Helium Level (attribute 22) has reached"]),
        ("ata-hitachi-hot", Warning, &["63 °C hot; its limit is 60 °C"]),
        ("ata-wd-selftest-interrupted", Good, &[]),
        ("ata-samsung-pm883", Good, &[]),
        ("ata-intel-s4510-worn", Warning, &["96 % of the rated endurance"]),
        ("ata-crucial-mx500", Good, &[]),
        ("ata-micron-5300-uncorrectable", Warning, &["2 errors that it could not correct"]),
        ("ata-kingston-a400", Good, &[]),
        ("ata-unknown-ssd-invalid-statistics", Good, &[]),
        ("ata-hostile-strings", Failing, &["[2J<script> (attribute 5) has reached"]),
        ("scsi-seagate-exos-7e8", Good, &[]),
        ("scsi-hgst-seven-defects", Good, &[]),
        ("scsi-hgst-more-defects", Good, &[]),
        (
            "scsi-hitachi-failing",
            Failing,
            &[
                "failing (SMART status)",
                "12 errors that it could not correct",
                "1902 sectors have been found defective",
            ],
        ),
        ("scsi-samsung-pm1643", Good, &[]),
        ("scsi-toshiba-px05-worn", Warning, &["97 % of the rated endurance"]),
        ("scsi-wdc-temperature-elsewhere", Good, &[]),
        (
            "scsi-seagate-selftest-failed",
            Failing,
            &["self-test of the disk failed at 39800 power-on hours", "3 sectors could not be read and wait"],
        ),
        ("nvme-samsung-980-pro", Good, &[]),
        ("nvme-intel-p4510", Good, &[]),
        ("nvme-wd-sn850-hot", Warning, &["86 °C hot; its limit is 84 °C"]),
        ("nvme-kioxia-cd6-spare-low", Failing, &["fewer spare blocks than its threshold"]),
        ("nvme-kioxia-spare-near", Warning, &["13 % of the spare blocks is left; at less than 10 %"]),
        (
            "nvme-micron-7450-read-only",
            Failing,
            &["degraded its reliability", "read-only", "1931 reads of data that it could not return"],
        ),
        ("nvme-solidigm-p5520-worn", Warning, &["104 % of the rated endurance"]),
        ("nvme-samsung-pm1725-backup-failed", Failing, &["protection against power failure has failed"]),
        ("nvme-samsung-970-media-errors", Warning, &["7 reads of data that it could not return"]),
        ("nvme-intel-selftest-failed", Failing, &["self-test of the disk failed at 12500 power-on hours"]),
        (
            "nvme-unknown-warning-bits",
            Warning,
            &["persistent memory", "unknown critical warning (bit 6)", "unknown critical warning (bit 7)"],
        ),
        ("nvme-apple-threshold", Good, &[]),
        ("nvme-absurd", Good, &[]),
        ("none-standby-7.3", Unknown, &["standby"]),
        ("none-standby-7.5", Unknown, &["standby"]),
        ("none-usb-bridge", Unknown, &["USB bridge is not known"]),
        ("none-permission-denied", Unknown, &["not permitted"]),
        ("none-virtio", Unknown, &["virtual disk"]),
        ("none-no-device", Unknown, &["No such device"]),
        ("none-smart-absent", Unknown, &["it has no SMART"]),
        ("none-switched-off", Unknown, &["switched off"]),
        ("none-future-format", Unknown, &["writes format 2"]),
        ("none-empty", Unknown, &["it is empty"]),
        ("none-truncated", Unknown, &["it is cut off"]),
        ("none-plain-text", Unknown, &["cannot be read"]),
        ("none-array", Unknown, &["not a JSON object"]),
    ];
    for (name, state, reasons) in cases {
        let health = judge(&parse(&output(name)), None);
        assert_eq!(health.state, *state, "{name}: {:?}", health.reasons);
        assert_eq!(health.reasons.len(), reasons.len(), "{name}: {:?}", health.reasons);
        for (reason, part) in health.reasons.iter().zip(*reasons) {
            assert!(reason.contains(part), "{name}: {reason}");
            assert!(
                reason.ends_with(['.', 'n']) && !reason.chars().any(char::is_control),
                "{name}: {reason}"
            );
        }
    }
    let files = fs::read_dir(directory()).expect("the answers are there").count();
    assert_eq!(files, cases.len(), "every answer has its line above");
}

#[test]
fn figures_are_those_of_the_disk() {
    let disk = values("nvme-kioxia-cd6-spare-low");
    assert_eq!(disk.protocol, Protocol::Nvme);
    assert_eq!(
        (disk.wear_percent, disk.spare_percent, disk.spare_threshold_percent),
        (Some(61), Some(4), Some(10))
    );
    assert_eq!(disk.nvme_warnings, [NvmeWarning::SpareBelowThreshold]);
    assert_eq!(
        (disk.power_on_hours, disk.power_cycles, disk.error_log_count),
        (Some(12798), Some(25), Some(62))
    );
    assert_eq!(
        values("nvme-micron-7450-read-only").nvme_warnings,
        [NvmeWarning::ReliabilityDegraded, NvmeWarning::ReadOnly]
    );

    let disk = values("nvme-wd-sn850-hot");
    let degrees = disk.temperature;
    assert_eq!((degrees.now, degrees.operating_max, degrees.critical), (Some(86), Some(84), Some(88)));

    let disk = values("ata-seagate-3tb-failing");
    let counters = disk.counters;
    assert_eq!(
        (counters.reallocated, counters.pending, counters.uncorrectable),
        (Some(37816), Some(424), Some(424))
    );
    assert_eq!((counters.reported_uncorrectable, counters.cable_errors), (Some(96), Some(0)));
    assert_eq!(counters.command_timeouts, Some(5), "the last of the three that Seagate packs into one");
    assert_eq!(
        values("ata-seagate-exos-x16").counters.command_timeouts,
        Some(12),
        "also where smartctl does not take it apart"
    );
    assert_eq!(values("ata-wd-red-cable").counters.cable_errors, Some(412));
    assert_eq!(disk.self_test.expect("there was one").result, SelfTestResult::Failed);
    assert_eq!(
        values("ata-wd-selftest-interrupted").self_test.expect("there was one").result,
        SelfTestResult::Passed
    );
    assert_eq!((disk.model.as_deref(), disk.firmware.as_deref()), (Some("ST3000DM001-1CH166"), Some("CC27")));

    let wear: Vec<Option<u32>> = [
        "ata-samsung-pm883",
        "ata-intel-s4510-worn",
        "ata-crucial-mx500",
        "ata-kingston-a400",
        "ata-unknown-ssd-invalid-statistics",
        "ata-seagate-exos-x16",
        "scsi-samsung-pm1643",
        "scsi-seagate-exos-7e8",
    ]
    .map(|name| values(name).wear_percent)
    .into();
    assert_eq!(wear, [Some(7), Some(96), Some(22), Some(2), None, None, Some(12), None]);

    let disk = values("scsi-hitachi-failing");
    assert_eq!((disk.counters.grown_defects, disk.counters.reported_uncorrectable), (Some(1902), Some(12)));
    assert_eq!((disk.temperature.now, disk.temperature.critical), (Some(38), Some(85)));
    assert_eq!(values("scsi-wdc-temperature-elsewhere").temperature.now, Some(38), "the old page says 0");
    assert_eq!(values("scsi-seagate-selftest-failed").counters.pending, Some(3));
}

#[test]
fn nonsense_in_a_field_loses_that_field_only() {
    let disk = values("nvme-absurd");
    assert_eq!(disk.power_on_hours, Some(u64::MAX), "128 bits are more than are kept");
    assert_eq!((disk.power_cycles, disk.temperature.now, disk.wear_percent), (None, None, None));
    assert_eq!((disk.spare_percent, disk.passed, disk.counters.media_errors), (None, None, Some(0)));
    let disk = values("ata-hostile-strings");
    assert_eq!(disk.model.as_deref(), Some("<img src=x onerror=alert(1)>]0;owned"));
    assert_eq!(disk.serial.as_deref(), Some("$(reboot)`id`; rm -rf /"));
    assert_eq!(disk.firmware.expect("it says one").len(), 256);
}

#[test]
fn growth_is_a_warning_and_a_constant_few_are_not() {
    let few = values("ata-toshiba-mg08-three-reallocated");
    let more = parse(&output("ata-toshiba-mg08-nineteen-reallocated"));
    let health = judge(&more, Some(&few));
    assert_eq!(health.state, Warning);
    assert_eq!(health.reasons, ["19 sectors have been replaced by spare ones, 16 of them new."]);
    let again = judge(&parse(&output("ata-toshiba-mg08-three-reallocated")), Some(&few));
    assert_eq!((again.state, again.reasons.len()), (Good, 0));
    let health = judge(&parse(&output("scsi-hgst-more-defects")), Some(&values("scsi-hgst-seven-defects")));
    assert_eq!(health.reasons, ["35 sectors have been found defective in use, 28 of them new."]);
    // A cable goes bad: the disk is as it was.
    let mut before = values("ata-wd-red-cable");
    before.counters.cable_errors = Some(400);
    let health = judge(&parse(&output("ata-wd-red-cable")), Some(&before));
    assert_eq!(
        (health.state, &*health.reasons[0]),
        (Warning, "12 more transfers arrived damaged; check cable, backplane and controller.")
    );
    // A counter that went back, as after a firmware update, is no growth.
    before.counters.cable_errors = Some(5000);
    assert_eq!(judge(&parse(&output("ata-wd-red-cable")), Some(&before)).state, Good);
}

#[test]
fn growth_counts_for_a_week_however_often_the_disk_is_asked() {
    const HOUR: u64 = 3600;
    const START: u64 = 1_700_000_000;
    let disk = Identity("wwn:0x5000039abcdef012".into());
    let few = parse(&output("ata-toshiba-mg08-three-reallocated"));
    let more = parse(&output("ata-toshiba-mg08-nineteen-reallocated"));
    let mut history = History::default();
    for hour in 0..48 {
        assert_eq!(history.judge(&disk, START + hour * HOUR, &few).state, Good);
    }
    let mut states = Vec::new();
    for hour in 48..48 + 24 * 9 {
        let state = history.judge(&disk, START + hour * HOUR, &more).state;
        if states.last().is_none_or(|(_, last)| *last != state) {
            states.push((hour, state));
        }
        // It is kept over a restart.
        if hour == 60 {
            let stored = serde_json::to_string(&history).expect("it is plain data");
            history = serde_json::from_str(&stored).expect("it is what was written");
        }
    }
    let [(48, Warning), (well, Good)] = states[..] else { panic!("{states:?}") };
    assert!((24 * 8..=24 * 10).contains(&well), "about a week after: {well}");
    let stored = serde_json::to_vec(&history).expect("it is plain data").len();
    assert!(stored < 20_000, "a reading for each day and no more: {stored} bytes");
    // In standby it is what it was, and a day of silence is told.
    let standby = history.judge(&disk, START + 400 * HOUR, &Reading::Standby);
    assert_eq!(standby.state, Good);
    assert!(standby.reasons[0].contains("standby"));
    assert_eq!(
        history.judge(&disk, START + 401 * HOUR, &Reading::None(NoReading::TimedOut(30))).state,
        Warning
    );
    // A clock that is put back does no harm.
    assert_eq!(history.judge(&disk, START, &more).state, Good);
    assert_eq!(history.latest(&disk).map(|(at, _)| at), Some(START));
}

#[test]
fn no_output_makes_it_panic() {
    let mut count = 0;
    for file in fs::read_dir(directory()).expect("the answers are there") {
        let bytes = fs::read(file.expect("an entry").path()).expect("it can be read");
        for cut in (0..bytes.len()).step_by(61) {
            let _ = judge(&parse(&bytes[..cut]), None);
            count += 1;
        }
        let text = String::from_utf8_lossy(&bytes);
        for (from, to) in [
            (":0", ":18446744073709551616"),
            (":1", ":-1e308"),
            (":true", ":[[[]]]"),
            (":[", ":{\"0\":["),
            ("\"value\":", "\"value\":null,\"x\":"),
            ("{\"", "{\"\\ud800"),
            ("100", "\"∞\""),
        ] {
            let _ = judge(&parse(text.replace(from, to).as_bytes()), None);
            count += 1;
        }
    }
    let deep = "[".repeat(500_000);
    assert!(matches!(parse(deep.as_bytes()), Reading::None(NoReading::Unreadable(_))));
    assert!(matches!(parse(&[0xff; 4096]), Reading::None(NoReading::Unreadable(_))));
    assert!(count > 2000, "{count}");
}
