//! The contract between the daemon and its clients.
//!
//! It has three parts. The *objects* ([`Pool`], [`Volume`], …): `spec` is the request, `status` the present state,
//! `conditions` are statements for people; integers are in base units, and the field's name ends with the unit. The
//! *operations* ([`Operation`]): method, path, role, input and reply of each call, in one table. The server builds
//! its routes from it, the client its requests and [`document`] the OpenAPI description, so that the three cannot
//! disagree. The *problems* ([`Problem`], [`Code`]): every error as in RFC 9457, with a stable code.
//!
//! No I/O, and nothing of the engine: a client in another language sees exactly this.

mod alerts;
mod bookmarks;
mod channels;
mod damage;
mod document;
mod hosts;
mod ledger;
mod levels;
mod machine;
mod moves;
mod operation;
mod problem;
mod projects;
mod receives;
mod reports;
mod scrub;
mod server;
mod snapshots;
mod statistics;
mod thresholds;
mod trash;
mod types;
mod users;
mod volumes;

pub use alerts::*;
pub use bookmarks::*;
pub use channels::*;
pub use damage::{DamagedRange, PoolDamage};
pub use document::document;
pub use hosts::*;
pub use ledger::*;
pub use levels::*;
pub use machine::*;
pub use moves::*;
pub use operation::{Method, Operation, Parameter, ReplyBody};
pub use problem::{Code, Problem};
pub use projects::*;
pub use receives::Receive;
pub use reports::*;
pub use scrub::{PoolScrub, Scrub, ScrubAction, ScrubSchedule, ScrubState};
pub use server::*;
pub use snapshots::*;
pub use statistics::*;
pub use thresholds::*;
pub use trash::*;
pub use types::*;
pub use users::*;
pub use volumes::*;

/// Longest `Idempotency-Key`; the shortest has one byte. A UUID and a prefix of the client fit.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 128;

/// Percent-encodes one path segment or query value: everything but RFC 3986's unreserved characters. A volume's name
/// holds slashes and is one segment of the path: `demo/web` is written `demo%2Fweb`.
pub fn encode_segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

const UNITS: [(&str, u64); 5] =
    [("P", 1 << 50), ("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// A word quoted for a shell, for commands in texts: nothing in a name may become a command of its own.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    let visible = |c: char| if c.is_control() || "\u{2028}\u{2029}".contains(c) { '\u{fffd}' } else { c };
    format!("'{}'", word.chars().map(visible).collect::<String>().replace('\'', "'\\''"))
}

/// Bytes in texts for people, `1.5 GiB`: three digits at most.
pub fn show_size(bytes: u64) -> String {
    for (name, unit) in UNITS {
        if bytes >= unit {
            let (whole, rest) = (bytes / unit, bytes % unit);
            if rest == 0 {
                return format!("{whole} {name}iB");
            }
            let tenths = rest * 10 / unit;
            return match whole {
                0..=99 => format!("{whole}.{tenths} {name}iB"),
                _ => format!("{whole} {name}iB"),
            };
        }
    }
    format!("{bytes} B")
}

/// Bytes exactly, as they were set, `1500 MiB`: in the largest unit of which they are a multiple.
pub fn show_size_exact(bytes: u64) -> String {
    match UNITS.into_iter().find(|&(_, unit)| bytes >= unit && bytes.is_multiple_of(unit)) {
        Some((name, unit)) => format!("{} {name}iB", bytes / unit),
        None => format!("{bytes} B"),
    }
}

const RATES: [(&str, u64); 3] = [("GB/s", 1_000_000_000), ("MB/s", 1_000_000), ("kB/s", 1000)];

/// Bytes per second in texts for people, `1.5 GB/s`: three digits at most.
pub fn show_rate(bytes: u64) -> String {
    let Some((name, unit)) = RATES.into_iter().find(|&(_, unit)| bytes >= unit) else {
        return format!("{bytes} B/s");
    };
    let (whole, tenths) = (bytes / unit, bytes % unit * 10 / unit);
    match (whole, tenths) {
        (0..=99, 1..) => format!("{whole}.{tenths} {name}"),
        _ => format!("{whole} {name}"),
    }
}

/// Bytes per second exactly, as they were set: in the largest unit of which they are a multiple.
pub fn show_rate_exact(bytes: u64) -> String {
    match RATES.into_iter().find(|&(_, unit)| bytes >= unit && bytes.is_multiple_of(unit)) {
        Some((name, unit)) => format!("{} {name}", bytes / unit),
        None => format!("{bytes} B/s"),
    }
}

/// A duration in texts for people and on the command line, `24h`: in the largest unit of which it is a multiple.
pub fn show_duration(seconds: impl Into<u64>) -> String {
    let (seconds, units) = (seconds.into(), [("d", 24 * 3600), ("h", 3600), ("m", 60)]);
    match units.into_iter().find(|&(_, unit)| seconds >= unit && seconds.is_multiple_of(unit)) {
        Some((name, unit)) => format!("{}{name}", seconds / unit),
        None => format!("{seconds}s"),
    }
}

/// A time that was measured, `98.3ms`: three digits at most.
pub fn show_measured(micros: u64) -> String {
    let (unit, name) = match micros {
        0..1000 => return format!("{micros}µs"),
        1000..999_500 => (1e3, "ms"),
        _ => (1e6, "s"),
    };
    let number = micros as f64 / unit;
    let digits = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.digits$}{name}")
}

/// A short time in texts for people and on the command line, `10ms`: in the largest unit of which it is a multiple.
pub fn show_micros(micros: u64) -> String {
    let units = [("s", 1_000_000), ("ms", 1000)];
    match units.into_iter().find(|&(_, unit)| micros >= unit && micros.is_multiple_of(unit)) {
        Some((name, unit)) => format!("{}{name}", micros / unit),
        None => format!("{micros}µs"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_decimal() {
        for (bytes, text, exact) in [
            (0, "0 B/s", "0 B/s"),
            (999, "999 B/s", "999 B/s"),
            (1500, "1.5 kB/s", "1500 B/s"),
            (50_000_000, "50 MB/s", "50 MB/s"),
            (1_250_000_000, "1.2 GB/s", "1250 MB/s"),
            (123_456_789, "123 MB/s", "123456789 B/s"),
        ] {
            assert_eq!((show_rate(bytes), show_rate_exact(bytes)), (text.into(), exact.into()));
        }
    }

    #[test]
    fn measured_times_have_three_digits() {
        for (micros, text) in [
            (0, "0µs"),
            (999, "999µs"),
            (1500, "1.50ms"),
            (98_303, "98.3ms"),
            (393_215, "393ms"),
            (999_499, "999ms"),
            (999_500, "1.00s"),
            (25_165_823, "25.2s"),
        ] {
            assert_eq!(show_measured(micros), text);
        }
    }

    #[test]
    fn a_name_with_slashes_is_one_segment() {
        assert_eq!(encode_segment("demo/a b"), "demo%2Fa%20b");
        assert_eq!(encode_segment("A-z_0.9~"), "A-z_0.9~");
    }

    #[test]
    fn sizes_are_shown_short() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (8192, "8 KiB"),
            (1536, "1.5 KiB"),
            (100 << 30, "100 GiB"),
            ((100 << 30) + 1, "100 GiB"),
            ((2 << 30) - 1, "1.9 GiB"),
            (u64::MAX, "16383 PiB"),
        ] {
            assert_eq!(show_size(bytes), text);
        }
    }

    #[test]
    fn sizes_that_were_set_are_shown_as_they_are() {
        for (bytes, text) in [
            (0, "0 B"),
            (1 << 30, "1 GiB"),
            (1450 << 20, "1450 MiB"),
            ((1500 << 20) + 1, "1572864001 B"),
            (u64::MAX, "18446744073709551615 B"),
        ] {
            assert_eq!(show_size_exact(bytes), text);
        }
    }

    #[test]
    fn durations_are_shown_in_one_unit() {
        for (seconds, text) in
            [(0_u32, "0s"), (59, "59s"), (60, "1m"), (90, "90s"), (3600, "1h"), (86_400, "1d")]
        {
            assert_eq!(show_duration(seconds), text);
        }
        assert_eq!(show_duration(36 * 3600_u64), "36h");
        for (micros, text) in
            [(0, "0µs"), (250, "250µs"), (1500, "1500µs"), (10_000, "10ms"), (2_000_000, "2s")]
        {
            assert_eq!(show_micros(micros), text);
        }
    }
}
