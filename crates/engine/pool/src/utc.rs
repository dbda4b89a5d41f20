//! Times as people write them, in names and messages.

use forebay_base::WallTime;

/// `2026-11-22T14:05:09Z`, with milliseconds left out (proleptic Gregorian calendar, as in ISO 8601).
pub fn utc(at: WallTime) -> String {
    let (seconds, mut days) = (at.0 / 1000 % 86400, at.0 / 1000 / 86400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_people_write_them() {
        assert_eq!(utc(WallTime(0)), "1970-01-01T00:00:00Z");
        assert_eq!(utc(WallTime(951_825_599_999)), "2000-02-29T11:59:59Z");
        assert_eq!(utc(WallTime(1_798_761_600_000)), "2027-01-01T00:00:00Z");
    }
}
