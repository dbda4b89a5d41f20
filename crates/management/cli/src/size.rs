//! Sizes and durations as people write and read them.
//!
//! Units are binary: `8K` is 8192 bytes. Decimal units (`KB`) are not guessed at but refused.

const UNITS: [(&str, u64); 5] =
    [("P", 1 << 50), ("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)];

/// Bytes in `100G`, `8K`, `1.5T`, `4096`, `10GiB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is not a size; write a number with K, M, G, T or P (powers of 1024), like 100G");
    let upper = text.trim().to_ascii_uppercase();
    let end = upper.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(upper.len());
    let (number, suffix) = upper.split_at(end);
    let unit = match suffix.trim_start() {
        "" | "B" => 1,
        suffix => {
            let letter = suffix.strip_suffix("IB").unwrap_or(suffix);
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

/// What `parse` does, or 0 for `none`: who writes a zero may mean that there is to be nothing.
pub fn or_none<T: Default + PartialEq + 'static>(
    parse: fn(&str) -> Result<T, String>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| match text {
        "none" => Ok(T::default()),
        text => match parse(text)? {
            zero if zero == T::default() => Err("to have no bound, write `none`".into()),
            given => Ok(given),
        },
    }
}

/// Requests in a second.
pub fn parse_iops(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number of requests a second, like 5000"))
}

/// Microseconds in `10ms`, `500us`, `1s`.
pub fn parse_micros(text: &str) -> Result<u64, String> {
    parse_with(text, &[("us", 1), ("ms", 1000), ("s", 1_000_000)])
        .ok_or_else(|| format!("`{text}` is not a short time; write a number with us, ms or s, like 10ms"))
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
        text => {
            u32::try_from(parse_duration(text)?).map_err(|_| format!("`{text}` is longer than anybody waits"))
        }
    }
}

/// Seconds in `90d`, `12h`, `30m`, `45s`.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    parse_with(text, &[("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)])
        .ok_or_else(|| format!("`{text}` is not a duration; write a number with s, m, h or d, like 90d"))
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
            ("1.5T", 3 << 39),
            ("0.5K", 512),
            ("64T", 64 << 40),
            ("512B", 512),
            ("1P", 1 << 50),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "G",
            "-1",
            "+1",
            "1.G",
            ".5G",
            "1.2.3G",
            "8KB",
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
        assert_eq!(show_time(0), "1970-01-01 00:00:00");
        assert_eq!(show_time(951_827_696_000), "2000-02-29 12:34:56");
        assert_eq!(show_time(1_795_194_245_999), "2026-11-20 17:04:05");
        assert_eq!(show_time(4_107_542_400_000), "2100-03-01 00:00:00");
    }
}
