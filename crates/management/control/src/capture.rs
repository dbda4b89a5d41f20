//! What is kept when something goes wrong: the minutes before and after, whole, in a worksheet of its own.
//!
//! An event that says that clients may have been served badly is followed by a worksheet, pinned, with the graphs that answer what a person would ask then. So
//! an administrator on Monday sees Saturday night second by second, also when seconds are no longer kept. One object gets one in
//! [`AGAIN_SECONDS`]; of those that people have not made their own by changing them, the newest [`CAPTURES_MAX`] stay.
//!
//! What happened when the daemon stopped before the minutes after it had passed is not kept so.

use crate::Shared;
use crate::events::now_unix_ms;
use crate::handlers::worksheets;
use crate::statistics::worksheets::Worksheet;
use forebay_api::{Event, Severity, WorksheetGraph, WorksheetSpec};
use forebay_base::WallTime;
use forebay_pool::utc;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Seconds that are kept, before the event and after it.
const BEFORE_SECONDS: u64 = 300;
const AFTER_SECONDS: u64 = 120;
const AGAIN_SECONDS: u64 = 3600;
pub const CAPTURES_MAX: usize = 20;
/// Events whose minutes are not over: more at once have one cause.
const WAITING_MAX: usize = 8;
const LOOK: Duration = Duration::from_secs(5);
/// Events that are looked at together.
const EVENTS_MAX: usize = 256;

/// Graphs by what an event is about.
fn graphs_of(event: &Event) -> Option<Vec<WorksheetGraph>> {
    let graph = |title: &str, expression: String| WorksheetGraph {
        expression,
        title: Some(title.into()),
        limit: None,
    };
    let object = quoted(&event.object);
    let pool = quoted(event.object.split('/').next().unwrap_or_default());
    let everybody = || {
        vec![
            graph("Time of the pool by class of work", format!("pool.time[pool={pool}][class]")),
            graph("Requests by volume", "volume.ops[volume]".into()),
            graph("Requests by NBD client", "nbd.ops[client]".into()),
            graph("Requests by iSCSI host", "iscsi.ops[client]".into()),
            graph("Busy disks", format!("disk.busy[pool={pool}][device]")),
        ]
    };
    let of_event = match event.code.as_str() {
        "level.missed" => vec![
            graph("p99 latency", format!("qos.p99[volume={object}]")),
            graph("Requests that arrived", format!("qos.asked[volume={object}]")),
            graph("Requests that were completed", format!("qos.done[volume={object}]")),
            graph("Time of its requests by stage", format!("volume.time[volume={object}][stage]")),
            graph("Causes of the missed service level", format!("qos.missed[volume={object}][cause]")),
        ],
        "disk.slow" | "disk.hung" | "disk.evicted" | "disk.failed" | "disk.errors" => vec![
            graph("Latency of the disk", format!("disk.latency[device={object}]")),
            graph("Requests to the disk", format!("disk.ops[device={object}][op]")),
            graph("Latency of all disks", format!("disk.latency[pool={pool}][device]")),
        ],
        "pool.suspended" | "pool.rebuild_blocked" => Vec::new(),
        _ => return None,
    };
    Some(of_event.into_iter().chain(everybody()).collect())
}

/// A value as an expression has it.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn worksheet(event: &Event, graphs: Vec<WorksheetGraph>, now_unix_ms: u64) -> Worksheet {
    let at = event.at_unix_ms / 1000;
    // A name has 100 characters; objects have more only where a client tries to.
    let object: String = event.object.chars().take(50).collect();
    Worksheet {
        id: crate::random_id(),
        name: format!("{} {} {}", event.code, object.trim(), utc(WallTime(event.at_unix_ms))),
        created_unix_ms: now_unix_ms,
        changed_unix_ms: now_unix_ms,
        revision: 1,
        captured: true,
        spec: WorksheetSpec {
            graphs,
            from_unix_s: Some(at.saturating_sub(BEFORE_SECONDS)),
            to_unix_s: Some(at + AFTER_SECONDS),
            pinned: true,
            ..WorksheetSpec::default()
        },
    }
}

/// What waits for its minutes to be over.
#[derive(Default)]
struct Captures {
    waiting: Vec<(Event, Vec<WorksheetGraph>)>,
    /// When an object's last one was, in seconds.
    last: BTreeMap<String, u64>,
}

impl Captures {
    fn see(&mut self, event: &Event) {
        let Some(graphs) = graphs_of(event) else { return };
        let at = event.at_unix_ms / 1000;
        self.last.retain(|_, last| at.saturating_sub(*last) < AGAIN_SECONDS);
        if self.waiting.len() < WAITING_MAX && !self.last.contains_key(&event.object) {
            self.last.insert(event.object.clone(), at);
            self.waiting.push((event.clone(), graphs));
        }
    }

    /// Those whose minutes are over and kept by now.
    fn due(&mut self, now_unix_ms: u64) -> Vec<Worksheet> {
        let is_over = |event: &Event| now_unix_ms / 1000 > event.at_unix_ms / 1000 + AFTER_SECONDS + 2;
        let (due, waiting) = self.waiting.drain(..).partition(|(event, _)| is_over(event));
        self.waiting = waiting;
        due.into_iter().map(|(event, graphs)| worksheet(&event, graphs, now_unix_ms)).collect()
    }
}

/// Follows events until the daemon stops.
pub async fn capture(shared: Arc<Shared>) {
    let mut stopping = shared.stopping.subscribe();
    let mut seen = *shared.events.newest().borrow();
    let mut captures = Captures::default();
    let mut ticks = tokio::time::interval(LOOK);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            _ = stopping.wait_for(|stopping| *stopping) => return,
        }
        for event in shared.events.list(Some(seen), EVENTS_MAX) {
            seen = event.sequence;
            captures.see(&event);
        }
        for one in captures.due(now_unix_ms()) {
            let name = one.name.clone();
            match worksheets::capture(&shared, one, CAPTURES_MAX).await {
                Ok(()) => {
                    let message = "this worksheet keeps the minutes around the event";
                    shared.events.record(Severity::Info, "statistics.captured", &name, message);
                }
                Err(problem) => {
                    let remedy = problem.remedy.as_deref().unwrap_or_default();
                    let message =
                        format!("the minutes around the event cannot be kept: {}. {remedy}", problem.detail);
                    shared.events.record(
                        Severity::Warning,
                        "statistics.not_captured",
                        &name,
                        message.trim_end(),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::worksheets::{Content, check_expressions};
    use crate::store::Kept;

    fn event(code: &str, object: &str, at: u64) -> Event {
        let (code, object) = (code.to_string(), object.to_string());
        Event {
            sequence: 1,
            at_unix_ms: at * 1000,
            severity: Severity::Warning,
            code,
            object,
            message: "".into(),
        }
    }

    #[test]
    fn every_capture_is_a_worksheet_that_can_be_kept_and_asked() {
        for (code, object) in [
            ("level.missed", "tank/web/a \"b\" \\ c"),
            ("disk.slow", "tank/3"),
            ("disk.failed", "tank/3"),
            ("pool.suspended", "tank"),
            ("disk.errors", &"x".repeat(300)),
        ] {
            let event = event(code, object, 1_795_558_503);
            let one = worksheet(&event, graphs_of(&event).expect("it is kept"), 1_795_559_000_000);
            check_expressions(&one.spec).unwrap_or_else(|problem| panic!("{code}: {problem:?}"));
            assert!(one.name.contains("2026-11-24T22:15:03Z"), "{}", one.name);
            let content = Content { worksheets: vec![one], ..Content::default() };
            content.check().unwrap_or_else(|problem| panic!("{code}: {problem:?}"));
        }
        assert!(graphs_of(&event("volume.created", "tank/a", 1)).is_none());
    }

    #[test]
    fn one_object_is_kept_once_in_an_hour_and_only_when_its_minutes_are_over() {
        let mut captures = Captures::default();
        captures.see(&event("level.missed", "tank/a", 1000));
        captures.see(&event("level.missed", "tank/a", 1100));
        captures.see(&event("disk.slow", "tank/3", 1100));
        captures.see(&event("pool.created", "tank", 1100));
        assert!(captures.due(1_122_000).is_empty());
        let due = captures.due(1_123_000);
        assert_eq!(due.len(), 1);
        assert_eq!((due[0].spec.from_unix_s, due[0].spec.to_unix_s), (Some(700), Some(1120)));
        assert_eq!(captures.due(9_000_000).len(), 1);
        captures.see(&event("level.missed", "tank/a", 1000 + AGAIN_SECONDS));
        assert_eq!(captures.due(9_000_000).len(), 1);
        (0..100).for_each(|nth| captures.see(&event("disk.slow", &format!("tank/{nth}"), 9000)));
        assert_eq!(captures.due(99_000_000).len(), WAITING_MAX);
    }
}
