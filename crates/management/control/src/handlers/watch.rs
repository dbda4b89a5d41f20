//! What happens, as it happens: events, changes and tasks over one stream of server-sent events (WHATWG HTML, section 9.2).
//!
//! Each subscriber has a task of its own that waits for news and puts frames into a queue of [`FRAMES_MAX`]. Who does not read for
//! [`SEND_SECONDS_MAX`] is disconnected; who is no longer admitted is so in any case (`routes.rs`). A browser
//! connects again by itself and says which event it saw last; it gets those that it missed, as far as they are in memory, and is told that every list may
//! have changed, because changes are not kept.

use crate::Shared;
use crate::changes::{ALL, touched_by_task};
use crate::connections::Place;
use crate::request::{Answered, Pieces, Principal};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use forebay_api::{Code, Problem, Task, TaskState};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};

/// Of a kilobyte or two each.
const FRAMES_MAX: usize = 64;
const SEND_SECONDS_MAX: u64 = 20;
/// Proxies close what is silent for a minute, and a client knows sooner that the daemon has gone.
const SILENT_SECONDS_MAX: u32 = 15;
/// A task that gets on is told so often.
const PROGRESS: Duration = Duration::from_secs(1);
/// Events at a time.
const BATCH: usize = 100;

pub async fn stream(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Extension(connection): Extension<Place>,
    headers: HeaderMap,
) -> Answered {
    let busy = || {
        Problem::new(Code::Busy, "too many streams of events are open already")
            .remedy("Close some, or ask `GET /api/v1/events?after=N&wait_seconds=60`.")
    };
    let place = shared.changes.places.take(who.unique()).ok_or_else(busy)?;
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.trim().parse::<u64>().ok());
    let (sender, frames) = mpsc::channel(FRAMES_MAX);
    tokio::spawn(async move {
        let subscriber = Subscriber { shared, sender, told: HashMap::new() };
        if subscriber.run(seen).await == End::TooSlow {
            connection.hang_up();
        }
        drop(place);
    });
    let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(Pieces(frames))).into_response())
}

/// Why a stream ends.
#[derive(PartialEq, Eq, Debug)]
enum End {
    TooSlow,
    /// The client has gone, or the daemon stops.
    Over,
}

/// What was told of a task, and when.
struct Told {
    state: TaskState,
    progress: Option<u32>,
    at: Instant,
}

struct Subscriber {
    shared: Arc<Shared>,
    sender: mpsc::Sender<Bytes>,
    /// Of the tasks that there are.
    told: HashMap<String, Told>,
}

impl Subscriber {
    async fn run(mut self, seen: Option<u64>) -> End {
        match self.feed(seen).await {
            Ok(()) => End::Over,
            Err(end) => end,
        }
    }

    async fn feed(&mut self, seen: Option<u64>) -> Result<(), End> {
        let shared = self.shared.clone();
        let mut newest = shared.events.newest();
        let mut changes = shared.changes.subscribe();
        let mut version = shared.tasks.version();
        let mut stopping = shared.stopping.subscribe();
        let mut ticks = interval(Duration::from_secs(1));
        let mut silent = 0;
        let last = *newest.borrow_and_update();
        // A number from the future is of a log that is gone.
        let mut next = seen.map_or(last, |seen| seen.min(last));
        self.send(": forebay\nretry: 2000\n\n".into()).await?;
        match seen {
            Some(_) => {
                for resource in ALL {
                    self.changed(resource).await?;
                }
            }
            // What has ended before is no news.
            None => self
                .told
                .extend(shared.tasks.list().into_iter().filter(|task| task.state.is_final()).map(known)),
        }
        let mut is_behind = self.tasks(true).await?;
        loop {
            loop {
                let events = shared.events.list(Some(next), BATCH);
                let Some(last) = events.last() else { break };
                next = last.sequence;
                silent = 0;
                for event in &events {
                    let data = serde_json::to_string(event).expect("an event is plain data");
                    self.send(format!("event: event\nid: {}\ndata: {data}\n\n", event.sequence)).await?;
                }
            }
            tokio::select! {
                // An error means that the writer is gone, and with it the daemon.
                changed = newest.changed() => changed.map_err(|_| End::Over)?,
                change = changes.recv() => match change {
                    Ok(resource) => self.changed(resource).await?,
                    Err(_) => return Err(End::TooSlow),
                },
                changed = version.changed() => {
                    changed.map_err(|_| End::Over)?;
                    is_behind = self.tasks(false).await?;
                }
                _ = ticks.tick() => {
                    if is_behind {
                        is_behind = self.tasks(false).await?;
                    }
                    silent += 1;
                    if silent >= SILENT_SECONDS_MAX {
                        silent = 0;
                        self.send(": still here\n\n".into()).await?;
                    }
                }
                _ = self.sender.closed() => return Ok(()),
                _ = async { stopping.wait_for(|stopping| *stopping).await.is_ok() } => return Ok(()),
            }
        }
    }

    async fn send(&self, frame: String) -> Result<(), End> {
        let patience = Duration::from_secs(SEND_SECONDS_MAX);
        self.sender.send_timeout(frame.into(), patience).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => End::TooSlow,
            mpsc::error::SendTimeoutError::Closed(_) => End::Over,
        })
    }

    async fn changed(&self, resource: &str) -> Result<(), End> {
        self.send(format!("event: changed\ndata: {{\"resource\":\"{resource}\"}}\n\n")).await
    }

    /// Tells of tasks whose state is another, and once a second of those that got on; whether something is left to be told in a second.
    async fn tasks(&mut self, all: bool) -> Result<bool, End> {
        let tasks = self.shared.tasks.list();
        self.told.retain(|id, _| tasks.iter().any(|task| task.id == *id));
        let now = Instant::now();
        let mut is_behind = false;
        for task in tasks.into_iter().rev() {
            let news = news(self.told.get(&task.id), &task, now);
            is_behind |= news == News::Later;
            let is_asked_for = all && !task.state.is_final();
            if news != News::Now && !is_asked_for {
                continue;
            }
            let data = serde_json::to_string(&task).expect("a task is plain data");
            self.send(format!("event: task\ndata: {data}\n\n")).await?;
            let has_ended = task.state.is_final() && task.state != TaskState::Cancelled;
            if has_ended {
                for resource in touched_by_task(&task.name) {
                    self.changed(resource).await?;
                }
            }
            let (id, told) = known(task);
            self.told.insert(id, told);
        }
        Ok(is_behind)
    }
}

/// Whether there is something to tell of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    No,
    Now,
    Later,
}

fn known(task: Task) -> (String, Told) {
    (task.id, Told { state: task.state, progress: task.progress_permille, at: Instant::now() })
}

fn news(told: Option<&Told>, task: &Task, now: Instant) -> News {
    match told {
        Some(told) if told.state == task.state && told.progress == task.progress_permille => News::No,
        Some(told) if told.state == task.state && now.duration_since(told.at) < PROGRESS => News::Later,
        _ => News::Now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(state: TaskState, progress: Option<u32>) -> Task {
        Task {
            id: "1".into(),
            name: "volume.move".into(),
            object: "tank/a".into(),
            state,
            progress_permille: progress,
            rate_bytes_per_second: None,
            eta: None,
            cancellable: true,
            started_unix_ms: 0,
            finished_unix_ms: None,
            result: None,
            error: None,
        }
    }

    #[tokio::test]
    async fn states_are_told_at_once_and_progress_once_a_second() {
        let (_, told) = known(task(TaskState::Running, Some(10)));
        let (soon, later) = (told.at + PROGRESS / 2, told.at + PROGRESS);
        for (state, progress, now, expected) in [
            (TaskState::Running, Some(10), later, News::No),
            (TaskState::Running, Some(11), soon, News::Later),
            (TaskState::Running, Some(11), later, News::Now),
            (TaskState::Succeeded, Some(1000), soon, News::Now),
            (TaskState::Succeeded, Some(10), soon, News::Now),
        ] {
            assert_eq!(news(Some(&told), &task(state, progress), now), expected, "{state:?} {progress:?}");
        }
        assert_eq!(news(None, &task(TaskState::Queued, None), soon), News::Now);
    }
}
