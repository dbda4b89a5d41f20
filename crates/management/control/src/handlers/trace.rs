//! What clients ask of a volume, as a stream while they ask it.
//!
//! Nothing of it is kept here: the client has it sent, for as long as was asked for, and the trace ends when the client takes it no longer. Requests that come faster
//! than they are taken are left out and counted ([`forebay_target::trace_take`]), so a slow client costs a bounded amount of memory and delays no other client. The format is that
//! of `forebay_workload::trace`: tests here and there hold to it.

use super::streams::{PIECES_MAX, Pieces};
use super::told;
use crate::Shared;
use crate::events::now_unix_ms;
use crate::request::{Answered, Ask, Principal};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::IntoResponse;
use forebay_api::{Code, Problem};
use forebay_base::{Id, Nanos};
use forebay_runtime::Cores;
use forebay_target::{Operation, TRACES_MAX, Traced, trace_begin, trace_end, trace_take};
use std::fmt::Write;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// Without `seconds`, and the most that it may be.
const SECONDS_DEFAULT: u64 = 60;
const SECONDS_MAX: u64 = 3600;
/// Requests of one trace: a file of some 100 MB.
const REQUESTS_MAX: u64 = 4_000_000;
/// How often a core's requests are taken.
const TAKEN_EVERY: Duration = Duration::from_millis(100);
/// When nothing was asked for so long, an empty line says that the trace goes on.
const SILENCE: Duration = Duration::from_secs(30);
/// A client that takes nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(10);

pub async fn trace(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let seconds = ask.seconds.unwrap_or(SECONDS_DEFAULT);
    if !(1..=SECONDS_MAX).contains(&seconds) {
        return Err(Problem::new(Code::Invalid, "seconds is out of range")
            .field("seconds")
            .remedy(format!("Give 1 to {SECONDS_MAX}."))
            .into());
    }
    let volume = shared.engine.volume(&name).await?;
    let cores =
        shared.clients.get().cloned().ok_or_else(|| {
            Problem::new(Code::Busy, "the daemon is starting").remedy("Try again in a moment.")
        })?;
    let full = format!("{}/{}", volume.pool, volume.name);
    let head =
        format!("forebay-trace 1\nvolume {full} {} {} {}\n", volume.size, volume.block_size, now_unix_ms());
    let until = Instant::now() + Duration::from_secs(seconds);
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    let (told_begun, begun) = oneshot::channel();
    let own = shared.clone();
    // In a task: the client may go at any moment, and what has begun must end.
    tokio::spawn(async move {
        let is_begun = {
            let _turn = own.trace_turn.lock().await;
            trace_begin(cores.clone(), volume.id).await
        };
        // Who has gone takes no lines, either.
        let _ = told_begun.send(is_begun);
        if is_begun {
            deliver(&own, &cores, volume.id, head, until, sender).await;
            let _turn = own.trace_turn.lock().await;
            trace_end(cores, volume.id).await;
        }
    });
    if !begun.await.unwrap_or(false) {
        let detail = format!("the volume is being traced already, or {TRACES_MAX} other volumes are");
        return Err(Problem::new(Code::Conflict, detail)
            .object(&*name)
            .remedy("Try again when one of these traces is over.")
            .into());
    }
    told(&shared, &who, "volume.traced", &full, &format!("client requests are recorded for {seconds} s"));
    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(Pieces(pieces))).into_response())
}

/// Sends the lines until the time is over, there are enough, or the client takes them no longer.
async fn deliver(
    shared: &Shared,
    cores: &Cores,
    volume: Id,
    head: String,
    until: Instant,
    sender: mpsc::Sender<io::Result<Bytes>>,
) {
    let mut stopping = shared.stopping.subscribe();
    let (mut text, mut begun, mut requests, mut lost) = (head, None, 0, 0);
    let mut sent = Instant::now();
    loop {
        let is_over = Instant::now() >= until || requests >= REQUESTS_MAX || *stopping.borrow_and_update();
        let (traced, missing) = trace_take(cores.clone(), volume).await;
        lost += missing;
        for one in traced {
            if requests == REQUESTS_MAX {
                lost += 1;
                continue;
            }
            let begun = *begun.get_or_insert(one.since);
            if line(&mut text, begun, &one) {
                requests += 1;
            }
        }
        if is_over {
            let _ = writeln!(text, "end {requests} {lost}");
        }
        if text.is_empty() && sent.elapsed() > SILENCE {
            text.push('\n');
        }
        if !text.is_empty() {
            sent = Instant::now();
        }
        let has_gone = !text.is_empty()
            && !matches!(
                timeout(PATIENCE, sender.send(Ok(Bytes::from(std::mem::take(&mut text))))).await,
                Ok(Ok(()))
            );
        if is_over || has_gone || sender.is_closed() {
            return;
        }
        let next = (Instant::now() + TAKEN_EVERY).min(until);
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            _ = stopping.wait_for(|stopping| *stopping) => {}
        }
    }
}

/// Adds the line of a request; false for one that has none.
fn line(text: &mut String, begun: Nanos, one: &Traced) -> bool {
    let kind = match one.operation {
        Operation::Read => 'r',
        Operation::Write => 'w',
        Operation::Flush => 'f',
        Operation::Discard => 'd',
        Operation::Other => return false,
    };
    let Traced { at, bytes, since, took, .. } = one;
    writeln!(text, "{} {kind} {at} {bytes} {}", since.since(begun) / 1000, took / 1000).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_line() {
        let mut text = String::new();
        let traced = |operation, since| Traced {
            operation,
            at: 8192,
            bytes: 4096,
            since: Nanos(since),
            took: 350_999,
        };
        assert!(line(&mut text, Nanos(1_000_000), &traced(Operation::Read, 3_000_000)));
        assert!(line(&mut text, Nanos(1_000_000), &traced(Operation::Flush, 4_000_000)));
        // It was answered first, and had come before.
        assert!(line(&mut text, Nanos(1_000_000), &traced(Operation::Write, 999_000)));
        assert!(!line(&mut text, Nanos(0), &traced(Operation::Other, 0)));
        assert_eq!(text, "2000 r 8192 4096 350\n3000 f 8192 4096 350\n0 w 8192 4096 350\n");
    }
}
