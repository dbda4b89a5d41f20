//! Text of unknown origin made fit for a line, and the calendar.
//!
//! Names of volumes and messages of disks end up in mail headers, syslog lines and traps. A line break in one of them would begin another header or
//! another log line, so everything that enters this crate passes [`line`] once, and the formats may rely on it.

/// Milliseconds of a day.
pub const DAY_MS: u64 = 24 * 3600 * 1000;

/// One line of at most `bytes_max` bytes: control characters become spaces, and the cut is at a character, marked by `…`.
pub fn line(text: &str, bytes_max: usize) -> String {
    const MARK: &str = "…";
    // U+2028 and U+2029 are line breaks to many readers, though no control characters to Unicode.
    let is_break = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    let clean = |c: char| if is_break(c) { ' ' } else { c };
    if text.len() <= bytes_max {
        return text.chars().map(clean).collect();
    }
    let kept = clip(text, bytes_max.saturating_sub(MARK.len()));
    let mut out: String = kept.chars().map(clean).collect();
    if bytes_max >= MARK.len() {
        out.push_str(MARK);
    }
    out
}

/// The longest beginning of `text` that has at most `bytes_max` bytes and ends at a character.
pub fn clip(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// A moment as in RFC 3339, in UTC with milliseconds: `2026-01-31T12:00:00.000Z`. Years beyond 9999 are shown as the end of 9999.
pub fn rfc3339(unix_ms: u64) -> String {
    /// 9999-12-31T23:59:59.999Z.
    const LAST: u64 = 253_402_300_799_999;
    let unix_ms = unix_ms.min(LAST);
    let (year, month, day) = date(unix_ms / DAY_MS);
    let ms = unix_ms % DAY_MS;
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

/// The same for people: `2026-01-31 12:00:00 UTC`.
pub fn time_for_people(unix_ms: u64) -> String {
    let text = rfc3339(unix_ms);
    format!("{} {} UTC", &text[..10], &text[11..19])
}

/// Year, month and day of so many days after 1970-01-01: Howard Hinnant's `civil_from_days`, years beginning with March.
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_that_date_shows() {
        // `date -u -d @… +%FT%T` of coreutils.
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_767_225_600, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(unix_s * 1000), text);
        }
        assert_eq!(rfc3339(1_709_251_199_007), "2024-02-29T23:59:59.007Z");
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(time_for_people(951_782_400_999), "2000-02-29 00:00:00 UTC");
    }

    #[test]
    fn a_line_has_no_breaks_and_is_cut_at_a_character() {
        assert_eq!(line("a\r\nBcc: b\u{2028}c\u{85}\0", 100), "a  Bcc: b c  ");
        assert_eq!(line("äöü", 6), "äöü");
        assert_eq!(line("äöüx", 6), "ä…");
        assert_eq!(line("äöü", 1), "");
        for bytes_max in 0..20 {
            assert!(line("x€y€z€…€", bytes_max).len() <= bytes_max);
        }
        assert_eq!(clip("a€", 3), "a");
    }
}
