//! Quiet hours: when a channel holds back what is not critical.
//!
//! Days and minutes are in UTC. A span that ends before it begins goes on past midnight and belongs to the day on which it begins, so
//! "Friday from 22:00 to 06:00" ends on Saturday morning.

use crate::text::DAY_MS;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Minutes of a day.
pub const DAY_MINUTES: u16 = 24 * 60;
const MINUTE_MS: u64 = 60_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Day {
    Monday,
    Tuesday,
    Wednesday,
    Thursday,
    Friday,
    Saturday,
    Sunday,
}

impl Day {
    pub const ALL: [Day; 7] =
        [Day::Monday, Day::Tuesday, Day::Wednesday, Day::Thursday, Day::Friday, Day::Saturday, Day::Sunday];

    fn of(days_since_1970: u64) -> Day {
        // 1970-01-01 was a Thursday.
        Day::ALL[((days_since_1970 + 3) % 7) as usize]
    }
}

/// What happens to critical alerts in quiet hours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CriticalAlerts {
    #[default]
    Deliver,
    HoldBack,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuietHours {
    /// Days on which a span begins.
    pub days: BTreeSet<Day>,
    /// Minutes after midnight in UTC, 0 to 1439.
    pub from_minute: u16,
    /// Minutes after midnight in UTC, 0 to 1440; at or before `from_minute`: on the next day.
    pub to_minute: u16,
    #[serde(default)]
    pub critical: CriticalAlerts,
}

impl QuietHours {
    /// How long a span lasts, in minutes: from one to a whole day.
    fn minutes(&self) -> u64 {
        let (from, to) = (u64::from(self.from_minute), u64::from(self.to_minute));
        if to > from { to - from } else { to + u64::from(DAY_MINUTES) - from }
    }

    /// When the span ends that covers this moment, or `None` if it is not quiet. Spans that touch are one.
    pub fn end_unix_ms(&self, unix_ms: u64) -> Option<u64> {
        let mut end = self.span_end(unix_ms)?;
        // A week of touching spans has no end; what asks comes back before.
        for _ in 0..Day::ALL.len() {
            match self.span_end(end) {
                Some(later) => end = later,
                None => break,
            }
        }
        Some(end)
    }

    fn span_end(&self, unix_ms: u64) -> Option<u64> {
        let today = unix_ms / DAY_MS;
        // Yesterday's span may go on today.
        [today.checked_sub(1), Some(today)]
            .into_iter()
            .flatten()
            .filter_map(|day| {
                let begin = day * DAY_MS + u64::from(self.from_minute) * MINUTE_MS;
                let end = begin + self.minutes() * MINUTE_MS;
                (self.days.contains(&Day::of(day)) && (begin..end).contains(&unix_ms)).then_some(end)
            })
            .max()
    }

    /// Whether there is no moment outside quiet hours.
    pub fn covers_everything(&self) -> bool {
        self.days.len() == Day::ALL.len() && self.minutes() == u64::from(DAY_MINUTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = quiet.end_unix_ms(THURSDAY + hour * HOUR_MS);
            assert_eq!(found, end.map(|end: u64| THURSDAY + end * HOUR_MS), "{quiet:?} at {hour}");
        }
    }

    #[test]
    fn a_weekend_is_one_span() {
        let weekend = hours(&[Day::Saturday, Day::Sunday], 0, 24);
        let friday = THURSDAY + DAY_MS;
        assert_eq!(weekend.end_unix_ms(friday + 23 * HOUR_MS), None);
        assert_eq!(weekend.end_unix_ms(friday + 24 * HOUR_MS), Some(friday + 3 * DAY_MS));
        assert!(!weekend.covers_everything());
        assert!(hours(&Day::ALL, 5, 5).covers_everything());
        assert!(hours(&Day::ALL, 0, 24).covers_everything());
        assert!(hours(&Day::ALL, 5, 5).end_unix_ms(THURSDAY).is_some());
    }
}
