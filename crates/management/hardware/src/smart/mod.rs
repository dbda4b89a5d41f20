//! What a disk says of its own health, as `smartctl --json=c -x` prints it.
//!
//! smartctl speaks to ATA, SCSI and NVMe disks, knows the quirks of thousands of models and prints one JSON document (format 1.x since
//! smartmontools 7.0). [`parse`] takes such a document apart: the same quantities under the same names for every kind of disk
//! ([`Smart`]), and a reason where there are none ([`NoReading`]). What they mean is judged elsewhere ([`crate::judge()`]).
//!
//! The document is untrusted: fields may be absent, of another type, negative or absurd. Such a field is absent in the result, and nothing else is
//! lost with it. Sizes are bounded by the reader of the document ([`crate::Options::output_max`]).

mod ata;
mod nvme;
mod scsi;

use crate::tree::clean;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The major version of smartctl's JSON format that this reads, and the one before it.
const FORMAT_MAX: u64 = 1;
/// The exit status that smartctl is asked to give for a disk in standby (`-n standby,3`): bits 0 and 1, "command line" and "open
/// failed", which do not come together otherwise.
pub(crate) const STANDBY_STATUS: u8 = 3;

/// The result of asking a disk for its health.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reading {
    Values(Box<Smart>),
    /// The disk is spun down and was not woken.
    Standby,
    None(NoReading),
}

/// Why there is no reading.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoReading {
    /// The program smartctl is not installed.
    NotInstalled,
    /// This process may not ask the disk.
    Denied,
    /// The disk or its controller does not do SMART: a virtual disk, or a USB bridge that does not pass it on.
    Unsupported(String),
    /// SMART is switched off in the disk.
    SwitchedOff,
    /// The output is empty, cut off or no JSON.
    Unreadable(String),
    /// A newer smartctl with another format.
    NewFormat(u64),
    /// More output than anything sensible.
    TooLong,
    /// The disk did not answer for so many seconds; the query was ended.
    TimedOut(u64),
    /// An earlier query hangs in the kernel and cannot be ended; the disk is not asked again until it has.
    Abandoned,
    /// The time for all disks was over before it answered, or too many queries hang on other disks.
    NotAsked,
    /// smartctl failed for another reason.
    Failed(String),
}

impl fmt::Display for NoReading {
    /// One sentence, and what to do where there is something to do.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            NoReading::NotInstalled => {
                f.write_str("The program smartctl is not installed; install smartmontools.")
            }
            NoReading::Denied => f.write_str(
                "Asking the disk was not permitted; the daemon needs CAP_SYS_RAWIO and CAP_SYS_ADMIN.",
            ),
            NoReading::Unsupported(why) => write!(f, "The disk does not report its health: {why}."),
            NoReading::SwitchedOff => {
                f.write_str("SMART is switched off in the disk; switch it on with: smartctl -s on")
            }
            NoReading::Unreadable(why) => write!(f, "The answer of smartctl cannot be read: {why}."),
            NoReading::NewFormat(version) => {
                write!(
                    f,
                    "This smartctl writes format {version}; only formats up to {FORMAT_MAX} are supported."
                )
            }
            NoReading::TooLong => f.write_str("The answer of smartctl is too long."),
            NoReading::TimedOut(seconds) => write!(f, "The disk did not answer for {seconds} seconds."),
            NoReading::Abandoned => f.write_str("An earlier query still hangs on the disk."),
            NoReading::NotAsked => {
                f.write_str("The disk was not asked: there was no time for it, or other disks hang.")
            }
            NoReading::Failed(why) => write!(f, "smartctl failed: {why}."),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    Ata,
    Scsi,
    Nvme,
}

/// What a disk says of itself.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Smart {
    pub protocol: Protocol,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    /// The disk's own verdict: `SMART RETURN STATUS` of ATA, informational exceptions of SCSI, no critical warning of NVMe.
    pub passed: Option<bool>,
    pub temperature: Temperature,
    pub power_on_hours: Option<u64>,
    pub power_cycles: Option<u64>,
    /// Percent of the endurance that the maker rates; may pass 100. Flash only.
    pub wear_percent: Option<u32>,
    /// Percent of the spare blocks that is left, and the percent below which the maker calls it failing.
    pub spare_percent: Option<u32>,
    pub spare_threshold_percent: Option<u32>,
    pub counters: Counters,
    /// The bits of NVMe's critical warning that are set.
    pub nvme_warnings: Vec<NvmeWarning>,
    /// ATA attributes that are, or have been, at or below their threshold.
    pub failed_attributes: Vec<FailedAttribute>,
    /// The latest self-test that was not interrupted.
    pub self_test: Option<SelfTest>,
    /// Entries ever made in the disk's error log. Many NVMe disks count unknown commands of the host here.
    pub error_log_count: Option<u64>,
}

/// °C.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Temperature {
    pub now: Option<i32>,
    /// What the maker gives as the highest for operation.
    pub operating_max: Option<i32>,
    /// Where the disk shuts down or is damaged: SCSI trip temperature, NVMe critical composite temperature, SCT limit.
    pub critical: Option<i32>,
    pub lifetime_max: Option<i32>,
}

/// What only grows, except `pending` and `uncorrectable`. Absent where the disk does not count it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Sectors replaced by spare ones: ATA attribute 5.
    pub reallocated: Option<u64>,
    /// Sectors that could not be read, and wait for a write: ATA attribute 197, SCSI pending defects.
    pub pending: Option<u64>,
    /// Sectors that a scan by the disk could not read: ATA attribute 198.
    pub uncorrectable: Option<u64>,
    /// Errors that the host was told of: ATA attribute 187; SCSI uncorrected errors of reads, writes and verifications.
    pub reported_uncorrectable: Option<u64>,
    /// Commands that timed out: ATA attribute 188.
    pub command_timeouts: Option<u64>,
    /// Transfers between disk and controller that failed their check, mostly for a bad cable: ATA attribute 199.
    pub cable_errors: Option<u64>,
    /// Data that the disk could not give back right: NVMe media and data integrity errors.
    pub media_errors: Option<u64>,
    /// SCSI's list of defects that came up in use.
    pub grown_defects: Option<u64>,
}

/// A bit of the critical warning (NVM Express Base Specification 2.0, SMART / Health Information log, byte 0).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NvmeWarning {
    SpareBelowThreshold,
    Temperature,
    ReliabilityDegraded,
    ReadOnly,
    BackupFailed,
    PersistentMemoryUnreliable,
    /// A bit that the specification has not given a meaning yet.
    Unknown(u8),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FailedAttribute {
    pub id: u8,
    pub name: String,
    /// Whether the maker calls this a sign of failure within 24 hours (as opposed to age or use).
    pub is_prefailure: bool,
    /// Whether it is so now, or was so once.
    pub is_now: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SelfTest {
    pub result: SelfTestResult,
    /// As smartctl says it.
    pub text: String,
    /// The disk's age then, in hours.
    pub power_on_hours: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfTestResult {
    Passed,
    Failed,
    /// By the host, a reset or a power failure: says nothing of the disk.
    Interrupted,
    Running,
}

/// Takes the output of `smartctl --json=c -x` apart.
pub fn parse(output: &[u8]) -> Reading {
    if output.iter().all(u8::is_ascii_whitespace) {
        return Reading::None(NoReading::Unreadable("it is empty".into()));
    }
    // serde_json bounds the depth, so hostile nesting is an error, too.
    let document: Value = match serde_json::from_slice(output) {
        Ok(document @ Value::Object(_)) => document,
        Ok(_) => return Reading::None(NoReading::Unreadable("it is not a JSON object".into())),
        Err(error) if error.is_eof() => return Reading::None(NoReading::Unreadable("it is cut off".into())),
        Err(error) => return Reading::None(NoReading::Unreadable(clean(error.to_string().as_bytes()))),
    };
    let format = document["json_format_version"].get(0).and_then(count);
    if let Some(format) = format.filter(|format| *format > FORMAT_MAX) {
        return Reading::None(NoReading::NewFormat(format));
    }
    if is_standby(&document) {
        return Reading::Standby;
    }
    match read_values(&document) {
        Some(values) => Reading::Values(Box::new(values)),
        None => Reading::None(why_nothing(&document)),
    }
}

fn read_values(document: &Value) -> Option<Smart> {
    if document["smart_support"]["available"] == false || document["smart_support"]["enabled"] == false {
        return None;
    }
    let protocol = match document["device"]["protocol"].as_str() {
        Some("ATA") => Protocol::Ata,
        Some("NVMe") => Protocol::Nvme,
        Some("SCSI") => Protocol::Scsi,
        _ => return None,
    };
    let mut smart = Smart {
        protocol,
        model: text(&document["model_name"]).or_else(|| text(&document["scsi_model_name"])),
        serial: text(&document["serial_number"]),
        firmware: text(&document["firmware_version"]).or_else(|| text(&document["scsi_revision"])),
        passed: document["smart_status"]["passed"].as_bool(),
        temperature: temperature(&document["temperature"]),
        power_on_hours: count(&document["power_on_time"]["hours"]),
        power_cycles: count(&document["power_cycle_count"]),
        wear_percent: percent(&document["endurance_used"]["current_percent"]),
        spare_percent: None,
        spare_threshold_percent: None,
        counters: Counters::default(),
        nvme_warnings: Vec::new(),
        failed_attributes: Vec::new(),
        self_test: None,
        error_log_count: None,
    };
    let said = match protocol {
        Protocol::Ata => ata::read(document, &mut smart),
        Protocol::Scsi => scsi::read(document, &mut smart),
        Protocol::Nvme => nvme::read(document, &mut smart),
    };
    (said || smart.passed.is_some()).then_some(smart)
}

fn is_standby(document: &Value) -> bool {
    let mode = document["power_mode"]["name"].as_str().unwrap_or_default();
    let sleeps = mode.starts_with("STANDBY") || mode.starts_with("SLEEP");
    let asleep = |message: &str| {
        message.starts_with("Device is in ") && (message.contains("STANDBY") || message.contains("SLEEP"))
    };
    let status = count(&document["smartctl"]["exit_status"]);
    document["smart_status"].is_null()
        && (sleeps || status == Some(STANDBY_STATUS.into()) || messages(document).any(asleep))
}

fn messages(document: &Value) -> impl Iterator<Item = &str> {
    let list = document["smartctl"]["messages"].as_array();
    list.into_iter().flatten().filter_map(|message| message["string"].as_str())
}

fn why_nothing(document: &Value) -> NoReading {
    if document["smart_support"]["available"] == false {
        return NoReading::Unsupported("it has no SMART".into());
    }
    if document["smart_support"]["enabled"] == false {
        return NoReading::SwitchedOff;
    }
    let said = messages(document).next().map(|message| clean(message.as_bytes()));
    let any = |part: &str| messages(document).any(|message| message.contains(part));
    if any("Permission denied") || any("Operation not permitted") {
        return NoReading::Denied;
    }
    if any("USB bridge") {
        return NoReading::Unsupported("its USB bridge is not known to smartctl".into());
    }
    if any("Unable to detect device type") || any("lacks SMART") || any("does not support SMART") {
        return NoReading::Unsupported("it has no SMART, or is a virtual disk".into());
    }
    match said {
        Some(said) if !said.is_empty() => NoReading::Failed(said.trim_end_matches('.').to_owned()),
        _ => NoReading::Unsupported("it reports nothing about its health".into()),
    }
}

/// The self-test that counts, of those in a log with the latest first: the latest that says something of the disk.
fn latest(tests: impl Iterator<Item = SelfTest>) -> Option<SelfTest> {
    let mut interrupted = None;
    for test in tests {
        if test.result != SelfTestResult::Interrupted {
            return Some(test);
        }
        interrupted = interrupted.or(Some(test));
    }
    interrupted
}

/// A number that counts something. Larger ones than 64 bits hold (NVMe has 128) are the largest; negative ones are none.
fn count(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => {
            let float = || number.as_f64().filter(|float| *float >= 0.0).map(|float| float as u64);
            number.as_u64().or_else(float)
        }
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// Percent: NVMe and SCSI give one byte.
fn percent(value: &Value) -> Option<u32> {
    count(value).filter(|percent| *percent <= 255).map(|percent| percent as u32)
}

/// °C that a disk in use can have. Some say 0, -1, 255 or kelvin where they do not know.
fn celsius(value: &Value) -> Option<i32> {
    let degrees = value.as_i64()?;
    ((-40..=125).contains(&degrees) && degrees != 0).then_some(degrees as i32)
}

fn temperature(value: &Value) -> Temperature {
    Temperature {
        now: celsius(&value["current"]),
        operating_max: celsius(&value["op_limit_max"]),
        critical: ["critical_limit_max", "drive_trip", "limit_max"]
            .iter()
            .find_map(|key| celsius(&value[*key])),
        lifetime_max: celsius(&value["lifetime_max"]),
    }
}

fn text(value: &Value) -> Option<String> {
    let text = clean(value.as_str()?.as_bytes());
    (!text.is_empty()).then_some(text)
}
