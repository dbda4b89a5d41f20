//! Which alerts begin, worsen and end, from what stands at one moment and the next.
//!
//! The daemon works out anew what is wrong each time it looks; this remembers what it found before. Texts of an alert change with its figures and
//! are no news. A severity that falls is none either: the alert ends with the worst that it had, so that a channel that heard of it hears of its end.

use crate::notice::{Change, Standing, Tally};
use forebay_api::Alert;
use std::collections::{HashMap, HashSet};

/// Alerts that are remembered; of more, those that come later are not reported. A pool of 4096 disks that all fail is one alert for the pool, too.
pub const TRACKED_MAX: usize = 4096;
/// Of one look: where there are as many, there may be more.
pub const ALERTS_MAX: usize = 1000;

#[derive(Debug, Default)]
pub struct Tracker {
    standing: HashMap<String, Change>,
}

impl Tracker {
    /// Takes what stands now; returns what changed: first ends and then beginnings, the most severe first.
    pub fn observe(&mut self, alerts: &[Alert], now_unix_ms: u64) -> Vec<Change> {
        let present: HashSet<String> = alerts.iter().map(|alert| Change::clean_id(&alert.id)).collect();
        // What is not worse than the last of those may stand all the same, behind it.
        let last = alerts.last().filter(|_| alerts.len() >= ALERTS_MAX).map(|alert| alert.severity);
        let is_told = |change: &Change| last.is_none_or(|last| change.alert.severity < last);
        let mut ended: Vec<Change> = self
            .standing
            .extract_if(|id, change| !present.contains(id) && is_told(change))
            .map(|(_, change)| Change::new(&change.alert, Standing::Cleared, now_unix_ms))
            .collect();
        let mut begun = Vec::new();
        for alert in alerts {
            let id = Change::clean_id(&alert.id);
            let worst = self.standing.get(&id).map(|known| known.alert.severity);
            if worst.is_some_and(|worst| worst <= alert.severity) {
                continue;
            }
            if worst.is_none() && self.standing.len() >= TRACKED_MAX {
                continue;
            }
            let change = Change::new(alert, Standing::Standing, now_unix_ms);
            self.standing.insert(id, change.clone());
            begun.push(change);
        }
        let order =
            |change: &Change| (change.alert.severity, change.alert.since_unix_ms, change.alert.id.clone());
        ended.sort_by_cached_key(order);
        begun.sort_by_cached_key(order);
        ended.append(&mut begun);
        ended
    }

    /// What stands, for a channel that is new.
    pub fn standing(&self) -> Vec<Change> {
        let mut standing: Vec<Change> = self.standing.values().cloned().collect();
        standing.sort_by_cached_key(|change| (change.alert.severity, change.alert.id.clone()));
        standing
    }

    pub fn tally(&self) -> Tally {
        Tally::of(self.standing.values().map(|change| &change.alert))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::alert;
    use forebay_api::AlertSeverity::{Critical, Info, Warning};

    fn told(tracker: &mut Tracker, alerts: &[Alert]) -> Vec<(String, &'static str, &'static str)> {
        let changes = tracker.observe(alerts, 5);
        changes.into_iter().map(|c| (c.alert.id, c.alert.severity.name(), c.standing.name())).collect()
    }

    #[test]
    fn beginnings_and_ends_are_told_once_and_only_worsening_is_news() {
        let mut tracker = Tracker::default();
        let step = |id: &str, severity: &'static str, state| vec![(id.to_owned(), severity, state)];
        assert_eq!(told(&mut tracker, &[alert("a", Warning)]), step("a", "warning", "standing"));
        assert_eq!(told(&mut tracker, &[alert("a", Warning)]), []);
        assert_eq!(told(&mut tracker, &[alert("a", Critical)]), step("a", "critical", "standing"));
        assert_eq!(told(&mut tracker, &[alert("a", Info)]), []);
        assert_eq!(tracker.tally(), Tally { critical: 1, warning: 0, info: 0 });
        assert_eq!(told(&mut tracker, &[]), step("a", "critical", "cleared"));
        assert_eq!(told(&mut tracker, &[]), []);
    }

    #[test]
    fn the_most_severe_come_first_and_memory_is_bounded() {
        let mut tracker = Tracker::default();
        let step = |id: &str, severity: &'static str, state| vec![(id.to_owned(), severity, state)];
        let first = told(&mut tracker, &[alert("i", Info), alert("c", Critical), alert("w", Warning)]);
        assert_eq!(first.iter().map(|(id, ..)| &**id).collect::<Vec<_>>(), ["c", "w", "i"]);
        let many: Vec<Alert> = (0..2 * TRACKED_MAX).map(|n| alert(&format!("n{n}"), Warning)).collect();
        // What is no worse than the last of a full list may stand behind it; the critical one would be there.
        assert_eq!(told(&mut tracker, &many).len(), 1 + TRACKED_MAX - 2);
        assert_eq!(told(&mut tracker, &many), [], "what was left out does not come and go");
        // One that a worse one pushes off a list that is full still stands.
        let full: Vec<Alert> = (0..ALERTS_MAX).map(|n| alert(&format!("n{n}"), Warning)).collect();
        let pushed: Vec<Alert> =
            [alert("worse", Critical)].into_iter().chain(full[1..].iter().cloned()).collect();
        let mut tracker = Tracker::default();
        told(&mut tracker, &full);
        assert_eq!(told(&mut tracker, &pushed), step("worse", "critical", "standing"));
        let ended = [("worse".into(), "critical", "cleared"), ("n0".into(), "warning", "cleared")];
        assert_eq!(told(&mut tracker, &full[1..]), ended, "now it is known");
    }
}
