//! Snapshots on their way: streams out of the daemon and into it, and interrupted receives.
//!
//! A stream is as long as it is; what is in memory of it is a few pieces. A slow client delays
//! no other: the received volume is hidden until it is complete. The data of an interrupted stream is kept.

use super::sessions::users;
use super::told;
use crate::connections::Place;
use crate::request::{Answered, Ask, Failure, Principal, made, ok, plan};
use crate::rules::snapshots as rules;
use crate::seats::Seats;
use crate::{Shared, convert};
use axum::Extension;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use forebay_api::{Code, Operation, Problem, Receive, Severity, show_size};
use forebay_pool::{Error, ErrorKind, ReceiveOptions, SendOptions, SnapshotReceiver, SnapshotStream};
use http_body_util::BodyExt;
use hyper::body::Frame;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// Pieces read ahead of the client, of some 2 MiB each.
pub const PIECES_MAX: usize = 2;
/// How long a sender may bring nothing: it may be looking for what has changed.
const SILENT_SECONDS_MAX: u64 = 300;
/// What a sender has to bring before it may be silent for so long again: less would be a trickle that holds the volume.
const PROGRESS_BYTES_MIN: usize = 64 << 10;
/// How long a client may take nothing: it may be another pool that is busy, or a pipe to one.
const STALL: Duration = Duration::from_secs(300);
/// Streams out of the daemon at a time, of some 6 MiB each; and of one user, token or the owner.
const SENDS_MAX: usize = 32;
const SENDS_EACH_MAX: usize = 16;
/// After a refusal, how long what is still coming is thrown away, so that the client gets to read why.
const DRAIN_SECONDS_MAX: u64 = 2;

/// The body of a stream.
pub struct Pieces(pub mpsc::Receiver<io::Result<Bytes>>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;
    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.get_mut().0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

pub fn sends() -> Arc<Seats> {
    Seats::new(SENDS_MAX, SENDS_EACH_MAX)
}

pub async fn send(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Extension(connection): Extension<Place>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let wrong = |_| {
        Problem::new(Code::Invalid, "this is not the resume token of an interrupted receive")
            .field("resume")
            .remedy("`forebay snapshot receives` on the receiving side shows it.")
    };
    let resume = ask.resume.map(|token| token.parse()).transpose().map_err(wrong)?;
    let seat = shared.sends.take(who.unique()).ok_or_else(|| {
        Problem::new(Code::Busy, "too many snapshots are being sent already")
            .remedy("Wait until one is complete, or cancel one.")
    })?;
    let stream = shared.engine.snapshot_send(&name, SendOptions { from: ask.from, resume }).await?;
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    connection.set_stall(STALL);
    tokio::spawn(async move {
        deliver(shared, name, stream, sender).await;
        drop(seat);
    });
    let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(Pieces(pieces))).into_response())
}

/// Ends when the client has all, or has gone.
async fn deliver(
    shared: Arc<Shared>,
    name: String,
    mut stream: SnapshotStream,
    sender: mpsc::Sender<io::Result<Bytes>>,
) {
    loop {
        let piece = match stream.next().await {
            Ok(None) => return,
            Ok(Some(piece)) => Ok(Bytes::from(piece)),
            Err(error) => {
                // The status is sent already: the connection ends, and here is why.
                shared.events.record(Severity::Error, "snapshot.send_failed", &name, &in_words(&error));
                Err(io::Error::other(error))
            }
        };
        let is_over = piece.is_err();
        if sender.send(piece).await.is_err() || is_over {
            return;
        }
    }
}

pub async fn receive(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
    mut body: Body,
) -> Answered {
    let received = take(&shared, &name, &ask, &mut body).await;
    let snapshot = match received {
        Ok(snapshot) => snapshot,
        Err(failure) => {
            let _ = timeout(Duration::from_secs(DRAIN_SECONDS_MAX), async {
                while let Some(Ok(_)) = body.frame().await {}
            })
            .await;
            return Err(failure);
        }
    };
    told(&shared, &who, "snapshot.received", &snapshot.name, "received");
    let turn = shared.volume_turn.lock().await;
    shared.refresh_access().await;
    drop(turn);
    // The volume may have another size.
    shared.tell_iscsi(|iscsi| iscsi.access_changed());
    made(StatusCode::CREATED, &Operation::SnapshotShow.path_of(&snapshot.name), &snapshot)
}

async fn take(
    shared: &Shared,
    name: &str,
    ask: &Ask,
    body: &mut Body,
) -> Result<forebay_api::Snapshot, Failure> {
    refuse_used(shared, name, ask).await?;
    let options = ReceiveOptions { discard_changes: ask.discard_changes };
    let mut receiver = shared.engine.snapshot_receive(name, options).await?;
    let done = match feed(&mut receiver, body).await {
        Ok(()) => {
            // A client may have connected meanwhile.
            refuse_used(shared, name, ask).await?;
            receiver.finish().await
        }
        Err(error) => Err(error),
    };
    match done {
        Ok(snapshot) => Ok(convert::snapshot(&snapshot)),
        Err(error) => {
            shared.events.record(Severity::Warning, "snapshot.receive_stopped", name, &in_words(&error));
            Err(error.into())
        }
    }
}

/// Of an event that names the object already.
fn in_words(error: &Error) -> String {
    match error.remedy.is_empty() {
        true => error.message.clone(),
        false => format!("{}. {}", error.message, error.remedy),
    }
}

/// Refuses to receive into a volume that is there and used.
async fn refuse_used(shared: &Shared, name: &str, ask: &Ask) -> Result<(), Failure> {
    match shared.engine.volume(name).await {
        Ok(volume) => Ok(rules::receive(name, &users(shared, &volume), ask.force)?),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Hands on what comes until the stream ends, or nothing more comes.
async fn feed(receiver: &mut SnapshotReceiver, body: &mut Body) -> Result<(), Error> {
    let mut progress = Progress::default();
    loop {
        let begun = Instant::now();
        let Ok(Some(Ok(frame))) = timeout(progress.patience(), body.frame()).await else { return Ok(()) };
        if let Some(bytes) = frame.data_ref() {
            progress.note(begun.elapsed(), bytes.len());
            receiver.push(bytes).await?;
        }
    }
}

/// How long a sender was waited for since it last brought [`PROGRESS_BYTES_MIN`].
#[derive(Default)]
struct Progress {
    waited: Duration,
    brought: usize,
}

impl Progress {
    /// How long it may be silent now.
    fn patience(&self) -> Duration {
        Duration::from_secs(SILENT_SECONDS_MAX).saturating_sub(self.waited)
    }

    fn note(&mut self, waited: Duration, brought: usize) {
        self.waited += waited;
        self.brought += brought;
        if self.brought >= PROGRESS_BYTES_MIN {
            *self = Progress::default();
        }
    }
}

pub async fn list(State(shared): State<Arc<Shared>>, ask: Ask) -> Answered {
    let receptions = shared.engine.receptions(ask.pool.as_deref()).await?;
    let receptions: Vec<Receive> = receptions.iter().map(convert::reception).collect();
    ok(&ask.page(receptions, |reception| reception.name.clone())?)
}

pub async fn abandon(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    ask: Ask,
) -> Answered {
    let receptions = shared.engine.receptions(None).await?;
    let found = receptions.iter().map(convert::reception);
    let found = found.into_iter().find(|reception| reception.name == name || reception.id == name);
    let reception = found.ok_or_else(|| {
        Problem::new(Code::NotFound, "there is no such interrupted receive")
            .object(name.as_str())
            .remedy("`forebay snapshot receives` lists them.")
    })?;
    shared.engine.pool_changeable(&reception.pool).await?;
    if ask.dry_run {
        let lost = format!("The received data ({}) is deleted.", show_size(reception.received_bytes));
        return plan("receive.abandon", &reception.name, vec![lost]);
    }
    shared.engine.reception_delete(&reception.name).await?;
    told(&shared, &who, "receive.abandoned", &reception.name, "abandoned");
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_is_no_progress_and_a_slow_sender_is_waited_for() {
        let second = Duration::from_secs(1);
        // A byte every 14 s holds a volume for five minutes, not for ever.
        let mut progress = Progress::default();
        let bytes = (0..1000).take_while(|_| {
            let goes_on = progress.patience() > 14 * second;
            progress.note(14 * second, 1);
            goes_on
        });
        assert_eq!(bytes.count(), SILENT_SECONDS_MAX as usize / 14);
        // Silence, then a piece, for as long as it likes.
        let mut progress = Progress::default();
        for _ in 0..1000 {
            assert!(progress.patience() > 250 * second);
            progress.note(250 * second, 1 << 20);
        }
    }
}
