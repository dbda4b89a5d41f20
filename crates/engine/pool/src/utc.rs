//! Times as people write them, in names and messages.

use forebay_base::WallTime;

/// `2026-11-22T14:05:09Z`, with milliseconds left out.
pub fn utc(at: WallTime) -> String {
    let (seconds, days) = (at.0 / 1000 % 86400, at.0 / 1000 / 86400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of the month, so many days after 1970-01-01, in the proleptic Gregorian calendar (ISO 8601). Counted in years that begin in March, so
/// that the leap day is the last, and in eras of 400 years, which are all equally long.
pub(crate) fn date(days: u64) -> (u64, u64, u64) {
    const ERA_DAYS: u64 = 146_097;
    // From the first of March of year 0.
    let days = days + 719_468;
    let (era, day) = (days / ERA_DAYS, days % ERA_DAYS);
    let year = (day - day / 1460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months from March, and again, have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, in_next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + in_next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_people_write_them() {
        assert_eq!(utc(WallTime(0)), "1970-01-01T00:00:00Z");
        assert_eq!(utc(WallTime(951_825_599_999)), "2000-02-29T11:59:59Z");
        assert_eq!(utc(WallTime(1_798_761_600_000)), "2027-01-01T00:00:00Z");
        // Day by day through leap years and those that are none.
        let (mut year, mut month, mut day) = (1970, 1, 1);
        for days in 0..200_000 {
            assert_eq!(date(days), (year, month, day), "{days}");
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 => 28 + u64::from(is_leap),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            day += 1;
            if day > length {
                (day, month) = (1, month + 1);
            }
            if month > 12 {
                (month, year) = (1, year + 1);
            }
        }
    }
}
