//! Quiet hours: when a channel holds back what is not critical.
//!
//! Days and minutes are in UTC. A span that ends before it begins goes on past midnight and belongs to the day on which it begins, so
//! "Friday from 22:00 to 06:00" ends on Saturday morning.

use crate::text::DAY_MS;
use forebay_api::{Day, QuietHours};

/// Minutes of a day.
pub const DAY_MINUTES: u16 = 24 * 60;
const MINUTE_MS: u64 = 60_000;

pub const WEEK: [Day; 7] =
    [Day::Monday, Day::Tuesday, Day::Wednesday, Day::Thursday, Day::Friday, Day::Saturday, Day::Sunday];

fn day_of(days_since_1970: u64) -> Day {
    // 1970-01-01 was a Thursday.
    WEEK[((days_since_1970 + 3) % 7) as usize]
}

/// How long a span lasts, in minutes: from one to a whole day.
fn minutes(quiet: &QuietHours) -> u64 {
    let (from, to) = (u64::from(quiet.from_minute), u64::from(quiet.to_minute));
    if to > from { to - from } else { to + u64::from(DAY_MINUTES) - from }
}

/// When the span ends that covers this moment, or `None` if it is not quiet. Spans that touch are one.
pub fn end_unix_ms(quiet: &QuietHours, unix_ms: u64) -> Option<u64> {
    let mut end = span_end(quiet, unix_ms)?;
    // A week of touching spans has no end; what asks comes back before.
    for _ in 0..WEEK.len() {
        match span_end(quiet, end) {
            Some(later) => end = later,
            None => break,
        }
    }
    Some(end)
}

fn span_end(quiet: &QuietHours, unix_ms: u64) -> Option<u64> {
    let today = unix_ms / DAY_MS;
    // Yesterday's span may go on today.
    [today.checked_sub(1), Some(today)]
        .into_iter()
        .flatten()
        .filter_map(|day| {
            let begin = day * DAY_MS + u64::from(quiet.from_minute) * MINUTE_MS;
            let end = begin + minutes(quiet) * MINUTE_MS;
            (quiet.days.contains(&day_of(day)) && (begin..end).contains(&unix_ms)).then_some(end)
        })
        .max()
}

/// Whether there is no moment outside quiet hours.
pub fn covers_everything(quiet: &QuietHours) -> bool {
    quiet.days.len() == WEEK.len() && minutes(quiet) == u64::from(DAY_MINUTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::CriticalAlerts;

    const HOUR_MS: u64 = 3_600_000;
    /// Thursday, 1970-01-08.
    const THURSDAY: u64 = 7 * DAY_MS;

    fn hours(days: &[Day], from: u16, to: u16) -> QuietHours {
        let days = days.iter().copied().collect();
        QuietHours { days, from_minute: from * 60, to_minute: to * 60, critical: CriticalAlerts::Deliver }
    }

    #[test]
    fn a_span_within_a_day_and_one_past_midnight() {
        let noon = hours(&[Day::Thursday], 12, 14);
        let night = hours(&[Day::Thursday], 22, 6);
        for (quiet, hour, end) in [
            (&noon, 11, None),
            (&noon, 12, Some(14)),
            (&noon, 13, Some(14)),
            (&noon, 14, None),
            (&noon, 12 + 24, None),
            (&night, 3, None),
            (&night, 22, Some(30)),
            (&night, 29, Some(30)),
            (&night, 30, None),
            (&night, 46, None),
        ] {
            let found = end_unix_ms(quiet, THURSDAY + hour * HOUR_MS);
            assert_eq!(found, end.map(|end: u64| THURSDAY + end * HOUR_MS), "{quiet:?} at {hour}");
        }
    }

    #[test]
    fn a_weekend_is_one_span() {
        let weekend = hours(&[Day::Saturday, Day::Sunday], 0, 24);
        let friday = THURSDAY + DAY_MS;
        assert_eq!(end_unix_ms(&weekend, friday + 23 * HOUR_MS), None);
        assert_eq!(end_unix_ms(&weekend, friday + 24 * HOUR_MS), Some(friday + 3 * DAY_MS));
        assert!(!covers_everything(&weekend));
        assert!(covers_everything(&hours(&WEEK, 5, 5)));
        assert!(covers_everything(&hours(&WEEK, 0, 24)));
        assert!(end_unix_ms(&hours(&WEEK, 5, 5), THURSDAY).is_some());
    }
}
