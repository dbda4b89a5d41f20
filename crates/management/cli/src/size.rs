//! Sizes and durations as people write and read them.
//!
//! Units are binary, as `zfs` and `lvm` have them: `8K`, `8KB` and `8KiB` are 8192 bytes.

use std::time::{SystemTime, UNIX_EPOCH};

const UNITS: [(&str, u64); 5] =
    [("P", 1 << 50), ("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// Bytes in `100G`, `8K`, `1.5T`, `4096`, `10GiB`, `10GB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a size; write a number with K, M, G, T or P (powers of 1024), like 100G");
    let upper = text.trim().to_ascii_uppercase();
    let end = upper.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(upper.len());
    let (number, suffix) = upper.split_at(end);
    let unit = match suffix.trim_start() {
        "" | "B" => 1,
        suffix => {
            let letter = suffix.strip_suffix("IB").or(suffix.strip_suffix("B")).unwrap_or(suffix);
            UNITS.iter().find(|(name, _)| *name == letter).map(|&(_, bytes)| bytes).ok_or_else(wrong)?
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let too_large = || format!("`{text}` is larger than any disk");
    let whole: u64 = match whole {
        "" => return Err(wrong()),
        digits => digits.parse().map_err(|_| if digits.contains('.') { wrong() } else { too_large() })?,
    };
    let mut bytes = whole.checked_mul(unit).ok_or_else(too_large)?;
    if !fraction.is_empty() || number.ends_with('.') {
        // Nine digits are finer than a byte of a terabyte's fraction needs; more are a typing error.
        if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let digits: u128 = fraction.parse().map_err(|_| wrong())?;
        let scale = 10u128.pow(fraction.len() as u32);
        let part = u128::from(unit) * digits;
        if !part.is_multiple_of(scale) {
            return Err(format!("`{text}` is not a whole number of bytes; use a smaller unit"));
        }
        bytes = bytes.checked_add((part / scale) as u64).ok_or_else(too_large)?;
    }
    Ok(bytes)
}

/// What becomes of a size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resize {
    To(u64),
    /// So much more.
    By(u64),
}

/// `200G`, or `+50G`.
pub fn parse_resize(text: &str) -> Result<Resize, String> {
    match text.strip_prefix('+') {
        Some(more) => parse_size(more).map(Resize::By),
        None if text.starts_with('-') => {
            Err(format!("`{text}` would shrink the volume, and a volume only grows"))
        }
        None => parse_size(text).map(Resize::To),
    }
}

/// What `parse` does, or 0 for `none`: who writes a zero may mean that there is to be nothing.
pub fn or_none<T: Default + PartialEq + 'static>(
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| match text {
        "none" => Ok(T::default()),
        text => match parse(text)? {
            zero if zero == T::default() => Err("for no value, write `none` instead of zero".into()),
            given => Ok(given),
        },
    }
}

/// Requests in a second.
pub fn parse_iops(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number of IOPS; write a whole number, like 5000"))
}

/// Bytes per second in `50M`, `50MB/s`, `1.5G`: powers of 1000, as rates are shown.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "`{text}` is not a rate; write a number with K, M or G (bytes per second, powers of 1000), like 50M"
        )
    };
    let plain = text.trim().to_ascii_uppercase();
    let plain = plain.trim_end_matches("/S").trim_end_matches('B');
    let (number, unit) =
        plain.split_at(plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len()));
    let unit = match unit.trim_start() {
        "" => 1.0,
        "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let bytes = (number * unit).round();
    // Exact up to 2^53: every rate that a level takes.
    match bytes < 1e15 {
        true => Ok(bytes as u64),
        false => Err(wrong()),
    }
}

/// Microseconds in `10ms`, `500us`, `1s`.
pub fn parse_micros(text: &str) -> Result<u64, String> {
    parse_with(text, &[("us", 1), ("µs", 1), ("ms", 1000), ("s", 1_000_000)])
        .ok_or_else(|| format!("`{text}` is not a latency; write a number with us, ms or s, like 10ms"))
}

/// A number and one of these units.
fn parse_with(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (_, unit) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*unit)
}

/// Seconds in `30d`, or 0 for `off` and `0`.
pub fn parse_every(text: &str) -> Result<u32, String> {
    match text {
        "off" | "0" => Ok(0),
        text => u32::try_from(parse_duration(text)?).map_err(|_| format!("`{text}` is too long")),
    }
}

/// Seconds in `90d`, `12h`, `30m`, `45s`.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    parse_with(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)])
        .ok_or_else(|| format!("`{text}` is not a duration; write a number with s, m, h or d, like 90d"))
}

/// Seconds since 1970 as they are written, or of what [`parse_moment`] reads. A number that is not positive counts from now.
pub fn parse_seconds(text: &str) -> Result<i64, String> {
    match text.parse() {
        Ok(seconds) => Ok(seconds),
        // Some write `-5m`, since the number of seconds has a sign, too.
        Err(_) => Ok((parse_moment(text.strip_prefix('-').unwrap_or(text))? / 1000) as i64),
    }
}

/// Milliseconds since 1970 of `12h` ago or of `2026-11-20T17:04:05` (UTC), of which the seconds and the time may be missing.
pub fn parse_moment(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "`{text}` is not a time; write how long ago, like 12h, or a date and time in UTC, like 2026-11-20T17:04"
        )
    };
    if let Ok(seconds) = parse_duration(text) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis() as u64);
        return Ok(now.saturating_sub(seconds.saturating_mul(1000)));
    }
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let numbers = |text: &str, mark: char, widths: &[usize]| -> Option<Vec<u64>> {
        let parts: Vec<&str> = text.split(mark).collect();
        let is_number = |(part, width): (&&str, &usize)| {
            part.len() == *width && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        let fits = parts.len() <= widths.len() && parts.iter().zip(widths).all(is_number);
        fits.then(|| parts.iter().filter_map(|part| part.parse().ok()).collect())
    };
    let date = numbers(date, '-', &[4, 2, 2]).filter(|date| date.len() == 3).ok_or_else(wrong)?;
    let time = numbers(time.trim_end_matches('Z'), ':', &[2, 2, 2])
        .filter(|time| time.len() >= 2)
        .ok_or_else(wrong)?;
    let (year, month, day) = (date[0], date[1], date[2]);
    let (hour, minute, second) = (time[0], time[1], time.get(2).copied().unwrap_or(0));
    if year < 1970
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 59
    {
        return Err(wrong());
    }
    // Days since 1970-01-01, from a year that begins in March: the inverse of what `show_time` does.
    let shifted = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = shifted * 365 + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year - 719_468;
    let moment = ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000;
    // A day that the month does not have would be one of the next.
    match show_time(moment).starts_with(&format!("{year:04}-{month:02}-{day:02}")) {
        true => Ok(moment),
        false => Err(wrong()),
    }
}

/// `2026-11-20 17:04:05` in UTC. (Howard Hinnant's `civil_from_days`, which is in the public domain as mathematics.)
pub fn show_time(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_shifted + 2) / 5 + 1;
    let month = if month_shifted < 10 { month_shifted + 3 } else { month_shifted - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

/// The physical sector of one disk, or of all that are given.
#[derive(Clone, Debug)]
pub struct Sector {
    pub disk: Option<String>,
    pub bytes: u32,
}

pub fn parse_sector(text: &str) -> Result<Sector, String> {
    let (disk, size) = text.rsplit_once('=').map_or((None, text), |(disk, size)| (Some(disk), size));
    if disk == Some("") {
        return Err("write SIZE or DISK=SIZE, such as 4K or /dev/sdb=4K".into());
    }
    Ok(Sector { disk: disk.map(str::to_string), bytes: parse_sector_size(size)? })
}

pub fn parse_sector_size(text: &str) -> Result<u32, String> {
    let bytes = parse_size(text)?;
    match bytes.is_power_of_two() && (512..=64 << 10).contains(&bytes) {
        true => Ok(bytes as u32),
        false => Err("a sector is a power of two from 512 to 64K".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_exact() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("8K", 8192),
            ("8k", 8192),
            ("100G", 100 << 30),
            ("10GiB", 10 << 30),
            ("10 GiB", 10 << 30),
            ("10GB", 10 << 30),
            ("1.5T", 3 << 39),
            ("0.5K", 512),
            ("64T", 64 << 40),
            ("512B", 512),
            ("1P", 1 << 50),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for (text, bytes) in
            [("50M", 50_000_000), ("1.5GB/s", 1_500_000_000), ("800 kB/s", 800_000), ("4.1M", 4_100_000)]
        {
            assert_eq!(parse_rate(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1M", "1T", "5MiB", "1e9", "fast"] {
            assert!(parse_rate(text).is_err(), "{text} is no rate");
        }
        assert_eq!(parse_resize("2G"), Ok(Resize::To(2 << 30)));
        assert_eq!(parse_resize("+512M"), Ok(Resize::By(512 << 20)));
        assert!(parse_resize("-1G").is_err_and(|message| message.contains("only grows")));
        for text in [
            "",
            "G",
            "-1",
            "+1",
            "1.G",
            ".5G",
            "1.2.3G",
            "8X",
            "1,5G",
            "1e3",
            "99999999999999999999",
            "20000P",
            "1.0000000001G",
            "0.3",
            "1.1K",
            "8 K B",
            "٣",
        ] {
            assert!(parse_size(text).is_err(), "{text} is no size");
        }
    }

    #[test]
    fn durations_and_times() {
        assert_eq!(parse_duration("90d"), Ok(90 * 86_400));
        assert_eq!(parse_duration("45s"), Ok(45));
        assert_eq!((parse_every("off"), parse_every("0"), parse_every("1h")), (Ok(0), Ok(0), Ok(3600)));
        for text in ["", "d", "1", "1w", "-1d", "1.5h", "1ü", "99999999999999999999d", "999999999999999999d"]
        {
            assert!(parse_duration(text).is_err(), "{text} is no duration");
        }
        assert_eq!(
            (parse_micros("10ms"), parse_micros("500us"), parse_micros("2s")),
            (Ok(10_000), Ok(500), Ok(2_000_000))
        );
        for text in ["", "10", "ms", "1.5ms", "-1ms", "10m", "99999999999999999999us", "9999999999999999999s"]
        {
            assert!(parse_micros(text).is_err(), "{text} is no short time");
        }
        let bound = or_none(parse_iops);
        assert_eq!((bound("none"), bound("50"), bound("5K").is_err()), (Ok(0), Ok(50), true));
        let refused = [bound("0").map(|_| ()), or_none(parse_micros)("0ms").map(|_| ())];
        let more = [or_none(parse_every)("off").map(|_| ()), or_none(parse_size)("0K").map(|_| ())];
        for refused in refused.into_iter().chain(more) {
            assert!(refused.is_err_and(|message| message.contains("none")));
        }
        for moment in [0, 951_827_696_000, 1_795_194_245_000, 4_107_542_400_000] {
            assert_eq!(parse_moment(&show_time(moment)), Ok(moment));
        }
        assert_eq!(parse_moment("1970-01-02"), Ok(86_400_000));
        assert_eq!(parse_moment("1970-01-01T00:01Z"), Ok(60_000));
        for text in [
            "yesterday",
            "2026-13-01",
            "2026-1-01",
            "2026-01-32",
            "2026-02-29",
            "2026-01-01T24:00",
            "26-01-01",
            "-1h",
        ] {
            assert!(parse_moment(text).is_err(), "{text} is no time");
        }
        assert_eq!(show_time(0), "1970-01-01 00:00:00");
        assert_eq!(show_time(951_827_696_000), "2000-02-29 12:34:56");
        assert_eq!(show_time(1_795_194_245_999), "2026-11-20 17:04:05");
        assert_eq!(show_time(4_107_542_400_000), "2100-03-01 00:00:00");
    }
}
