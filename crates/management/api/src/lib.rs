//! The contract: what the daemon promises to programs, apart from how it keeps the promise.
//!
//! Three things live here. The *objects* ([`Pool`], [`Volume`], …): `spec` is what was asked for, `status` what
//! is, `conditions` what a person should know; integers are in base units and the unit ends the name. The
//! *operations* ([`Operation`]): method, path, role, input and reply of each call, in one table from which the
//! server builds its routes, the client its requests and [`document`] the OpenAPI description, so that the three
//! cannot disagree. The *problems* ([`Problem`], [`Code`]): every error as RFC 9457 has it, with a stable code.
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
mod receptions;
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
pub use receptions::Reception;
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

/// An `Idempotency-Key` has one byte at least and so many at most: room for a UUID and what a client likes to put before it.
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

/// A word as a shell takes it, for commands that people are told to type: nothing in a name may become a command of its own.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    let visible = |c: char| if c.is_control() || "\u{2028}\u{2029}".contains(c) { '\u{fffd}' } else { c };
    format!("'{}'", word.chars().map(visible).collect::<String>().replace('\'', "'\\''"))
}

/// Bytes as texts for people have them, `1.5 GiB`: three digits at most.
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

/// Bytes exactly, as somebody has set them, `1500 MiB`: in the largest unit of which they are a multiple.
pub fn show_size_exact(bytes: u64) -> String {
    match UNITS.into_iter().find(|&(_, unit)| bytes >= unit && bytes.is_multiple_of(unit)) {
        Some((name, unit)) => format!("{} {name}iB", bytes / unit),
        None => format!("{bytes} B"),
    }
}

/// A duration as texts for people have it and the command line takes it, `24h`: in the largest unit of which it is a multiple.
pub fn show_duration(seconds: u32) -> String {
    let units = [("d", 24 * 3600), ("h", 3600), ("m", 60)];
    match units.into_iter().find(|&(_, unit)| seconds >= unit && seconds.is_multiple_of(unit)) {
        Some((name, unit)) => format!("{}{name}", seconds / unit),
        None => format!("{seconds}s"),
    }
}

/// A time that was measured, `98.3ms`: three digits at most.
pub fn show_measured(micros: u64) -> String {
    let (unit, name) = match micros {
        0..1000 => return format!("{micros}us"),
        1000..999_500 => (1e3, "ms"),
        _ => (1e6, "s"),
    };
    let number = micros as f64 / unit;
    let digits = if number < 9.995 { 2 } else { usize::from(number < 99.95) };
    format!("{number:.digits$}{name}")
}

/// A short time as texts for people have it and the command line takes it, `10ms`: in the largest unit of which it is a multiple.
pub fn show_micros(micros: u64) -> String {
    let units = [("s", 1_000_000), ("ms", 1000)];
    match units.into_iter().find(|&(_, unit)| micros >= unit && micros.is_multiple_of(unit)) {
        Some((name, unit)) => format!("{}{name}", micros / unit),
        None => format!("{micros}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_times_have_three_digits() {
        for (micros, text) in [
            (0, "0us"),
            (999, "999us"),
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
        for (seconds, text) in [(0, "0s"), (59, "59s"), (60, "1m"), (90, "90s"), (3600, "1h"), (86_400, "1d")]
        {
            assert_eq!(show_duration(seconds), text);
        }
        assert_eq!(show_duration(36 * 3600), "36h");
        for (micros, text) in
            [(0, "0us"), (250, "250us"), (1500, "1500us"), (10_000, "10ms"), (2_000_000, "2s")]
        {
            assert_eq!(show_micros(micros), text);
        }
    }
}
